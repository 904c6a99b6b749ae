// The client's change feed processor, in both generations: leases of ours, two hosts, no change lost.

package headwater;

import static headwater.Harness.check;
import static headwater.Harness.ensure;
import static headwater.Harness.equal;
import static headwater.Harness.object;
import static headwater.Harness.split;

import com.azure.cosmos.ChangeFeedProcessor;
import com.azure.cosmos.ChangeFeedProcessorBuilder;
import com.azure.cosmos.CosmosAsyncContainer;
import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.models.ChangeFeedPolicy;
import com.azure.cosmos.models.ChangeFeedProcessorOptions;
import com.azure.cosmos.models.CosmosContainerProperties;
import com.azure.cosmos.models.CosmosItemRequestOptions;
import com.azure.cosmos.models.CosmosQueryRequestOptions;
import com.azure.cosmos.models.PartitionKey;
import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.BooleanSupplier;

final class ProcessorChecks {
    private static final Duration PATIENCE = Duration.ofSeconds(40);

    private ProcessorChecks() {}

    /** What the hosts saw: each item, and which hosts saw it. */
    private static final class Seen {
        final Map<String, Set<String>> hosts = new ConcurrentHashMap<>();
        final Set<String> deleted = ConcurrentHashMap.newKeySet();

        void add(String id, String host) {
            hosts.computeIfAbsent(id, unused -> ConcurrentHashMap.newKeySet()).add(host);
        }

        boolean has(int from, int to) {
            for (int number = from; number < to; number++) {
                if (!hosts.containsKey("" + number)) return false;
            }
            return true;
        }
    }

    /** A monitored container, its leases, and what was seen of it. */
    private static final class Stage {
        final CosmosContainer container;
        final CosmosContainer leases;
        final CosmosAsyncContainer monitored;
        final CosmosAsyncContainer leasing;
        final String database;
        final Seen seen = new Seen();

        Stage(Context context) {
            var properties = new CosmosContainerProperties("items", "/pk");
            properties.setChangeFeedPolicy(ChangeFeedPolicy.createAllVersionsAndDeletesPolicy(Duration.ofMinutes(10)));
            container = context.container(properties, null);
            context.databases.get(0).createContainer("leases", "/id");
            leases = context.databases.get(0).getContainer("leases");
            database = context.databases.get(0).getId();
            monitored = context.async.getDatabase(database).getContainer("items");
            leasing = context.async.getDatabase(database).getContainer("leases");
        }

        private ChangeFeedProcessorBuilder builder(String host) {
            var options = new ChangeFeedProcessorOptions()
                .setFeedPollDelay(Duration.ofMillis(200))
                .setLeaseAcquireInterval(Duration.ofSeconds(2))
                .setLeaseRenewInterval(Duration.ofSeconds(2))
                .setLeaseExpirationInterval(Duration.ofSeconds(6))
                .setStartFromBeginning(true);
            return new ChangeFeedProcessorBuilder()
                .hostName(host).feedContainer(monitored).leaseContainer(leasing).options(options);
        }

        ChangeFeedProcessor firstGeneration(String host) {
            return builder(host)
                .handleChanges(items -> items.forEach(each -> seen.add(each.get("id").asText(), host)))
                .buildChangeFeedProcessor();
        }

        ChangeFeedProcessor latestVersion(String host) {
            return builder(host)
                .handleLatestVersionChanges(
                    items -> items.forEach(each -> seen.add(each.getCurrent().get("id").asText(), host)))
                .buildChangeFeedProcessor();
        }

        ChangeFeedProcessor allVersions(String host) {
            ChangeFeedProcessorBuilder builder = builder(host);
            builder.options(new ChangeFeedProcessorOptions()
                .setFeedPollDelay(Duration.ofMillis(200))
                .setLeaseAcquireInterval(Duration.ofSeconds(2))
                .setLeaseRenewInterval(Duration.ofSeconds(2))
                .setLeaseExpirationInterval(Duration.ofSeconds(6)));
            return builder
                .handleAllVersionsAndDeletesChanges(items -> items.forEach(each -> {
                    switch (each.getChangeFeedMetaData().getOperationType()) {
                        case DELETE -> seen.deleted.add(each.getPrevious().get("id").asText());
                        default -> seen.add(each.getCurrent().get("id").asText(), host);
                    }
                }))
                .buildChangeFeedProcessor();
        }

