// Stands between an agent and Weir, passes everything on as it is and keeps what the agent sent.
import http from "node:http";

// record starts it in front of the Weir at url.
export async function record(url) {
  const requests = [];
  const server = http.createServer(async (req, res) => {
    const pieces = [];
    for await (const piece of req) pieces.push(piece);
    const body = Buffer.concat(pieces);
    requests.push({ method: req.method, path: req.url, headers: pairs(req.rawHeaders), body: body.toString("utf8") });
    const onward = http.request(url + req.url, { method: req.method, headers: { ...req.headers, host: new URL(url).host } }, (answer) => {
      res.writeHead(answer.statusCode, answer.headers);
      answer.pipe(res);
      answer.on("error", () => res.destroy());
    });
    onward.on("error", () => res.destroy());
    res.on("close", () => onward.destroy());
    onward.end(body);
  });
  await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
  return {
    url: `http://127.0.0.1:${server.address().port}`,
    requests,
    stop() { server.close(); server.closeAllConnections(); },
  };
}

function pairs(raw) {
  const all = [];
  for (let i = 0; i < raw.length; i += 2) all.push([raw[i], raw[i + 1]]);
  return all;
}
