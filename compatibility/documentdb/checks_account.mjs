// Start-up, databases, containers, throughput, users: what is there before any item.

import { KEY, check, ensure, equal, fails, notOffered, unique } from "../javascript/harness.mjs";

export default function register({ Client, proxy, server }) {
  check("start-up", "reads the account", async ({ client }) => {
    const { result } = await client.call("getDatabaseAccount");
    equal(result.ConsistencyPolicy.defaultConsistencyLevel, "Session");
    const at = result.WritableLocations[0].databaseAccountEndpoint;
    equal(at.replace(/\/$/, ""), proxy.endpoint, "the endpoint the account names:");
  });

  check("start-up", "refuses a wrong key", async () => {
    const wrong = new Client({ masterKey: "d3Jvbmcgd3Jvbmcgd3Jvbmc=" });
    await fails(401, () => wrong.list("readDatabases"));
    wrong.end();
  });

  check("start-up", "TLS 1.0 ends at the proxy", async ({ client }) => {
    await client.list("readDatabases");
    equal([...proxy.protocols], ["TLSv1"]);
    const direct = new Client({ masterKey: KEY }, server);
    // The server ends such a connection before any request: an error of TLS, not an answer with a status.
    const error = await direct.list("readDatabases").then(() => null, (refused) => refused);
    direct.end();
    ensure(/ERR_SSL|ECONNRESET|EPROTO/.test(error?.code), `the server speaks TLS 1.0: ${error?.code}`);
  });

  check("databases", "create, read, list, delete", async ({ client }) => {
    const id = unique("round");
    await client.call("createDatabase", { id });
    equal((await client.call("readDatabase", `dbs/${id}`)).result.id, id);
    const listed = await client.list("readDatabases");
    ensure(listed.some((each) => each.id === id), "it is not in the list");
    await client.call("deleteDatabase", `dbs/${id}`);
    await fails(404, () => client.call("readDatabase", `dbs/${id}`));
  });

  notOffered("databases", "create if not exists");

  check("databases", "a taken id conflicts", async (context) => {
    const id = (await context.database()).slice(4);
    await fails(409, () => context.client.call("createDatabase", { id }));
  });

  check("databases", "query by id", async (context) => {
    const id = (await context.database()).slice(4);
    const query = { query: "SELECT * FROM root r WHERE r.id = @id", parameters: [{ name: "@id", value: id }] };
    equal((await context.client.list("queryDatabases", query)).map((each) => each.id), [id]);
  });

  check("containers", "create, read, list, delete", async (context) => {
    const link = await context.container();
    const { result } = await context.client.call("readCollection", link);
    equal(result.partitionKey.paths, ["/pk"]);
    const listed = await context.client.list("readCollections", context.databases[0]);
    equal(listed.map((each) => each.id), ["items"]);
    await context.client.call("deleteCollection", link);
    await fails(404, () => context.client.call("readCollection", link));
  });

  notOffered("containers", "create if not exists");

  check("containers", "a taken id conflicts", async (context) => {
    await context.container();
    const again = { id: "items", partitionKey: { paths: ["/pk"], kind: "Hash" } };
    await fails(409, () => context.client.call("createCollection", context.databases[0], again));
  });

  check("containers", "policies come back as given", async (context) => {
    const link = await context.container({
      indexingPolicy: { indexingMode: "consistent", automatic: true, includedPaths: [{ path: "/*" }] },
      uniqueKeyPolicy: { uniqueKeys: [{ paths: ["/email"] }] },
      defaultTtl: 3600,
    });
    const { result } = await context.client.call("readCollection", link);
    equal(result.indexingPolicy.indexingMode, "consistent");
    equal(result.uniqueKeyPolicy.uniqueKeys[0].paths, ["/email"]);
    equal(result.defaultTtl, 3600);
  });

  check("containers", "replace changes what may change", async (context) => {
    const link = await context.container();
    const { result } = await context.client.call("readCollection", link);
    await context.client.call("replaceCollection", link, { ...result, defaultTtl: 60 });
    equal((await context.client.call("readCollection", link)).result.defaultTtl, 60);
  });

  check("containers", "query by id", async (context) => {
    await context.container();
    const found = await context.client.list("queryCollections", context.databases[0], "SELECT * FROM c WHERE c.id = 'items'");
    equal(found.map((each) => each.id), ["items"]);
  });

  check("containers", "made anew under its name", async (context) => {
    const { client } = context;
    const link = await context.container();
    await client.call("createDocument", link, { id: "1", pk: "a" });
    await client.call("deleteCollection", link);
    await client.call("createCollection", context.databases[0], { id: "items", partitionKey: { paths: ["/pk"], kind: "Hash" } });
    await fails(404, () => client.call("readDocument", `${link}/docs/1`, { partitionKey: "a" }));
    await client.call("createDocument", link, { id: "1", pk: "a" });
  });

  check("containers", "unique keys", async (context) => {
    const link = await context.container({ uniqueKeyPolicy: { uniqueKeys: [{ paths: ["/email"] }] } });
    await context.client.call("createDocument", link, { id: "1", pk: "a", email: "x" });
    await fails(409, () => context.client.call("createDocument", link, { id: "2", pk: "a", email: "x" }));
    await context.client.call("createDocument", link, { id: "2", pk: "b", email: "x" });
  });

  /** The client lists all offers and finds one by the resource it is for. */
  const offerOf = async ({ client }, link) => {
    const { result } = await client.call(link.includes("/colls/") ? "readCollection" : "readDatabase", link);
    const offers = await client.list("readOffers");
    const trim = (text) => text.replace(/\/$/, "");
    return offers.find((each) => trim(each.resource) === trim(result._self));
  };

  check("throughput", "read", async (context) => {
    const link = await context.container({}, { offerThroughput: 700 });
    equal((await offerOf(context, link)).content.offerThroughput, 700);
  });

  check("throughput", "replace", async (context) => {
    const link = await context.container({}, { offerThroughput: 400 });
    const offer = await offerOf(context, link);
    offer.content.offerThroughput = 1000;
    await context.client.call("replaceOffer", offer._self, offer);
    equal((await context.client.call("readOffer", offer._self)).result.content.offerThroughput, 1000);
  });

  notOffered("throughput", "autoscale");

  check("throughput", "of a database", async (context) => {
    const id = unique("shared");
    await context.client.call("createDatabase", { id }, { offerThroughput: 600 });
    context.databases.push(`dbs/${id}`);
    equal((await offerOf(context, `dbs/${id}`)).content.offerThroughput, 600);
  });

  check("users", "a permission's token reads and does not write", async (context) => {
    const { client } = context;
    const link = await context.container();
    await client.call("createDocument", link, { id: "1", pk: "a" });
    await client.call("createUser", context.databases[0], { id: "reader" });
    const user = `${context.databases[0]}/users/reader`;
    const wanted = { id: "orders", permissionMode: "Read", resource: link };
    const { result } = await client.call("createPermission", user, wanted);
    const guest = new Client({ resourceTokens: { items: result._token } });
    equal((await guest.call("readDocument", `${link}/docs/1`, { partitionKey: "a" })).result.id, "1");
    const write = { id: "2", pk: "a" };
    await fails(403, () => guest.call("createDocument", link, write, { partitionKey: "a" }));
    guest.end();
    equal((await client.list("readPermissions", user)).map((each) => each.id), ["orders"]);
  });
}