        void fill(int from, int to) {
            for (int number = from; number < to; number++) {
                container.createItem(object("id", "" + number, "pk", "k" + number));
            }
        }

        /** Who owns which lease, how far it is, and when it was last renewed. */
        String describeLeases() {
            var query = "SELECT c.id, c.Owner, c.ContinuationToken, c.timestamp, c._ts FROM c";
            return leases.queryItems(query, new CosmosQueryRequestOptions(), JsonNode.class).stream()
                .map(JsonNode::toString).toList().toString();
        }

        /** How many hosts own leases now. */
        long owners() {
            var query = "SELECT DISTINCT VALUE c.Owner FROM c WHERE IS_DEFINED(c.Owner) AND NOT IS_NULL(c.Owner)";
            return leases.queryItems(query, new CosmosQueryRequestOptions(), JsonNode.class).stream().count();
        }
    }

    private static void goOn(Stage stage) throws Exception {
        ChangeFeedProcessor one = stage.latestVersion("one");
        one.start().block();
        stage.fill(0, 20);
        until("20 changes are seen", () -> stage.seen.has(0, 20));
        // A checkpoint follows its batch.
        Thread.sleep(1000);
        stop(one);
        // Before the fill: a host that was told to stop may still take a batch, and that counts.
        stage.seen.hosts.clear();
        stage.fill(20, 40);
        ChangeFeedProcessor two = stage.latestVersion("two");
        two.start().block();
        try {
            until("the later changes are seen", () -> stage.seen.has(20, 40));
        } catch (AssertionError inVain) {
            stop(two);
            throw new AssertionError(inVain.getMessage() + "; seen " + stage.seen.hosts.keySet() + "; leases "
                + stage.describeLeases());
        }
        ensure(!stage.seen.hosts.containsKey("0"), "a change before the checkpoint came again");
        stop(two);
    }

    private static void until(String what, BooleanSupplier holds) throws InterruptedException {
        for (long waited = 0; waited < PATIENCE.toMillis(); waited += 200) {
            if (holds.getAsBoolean()) return;
            Thread.sleep(200);
        }
        throw new AssertionError("in vain waited until " + what);
    }

    private static void stop(ChangeFeedProcessor... hosts) {
        for (ChangeFeedProcessor host : hosts) host.stop().block(Duration.ofSeconds(20));
    }

    static void register() {
        check("processor", "first generation: every change, over a split", context -> {
            Stage stage = new Stage(context);
            stage.fill(0, 30);
            ChangeFeedProcessor host = stage.firstGeneration("one");
            host.start().block();
            until("30 changes are seen", () -> stage.seen.has(0, 30));
            split(stage.database, "items", "0");
            stage.fill(30, 60);
            until("60 changes are seen", () -> stage.seen.has(0, 60));
            stop(host);
        });
        check("processor", "latest versions: two hosts share the leases", context -> {
            Stage stage = new Stage(context);
            stage.fill(0, 30);
            ChangeFeedProcessor one = stage.latestVersion("one");
            one.start().block();
            until("30 changes are seen", () -> stage.seen.has(0, 30));
            ChangeFeedProcessor two = stage.latestVersion("two");
            two.start().block();
            until("both hosts own leases", () -> stage.owners() == 2);
            stage.fill(30, 90);
            until("90 changes are seen", () -> stage.seen.has(0, 90));
            Set<String> hosts = ConcurrentHashMap.newKeySet();
            stage.seen.hosts.values().forEach(hosts::addAll);
            equal(hosts, Set.of("one", "two"), "hosts that saw changes");
            stop(one);
            stage.fill(90, 120);
            until("the other host has taken over", () -> stage.seen.has(0, 120));
            stop(two);
        });
        check("processor", "a host goes on where the last one stopped", context -> {
            goOn(new Stage(context));
        });
        check("processor", "all versions and deletes", context -> {
            Stage stage = new Stage(context);
            ChangeFeedProcessor host = stage.allVersions("one");
            host.start().block();
            Thread.sleep(3000);
            stage.fill(0, 10);
            stage.container.deleteItem("3", new PartitionKey("k3"), new CosmosItemRequestOptions());
            until("10 changes are seen", () -> stage.seen.has(0, 10));
            until("the delete is seen", () -> stage.seen.deleted.contains("3"));
            stop(host);
        });
    }
}
