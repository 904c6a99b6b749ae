// Ends TLS 1.0 for clients that speak nothing newer, and goes on to the server with the TLS of today.
// Bytes pass unchanged. Its certificate is its own; the runner makes it and has the client trust it.

import { readFileSync } from "node:fs";
import { connect, createServer } from "node:tls";

/** Listens on a free port; what the clients spoke is kept in `protocols`. */
export async function startProxy(endpoint, { authorityFile, certificateFile, keyFile }) {
  const { hostname, port } = new URL(endpoint);
  const authority = readFileSync(authorityFile);
  const protocols = new Set();
  const options = {
    cert: readFileSync(certificateFile),
    key: readFileSync(keyFile),
    minVersion: "TLSv1",
    maxVersion: "TLSv1",
    // OpenSSL counts the signatures of TLS 1.0 among what is too weak for any higher level.
    ciphers: "DEFAULT@SECLEVEL=0",
  };
  const server = createServer(options, (client) => {
    protocols.add(client.getProtocol());
    const upstream = connect({ host: hostname, port: Number(port), ca: authority, ALPNProtocols: ["http/1.1"] });
    for (const [one, other] of [[client, upstream], [upstream, client]]) {
      one.pipe(other);
      // A connection that breaks on one side is of no use on the other.
      one.on("error", () => other.destroy());
      one.on("close", () => other.destroy());
    }
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  return { endpoint: `https://127.0.0.1:${server.address().port}`, protocols };
}
