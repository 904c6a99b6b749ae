// Items: every operation, preconditions, batches, bulk, time to live, keys and ids of all kinds.

package headwater;

import static headwater.Harness.check;
import static headwater.Harness.ensure;
import static headwater.Harness.equal;
import static headwater.Harness.fails;
import static headwater.Harness.notOffered;
import static headwater.Harness.numbers;
import static headwater.Harness.object;
import static headwater.Harness.plain;
import static headwater.Harness.sorted;

import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.models.CosmosBatch;
import com.azure.cosmos.models.CosmosBulkItemRequestOptions;
import com.azure.cosmos.models.CosmosBulkOperations;
import com.azure.cosmos.models.CosmosContainerProperties;
import com.azure.cosmos.models.CosmosItemIdentity;
import com.azure.cosmos.models.CosmosItemOperation;
import com.azure.cosmos.models.CosmosItemRequestOptions;
import com.azure.cosmos.models.CosmosPatchItemRequestOptions;
import com.azure.cosmos.models.CosmosPatchOperations;
import com.azure.cosmos.models.CosmosQueryRequestOptions;
import com.azure.cosmos.models.PartitionKey;
import com.azure.cosmos.models.PartitionKeyBuilder;
import com.azure.cosmos.models.PartitionKeyDefinition;
import com.azure.cosmos.models.PartitionKeyDefinitionVersion;
import com.azure.cosmos.models.PartitionKind;
import com.azure.cosmos.models.SqlParameter;
import com.azure.cosmos.models.SqlQuerySpec;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;

final class ItemChecks {
    private ItemChecks() {}

    static void register() {
        writes();
        keys();
        queries();
        preconditions();
        batches();
        timeToLive();
    }

    static PartitionKey key(Object value) {
        return new PartitionKey(value);
    }

    static JsonNode read(CosmosContainer container, String id, Object key) {
        return container.readItem(id, key(key), JsonNode.class).getItem();
    }

    static void missing(CosmosContainer container, String id, Object key) {
        fails(404, () -> read(container, id, key));
    }

