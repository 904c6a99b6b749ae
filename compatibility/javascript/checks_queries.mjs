// Queries beyond a filter: what several partitions have to be merged for, and how a query goes on.

import { check, equal, notOffered } from "./harness.mjs";

const WORDS = ["ash", "birch", "cedar"];

/** Twenty of these over seven keys; `word` is missing from every fourth. */
export function item(n) {
  const made = { id: String(n), pk: `k${n % 7}`, n, tags: [n % 2, n % 3] };
  return n % 4 ? { ...made, word: WORDS[n % 3] } : made;
}

export const KEYS = ["k0", "k1", "k2", "k3", "k4", "k5", "k6"];
const ascending = (one, two) => one - two;

/**
 * Registers the checks for a client that is asked by `ask(items, query, options)`, where options are `key` for one
 * partition key and `page` for the length of pages, and that reads a page by `page(context, items, query, options,
 * token)` with a client of its own.
 */
export function registerQueries({ filled, ask, page }) {
  check("queries", "parameters", async (context) => {
    const items = await filled(context);
    const text = "SELECT VALUE c.n FROM c WHERE c.word = @word AND ARRAY_CONTAINS(@numbers, c.n)";
    const parameters = [{ name: "@word", value: "birch" }, { name: "@numbers", value: [1, 2, 7, 10] }];
    equal((await ask(items, { query: text, parameters })).sort(ascending), [1, 7, 10]);
    equal(await ask(items, { query: text, parameters }, { key: "k0" }), [7]);
  });

  check("queries", "aggregates", async (context) => {
    const items = await filled(context);
    for (const [query, expected] of [
      ["SELECT VALUE COUNT(1) FROM c", 20],
      ["SELECT VALUE COUNT(c.word) FROM c", 15],
      ["SELECT VALUE SUM(c.n) FROM c WHERE c.n < 10", 45],
      ["SELECT VALUE AVG(c.n) FROM c", 9.5],
      ["SELECT VALUE MIN(c.word) FROM c", "ash"],
      ["SELECT VALUE MAX(c.n) FROM c", 19],
    ]) {
      equal(await ask(items, query), [expected]);
    }
    const several = "SELECT COUNT(1) AS many, MAX(c.n) AS most FROM c";
    equal(await ask(items, several, { key: "k0" }), [{ many: 3, most: 14 }]);
  });

  check("queries", "group by", async (context) => {
    const items = await filled(context);
    const query = "SELECT c.word, COUNT(1) AS many FROM c WHERE IS_DEFINED(c.word) GROUP BY c.word";
    const groups = (found) => found.map((each) => `${each.word} ${each.many}`).sort();
    equal(groups(await ask(items, query, { key: "k1" })), ["ash 1", "birch 1"]);
    equal(groups(await ask(items, query)), ["ash 5", "birch 5", "cedar 5"]);
  });

  check("queries", "distinct", async (context) => {
    const items = await filled(context);
    equal((await ask(items, "SELECT DISTINCT VALUE c.word FROM c")).sort(), WORDS);
    equal(await ask(items, "SELECT DISTINCT VALUE c.pk FROM c", { key: "k1" }), ["k1"]);
    equal(await ask(items, "SELECT DISTINCT VALUE c.pk FROM c ORDER BY c.pk", { page: 2 }), KEYS);
  });

  check("queries", "top, offset and limit", async (context) => {
    const items = await filled(context);
    equal(await ask(items, "SELECT TOP 3 VALUE c.n FROM c ORDER BY c.n DESC", { key: "k1" }), [15, 8, 1]);
    equal(await ask(items, "SELECT VALUE c.n FROM c ORDER BY c.n OFFSET 1 LIMIT 1", { key: "k1" }), [8]);
    equal(await ask(items, "SELECT TOP 3 VALUE c.n FROM c ORDER BY c.n DESC"), [19, 18, 17]);
    equal(await ask(items, "SELECT VALUE c.n FROM c ORDER BY c.n OFFSET 4 LIMIT 3", { page: 2 }), [4, 5, 6]);
    equal((await ask(items, "SELECT VALUE c.n FROM c OFFSET 18 LIMIT 5")).length, 2);
  });

  check("queries", "joins and sub-queries", async (context) => {
    const items = await filled(context);
    for (const query of [
      "SELECT VALUE c.n FROM c JOIN t IN c.tags WHERE t = 2",
      "SELECT VALUE c.n FROM c WHERE EXISTS (SELECT VALUE t FROM t IN c.tags WHERE t > 1)",
    ]) {
      equal((await ask(items, query)).sort(ascending), [2, 5, 8, 11, 14, 17]);
      equal(await ask(items, `${query} ORDER BY c.n`), [2, 5, 8, 11, 14, 17]);
    }
  });

  check("queries", "a continuation goes on in another client", async (context) => {
    const items = await filled(context);
    for (const [query, expected, options] of [
      ["SELECT VALUE c.n FROM c", [1, 8, 15], { key: "k1", page: 2 }],
      ["SELECT VALUE c.n FROM c ORDER BY c.n DESC", [1, 8, 15], { key: "k1", page: 2 }],
      ["SELECT VALUE c.n FROM c", Array.from({ length: 20 }, (_, n) => n), { page: 2 }],
    ]) {
      const found = [];
      let token;
      for (let pages = 0; pages < 30; pages++) {
        const next = await page(context, items, query, options, token);
        found.push(...next.rows);
        token = next.token;
        if (!token) break;
      }
      equal(found.sort(ascending), expected);
    }
  });
}

export default function register(cosmos) {
  const given = ({ key, page } = {}) => ({
    ...(key === undefined ? {} : { partitionKey: key }),
    ...(page === undefined ? {} : { maxItemCount: page }),
  });

  registerQueries({
    filled: async (context) => {
      const container = await context.container();
      for (let n = 0; n < 20; n++) await container.items.create(item(n));
      return container;
    },
    ask: async (container, query, options) => (await container.items.query(query, given(options)).fetchAll()).resources,
    page: async (context, container, query, options, token) => {
      const client = context.newClient();
      const other = client.database(container.database.id).container(container.id);
      const wanted = { ...given(options), continuationToken: token, enableQueryControl: options.key === undefined };
      const { resources, continuationToken } = await other.items.query(query, wanted).fetchNext();
      client.dispose();
      return { rows: resources ?? [], token: continuationToken };
    },
  });
  // The client looks items up one by one; there is no operation for many.
  if (!cosmos.Items.prototype.readMany) notOffered("items", "read many");
}
