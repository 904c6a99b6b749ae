// Start-up, databases, containers, throughput, users: what is there before any item.

import { ENDPOINT, check, ensure, equal, fails, unique } from "./harness.mjs";

export default function register(cosmos) {
  check("start-up", "reads the account", async ({ client }) => {
    const { resource } = await client.getDatabaseAccount();
    equal(resource.consistencyPolicy, "Session");
    const at = resource.writableLocations[0].databaseAccountEndpoint;
    equal(at.replace(/\/$/, ""), ENDPOINT, "the endpoint the account names:");
  });

  check("start-up", "refuses a wrong key", async () => {
    const wrong = new cosmos.CosmosClient({ endpoint: ENDPOINT, key: "d3Jvbmcgd3Jvbmcgd3Jvbmc=" });
    await fails(401, () => wrong.databases.readAll().fetchAll());
    wrong.dispose();
  });

  check("databases", "create, read, list, delete", async ({ client }) => {
    const id = unique("round");
    const { database } = await client.databases.create({ id });
    equal((await database.read()).resource.id, id);
    const { resources } = await client.databases.readAll().fetchAll();
    ensure(resources.some((each) => each.id === id), "it is not in the list");
    await database.delete();
    await fails(404, () => database.read());
  });

  check("databases", "create if not exists", async (context) => {
    const { id } = await context.database();
    equal((await context.client.databases.createIfNotExists({ id })).statusCode, 200);
  });

  check("databases", "a taken id conflicts", async (context) => {
    const { id } = await context.database();
    await fails(409, () => context.client.databases.create({ id }));
  });

  check("databases", "query by id", async (context) => {
    const { id } = await context.database();
    const query = { query: "SELECT * FROM root r WHERE r.id = @id", parameters: [{ name: "@id", value: id }] };
    const { resources } = await context.client.databases.query(query).fetchAll();
    equal(resources.map((each) => each.id), [id]);
  });

  check("containers", "create, read, list, delete", async (context) => {
    const database = await context.database();
    const { container } = await database.containers.create({ id: "orders", partitionKey: { paths: ["/pk"] } });
    const { resource } = await container.read();
    equal(resource.partitionKey.paths, ["/pk"]);
    equal(resource.indexingPolicy.indexingMode, "consistent");
    const { resources } = await database.containers.readAll().fetchAll();
    equal(resources.map((each) => each.id), ["orders"]);
    await container.delete();
    await fails(404, () => container.read());
  });

  check("containers", "create if not exists", async (context) => {
    const database = await context.database();
    const wanted = { id: "orders", partitionKey: "/pk" };
    equal((await database.containers.createIfNotExists(wanted)).statusCode, 201);
    equal((await database.containers.createIfNotExists(wanted)).statusCode, 200);
  });

  check("containers", "a taken id conflicts", async (context) => {
    const database = await context.database();
    await database.containers.create({ id: "orders", partitionKey: "/pk" });
    await fails(409, () => database.containers.create({ id: "orders", partitionKey: "/pk" }));
  });

  check("containers", "policies come back as given", async (context) => {
    const compositeIndexes = [[{ path: "/a", order: "ascending" }, { path: "/b", order: "descending" }]];
    const container = await context.container({
      indexingPolicy: { indexingMode: "consistent", automatic: true, includedPaths: [{ path: "/*" }], compositeIndexes },
      uniqueKeyPolicy: { uniqueKeys: [{ paths: ["/email"] }] },
      defaultTtl: 3600,
    });
    const { resource } = await container.read();
    equal(resource.indexingPolicy.compositeIndexes, compositeIndexes);
    equal(resource.uniqueKeyPolicy.uniqueKeys[0].paths, ["/email"]);
    equal(resource.defaultTtl, 3600);
  });

  check("containers", "replace changes what may change", async (context) => {
    const container = await context.container();
    const { resource } = await container.read();
    await container.replace({ ...resource, defaultTtl: 60 });
    equal((await container.read()).resource.defaultTtl, 60);
  });

  check("containers", "query by id", async (context) => {
    const database = await context.database();
    for (const id of ["one", "two"]) await database.containers.create({ id, partitionKey: "/pk" });
    const { resources } = await database.containers.query("SELECT * FROM c WHERE c.id = 'two'").fetchAll();
    equal(resources.map((each) => each.id), ["two"]);
  });

  check("containers", "made anew under its name", async (context) => {
    const container = await context.container();
    await container.items.create({ id: "1", pk: "a" });
    await container.delete();
    await container.database.containers.create({ id: "items", partitionKey: { paths: ["/pk"] } });
    equal((await container.item("1", "a").read()).statusCode, 404);
    await container.items.create({ id: "1", pk: "a" });
  });

  check("containers", "unique keys", async (context) => {
    const container = await context.container({ uniqueKeyPolicy: { uniqueKeys: [{ paths: ["/email"] }] } });
    await container.items.create({ id: "1", pk: "a", email: "x" });
    await fails(409, () => container.items.create({ id: "2", pk: "a", email: "x" }));
    await container.items.create({ id: "2", pk: "b", email: "x" });
  });

  check("throughput", "read", async (context) => {
    const container = await context.container({ throughput: 700 });
    equal((await container.readOffer()).resource.content.offerThroughput, 700);
  });

  check("throughput", "replace", async (context) => {
    const container = await context.container({ throughput: 400 });
    const { offer, resource } = await container.readOffer();
    resource.content.offerThroughput = 1000;
    await offer.replace(resource);
    equal((await container.readOffer()).resource.content.offerThroughput, 1000);
  });

  check("throughput", "autoscale", async (context) => {
    const container = await context.container({ maxThroughput: 5000 });
    equal((await container.readOffer()).resource.content.offerAutopilotSettings.maxThroughput, 5000);
  });

  check("throughput", "of a database", async (context) => {
    const { database } = await context.client.databases.create({ id: unique("shared"), throughput: 600 });
    context.databases.push(database);
    equal((await database.readOffer()).resource.content.offerThroughput, 600);
  });

  check("users", "a permission's token reads and does not write", async (context) => {
    const container = await context.container();
    await container.items.create({ id: "1", pk: "a" });
    const { user } = await container.database.users.create({ id: "reader" });
    const { resource } = await user.permissions.create({
      id: "orders",
      permissionMode: cosmos.PermissionMode.Read,
      resource: container.url,
    });
    const guest = new cosmos.CosmosClient({ endpoint: ENDPOINT, resourceTokens: { [container.url]: resource._token } });
    const orders = guest.database(container.database.id).container("items");
    equal((await orders.item("1", "a").read()).resource.id, "1");
    await fails(403, () => orders.items.create({ id: "2", pk: "a" }));
    guest.dispose();
    const { resources } = await user.permissions.readAll().fetchAll();
    equal(resources.map((each) => each.id), ["orders"]);
  });
}