    private static void writes() {
        check("items", "create returns the item with system properties", context -> {
            CosmosContainer container = context.container();
            ObjectNode given = object("id", "1", "pk", "a", "deep", object("list", List.of(1, 2.5, "drei", true)));
            var response = container.createItem(given);
            equal(response.getStatusCode(), 201, "the status");
            equal(plain(response.getItem()), given, "the item");
            for (String name : List.of("_rid", "_self", "_etag", "_ts", "_attachments")) {
                ensure(response.getItem().has(name), name + " is missing");
            }
            equal(response.getETag(), response.getItem().get("_etag").asText(), "the etag");
            ensure(response.getRequestCharge() > 0 && response.getSessionToken() != null, "a header is missing");
        });
        notOffered("items", "an id is made when asked for");
        check("items", "read", context -> {
            CosmosContainer container = context.container();
            container.createItem(object("id", "1", "pk", "a", "n", 1));
            equal(plain(read(container, "1", "a")), object("id", "1", "pk", "a", "n", 1), "the item");
        });
        check("items", "a missing item is not found", context -> {
            CosmosContainer container = context.container();
            missing(container, "2", "a");
            var options = new CosmosItemRequestOptions();
            fails(404, () -> container.replaceItem(object("id", "2", "pk", "a"), "2", key("a"), options));
            fails(404, () -> container.deleteItem("2", key("a"), options));
        });
        check("items", "a taken id conflicts", context -> {
            CosmosContainer container = context.container();
            container.createItem(object("id", "1", "pk", "a"));
            fails(409, () -> container.createItem(object("id", "1", "pk", "a")));
            container.createItem(object("id", "1", "pk", "b"));
        });
        check("items", "upsert creates and replaces", context -> {
            CosmosContainer container = context.container();
            equal(container.upsertItem(object("id", "1", "pk", "a", "old", true)).getStatusCode(), 201, "first");
            var second = container.upsertItem(object("id", "1", "pk", "a", "n", 2));
            equal(second.getStatusCode(), 200, "second");
            equal(plain(second.getItem()), object("id", "1", "pk", "a", "n", 2), "the item");
        });
        check("items", "replace", context -> {
            CosmosContainer container = context.container();
            ObjectNode item = container.createItem(object("id", "1", "pk", "a", "n", 1)).getItem();
            item.put("n", 2);
            var replaced = container.replaceItem(item, "1", key("a"), new CosmosItemRequestOptions()).getItem();
            equal(replaced.get("n").asInt(), 2, "n");
            equal(replaced.get("_rid"), item.get("_rid"), "the resource id");
        });
        check("items", "patch: every operation", context -> {
            CosmosContainer container = context.container();
            container.createItem(object("id", "1", "pk", "a", "n", 1, "old", 1, "list", List.of(1, 3), "from", "x"));
            var patch = CosmosPatchOperations.create()
                .add("/new", object("a", 1)).add("/list/1", 2).set("/set", List.of(true)).replace("/n", 10)
                .increment("/n", 5).remove("/old").move("/from", "/to");
            var patched = container.patchItem("1", key("a"), patch, ObjectNode.class).getItem();
            equal(plain(patched), object("id", "1", "pk", "a", "n", 15, "list", List.of(1, 2, 3), "new",
                object("a", 1), "set", List.of(true), "to", "x"), "the item");
        });
        check("items", "patch under a condition", context -> {
            CosmosContainer container = context.container();
            container.createItem(object("id", "1", "pk", "a", "n", 1));
            var patch = CosmosPatchOperations.create().increment("/n", 1);
            var options = new CosmosPatchItemRequestOptions().setFilterPredicate("from c where c.n = 1");
            container.patchItem("1", key("a"), patch, options, ObjectNode.class);
            fails(412, () -> container.patchItem("1", key("a"), patch, options, ObjectNode.class));
        });
        check("items", "delete", context -> {
            CosmosContainer container = context.container();
            container.createItem(object("id", "1", "pk", "a"));
            container.deleteItem("1", key("a"), new CosmosItemRequestOptions());
            missing(container, "1", "a");
        });
        check("items", "a write without a returned item", context -> {
            CosmosContainer container = context.container();
            var options = new CosmosItemRequestOptions().setContentResponseOnWriteEnabled(false);
            var response = container.createItem(object("id", "1", "pk", "a"), key("a"), options);
            equal(response.getItem(), null, "the item");
            ensure(response.getETag() != null, "the etag is missing");
        });
        check("items", "delete all of a partition key", context -> {
            CosmosContainer container = context.container();
            for (String id : numbers(0, 5)) container.createItem(object("id", id, "pk", "a"));
            container.createItem(object("id", "0", "pk", "b"));
            container.deleteAllItemsByPartitionKey(key("a"), new CosmosItemRequestOptions());
            missing(container, "0", "a");
            read(container, "0", "b");
        });
        check("items", "read many", context -> {
            CosmosContainer container = context.container();
            List<CosmosItemIdentity> wanted = new ArrayList<>();
            for (int number = 0; number < 20; number++) {
                String pk = "k" + number % 7;
                container.createItem(object("id", "" + number, "pk", pk));
                wanted.add(new CosmosItemIdentity(key(pk), "" + number));
            }
            var found = container.readMany(wanted, JsonNode.class).getResults();
            equal(sorted(found.stream().map(each -> each.get("id").asText()).toList()), numbers(0, 20), "the items");
        });
        check("items", "numbers and texts are kept exactly", context -> {
            CosmosContainer container = context.container();
            ObjectNode given = object("id", "1", "pk", "a", "big", 9007199254740991L, "small", -0.000001, "large", 1.5e300,
                "text", "\u0000\u001f\"\\/ äöü 日本 😀 \u2028", "", "empty name");
            container.createItem(given);
            equal(plain(read(container, "1", "a")), given, "the item");
        });
    }

