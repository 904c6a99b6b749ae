// Runs the checks with the official JavaScript client.

import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

// The client lies in the private folder the runner made, not beside this file.
const require = createRequire(pathToFileURL(`${process.env.HEADWATER_MODULES}/`));
const cosmos = require("@azure/cosmos");

import { ENDPOINT, KEY, run, unique } from "./harness.mjs";

class Context {
  client = this.newClient();
  databases = [];

  newClient() {
    return new cosmos.CosmosClient({ endpoint: ENDPOINT, key: KEY });
  }

  async database() {
    const { database } = await this.client.databases.create({ id: unique("js") });
    this.databases.push(database);
    return database;
  }

  async container(definition = {}, options = undefined) {
    const database = await this.database();
    const wanted = { id: "items", partitionKey: { paths: ["/pk"], version: 2 }, ...definition };
    return (await database.containers.create(wanted, options)).container;
  }

  async end() {
    for (const database of this.databases) await database.delete();
    this.client.dispose();
  }
}

const { default: account } = await import("./checks_account.mjs");
const { default: items } = await import("./checks_items.mjs");
const { default: queries } = await import("./checks_queries.mjs");
const { default: feed } = await import("./checks_feed.mjs");
const { default: scripts } = await import("./checks_scripts.mjs");
account(cosmos);
items(cosmos);
queries(cosmos);
feed(cosmos);
scripts(cosmos);
await run("javascript", () => new Context());
