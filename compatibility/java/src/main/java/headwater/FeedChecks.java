// Feed ranges, and the change feed in all the ways the client can ask for it.

package headwater;

import static headwater.Harness.check;
import static headwater.Harness.ensure;
import static headwater.Harness.equal;
import static headwater.Harness.notOffered;
import static headwater.Harness.numbers;
import static headwater.Harness.object;
import static headwater.Harness.restartServer;
import static headwater.Harness.sorted;
import static headwater.Harness.split;

import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.models.ChangeFeedPolicy;
import com.azure.cosmos.models.CosmosBatch;
import com.azure.cosmos.models.CosmosChangeFeedRequestOptions;
import com.azure.cosmos.models.CosmosContainerProperties;
import com.azure.cosmos.models.CosmosItemRequestOptions;
import com.azure.cosmos.models.FeedRange;
import com.azure.cosmos.models.FeedResponse;
import com.azure.cosmos.models.PartitionKey;
import com.azure.cosmos.models.PartitionKeyBuilder;
import com.azure.cosmos.models.PartitionKeyDefinition;
import com.azure.cosmos.models.PartitionKeyDefinitionVersion;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;

final class FeedChecks {
    private FeedChecks() {}

    static void fill(CosmosContainer container, int from, int to, int keys) {
        for (int number = from; number < to; number++) {
            container.createItem(object("id", "" + number, "pk", "k" + number % keys, "n", number));
        }
    }

    /** Reads a change feed to its end, and remembers where that was. */
    static final class Feed {
        private final CosmosContainer container;
        private CosmosChangeFeedRequestOptions start;
        private int pageSize = 100;
        private boolean allVersions;

        Feed(CosmosContainer container, CosmosChangeFeedRequestOptions start) {
            this.container = container;
            this.start = start;
        }

        Feed pageSize(int items) {
            pageSize = items;
            return this;
        }

        Feed allVersions() {
            allVersions = true;
            return this;
        }

        List<List<JsonNode>> pages() {
            if (allVersions) start.allVersionsAndDeletes();
            start.setMaxItemCount(pageSize);
            List<List<JsonNode>> pages = new ArrayList<>();
            String position = null;
            for (FeedResponse<JsonNode> page : container.queryChangeFeed(start, JsonNode.class).iterableByPage()) {
                position = page.getContinuationToken();
                if (!page.getResults().isEmpty()) pages.add(page.getResults());
            }
            start = CosmosChangeFeedRequestOptions.createForProcessingFromContinuation(position);
            return pages;
        }

        List<JsonNode> read() {
            return pages().stream().flatMap(List::stream).toList();
        }

        List<String> ids() {
            return read().stream().map(each -> each.get("id").asText()).toList();
        }

        void reads(List<String> expected) {
            equal(sorted(ids()), expected, "the changes");
        }
    }

    static Feed beginning(CosmosContainer container, FeedRange range) {
        return new Feed(container, CosmosChangeFeedRequestOptions.createForProcessingFromBeginning(range));
    }

    static Feed beginning(CosmosContainer container) {
        return beginning(container, FeedRange.forFullRange());
    }

    static void register() {
        ranges();
        starts();
        pages();
        disturbances();
        allVersions();
    }