    private static void keys() {
        check("items", "partition keys of every type", context -> {
            CosmosContainer container = context.container();
            for (Object value : List.of("ä b+%", 4.5, 42, true, false)) {
                container.createItem(object("id", "1", "pk", value));
                equal(read(container, "1", value).get("pk"), object("pk", value).get("pk"), "the key");
            }
            container.createItem(object("id", "null", "pk", null));
            container.createItem(object("id", "missing"));
            read(container, "null", null);
            container.readItem("missing", PartitionKey.NONE, JsonNode.class);
            missing(container, "missing", null);
        });
        check("hierarchical keys", "create, read, replace, delete", context -> {
            CosmosContainer container = context.container(hierarchical("/tenant", "/user", "/session"), null);
            ObjectNode item = object("id", "1", "tenant", "t", "user", "u", "session", 3);
            PartitionKey full = new PartitionKeyBuilder().add("t").add("u").add(3).build();
            container.createItem(item);
            equal(plain(container.readItem("1", full, JsonNode.class).getItem()), item, "the item");
            item.put("n", 1);
            container.replaceItem(item, "1", full, new CosmosItemRequestOptions());
            PartitionKey other = new PartitionKeyBuilder().add("t").add("u").add(4).build();
            fails(404, () -> container.readItem("1", other, JsonNode.class));
            container.deleteItem("1", full, new CosmosItemRequestOptions());
        });
        check("hierarchical keys", "query by a prefix", context -> {
            CosmosContainer container = context.container(hierarchical("/tenant", "/user"), null);
            for (int number = 0; number < 12; number++) {
                container.createItem(object("id", "" + number, "tenant", "t" + number % 3, "user", "u" + number));
            }
            var options = new CosmosQueryRequestOptions().setPartitionKey(new PartitionKeyBuilder().add("t1").build());
            var found = container.queryItems("SELECT VALUE c.id FROM c", options, String.class).stream().toList();
            equal(sorted(found), List.of("1", "4", "7", "10"), "the items");
        });
        check("odd ids", "spaces, unicode, plus, percent, quotes", context -> {
            CosmosContainer container = context.container();
            for (String id : List.of("a b", "äöü", "日本", "😀", "a+b", "a%20b", "100%", "a&b=c", "it's", "say \"x\"",
                "a.b~c-d_e", "a,b;c:d@e")) {
                container.createItem(object("id", id, "pk", id));
                equal(read(container, id, id).get("id").asText(), id, "the id");
                container.deleteItem(id, key(id), new CosmosItemRequestOptions());
                missing(container, id, id);
            }
        });
        check("session", "a client reads what it wrote", context -> {
            CosmosContainer container = context.container();
            String token = container.createItem(object("id", "1", "pk", "a")).getSessionToken();
            var options = new CosmosItemRequestOptions().setSessionToken(token);
            container.readItem("1", key("a"), options, JsonNode.class);
        });
    }

    static CosmosContainerProperties hierarchical(String... paths) {
        var definition = new PartitionKeyDefinition();
        definition.setPaths(List.of(paths));
        definition.setKind(PartitionKind.MULTI_HASH);
        definition.setVersion(PartitionKeyDefinitionVersion.V2);
        return new CosmosContainerProperties("items", definition);
    }

    private static void queries() {
        check("queries", "within a partition key", context -> {
            CosmosContainer container = context.container();
            FeedChecks.fill(container, 0, 10, 2);
            var query = new SqlQuerySpec("SELECT VALUE c.n FROM c WHERE c.n > @n", new SqlParameter("@n", 3));
            var options = new CosmosQueryRequestOptions().setPartitionKey(key("k0"));
            var found = container.queryItems(query, options, Integer.class).stream().sorted().toList();
            equal(found, List.of(4, 6, 8), "the numbers");
        });
        check("queries", "with a plan from the server", context -> {
            CosmosContainer container = context.container();
            FeedChecks.fill(container, 0, 20, 7);
            var options = new CosmosQueryRequestOptions();
            // The client merges what each range says only as the plan tells it to.
            var sums = "SELECT VALUE SUM(c.n) FROM c WHERE c.n < 10";
            equal(container.queryItems(sums, options, Double.class).stream().toList(), List.of(45.0), "the sum");
            var keys = "SELECT DISTINCT VALUE c.pk FROM c ORDER BY c.pk OFFSET 1 LIMIT 3";
            equal(container.queryItems(keys, options, String.class).stream().toList(), List.of("k1", "k2", "k3"), "the keys");
        });
        check("queries", "across partitions, in order", context -> {
            CosmosContainer container = context.container();
            FeedChecks.fill(container, 0, 20, 20);
            var options = new CosmosQueryRequestOptions();
            var ordered = container.queryItems("SELECT VALUE c.n FROM c ORDER BY c.n DESC", options, Integer.class);
            equal(ordered.stream().map(each -> 19 - each).toList(),
                numbers(0, 20).stream().map(Integer::valueOf).toList(), "the numbers");
            var count = container.queryItems("SELECT VALUE COUNT(1) FROM c", options, Integer.class);
            equal(count.stream().toList(), List.of(20), "the count");
            var average = container.queryItems("SELECT VALUE AVG(c.n) FROM c", options, Double.class);
            equal(average.stream().toList(), List.of(9.5), "the average");
            var some = container.queryItems("SELECT VALUE c.n FROM c ORDER BY c.n OFFSET 2 LIMIT 3", options, Integer.class);
            equal(some.stream().toList(), List.of(2, 3, 4), "the page");
        });
        check("read feed", "all items, page by page", context -> {
            CosmosContainer container = context.container();
            FeedChecks.fill(container, 0, 25, 7);
            List<String> found = new ArrayList<>();
            for (int number = 0; number < 7; number++) {
                container.readAllItems(key("k" + number), JsonNode.class).iterableByPage(4).forEach(page -> {
                    ensure(page.getResults().size() <= 4, "the page is too long");
                    page.getResults().forEach(each -> found.add(each.get("id").asText()));
                });
            }
            equal(sorted(found), numbers(0, 25), "the items");
        });
    }

