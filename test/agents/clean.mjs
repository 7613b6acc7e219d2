// Turns what an agent sent into a record that may be kept: the names of members, the types of blocks, the names of tools and
// headers. Texts become ‹N›, which stands for N characters of text; ids become id-1, id-2, …, the same id the same name.
// Our own prompt and the result of our own command stay.

// Members whose values are words of the protocol.
const words = new Set(["$schema", "additionalProperties", "effort", "enum", "format", "include", "keep", "model", "name", "object", "required",
  "role", "status", "summary", "syntax", "tool_choice", "ttl", "type", "verbosity"]);
const word = /^[A-Za-z0-9_$][\w.:/#-]{0,63}$/;

// Headers whose values are words of the protocol; of any other the name is kept.
const plain = /^(accept|accept-encoding|accept-language|anthropic-(version|beta|dangerous-direct-browser-access)|content-type|originator|x-app|x-codex-beta-features|x-stainless-(retry-count|lang|package-version|runtime|timeout|helper-method))$/i;
const credential = /^(authorization|x-api-key)$/i;
const ours = /^(host|connection|content-length|transfer-encoding)$/i;

const isID = (key) => /(^|[_-])(id|ids|key|uuid|session|affinity)$|session|^user$/i.test(key);

// clean returns the requests in the form that is kept.
export function clean(requests, own) {
  const ids = new Map();
  const id = (text) => {
    if (!ids.has(text)) ids.set(text, `id-${ids.size + 1}`);
    return ids.get(text);
  };
  const text = (s) => {
    if (s === own.prompt || s.trim() === own.said) return s;
    if (s.startsWith("x-anthropic-billing-header: ")) return `x-anthropic-billing-header: ‹${s.length - 28}›`; // changes with each version
    if (s.includes(own.said)) return `‹${s.length - own.said.length - 1}› ${own.said}`;
    return s === "" ? s : `‹${s.length}›`;
  };
  const value = (v, key) => {
    if (Array.isArray(v)) return v.map((each) => value(each, key));
    if (v !== null && typeof v === "object") {
      const members = Object.entries(v).map(([k, each]) => [k, value(each, k)]);
      return Object.fromEntries(key === "client_metadata" ? members.sort() : members); // Codex writes them in any order
    }
    if (typeof v === "number" && v > 1e12) return 1e12; // a time
    if (typeof v !== "string") return v;
    if (v.startsWith("{")) {
      try { return JSON.stringify(value(JSON.parse(v), key)); } catch { /* a text that begins so */ }
    }
    if (isID(key) && v !== "") return id(v);
    if (key === "command" || key === "cmd") return v.includes(own.said) ? v : text(v);
    return words.has(key) && word.test(v) ? v : text(v);
  };
  const told = (name, v) => {
    if (credential.test(name)) return v.startsWith("Bearer ") ? "Bearer KEY" : "KEY";
    if (/^user-agent$/i.test(name)) return v.split(" ")[0];
    return plain.test(name) ? v : value(v, name);
  };
  return requests.map((r) => ({
    method: r.method, path: r.path,
    headers: r.headers.filter(([name]) => !ours.test(name)).map(([name, v]) => `${name}: ${told(name, v)}`),
    body: r.body === "" ? undefined : value(JSON.parse(r.body), ""),
  }));
}

// print writes a value as JSON, with a line for each member and element of its first levels.
export function print(v, depth = 0) {
  if (v === null || typeof v !== "object" || depth === 5) return JSON.stringify(v);
  const [open, close] = Array.isArray(v) ? "[]" : "{}";
  const members = Array.isArray(v) ? v.map((each) => print(each, depth + 1))
    : Object.entries(v).filter(([, each]) => each !== undefined).map(([k, each]) => `${JSON.stringify(k)}: ${print(each, depth + 1)}`);
  if (members.length === 0) return open + close;
  const indent = " ".repeat(depth);
  return `${open}\n${members.map((m) => `${indent} ${m}`).join(",\n")}\n${indent}${close}`;
}
