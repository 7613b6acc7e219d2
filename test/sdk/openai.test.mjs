// The openai SDK as people use it, against a running Weir.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import OpenAI from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";
import { startWeir } from "./weir.mjs";

let weir, client;
before(async () => {
  weir = await startWeir();
  client = new OpenAI({ baseURL: weir.baseURL, apiKey: weir.key, maxRetries: 0 });
});
after(() => weir.stop());

const hello = [{ role: "user", content: "Hello" }];
const weather = {
  type: "function",
  function: {
    name: "get_weather",
    description: "The weather of a city",
    parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"], additionalProperties: false },
  },
};

async function refused(promise, type, status, extra = {}) {
  const err = await promise.then(() => assert.fail("no error"), (e) => e);
  assert.ok(err instanceof type, `${err?.constructor?.name} (${err}), want ${type.name}`);
  assert.equal(err.status, status);
  for (const [name, want] of Object.entries(extra)) assert.equal(err[name], want, name);
  assert.ok(err.requestID || err.headers?.get("x-weir-request"), "the error has no id to ask for");
  return err;
}

describe("chat", () => {
  test("a whole answer", async () => {
    const { data, response } = await client.chat.completions.create({ model: "plain", messages: hello }).withResponse();
    assert.equal(data.object, "chat.completion");
    assert.equal(data.choices[0].message.content, "The river is quiet today.");
    assert.equal(data.choices[0].finish_reason, "stop");
    assert.ok(data.usage.total_tokens > 0);
    assert.equal(response.headers.get("x-weir-pool"), "plain");
    assert.equal(response.headers.get("x-weir-simulated"), "true");
    assert.ok(response.headers.get("x-weir-request"));
  });

  test("a stream has the same text, a finish and no usage that nobody asked for", async () => {
    const stream = await client.chat.completions.create({ model: "plain", messages: hello, stream: true });
    let text = "", finish, pieces = 0;
    for await (const chunk of stream) {
      assert.equal(chunk.object, "chat.completion.chunk");
      assert.ok(!chunk.usage, "usage without asking");
      assert.equal(chunk.choices.length, 1);
      text += chunk.choices[0].delta.content ?? "";
      finish = chunk.choices[0].finish_reason ?? finish;
      pieces++;
    }
    assert.equal(text, "The river is quiet today.");
    assert.equal(finish, "stop");
    assert.ok(pieces > 3, `${pieces} chunks: the stream came in one piece`);
  });

  test("a stream that asks for usage ends with it", async () => {
    const stream = await client.chat.completions.create({
      model: "plain", messages: hello, stream: true, stream_options: { include_usage: true },
    });
    let last;
    for await (const chunk of stream) last = chunk;
    assert.deepEqual(last.choices, []);
    assert.ok(last.usage.total_tokens > 0);
  });

  test("the helper's accumulator agrees with the whole answer", async () => {
    const done = await client.chat.completions.stream({ model: "plain", messages: hello }).finalChatCompletion();
    assert.equal(done.choices[0].message.content, "The river is quiet today.");
  });

  test("a tool over two turns", async () => {
    const first = await client.chat.completions.create({ model: "tool", messages: hello, tools: [weather] });
    const message = first.choices[0].message;
    assert.equal(first.choices[0].finish_reason, "tool_calls");
    assert.equal(message.tool_calls[0].function.name, "get_weather");
    assert.equal(typeof JSON.parse(message.tool_calls[0].function.arguments).city, "string");
    assert.ok(!message.content, message.content);
    const second = await client.chat.completions.create({
      model: "tool", tools: [weather],
      messages: [...hello, message, { role: "tool", tool_call_id: message.tool_calls[0].id, content: "18 degrees, dry" }],
    });
    assert.equal(second.choices[0].finish_reason, "stop");
    assert.match(second.choices[0].message.content, /18 degrees, dry/);
  });

  test("runTools walks the loop, streaming, by itself", async () => {
    const asked = [];
    const runner = client.chat.completions.runTools({
      model: "tool", messages: hello, stream: true,
      tools: [{ type: "function", function: { ...weather.function, parse: JSON.parse, function: (args) => { asked.push(args); return "18 degrees, dry"; } } }],
    });
    assert.match(await runner.finalContent(), /18 degrees, dry/);
    assert.equal(asked.length, 1);
    assert.equal(typeof asked[0].city, "string");
  });

  test("a JSON schema comes back parsed", async () => {
    const Step = z.object({ title: z.string(), minutes: z.number().int() });
    const done = await client.chat.completions.parse({
      model: "json", messages: hello, response_format: zodResponseFormat(z.object({ steps: z.array(Step), done: z.boolean() }), "plan"),
    });
    assert.ok(Array.isArray(done.choices[0].message.parsed.steps));
    assert.equal(typeof done.choices[0].message.parsed.done, "boolean");
  });
});