    private static void preconditions() {
        check("preconditions", "a stale etag does not replace", context -> {
            CosmosContainer container = context.container();
            String old = container.upsertItem(object("id", "1", "pk", "a")).getETag();
            String fresh = container.upsertItem(object("id", "1", "pk", "a")).getETag();
            ObjectNode item = object("id", "1", "pk", "a");
            var stale = new CosmosItemRequestOptions().setIfMatchETag(old);
            fails(412, () -> container.replaceItem(item, "1", key("a"), stale));
            container.replaceItem(item, "1", key("a"), new CosmosItemRequestOptions().setIfMatchETag(fresh));
        });
        check("preconditions", "a stale etag does not upsert, patch or delete", context -> {
            CosmosContainer container = context.container();
            String old = container.upsertItem(object("id", "1", "pk", "a", "n", 1)).getETag();
            String fresh = container.upsertItem(object("id", "1", "pk", "a", "n", 1)).getETag();
            var stale = new CosmosItemRequestOptions().setIfMatchETag(old);
            fails(412, () -> container.upsertItem(object("id", "1", "pk", "a"), key("a"), stale));
            var patching = new CosmosPatchItemRequestOptions();
            patching.setIfMatchETag(old);
            var patch = CosmosPatchOperations.create().increment("/n", 1);
            fails(412, () -> container.patchItem("1", key("a"), patch, patching, ObjectNode.class));
            fails(412, () -> container.deleteItem("1", key("a"), stale));
            container.deleteItem("1", key("a"), new CosmosItemRequestOptions().setIfMatchETag(fresh));
        });
        check("preconditions", "an unchanged item is not sent again", context -> {
            CosmosContainer container = context.container();
            String etag = container.upsertItem(object("id", "1", "pk", "a")).getETag();
            var options = new CosmosItemRequestOptions().setIfNoneMatchETag(etag);
            equal(container.readItem("1", key("a"), options, JsonNode.class).getStatusCode(), 304, "the status");
            container.upsertItem(object("id", "1", "pk", "a", "n", 1));
            equal(container.readItem("1", key("a"), options, JsonNode.class).getStatusCode(), 200, "the status");
        });
    }

    private static void batches() {
        check("batch", "every operation in one transaction", context -> {
            CosmosContainer container = context.container();
            for (String id : List.of("read", "replace", "delete", "patch")) {
                container.createItem(object("id", id, "pk", "a", "n", 1));
            }
            CosmosBatch batch = CosmosBatch.createCosmosBatch(key("a"));
            batch.createItemOperation(object("id", "create", "pk", "a"));
            batch.upsertItemOperation(object("id", "upsert", "pk", "a"));
            batch.readItemOperation("read");
            batch.replaceItemOperation("replace", object("id", "replace", "pk", "a", "n", 2));
            batch.deleteItemOperation("delete");
            batch.patchItemOperation("patch", CosmosPatchOperations.create().increment("/n", 1));
            var response = container.executeCosmosBatch(batch);
            var statuses = response.getResults().stream().map(each -> each.getStatusCode()).toList();
            equal(statuses, List.of(201, 201, 200, 200, 204, 200), "statuses");
            equal(response.getResults().get(2).getItem(ObjectNode.class).get("n").asInt(), 1, "the item that was read");
        });
        check("batch", "a failing one changes nothing", context -> {
            CosmosContainer container = context.container();
            container.createItem(object("id", "taken", "pk", "a"));
            CosmosBatch batch = CosmosBatch.createCosmosBatch(key("a"));
            batch.createItemOperation(object("id", "new", "pk", "a"));
            batch.createItemOperation(object("id", "taken", "pk", "a"));
            var response = container.executeCosmosBatch(batch);
            var statuses = response.getResults().stream().map(each -> each.getStatusCode()).toList();
            equal(statuses, List.of(424, 409), "statuses");
            missing(container, "new", "a");
        });
        check("batch", "limits are named", context -> {
            CosmosContainer container = context.container();
            fails(400, () -> container.executeCosmosBatch(creates(101)));
            equal(container.executeCosmosBatch(creates(100)).isSuccessStatusCode(), true, "success");
        });
        bulk();
    }

