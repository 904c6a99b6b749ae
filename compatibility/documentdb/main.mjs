// Runs the checks with the client of the first articles, npm `documentdb`, through a proxy of ours: it asks
// for `TLSv1_client_method` on every request (its lib/request.js), which is TLS 1.0 and nothing else, and the
// server speaks nothing that old. Needs `node --tls-cipher-list=DEFAULT@SECLEVEL=0` for the same reason.

import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

// The client lies in the private folder the runner made, not beside this file.
const require = createRequire(pathToFileURL(`${process.env.HEADWATER_MODULES}/`));
const documentdb = require("documentdb");

import { KEY, run, unique } from "../javascript/harness.mjs";
import { startProxy } from "./proxy.mjs";

const SERVER = process.env.HEADWATER_ENDPOINT_HTTPS;
const HOME = process.env.HEADWATER_MODULES;
const proxy = await startProxy(SERVER, {
  authorityFile: process.env.HEADWATER_AUTHORITY,
  certificateFile: `${HOME}/proxy.pem`,
  keyFile: `${HOME}/proxy-key.pem`,
});

/** Turns the client's callbacks into promises: `{ result, headers }`, or what it calls an error. */
class Client {
  constructor(auth, endpoint = proxy.endpoint) {
    this.inner = new documentdb.DocumentClient(endpoint, auth);
  }

  call(method, ...given) {
    return new Promise((done, fail) =>
      this.inner[method](...given, (error, result, headers) => (error ? fail(error) : done({ result, headers }))),
    );
  }

  /** All of a feed or query. */
  list(method, ...given) {
    const iterator = this.inner[method](...given);
    return new Promise((done, fail) => iterator.toArray((error, found) => (error ? fail(error) : done(found))));
  }

  /** One page of it. */
  page(method, ...given) {
    const iterator = this.inner[method](...given);
    return new Promise((done, fail) =>
      iterator.executeNext((error, items, headers) => (error ? fail(error) : done({ items, headers }))),
    );
  }

  end() {
    this.inner.requestAgent.destroy();
  }
}

class Context {
  client = this.newClient();
  databases = [];

  newClient() {
    return new Client({ masterKey: KEY });
  }

  async database() {
    const { result } = await this.client.call("createDatabase", { id: unique("legacy") });
    this.databases.push(`dbs/${result.id}`);
    return `dbs/${result.id}`;
  }

  /** The link of a container in a database of its own. */
  async container(definition = {}, options = {}) {
    const database = await this.database();
    const wanted = { id: "items", partitionKey: { paths: ["/pk"], kind: "Hash" }, ...definition };
    await this.client.call("createCollection", database, wanted, options);
    return `${database}/colls/items`;
  }

  async end() {
    for (const database of this.databases) await this.client.call("deleteDatabase", database);
    this.client.end();
  }
}

const { default: account } = await import("./checks_account.mjs");
const { default: items } = await import("./checks_items.mjs");
const { default: feed } = await import("./checks_feed.mjs");
account({ Client, proxy, server: SERVER });
items();
feed();
await run("documentdb", () => new Context());
