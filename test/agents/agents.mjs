// The agents: how each is started headless, and what keeps it from anything but the task. Address, key and model come
// from `weir agents NAME`, which is tried with them.
import { readFileSync } from "node:fs";
import { join } from "node:path";

// The only command that the simulated server asks for, and what it prints.
export const command = "echo weir-tool-ok";
export const said = "weir-tool-ok";

const { dependencies } = JSON.parse(readFileSync(new URL("package.json", import.meta.url), "utf8"));
const platform = `${process.platform}-${process.arch}`;

export const agents = {
  "claude-code": {
    version: dependencies["@anthropic-ai/claude-code"],
    env: { DISABLE_AUTOUPDATER: "1", DISABLE_TELEMETRY: "1", DISABLE_ERROR_REPORTING: "1" },
    command: (root, prompt) => [
      join(root, "@anthropic-ai", `claude-code-${platform}`, "claude"), "-p", prompt, "--output-format", "json", "--allowedTools", `Bash(${command})`,
    ],
  },
  codex: {
    version: dependencies["@openai/codex"],
    env: {},
    edit: (text) => `check_for_update_on_startup = false\n${text}\n[analytics]\nenabled = false\n`,
    command: (root, prompt) => [
      process.execPath, join(root, "@openai", "codex", "bin", "codex.js"), "exec", "--skip-git-repo-check", "--sandbox", "read-only", prompt,
    ],
  },
  opencode: {
    version: dependencies["opencode-ai"],
    env: { OPENCODE_DISABLE_MODELS_FETCH: "1", OPENCODE_DISABLE_AUTOUPDATE: "1", OPENCODE_DISABLE_LSP_DOWNLOAD: "1", OPENCODE_DISABLE_DEFAULT_PLUGINS: "1" },
    edit: (text) => JSON.stringify({
      ...JSON.parse(text), autoupdate: false, share: "disabled", permission: { edit: "deny", webfetch: "deny", bash: { "*": "deny", [command]: "allow" } },
    }),
    command: (root, prompt) => [join(root, `opencode-${platform.replace("win32", "windows")}`, "bin", "opencode"), "run", prompt],
  },
};
