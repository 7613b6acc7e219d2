// Every SDK through one Weir to backends of every dialect: what is asked in one API is answered by a server of another,
// and each SDK must find in it what it finds at home. An entry of `cases` or `once` is one thing that people do.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import Anthropic from "@anthropic-ai/sdk";
import { clients } from "./clients.mjs";
import { startWeir } from "./weir.mjs";

const river = "The river is quiet today.";
const overload = { message: "the engine is overloaded", type: "overloaded_error" };

// The dialects of backends: the path that is called there, and how a wish for reasoning is worded.
const dialects = {
  openai: { path: "/v1/chat/completions", wish: /"reasoning_effort":"high"/ },
  anthropic: { path: "/v1/messages", wish: /"thinking":\{"type":"enabled","budget_tokens":17000|"output_config":\{"effort":"high"/ },
  responses: { path: "/v1/responses", wish: /"reasoning":\{[^}]*"effort":"high"/ },
};

// How a model behaves. Each has a backend and a pool of its own per dialect: what one fault takes out stays out a while.
const behaviours = {
  plain: { text: river },
  tool: { tool: "call" },
  pair: { tool: "parallel" },
  thinker: { reasoning: "The banks are dry. ", text: river },
  picky: { status: 400, error: { message: "this prompt is not for me", type: "invalid_request_error" } },
  busy: { status: 429, retry_after: "30" },
  full: { status: 503, retry_after: "30" },
  swamped: { status: 529 },
  cut: { chunks: 6, gap: "2ms", cut: { after: 2, of: "chunks", how: "rst" } },
  failing: { chunks: 6, gap: "2ms", stream_error: { after: 2, error: overload } },
  slow: { endless: true, gap: "10ms" },
};

const names = Object.keys(dialects).flatMap((d) => Object.keys(behaviours).map((b) => `${d}-${b}`));

const setting = {
  script: {
    strict: true, apis: ["chat", "messages", "count_tokens", "responses"],
    on: Object.fromEntries(names.map((n) => [n, behaviours[n.split("-")[1]]])),
  },
  config: (simURL) => `
listen: 127.0.0.1:0
admin: 127.0.0.1:0
data: ./data
drain: 2s
backends:
${names.map((n) => `  ${n}: {url: "${simURL}", dialect: ${n.split("-")[0]}, tier: gpu}`).join("\n")}
pools:
${names.map((n) => `  ${n}: {backend: ${n}, cap: 16, models: [${n}]}`).join("\n")}
aliases:
${names.map((n) => `  ${n}: ${n}/${n}`).join("\n")}
  "claude-*": anthropic-plain/anthropic-plain
`,
};

const city = 'Zürich "am See" 🏔';
const tools = [{
  name: "get_weather", description: "The weather of a city",
  parameters: { type: "object", properties: { city: { type: "string", enum: [city] } }, required: ["city"], additionalProperties: false },
}];

// One white pixel.
const image = { type: "image/png", data: "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGP4DwABAQEAsTj2FAAAAABJRU5ErkJggg==" };

// What an answer is said to have ended with.
const ended = { stop: ["stop", "end_turn", "completed"], calls: ["tool_calls", "tool-calls", "tool_use", "completed"] };

let weir;
before(async () => { weir = await startWeir(setting); });
after(() => weir?.stop());

// sent returns the newest request that reached a model's backend, which must have come to the path of its dialect.
async function sent(dialect, model) {
  const last = (await weir.attempts(model)).at(-1);
  assert.equal(last?.path, dialects[dialect].path, "the backend was asked in another dialect than its own");
  return last.body;
}

// A case gets the SDK's kind, how to ask it, a model of each behaviour, the dialect of its backend, and whether to stream.
const cases = {
  async "an answer"({ kind, stream, ask, dialect, model }) {
    const got = await ask(model("plain"), [kind.user("Hello")]);
    assert.equal(got.text, river);
    assert.ok(ended.stop.includes(got.finish), got.finish);
    assert.ok(got.tokens > 0, "no usage");
    assert.deepEqual(got.calls, []);
    if (stream) assert.ok(got.pieces > 2, `${got.pieces} pieces: the stream came at once`);
    assert.match(await sent(dialect, model("plain")), /Hello/);
  },

  async "a tool over two turns"({ kind, ask, dialect, model }) {
    const turns = [kind.user("How is the weather?")];
    const first = await ask(model("tool"), turns, { tools });
    assert.ok(ended.calls.includes(first.finish), first.finish);
    assert.deepEqual(first.calls.map((c) => [c.name, c.args]), [["get_weather", { city }]]);
    const results = kind.results([{ call: first.calls[0], text: "18 degrees, dry" }]);
    const second = await ask(model("tool"), [...turns, ...first.turn, ...results], { tools });
    assert.match(second.text, /18 degrees, dry/);
    assert.ok(ended.stop.includes(second.finish), second.finish);
    const body = await sent(dialect, model("tool"));
    assert.equal(body.split(first.calls[0].id).length, 3, "the call's id stands at the call and at its result");
  },

  async "two tools at once"({ kind, ask, dialect, model }) {
    const turns = [kind.user("How is the weather?")];
    const first = await ask(model("pair"), turns, { tools });
    assert.deepEqual(first.calls.map((c) => [c.name, c.args]), [["get_weather", { city }], ["get_weather", { city }]]);
    assert.notEqual(first.calls[0].id, first.calls[1].id);
    const results = kind.results(first.calls.map((call, i) => ({ call, text: `measured ${i + 1} degrees` })));
    await ask(model("pair"), [...turns, ...first.turn, ...results], { tools });
    const body = await sent(dialect, model("pair"));
    for (const [i, call] of first.calls.entries()) {
      assert.match(body, new RegExp(`measured ${i + 1} degrees`));
      assert.equal(body.split(call.id).length, 3, `call ${i}`);
    }
  },

  async "reasoning before the answer"({ kind, ask, dialect, model }) {
    const got = await ask(model("thinker"), [kind.user("Hello")], { think: true });
    assert.equal(got.text, river);
    if (!kind.blind) assert.match(got.thinking, /The banks are dry\./);
    assert.match(await sent(dialect, model("thinker")), dialects[dialect].wish);
  },

  async "an answer that breaks off is an error"({ kind, stream, ask, refused, model }) {
    for (const fault of ["cut", "failing"]) {
      let pieces = 0;
      const asked = ask(model(fault), [kind.user("Hello")], { onPiece: () => pieces++ });
      const err = await asked.then((got) => assert.fail(`${fault}: it ended as if whole: ${JSON.stringify(got)}`), (e) => e);
      if (stream) assert.equal(pieces, 2, fault);
      else await refused(Promise.reject(err));
    }
  },

  async "whoever leaves ends the work at the backend"({ kind, stream, ask, model }) {
    const control = new AbortController();
    const before = (await weir.attempts(model("slow"))).length;
    const asked = ask(model("slow"), [kind.user("Hello")], { signal: control.signal, onPiece: () => control.abort() });
    asked.catch(() => {});
    if (!stream) {
      await weir.until(model("slow"), (a) => a.end === "running");
      control.abort();
    }
    const err = await asked.then(() => assert.fail("it did not end"), (e) => e);
    assert.match(`${err.name} ${err.constructor.name} ${err.message}`, /abort/i);
    await weir.until(model("slow"), (a) => a.end === "left");
    assert.equal((await weir.attempts(model("slow"))).length, before + 1);
  },
};

// What is the same whether the answer is streamed or not: it is tried whole.
const once = {
  async "an image"({ kind, ask, dialect, model }) {
    const got = await ask(model("plain"), [kind.user("What is this?", image)]);
    assert.equal(got.text, river);
    const body = await sent(dialect, model("plain"));
    assert.ok(body.includes(image.data), "the image was lost");
    assert.ok(body.includes("image/png"), "its type was lost");
  },

  async "what the model's server refuses is the client's 400"({ kind, ask, refused, model }) {
    const err = await refused(ask(model("picky"), [kind.user("Hello")]), 400, "BadRequestError");
    assert.match(err.message, /this prompt is not for me/);
  },

  async "a name that is not there is a 404"({ kind, ask, refused, model }) {
    await refused(ask(`${model("plain")}x`, [kind.user("Hello")]), 404, "NotFoundError");
  },

  async "a busy backend is a 429"({ kind, ask, refused, model }) {
    await refused(ask(model("busy"), [kind.user("Hello")]), 429, "RateLimitError");
  },

  async "a backend without room is an overload"({ kind, ask, refused, model }) {
    const [status, type] = {
      chat: [503, "InternalServerError"], messages: [503, "ServiceUnavailableError"], responses: [429, "RateLimitError"], // Codex storms after a 503
    }[kind.api];
    await refused(ask(model("full"), [kind.user("Hello")]), status, type);
  },
};

for (const [name, kind] of Object.entries(clients)) {
  describe(name, () => {
    let client;
    before(() => { client = kind.make(weir.url, weir.key); });

    // refused holds that a promise fails with the SDK's own error, of a status and a type where they are given.
    async function refused(promise, status, type) {
      const err = await promise.then((got) => assert.fail(`no error: ${JSON.stringify(got)}`), (e) => e);
      const told = kind.failure(err);
      assert.ok(told, `not an error of the SDK: ${err?.constructor?.name}: ${err}`);
      if (status) assert.equal(told.status, status, told.message);
      if (type) assert.ok(told.name === type || told.name === "AI_APICallError", told.name);
      assert.ok(told.message.length > 10, told.message);
      return told;
    }

    test("a wrong key is a 401", async () => {
      const stranger = kind.make(weir.url, "weir_wrong");
      await refused(stranger.ask("openai-plain", { turns: [kind.user("Hello")] }), 401, "AuthenticationError");
    });

    for (const dialect of Object.keys(dialects)) {
      for (const stream of [false, true]) {
        for (const [title, run] of Object.entries(stream ? cases : { ...cases, ...once })) {
          test(`${title} (${dialect}, ${stream ? "stream" : "whole"})`, () => run({
            kind, dialect, refused, stream,
            ask: (model, turns, more) => client.ask(model, { turns, stream, ...more }),
            model: (behaviour) => `${dialect}-${behaviour}`,
          }));
        }
      }
    }
  });
}

describe("beside messages, for Anthropic's SDK", () => {
  let client;
  before(() => { client = new Anthropic({ baseURL: weir.url, apiKey: weir.key, maxRetries: 0 }); });

  test("tokens are counted, whatever the backend speaks", async () => {
    for (const dialect of Object.keys(dialects)) {
      const ask = (text) => client.messages.countTokens({ model: `${dialect}-plain`, messages: [{ role: "user", content: text }] });
      const short = await ask("Hello"), long = await ask("The river is quiet today, and so are its banks. ".repeat(20));
      assert.ok(short.input_tokens > 0, dialect);
      assert.ok(long.input_tokens > short.input_tokens + 100, `${dialect}: ${long.input_tokens} after ${short.input_tokens}`);
    }
  });

  test("models come as Anthropic lists them", async () => {
    const page = await client.models.list({ limit: 1000 });
    const ids = page.data.map((m) => m.id);
    assert.ok(names.every((n) => ids.includes(n)), ids.join());
    for (const m of page.data) {
      assert.equal(m.type, "model");
      assert.ok(m.display_name && !Number.isNaN(Date.parse(m.created_at)), JSON.stringify(m));
    }
    assert.equal(page.has_more, false);
    assert.equal((await client.models.retrieve("openai-plain")).type, "model");
  });

  test("an overload keeps its class, before the answer and within it", async () => {
    for (const dialect of Object.keys(dialects)) {
      const ask = (behaviour) => client.messages.stream({ model: `${dialect}-${behaviour}`, max_tokens: 9, messages: [{ role: "user", content: "Hello" }] })
        .finalMessage().then(() => assert.fail("no error"), (e) => e);
      assert.equal((await ask("swamped")).status, 529, dialect);
      for (const behaviour of ["swamped", "failing"]) assert.equal((await ask(behaviour)).type, "overloaded_error", `${dialect} ${behaviour}`);
    }
  });

  test("an error names its kind and the request", async () => {
    const err = await client.messages.create({ model: "nothing", max_tokens: 9, messages: [{ role: "user", content: "Hello" }] })
      .then(() => assert.fail("no error"), (e) => e);
    assert.ok(err instanceof Anthropic.NotFoundError, String(err));
    assert.equal(err.error.type, "error");
    assert.equal(err.error.error.type, "not_found_error");
    assert.ok(err.requestID, "no request id");
  });
});