describe("embeddings and models", () => {
  test("base64, which the SDK asks for by itself, is the same as plain numbers", async () => {
    const coded = await client.embeddings.create({ model: "embed", input: ["one", "two"], dimensions: 8 });
    const plain = await client.embeddings.create({ model: "embed", input: ["one", "two"], dimensions: 8, encoding_format: "float" });
    assert.equal(coded.data.length, 2);
    assert.equal(coded.data[0].embedding.length, 8);
    coded.data.forEach((d, i) => d.embedding.forEach((x, k) => assert.ok(Math.abs(x - plain.data[i].embedding[k]) < 1e-6)));
    assert.notDeepEqual(coded.data[0].embedding, coded.data[1].embedding);
  });

  test("the old completions", async () => {
    const done = await client.completions.create({ model: "plain", prompt: "Hello" });
    assert.equal(done.choices[0].text, "The river is quiet today.");
  });

  test("models are listed and retrieved", async () => {
    const ids = [];
    for await (const m of client.models.list()) ids.push(m.id);
    assert.ok(ids.includes("plain") && ids.includes("plain/plain"), ids.join());
    assert.equal((await client.models.retrieve("plain")).id, "plain");
    await refused(client.models.retrieve("nothing"), OpenAI.NotFoundError, 404);
  });
});

describe("errors are the SDK's own types", () => {
  const ask = (model, more = {}, options = {}) => client.chat.completions.create({ model, messages: hello, ...more }, options);

  test("a wrong key is an AuthenticationError", async () => {
    const stranger = new OpenAI({ baseURL: weir.baseURL, apiKey: "weir_wrong", maxRetries: 0 });
    await refused(stranger.chat.completions.create({ model: "plain", messages: hello }), OpenAI.AuthenticationError, 401, { code: "invalid_api_key" });
  });
  test("an unknown model is a NotFoundError with a near name", async () => {
    const err = await refused(ask("plane"), OpenAI.NotFoundError, 404, { code: "model_not_found" });
    assert.match(err.message, /plain/);
  });
  test("a fault of the body is a BadRequestError that names the member", async () => {
    await refused(ask("plain", { messages: "Hello" }), OpenAI.BadRequestError, 400, { type: "invalid_request_error", param: "messages" });
  });
  test("what the model's server refuses keeps its message", async () => {
    const err = await refused(ask("picky"), OpenAI.BadRequestError, 400);
    assert.match(err.message, /this prompt is not for me/);
  });
  test("a busy backend is a RateLimitError with the time to wait", async () => {
    const err = await refused(ask("busy"), OpenAI.RateLimitError, 429);
    assert.ok(Number(err.headers.get("retry-after")) > 0);
  });
  test("a backend that refuses our key is never the client's 401", async () => {
    await refused(ask("denied"), OpenAI.InternalServerError, 502);
  });
  test("a failing backend is an InternalServerError that is not tried again", async () => {
    await refused(ask("broken", {}, { maxRetries: 2 }), OpenAI.InternalServerError, 502);
    assert.equal((await weir.attempts("broken")).length, 1);
  });
  test("a backend that says nothing is a 504 in time, once", async () => {
    for (const stream of [false, true]) await refused(ask("hang", { stream }, { maxRetries: 2 }), OpenAI.InternalServerError, 504);
    assert.equal((await weir.attempts("hang")).length, 2);
  });
  test("a stream that breaks is an APIError after what had come", async () => {
    const stream = await ask("cut", { stream: true });
    let pieces = 0;
    const err = await (async () => { for await (const c of stream) if (c.choices[0]?.delta?.content) pieces++; })().then(() => assert.fail("it ended as if whole"), (e) => e);
    assert.equal(pieces, 2);
    assert.ok(err instanceof OpenAI.APIError, `${err?.constructor?.name}: ${err}`);
    assert.ok(err.message.length > 10);
  });
  test("a whole answer whose stream broke is an error too", async () => {
    await refused(ask("cut"), OpenAI.InternalServerError, 504);
  });
});

describe("abort", () => {
  for (const stream of [true, false]) {
    test(`the backend is left at once (${stream ? "stream" : "whole answer"})`, async () => {
      const control = new AbortController();
      const earlier = await weir.attempts("slow");
      const before = earlier.length, last = earlier.at(-1)?.id ?? 0; // ids are counted over all models
      const asked = client.chat.completions.create({ model: "slow", messages: hello, stream }, { signal: control.signal });
      const read = asked.then(async (s) => { for await (const _ of s); });
      read.catch(() => {});
      await weir.until("slow", (a) => a.first_content && a.id > last);
      assert.equal((await weir.attempts("slow")).length, before + 1);
      const at = Date.now();
      control.abort();
      await read.catch((e) => assert.ok(e instanceof OpenAI.APIUserAbortError || e.name === "AbortError", String(e)));
      const seen = await weir.until("slow", (a) => a.left && a.end === "left");
      assert.ok(Date.parse(seen.left) - at < 1000, `left ${Date.parse(seen.left) - at} ms after the abort`);
    });
  }
});