    private static CosmosBatch creates(int count) {
        CosmosBatch batch = CosmosBatch.createCosmosBatch(key("a"));
        for (String id : numbers(0, count)) batch.createItemOperation(object("id", id, "pk", "a"));
        return batch;
    }

    private static void bulk() {
        check("bulk", "every operation", context -> {
            CosmosContainer container = context.container();
            for (String id : List.of("read", "replace", "delete", "patch")) {
                container.createItem(object("id", id, "pk", id, "n", 1));
            }
            List<CosmosItemOperation> operations = List.of(
                CosmosBulkOperations.getUpsertItemOperation(object("id", "upsert", "pk", "upsert"), key("upsert")),
                CosmosBulkOperations.getReadItemOperation("read", key("read")),
                CosmosBulkOperations.getReplaceItemOperation("replace", object("id", "replace", "pk", "replace"), key("replace")),
                CosmosBulkOperations.getDeleteItemOperation("delete", key("delete")),
                CosmosBulkOperations.getPatchItemOperation(
                    "patch", key("patch"), CosmosPatchOperations.create().increment("/n", 1)));
            Map<CosmosItemOperation, Integer> found = new IdentityHashMap<>();
            container.executeBulkOperations(operations)
                .forEach(each -> found.put(each.getOperation(), each.getResponse().getStatusCode()));
            equal(operations.stream().map(found::get).toList(), List.of(201, 200, 200, 204, 200), "statuses");
            equal(read(container, "patch", "patch").get("n").asInt(), 2, "the patched item");
        });
        check("bulk", "a write without a returned item", context -> {
            CosmosContainer container = context.container();
            var options = new CosmosBulkItemRequestOptions().setContentResponseOnWriteEnabled(false);
            var create = CosmosBulkOperations.getCreateItemOperation(object("id", "1", "pk", "a"), key("a"), options);
            for (var each : container.executeBulkOperations(List.of(create))) {
                equal(each.getResponse().getStatusCode(), 201, "the status");
                equal(each.getResponse().getItem(ObjectNode.class), null, "the item");
            }
            read(container, "1", "a");
        });
        check("bulk", "many operations over all ranges", context -> {
            CosmosContainer container = context.container();
            container.createItem(object("id", "0", "pk", "k0"));
            List<CosmosItemOperation> operations = new ArrayList<>();
            for (String id : numbers(0, 150)) {
                operations.add(CosmosBulkOperations.getCreateItemOperation(object("id", id, "pk", "k" + id), key("k" + id)));
            }
            int[] counts = new int[2];
            container.executeBulkOperations(operations).forEach(each -> {
                int status = each.getResponse() == null ? 0 : each.getResponse().getStatusCode();
                if (status == 201) counts[0]++;
                if (status == 409) counts[1]++;
            });
            equal(List.of(counts[0], counts[1]), List.of(149, 1), "created and conflicting");
            read(container, "149", "k149");
        });
    }

    private static CosmosContainerProperties expiring(int seconds) {
        var properties = new CosmosContainerProperties("items", "/pk");
        properties.setDefaultTimeToLiveInSeconds(seconds);
        return properties;
    }

    private static void timeToLive() {
        check("ttl", "an item expires", context -> {
            CosmosContainer container = context.container(expiring(-1), null);
            container.createItem(object("id", "short", "pk", "a", "ttl", 1));
            container.createItem(object("id", "long", "pk", "a", "ttl", -1));
            Thread.sleep(2500);
            missing(container, "short", "a");
            read(container, "long", "a");
        });
        check("ttl", "the container's default applies", context -> {
            CosmosContainer container = context.container(expiring(1), null);
            container.createItem(object("id", "default", "pk", "a"));
            container.createItem(object("id", "own", "pk", "a", "ttl", 100));
            Thread.sleep(2500);
            missing(container, "default", "a");
            read(container, "own", "a");
        });
        check("ttl", "an impossible one is refused", context -> {
            CosmosContainer container = context.container(expiring(-1), null);
            for (int ttl : new int[] {0, -2}) {
                fails(400, () -> container.createItem(object("id", "1", "pk", "a", "ttl", ttl)));
            }
        });
    }
}
