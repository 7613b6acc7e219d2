// Runs each agent headless through a Weir to a simulated Chat Completions server, which has it call one harmless command,
// and holds that the agent ran it and ended with what the command said. What the agents sent to Weir is written to the
// folder RECORD, cleaned, where that is set. AGENTS is the node_modules folder with the agents in it; scripts/test-agents
// sets both.
//
// An agent does what the model says. So each gets an empty home and working folder, an environment of its own, a key that
// opens nothing but this Weir, no address but this Weir's, and three minutes. The words that the model says are ours.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after, before, test } from "node:test";
import { startWeir } from "../sdk/weir.mjs";
import { agents, command, said } from "./agents.mjs";
import { clean, print } from "./clean.mjs";
import { record } from "./record.mjs";

const root = process.env.AGENTS;
if (!root) throw new Error("AGENTS must name the node_modules folder with the agents: run scripts/test-agents");

// llama.cpp, which takes least: function tools alone, no Messages, no Responses.
const setting = {
  script: { server: "llamacpp", apis: ["chat"], on: { coder: { agent: true } } },
  config: (simURL) => `
listen: 127.0.0.1:0
admin: 127.0.0.1:0
data: ./data
drain: 2s
backends: {local: {url: "${simURL}", server: llamacpp, tier: gpu}}
pools: {local: {backend: local, cap: 4, models: [coder]}}
aliases: {coder: local/coder}
`,
};

const prompt = `Run the command: ${command}`;
let weir, home;
before(async () => {
  weir = await startWeir(setting);
  home = mkdtempSync(join(tmpdir(), "weir-agents-"));
});
after(async () => {
  await weir?.stop();
  if (home) rmSync(home, { recursive: true, force: true });
});

for (const [name, agent] of Object.entries(agents)) {
  test(`${name} completes a task of two steps`, { timeout: 240_000 }, async () => {
    const recorder = await record(weir.url);
    try {
      const before = (await weir.attempts("coder")).length;
      const out = await run(name, agent, recorder.url);
      const calls = (await weir.attempts("coder")).slice(before);
      assert.ok(calls.length >= 2 && calls.every((c) => c.status === 200), `what the backend answered: ${calls.map((c) => c.status)}\n${out}`);
      assert.ok(calls.at(-1).body.includes(said) || calls.some((c) => c.body.includes(`${said}\\n`)), `no result of the command reached the backend\n${out}`);
      assert.match(out, /Simulated agent done .*The tool said:/s);
      assert.ok(out.includes(said), out);
      if (process.env.RECORD) {
        const text = print({ agent: name, version: agent.version, requests: clean(recorder.requests, { prompt, said }) });
        mkdirSync(process.env.RECORD, { recursive: true });
        writeFileSync(join(process.env.RECORD, `${name}.json`), `${text}\n`);
      }
    } finally {
      recorder.stop();
    }
  });
}

// run sets an agent up as `weir agents` says, runs it and returns what it printed.
async function run(name, agent, url) {
  const own = join(home, name), work = join(own, "work");
  mkdirSync(work, { recursive: true });
  const settings = JSON.parse(execFileSync(process.env.WEIR,
    ["agents", name, "--config", weir.file, "--url", url, "--model", "coder", "--json"], { encoding: "utf8" }));
  const env = { HOME: own, PATH: process.env.PATH, LANG: "C.UTF-8", TERM: "dumb", ...agent.env };
  for (const { name, value } of settings.env) env[name] = value.replace("KEY", weir.key);
  if (settings.file) {
    const file = join(own, settings.file.replace("~/", ""));
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, agent.edit ? agent.edit(settings.text) : settings.text);
  }
  const [program, ...args] = agent.command(root, prompt);
  return new Promise((done, fail) => {
    const child = spawn(program, args, { cwd: work, env, stdio: ["ignore", "pipe", "pipe"], detached: true });
    let out = "";
    child.stdout.on("data", (b) => { out += b; });
    child.stderr.on("data", (b) => { out += b; });
    const end = () => { try { process.kill(-child.pid, "SIGKILL"); } catch { /* it has ended */ } };
    const limit = setTimeout(() => { end(); fail(new Error(`${name} did not end in three minutes:\n${out}`)); }, 180_000);
    child.on("error", (e) => { clearTimeout(limit); fail(e); });
    child.on("exit", (code, signal) => {
      clearTimeout(limit);
      end(); // and whatever it has left running
      if (code === 0) done(out);
      else fail(new Error(`${name} ended with ${code ?? signal}:\n${out}`));
    });
  });
}
