package main

// recipe is what one agent needs. In its texts {url} is Weir's address, {base} the same with /v1, {model} and {models} are
// names to ask for, {key} stands for the key.
type recipe struct {
	name, title, api string
	env              []setting
	file, program    string // where text goes: into that file, or into a program, after this was installed
	text             string
	run              string
	notes            []string
}

// The APIs by the paths that are called.
const (
	chatAPI      = "Chat Completions"
	messagesAPI  = "Anthropic Messages"
	responsesAPI = "Responses"
)

// The environment that SDKs read by themselves.
var (
	openaiEnv    = []setting{{"OPENAI_BASE_URL", "{base}"}, {"OPENAI_API_KEY", "{key}"}}
	anthropicEnv = []setting{{"ANTHROPIC_BASE_URL", "{url}"}, {"ANTHROPIC_API_KEY", "{key}"}}
	weirEnv      = []setting{{"WEIR_KEY", "{key}"}}
)

// recipes are the agents that are known, in the order of the list.
var recipes = []recipe{
	{
		name: "claude-code", title: "Claude Code", api: messagesAPI,
		env: []setting{
			{"ANTHROPIC_BASE_URL", "{url}"},
			{"ANTHROPIC_AUTH_TOKEN", "{key}"},
			{"ANTHROPIC_MODEL", "{model}"},
			{"ANTHROPIC_DEFAULT_HAIKU_MODEL", "{model}"},
			{"CLAUDE_CODE_SUBAGENT_MODEL", "{model}"},
			{"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"},
		},
		run: "claude",
		notes: []string{
			"The address has no /v1. Unset ANTHROPIC_API_KEY: with both set it sends two keys, which Weir refuses when they differ.",
			"ANTHROPIC_DEFAULT_HAIKU_MODEL is for small calls in the background: a cheaper alias may do.",
		},
	},
	{
		name: "codex", title: "Codex CLI", api: responsesAPI,
		env:  weirEnv,
		file: "~/.codex/config.toml",
		text: `model = "{model}"
model_provider = "weir"

[model_providers.weir]
name = "Weir"
base_url = "{base}"
wire_api = "responses"
env_key = "WEIR_KEY"
`,
		run:   "codex",
		notes: []string{`wire_api = "chat" is refused by Codex. What its tools web_search and namespace do is not carried over to other backends.`},
	},
	{
		name: "opencode", title: "opencode", api: chatAPI,
		env:  weirEnv,
		file: "~/.config/opencode/opencode.json",
		text: `{
  "$schema": "https://opencode.ai/config.json",
  "model": "weir/{model}",
  "small_model": "weir/{model}",
  "provider": {
    "weir": {
      "npm": "@ai-sdk/openai-compatible",
      "name": "Weir",
      "options": {"baseURL": "{base}", "apiKey": "{env:WEIR_KEY}"},
      "models": {models}
    }
  }
}
`,
		run:   "opencode",
		notes: []string{"opencode.json in the folder of a project does as well. small_model is for titles: a cheaper alias may do."},
	},
	{
		name: "open-webui", title: "Open WebUI", api: chatAPI,
		env: []setting{{"OPENAI_API_BASE_URL", "{base}"}, {"OPENAI_API_KEY", "{key}"}, {"ENABLE_OLLAMA_API", "false"}},
		run: "open-webui serve",
		notes: []string{
			"In a container, loopback is the container's own: give Weir an address that it reaches, and name that with --url.",
			"What was saved on its page of settings goes before the environment.",
		},
	},
	{
		name: "langchain", title: "LangChain (JavaScript)", api: chatAPI,
		env:     weirEnv,
		program: "npm install @langchain/openai @langchain/core",
		text: `import { ChatOpenAI } from "@langchain/openai";

const model = new ChatOpenAI({
  model: "{model}",
  apiKey: process.env.WEIR_KEY,
  configuration: { baseURL: "{base}" },
});
console.log((await model.invoke("Hello")).text);
`,
		notes: []string{"useResponsesApi: true makes it call Responses."},
	},
	{
		name: "langchain-python", title: "LangChain (Python)", api: chatAPI,
		env:     weirEnv,
		program: "pip install langchain-openai",
		text: `import os
from langchain_openai import ChatOpenAI

model = ChatOpenAI(model="{model}", base_url="{base}", api_key=os.environ["WEIR_KEY"])
print(model.invoke("Hello").content)
`,
	},
	{
		name: "ai-sdk", title: "Vercel AI SDK", api: responsesAPI,
		env:     weirEnv,
		program: "npm install ai @ai-sdk/openai",
		text: `import { createOpenAI } from "@ai-sdk/openai";
import { generateText } from "ai";

const weir = createOpenAI({ baseURL: "{base}", apiKey: process.env.WEIR_KEY });
const { text } = await generateText({ model: weir("{model}"), prompt: "Hello" });
console.log(text);
`,
		notes: []string{
			`weir("NAME") calls Responses, weir.chat("NAME") Chat Completions; createAnthropic of @ai-sdk/anthropic calls Messages, with the same baseURL.`,
		},
	},
	{
		name: "openai-node", title: "OpenAI SDK (JavaScript)", api: chatAPI + ", " + responsesAPI,
		env:     openaiEnv,
		program: "npm install openai",
		text: `import OpenAI from "openai";

const client = new OpenAI(); // reads OPENAI_BASE_URL and OPENAI_API_KEY
const done = await client.responses.create({ model: "{model}", input: "Hello" });
console.log(done.output_text);
`,
	},
	{
		name: "openai-python", title: "OpenAI SDK (Python)", api: chatAPI + ", " + responsesAPI,
		env:     openaiEnv,
		program: "pip install openai",
		text: `from openai import OpenAI

client = OpenAI()  # reads OPENAI_BASE_URL and OPENAI_API_KEY
done = client.responses.create(model="{model}", input="Hello")
print(done.output_text)
`,
	},
	{
		name: "anthropic-node", title: "Anthropic SDK (JavaScript)", api: messagesAPI,
		env:     anthropicEnv,
		program: "npm install @anthropic-ai/sdk",
		text: `import Anthropic from "@anthropic-ai/sdk";

const client = new Anthropic(); // reads ANTHROPIC_BASE_URL and ANTHROPIC_API_KEY
const done = await client.messages.create({
  model: "{model}", max_tokens: 1024, messages: [{ role: "user", content: "Hello" }],
});
for (const block of done.content) if (block.type === "text") console.log(block.text);
`,
		notes: []string{"The address has no /v1."},
	},
	{
		name: "anthropic-python", title: "Anthropic SDK (Python)", api: messagesAPI,
		env:     anthropicEnv,
		program: "pip install anthropic",
		text: `from anthropic import Anthropic

client = Anthropic()  # reads ANTHROPIC_BASE_URL and ANTHROPIC_API_KEY
done = client.messages.create(
    model="{model}", max_tokens=1024, messages=[{"role": "user", "content": "Hello"}]
)
for block in done.content:
    if block.type == "text":
        print(block.text)
`,
		notes: []string{"The address has no /v1."},
	},
}