    private static void ranges() {
        check("feed ranges", "they cover the container", context -> {
            CosmosContainer container = context.container();
            fill(container, 0, 20, 7);
            List<FeedRange> ranges = container.getFeedRanges();
            ensure(ranges.size() >= 2, ranges.size() + " ranges");
            List<String> found = new ArrayList<>();
            ranges.forEach(range -> found.addAll(beginning(container, range).ids()));
            equal(sorted(found), numbers(0, 20), "the items");
        });
        notOffered("feed ranges", "a key's range is within one of them");
        check("change feed", "of one partition key", context -> {
            CosmosContainer container = context.container();
            fill(container, 0, 21, 7);
            Feed feed = beginning(container, FeedRange.forLogicalPartition(new PartitionKey("k3")));
            equal(feed.ids(), List.of("3", "10", "17"), "the changes");
            fill(container, 21, 28, 7);
            equal(feed.ids(), List.of("24"), "the changes");
        });
        check("change feed", "of a hierarchical key and its prefix", context -> {
            CosmosContainer container = context.container(ItemChecks.hierarchical("/tenant", "/user"), null);
            for (int number = 0; number < 12; number++) {
                container.createItem(object("id", "" + number, "tenant", "t" + number % 3, "user", "u" + number % 2));
            }
            PartitionKey full = new PartitionKeyBuilder().add("t1").add("u1").build();
            beginning(container, FeedRange.forLogicalPartition(full)).reads(List.of("1", "7"));
            PartitionKey prefix = new PartitionKeyBuilder().add("t1").build();
            beginning(container, FeedRange.forLogicalPartition(prefix)).reads(List.of("1", "4", "7", "10"));
        });
        check("change feed", "of one range", context -> {
            CosmosContainer container = context.container();
            List<Feed> feeds = container.getFeedRanges().stream().map(range -> beginning(container, range)).toList();
            for (int from : new int[] {0, 20}) {
                fill(container, from, from + 20, 7);
                List<String> found = new ArrayList<>();
                for (Feed feed : feeds) {
                    List<String> ids = feed.ids();
                    equal(ids, sorted(ids), "the order");
                    found.addAll(ids);
                }
                equal(sorted(found), numbers(from, from + 20), "the changes");
            }
        });
        check("change feed", "of a part of a range", context -> {
            // Where hashes lie depends on the version, and the bound below is one of the second.
            var definition = new PartitionKeyDefinition();
            definition.setPaths(List.of("/pk"));
            definition.setVersion(PartitionKeyDefinitionVersion.V2);
            CosmosContainer container = context.container(new CosmosContainerProperties("items", definition), null);
            fill(container, 0, 20, 7);
            FeedRange first = container.getFeedRanges().get(0);
            List<String> found = new ArrayList<>();
            for (String bound : List.of("max", "min")) {
                ObjectNode part = (ObjectNode) Harness.JSON.readTree(Base64.getDecoder().decode(first.toString()));
                ((ObjectNode) part.get("Range")).put(bound, "0A000000000000000000000000000000");
                found.addAll(beginning(container, FeedRange.fromString(encoded(part))).ids());
            }
            equal(sorted(found), sorted(beginning(container, first).ids()), "the changes");
        });
    }

    /** Ranges are texts to this client's users; inside they are JSON in base64. */
    private static String encoded(ObjectNode range) {
        return Base64.getEncoder().encodeToString(range.toString().getBytes(StandardCharsets.UTF_8));
    }

    private static void starts() {
        check("change feed", "from the beginning", context -> {
            CosmosContainer container = context.container();
            fill(container, 0, 20, 7);
            container.upsertItem(object("id", "19", "pk", "k5", "n", 100));
            container.deleteItem("0", new PartitionKey("k0"), new CosmosItemRequestOptions());
            Feed feed = beginning(container);
            feed.reads(numbers(1, 20));
            feed.reads(List.of());
            fill(container, 20, 23, 7);
            feed.reads(numbers(20, 23));
        });
        check("change feed", "from now", context -> {
            CosmosContainer container = context.container();
            fill(container, 0, 10, 7);
            Feed feed = new Feed(container,
                CosmosChangeFeedRequestOptions.createForProcessingFromNow(FeedRange.forFullRange()));
            feed.reads(List.of());
            fill(container, 10, 20, 7);
            feed.reads(numbers(10, 20));
        });
        check("change feed", "from a time", context -> {
            CosmosContainer container = context.container();
            fill(container, 0, 10, 7);
            Thread.sleep(2100);
            Instant middle = Instant.now();
            fill(container, 10, 20, 7);
            from(container, middle).reads(numbers(10, 20));
            from(container, middle.plus(Duration.ofHours(1))).reads(List.of());
            from(container, middle.minus(Duration.ofHours(1))).reads(numbers(0, 20));
        });
    }

    private static Feed from(CosmosContainer container, Instant time) {
        return new Feed(container,
            CosmosChangeFeedRequestOptions.createForProcessingFromPointInTime(time, FeedRange.forFullRange()));
    }

