// The Vercel AI SDK, by its OpenAI and its OpenAI-compatible provider, against a running Weir.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { APICallError, embedMany, generateText, Output, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";
import { startWeir } from "./weir.mjs";

let weir;
before(async () => { weir = await startWeir(); });
after(() => weir.stop());

const providers = {
  "@ai-sdk/openai": (apiKey) => {
    const p = createOpenAI({ baseURL: weir.baseURL, apiKey });
    return { chat: (m) => p.chat(m), embedding: (m) => p.embedding(m) };
  },
  "@ai-sdk/openai-compatible": (apiKey) => {
    const p = createOpenAICompatible({ name: "weir", baseURL: weir.baseURL, apiKey, includeUsage: true, supportsStructuredOutputs: true });
    return { chat: (m) => p.chatModel(m), embedding: (m) => p.embeddingModel(m) };
  },
};

for (const [name, make] of Object.entries(providers)) {
  describe(name, () => {
    const ask = (model, more = {}) => ({ model: make(weir.key).chat(model), prompt: "Hello", maxRetries: 0, ...more });
    const failure = async (promise, status) => {
      const err = await promise.then(() => assert.fail("no error"), (e) => e);
      assert.ok(APICallError.isInstance(err), `${err?.constructor?.name}: ${err}`);
      assert.equal(err.statusCode, status);
      assert.ok(err.message.length > 10, "the message is Weir's own");
      return err;
    };

    test("a whole answer", async () => {
      const done = await generateText(ask("plain"));
      assert.equal(done.text, "The river is quiet today.");
      assert.equal(done.finishReason, "stop");
      assert.ok(done.usage.totalTokens > 0);
    });

    test("a stream", async () => {
      const done = streamText(ask("plain"));
      let text = "", pieces = 0;
      for await (const piece of done.textStream) { text += piece; pieces++; }
      assert.equal(text, "The river is quiet today.");
      assert.ok(pieces > 2, `${pieces} pieces`);
      assert.equal(await done.finishReason, "stop");
      assert.ok((await done.usage).totalTokens > 0);
    });

    test("a tool over two turns, streamed and whole", async () => {
      const asked = [];
      const tools = {
        get_weather: tool({
          description: "The weather of a city", inputSchema: z.object({ city: z.string() }),
          execute: async (input) => { asked.push(input); return "18 degrees, dry"; },
        }),
      };
      const whole = await generateText(ask("tool", { tools, stopWhen: stepCountIs(3) }));
      assert.match(whole.text, /18 degrees, dry/);
      assert.equal(whole.steps.length, 2);
      const streamed = streamText(ask("tool", { tools, stopWhen: stepCountIs(3) }));
      assert.match(await streamed.text, /18 degrees, dry/);
      assert.equal(asked.length, 2);
      asked.forEach((a) => assert.equal(typeof a.city, "string"));
    });

    test("a JSON schema comes back as an object", async () => {
      const schema = z.object({ title: z.string(), steps: z.array(z.object({ minutes: z.number() })) });
      const done = await generateText(ask("json", { output: Output.object({ schema }) }));
      assert.equal(typeof done.output.title, "string");
      assert.ok(Array.isArray(done.output.steps));
    });

    test("embeddings", async () => {
      const done = await embedMany({ model: make(weir.key).embedding("embed"), values: ["one", "two"], maxRetries: 0 });
      assert.equal(done.embeddings.length, 2);
      assert.ok(done.embeddings[0].length > 0);
      assert.notDeepEqual(done.embeddings[0], done.embeddings[1]);
    });

    test("errors are APICallErrors with the status, the message and whether to try again", async () => {
      await failure(generateText({ ...ask("plain"), model: make("weir_wrong").chat("plain") }), 401);
      assert.match((await failure(generateText(ask("plane")), 404)).message, /plain/);
      assert.match((await failure(generateText(ask("picky")), 400)).message, /this prompt is not for me/);
      assert.equal((await failure(generateText(ask("busy")), 429)).isRetryable, true);
      await failure(generateText(ask("broken")), 502);
      await failure(generateText(ask("hang")), 504);
    });

    test("a stream that breaks gives its error, not an end", async () => {
      const parts = [];
      const read = (async () => { for await (const part of streamText(ask("cut", { onError() {} })).fullStream) parts.push(part); })();
      await read.catch((e) => assert.ok(APICallError.isInstance(e), String(e))); // the cut of the connection, after the error
      const kinds = parts.map((p) => p.type);
      assert.equal(kinds.filter((k) => k === "text-delta").length, 2, kinds.join());
      assert.match(JSON.stringify(parts.find((p) => p.type === "error")?.error ?? null), /broke off/, kinds.join());
      assert.ok(!parts.some((p) => p.type === "finish" && p.finishReason === "stop"), "it ended as if whole");
    });

    test("abort leaves the backend", async () => {
      const control = new AbortController();
      const before = (await weir.attempts("slow")).length;
      const done = streamText(ask("slow", { abortSignal: control.signal, onError() {} }));
      const read = (async () => { for await (const part of done.fullStream) if (part.type === "text-delta") control.abort(); })();
      await read.catch((e) => assert.equal(e.name, "AbortError"));
      const seen = await weir.until("slow", (a) => a.end === "left");
      assert.equal((await weir.attempts("slow")).length, before + 1);
      assert.ok(seen.left);
    });
  });
}
