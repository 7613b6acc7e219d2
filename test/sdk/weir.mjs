// Starts a Weir in front of a simulated backend, each a process of its own on a free port of loopback, with a config, a
// data folder and a key made for it. Everything is gone after stop().
import { spawn, execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";

const program = process.env.WEIR;
if (!program) throw new Error("WEIR must name the weir binary: run scripts/test-sdk");

// Each model behaves in one way.
const script = {
  strict: true,
  on: {
    plain: { text: "The river is quiet today." },
    tool: { tool: "call" },
    json: {},
    embed: {},
    picky: { status: 400, error: { message: "this prompt is not for me", type: "invalid_request_error" } },
    denied: { status: 401 },
    broken: { status: 500 },
    busy: { status: 429, retry_after: "30" },
    hang: { hang: true },
    cut: { chunks: 6, gap: "5ms", cut: { after: 2, of: "chunks", how: "rst" } },
    slow: { endless: true, gap: "20ms" },
  },
};

function config(simURL) {
  // A backend and a pool each: what one model's faults take out stays out for a while.
  const models = Object.keys(script.on);
  const each = (row) => models.map(row).join("\n");
  return `
listen: 127.0.0.1:0
admin: 127.0.0.1:0
data: ./data
drain: 2s
backends:
${each((m) => `  ${m}: {url: "${simURL}", server: openai, tier: gpu, usage: ask}`)}
pools:
${each((m) => `  ${m}: {backend: ${m}, cap: 16, models: [${m}]}`)}
routes:
  impatient: {steps: [hang/hang], limits: {first_content: 300ms}}
aliases:
${each((m) => `  ${m}: ${m === "hang" ? "impatient" : `${m}/${m}`}`)}
`;
}

// startWeir runs a Weir with the config that config(simURL) writes, in front of a simulated backend with a script.
export async function startWeir(o = { script, config }) {
  const home = mkdtempSync(join(tmpdir(), "weir-sdk-"));
  const file = join(home, "weir.yaml");
  writeFileSync(join(home, "sim.json"), JSON.stringify(o.script));

  const sim = start(["sim", "--listen", "127.0.0.1:0", "--script", join(home, "sim.json")]);
  const [simURL] = await sim.says(/simulated backend on (http:\S+)/);
  writeFileSync(file, o.config(simURL));
  const key = execFileSync(program, ["keys", "add", "sdk", "--config", file], { encoding: "utf8" }).trim().split("\n").pop();
  const weir = start(["run", "--config", file]);
  const [addr] = await weir.says(/msg=serving addr=(\S+)/);

  const attempts = async (model) => (await (await fetch(`${simURL}/_sim/attempts?model=${model}`)).json()).attempts ?? [];
  return {
    file,
    url: `http://${addr}`,
    baseURL: `http://${addr}/v1`,
    key,
    attempts,
    // until returns the newest attempt of a model as soon as it is as wanted.
    async until(model, wanted) {
      for (let i = 0; i < 200; i++) {
        const last = (await attempts(model)).at(-1);
        if (last && wanted(last)) return last;
        await pause(20);
      }
      throw new Error(`no attempt of ${model} came to what was wanted: ${JSON.stringify(await attempts(model))}`);
    },
    async stop() {
      const code = await weir.end();
      await sim.end();
      rmSync(home, { recursive: true, force: true });
      if (code !== 0) throw new Error(`weir run ended with ${code}:\n${weir.log()}`);
    },
  };
}

// start runs weir with a word and listens to what it logs.
function start(args) {
  const child = spawn(program, args, { stdio: ["ignore", "pipe", "pipe"] });
  let log = "";
  let wake = () => {};
  child.stderr.on("data", (bytes) => { log += bytes; wake(); });
  child.stdout.resume(); // event lines
  const ended = new Promise((done) => child.on("exit", (code, signal) => { done(code ?? signal); wake(); }));
  return {
    log: () => log,
    // says waits for a line of the log and returns the groups of its match.
    async says(pattern) {
      const deadline = Date.now() + 30_000;
      for (;;) {
        const found = log.match(pattern);
        if (found) return found.slice(1);
        if (child.exitCode !== null || Date.now() > deadline) throw new Error(`weir ${args.join(" ")} did not start:\n${log}`);
        await Promise.race([new Promise((done) => { wake = done; }), pause(1000)]);
      }
    },
    async end() {
      child.kill("SIGTERM");
      return ended;
    },
  };
}
