// What `weir agents` prints for a program in JavaScript, run as it stands.
import assert from "node:assert/strict";
import { execFile, execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { startWeir } from "./weir.mjs";

const agents = (...args) => JSON.parse(execFileSync(process.env.WEIR, ["agents", ...args, "--json"], { encoding: "utf8" }));
const run = promisify(execFile);

let weir, home;
before(async () => {
  weir = await startWeir();
  home = mkdtempSync(join(tmpdir(), "weir-recipes-"));
  symlinkSync(fileURLToPath(new URL("node_modules", import.meta.url)), join(home, "node_modules"));
});
after(async () => {
  await weir?.stop();
  rmSync(home, { recursive: true, force: true });
});

const programs = agents().map((a) => a.name).filter((name) => ["langchain", "ai-sdk", "openai-node", "anthropic-node"].includes(name));

test("each program that is meant is printed", () => assert.equal(programs.length, 4));

for (const name of programs) {
  test(`${name} prints the answer`, async () => {
    const settings = agents(name, "--config", weir.file, "--url", weir.url, "--model", "plain");
    assert.match(settings.needs, /^npm install /);
    const file = join(home, `${name}.mjs`);
    writeFileSync(file, settings.text);
    const env = { PATH: process.env.PATH };
    for (const { name, value } of settings.env) env[name] = value.replace("KEY", weir.key);
    const { stdout } = await run(process.execPath, [file], { cwd: home, env, timeout: 30_000 });
    assert.equal(stdout.trim(), "The river is quiet today.");
  });
}
