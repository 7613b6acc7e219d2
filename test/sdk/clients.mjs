// The SDKs under one small interface, so that one table of cases serves them all. Each entry has
//
//   api                      what it calls: chat, messages or responses
//   make(url, key)           a client of the Weir at url, that tries nothing twice
//   client.ask(model, q)     q: {turns, tools, stream, think, signal} → {text, thinking, calls, finish, tokens, pieces, turn}
//   user(text, image)        a user's turn; image is {type, data}, data in base64
//   results(list)            the turns that carry [{call, text}]
//   blind                    it never shows reasoning, whatever comes
//   failure(error)           the status and message of the SDK's own error type, or undefined for any other error
//
// calls are [{id, name, args}], turn is what an answer adds to the conversation.
import Anthropic from "@anthropic-ai/sdk";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { HumanMessage, ToolMessage } from "@langchain/core/messages";
import { ChatOpenAI } from "@langchain/openai";
import { APICallError, generateText, jsonSchema, streamText, tool } from "ai";
import OpenAI from "openai";

const dataURL = (image) => `data:${image.type};base64,${image.data}`;
const join = (list) => list.filter(Boolean).join("");

// The openai SDK, Chat Completions.
const openaiChat = {
  api: "chat",
  make: (url, key) => {
    const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: key, maxRetries: 0 });
    return {
      async ask(model, q) {
        const body = {
          model, messages: q.turns, tools: q.tools?.map((t) => ({ type: "function", function: t })),
          reasoning_effort: q.think ? "high" : undefined,
        };
        if (!q.stream) return this.read(await client.chat.completions.create(body, { signal: q.signal }), 1);
        let pieces = 0, thinking = "";
        const stream = client.chat.completions.stream({ ...body, stream_options: { include_usage: true } }, { signal: q.signal });
        for await (const chunk of stream) {
          const delta = chunk.choices[0]?.delta;
          thinking += delta?.reasoning_content ?? "";
          if (delta?.content) { pieces++; q.onPiece?.(); }
        }
        return { ...this.read(await stream.finalChatCompletion(), pieces), thinking };
      },
      read(done, pieces) {
        const { message, finish_reason: finish } = done.choices[0];
        return {
          text: message.content ?? "", thinking: message.reasoning_content ?? "", finish, pieces, tokens: done.usage.total_tokens,
          calls: (message.tool_calls ?? []).map((c) => ({ id: c.id, name: c.function.name, args: JSON.parse(c.function.arguments) })),
          turn: [message],
        };
      },
    };
  },
  user: (text, image) => ({
    role: "user", content: image ? [{ type: "text", text }, { type: "image_url", image_url: { url: dataURL(image) } }] : text,
  }),
  results: (list) => list.map(({ call, text }) => ({ role: "tool", tool_call_id: call.id, content: text })),
  failure: (e) => (e instanceof OpenAI.APIError ? { status: e.status, message: e.message, name: e.constructor.name } : undefined),
};

// The openai SDK, Responses.
const openaiResponses = {
  api: "responses",
  make: (url, key) => {
    const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: key, maxRetries: 0 });
    return {
      async ask(model, q) {
        const body = {
          model, input: q.turns, store: false, tools: q.tools?.map((t) => ({ type: "function", strict: false, ...t })),
          reasoning: q.think ? { effort: "high", summary: "auto" } : undefined,
        };
        if (!q.stream) return this.read(await client.responses.create(body, { signal: q.signal }), 1);
        let pieces = 0;
        const stream = client.responses.stream(body, { signal: q.signal });
        for await (const event of stream) if (event.type === "response.output_text.delta") { pieces++; q.onPiece?.(); }
        return this.read(await stream.finalResponse(), pieces);
      },
      read(done, pieces) {
        const of = (type) => done.output.filter((item) => item.type === type);
        return {
          text: done.output_text, finish: done.incomplete_details?.reason ?? done.status, pieces, tokens: done.usage.total_tokens,
          thinking: join(of("reasoning").flatMap((r) => [...(r.content ?? []), ...r.summary]).map((part) => part.text)),
          calls: of("function_call").map((c) => ({ id: c.call_id, name: c.name, args: JSON.parse(c.arguments) })),
          turn: done.output,
        };
      },
    };
  },
  user: (text, image) => ({
    role: "user",
    content: image ? [{ type: "input_text", text }, { type: "input_image", detail: "auto", image_url: dataURL(image) }] : text,
  }),
  results: (list) => list.map(({ call, text }) => ({ type: "function_call_output", call_id: call.id, output: text })),
  failure: openaiChat.failure,
};

// The Anthropic SDK.
const anthropic = {
  api: "messages",
  make: (url, key) => {
    const client = new Anthropic({ baseURL: url, apiKey: key, maxRetries: 0 });
    return {
      client,
      async ask(model, q) {
        const body = {
          model, messages: q.turns, max_tokens: 21_000, tools: q.tools?.map((t) => ({ name: t.name, description: t.description, input_schema: t.parameters })),
          thinking: q.think ? { type: "enabled", budget_tokens: 17_000 } : undefined,
        };
        if (!q.stream) return this.read(await client.messages.create(body, { signal: q.signal }), 1);
        let pieces = 0;
        const stream = client.messages.stream(body, { signal: q.signal });
        for await (const event of stream) if (event.delta?.type === "text_delta") { pieces++; q.onPiece?.(); }
        return this.read(await stream.finalMessage(), pieces);
      },
      read(done, pieces) {
        const of = (type) => done.content.filter((block) => block.type === type);
        return {
          text: join(of("text").map((b) => b.text)), thinking: join(of("thinking").map((b) => b.thinking)), finish: done.stop_reason, pieces,
          tokens: done.usage.input_tokens + done.usage.output_tokens,
          calls: of("tool_use").map((b) => ({ id: b.id, name: b.name, args: b.input })),
          turn: [{ role: "assistant", content: done.content }],
        };
      },
    };
  },
  user: (text, image) => ({
    role: "user",
    content: image ? [{ type: "image", source: { type: "base64", media_type: image.type, data: image.data } }, { type: "text", text }] : text,
  }),
  results: (list) => [{ role: "user", content: list.map(({ call, text }) => ({ type: "tool_result", tool_use_id: call.id, content: text })) }],
  failure: (e) => (e instanceof Anthropic.APIError ? { status: e.status, message: e.message, name: e.constructor.name, type: e.type } : undefined),
};