    private static void pages() {
        check("change feed", "page sizes", context -> {
            CosmosContainer container = context.container();
            fill(container, 0, 20, 7);
            var pages = beginning(container).pageSize(3).pages();
            equal(pages.stream().mapToInt(List::size).sum(), 20, "the number of changes");
            ensure(pages.stream().allMatch(page -> page.size() <= 3), "a page is too long");
        });
        check("change feed", "a transaction stays on one page", context -> {
            CosmosContainer container = context.container();
            for (int number = 0; number < 3; number++) {
                CosmosBatch batch = CosmosBatch.createCosmosBatch(new PartitionKey("a"));
                for (int part = 0; part < 5; part++) {
                    batch.createItemOperation(object("id", number + "-" + part, "pk", "a"));
                }
                container.executeCosmosBatch(batch);
            }
            var pages = beginning(container).pageSize(1).pages();
            equal(pages.stream().map(List::size).toList(), List.of(5, 5, 5), "page sizes");
            for (var page : pages) {
                equal(page.stream().map(each -> each.get("_lsn").asLong()).distinct().count(), 1L, "positions on a page");
            }
        });
    }

    private static void disturbances() {
        check("change feed", "resumes after a restart of the server", context -> {
            CosmosContainer container = context.container();
            fill(container, 0, 10, 7);
            Feed feed = beginning(container);
            feed.reads(numbers(0, 10));
            fill(container, 10, 15, 7);
            restartServer();
            feed.reads(numbers(10, 15));
            fill(container, 15, 20, 7);
            feed.reads(numbers(15, 20));
        });
        check("change feed", "a split during a read", context -> {
            CosmosContainer container = context.container();
            fill(container, 0, 30, 30);
            Feed feed = beginning(container);
            feed.reads(numbers(0, 30));
            fill(container, 30, 60, 30);
            for (String range : List.of("0", "1")) split(context.databases.get(0).getId(), "items", range);
            feed.reads(numbers(30, 60));
            fill(container, 60, 90, 30);
            feed.reads(numbers(60, 90));
            beginning(container).reads(numbers(0, 90));
        });
    }

    private static void allVersions() {
        var properties = new CosmosContainerProperties("items", "/pk");
        properties.setDefaultTimeToLiveInSeconds(-1);
        properties.setChangeFeedPolicy(ChangeFeedPolicy.createAllVersionsAndDeletesPolicy(Duration.ofMinutes(10)));
        check("change feed", "all versions and deletes", context -> {
            CosmosContainer container = context.container(properties, null);
            fill(container, 0, 3, 7);
            Feed feed = allVersions(container);
            equal(feed.read(), List.of(), "the changes");
            container.createItem(object("id", "x", "pk", "a", "n", 1));
            container.upsertItem(object("id", "x", "pk", "a", "n", 2));
            container.deleteItem("x", new PartitionKey("a"), new CosmosItemRequestOptions());
            List<JsonNode> changes = feed.read();
            equal(kinds(changes), List.of("create", "replace", "delete"), "kinds");
            equal(changes.get(1).get("previous").get("n").asInt(), 1, "the previous version");
            equal(changes.get(2).get("previous").get("n").asInt(), 2, "the deleted version");
            equal(feed.read(), List.of(), "the changes");
        });
        // The client itself refuses another start, so no server is asked.
        notOffered("change feed", "all versions only from now or a position");
        check("change feed", "all versions: an expired item is a delete", context -> {
            CosmosContainer container = context.container(properties, null);
            Feed feed = allVersions(container);
            feed.read();
            container.createItem(object("id", "x", "pk", "a", "ttl", 1));
            List<JsonNode> found = new ArrayList<>();
            for (int attempt = 0; attempt < 20 && found.size() < 2; attempt++) {
                found.addAll(feed.read());
                Thread.sleep(500);
            }
            equal(kinds(found), List.of("create", "delete"), "kinds");
            equal(found.get(1).get("metadata").get("timeToLiveExpired").asBoolean(), true, "expired");
        });
    }

    private static Feed allVersions(CosmosContainer container) {
        var start = CosmosChangeFeedRequestOptions.createForProcessingFromNow(FeedRange.forFullRange());
        return new Feed(container, start).allVersions();
    }

    private static List<String> kinds(List<JsonNode> changes) {
        return changes.stream().map(each -> each.get("metadata").get("operationType").asText()).toList();
    }
}