// The Vercel AI SDK with one of its providers.
const vercel = (api, model, thinking) => ({
  api,
  make: (url, key) => {
    const open = model(`${url}/v1`, key);
    return {
      async ask(name, q) {
        const asked = {
          model: open(name), messages: q.turns, maxRetries: 0, abortSignal: q.signal, providerOptions: q.think ? thinking : undefined,
          tools: q.tools && Object.fromEntries(q.tools.map((t) => [t.name, tool({ description: t.description, inputSchema: jsonSchema(t.parameters) })])),
        };
        let done, pieces = 1;
        if (q.stream) {
          pieces = 0;
          done = streamText({ ...asked, onError() {} });
          for await (const part of done.fullStream) {
            if (part.type === "error") throw part.error;
            if (part.type === "abort") throw new DOMException("aborted", "AbortError");
            if (part.type === "text-delta" && part.text) { pieces++; q.onPiece?.(); }
          }
        } else {
          done = await generateText(asked);
        }
        return {
          text: await done.text, thinking: (await done.reasoningText) ?? "", finish: await done.finishReason, pieces, tokens: (await done.totalUsage).totalTokens,
          calls: (await done.toolCalls).map((c) => ({ id: c.toolCallId, name: c.toolName, args: c.input })),
          turn: (await done.response).messages,
        };
      },
    };
  },
  user: (text, image) => ({
    role: "user", content: image ? [{ type: "text", text }, { type: "image", image: image.data, mediaType: image.type }] : text,
  }),
  results: (list) => [{
    role: "tool",
    content: list.map(({ call, text }) => ({ type: "tool-result", toolCallId: call.id, toolName: call.name, output: { type: "text", value: text } })),
  }],
  failure: (e) => (APICallError.isInstance(e) ? { status: e.statusCode, message: e.message, name: e.name } : undefined),
});

// LangChain's ChatOpenAI, by either API.
const langchain = (api, useResponsesApi, thinking) => ({
  api,
  make: (url, key) => ({
    async ask(model, q) {
      let chat = new ChatOpenAI({
        model, apiKey: key, maxRetries: 0, useResponsesApi, configuration: { baseURL: `${url}/v1` }, modelKwargs: q.think ? thinking : {},
      });
      if (q.tools) chat = chat.bindTools(q.tools.map((t) => ({ type: "function", function: t })));
      let done, pieces = 1;
      if (q.stream) {
        pieces = 0;
        for await (const chunk of await chat.stream(q.turns, { signal: q.signal })) {
          if (chunk.text) { pieces++; q.onPiece?.(); }
          done = done ? done.concat(chunk) : chunk;
        }
      } else {
        done = await chat.invoke(q.turns, { signal: q.signal });
      }
      const reasoning = done.contentBlocks.filter((b) => b.type === "reasoning");
      return {
        text: done.text, thinking: join(reasoning.map((b) => b.reasoning)), pieces, tokens: done.usage_metadata?.total_tokens,
        finish: done.response_metadata.finish_reason ?? done.response_metadata.status, calls: done.tool_calls, turn: [done],
      };
    },
  }),
  user: (text, image) => new HumanMessage({
    content: image ? [{ type: "text", text }, { type: "image_url", image_url: { url: dataURL(image) } }] : text,
  }),
  results: (list) => list.map(({ call, text }) => new ToolMessage({ tool_call_id: call.id, name: call.name, content: text })),
  failure: openaiChat.failure,
});

export const clients = {
  "openai, chat": openaiChat,
  "openai, responses": openaiResponses,
  "@anthropic-ai/sdk": anthropic,
  "@ai-sdk/openai": vercel("responses", (baseURL, apiKey) => createOpenAI({ baseURL, apiKey }),
    { openai: { forceReasoning: true, reasoningEffort: "high", reasoningSummary: "auto" } }),
  "@ai-sdk/openai, chat": {
    ...vercel("chat", (baseURL, apiKey) => createOpenAI({ baseURL, apiKey }).chat, { openai: { forceReasoning: true, reasoningEffort: "high" } }),
    blind: true,
  },
  "@ai-sdk/anthropic": vercel("messages", (baseURL, apiKey) => createAnthropic({ baseURL, apiKey }),
    { anthropic: { thinking: { type: "enabled", budgetTokens: 17_000 } } }),
  "@ai-sdk/openai-compatible": vercel("chat", (baseURL, apiKey) => createOpenAICompatible({ name: "weir", baseURL, apiKey, includeUsage: true }),
    { weir: { reasoningEffort: "high" } }),
  "@langchain/openai": { ...langchain("chat", false, { reasoning_effort: "high" }), blind: true },
  "@langchain/openai, responses": langchain("responses", true, { reasoning: { effort: "high", summary: "auto" } }),
};
