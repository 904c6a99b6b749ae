// The client's change feed processor and ours on one lease container: they share the work, die, and go on
// where the other one was. Ours is the command, which HEADWATER_BINARY names; without it there is no fleet.

package headwater;

import static headwater.Harness.check;
import static headwater.Harness.ensure;
import static headwater.Harness.object;

import com.azure.cosmos.ChangeFeedProcessor;
import com.azure.cosmos.ChangeFeedProcessorBuilder;
import com.azure.cosmos.CosmosAsyncContainer;
import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.models.ChangeFeedProcessorOptions;
import com.azure.cosmos.models.CosmosContainerProperties;
import com.azure.cosmos.models.CosmosQueryRequestOptions;
import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;

final class MixedFleetChecks {
    private static final String BINARY = System.getenv("HEADWATER_BINARY");
    private static final Duration PATIENCE = Duration.ofSeconds(75);

    private MixedFleetChecks() {}

    static void register() {
        if (BINARY == null) return;
        check("mixed fleet", "shares leases by range with headwater run", context -> fleet(context, "java-pk"));
        check("mixed fleet", "shares leases by hashes with headwater run", context -> fleet(context, "java-epk"));
    }

    /** A monitored container, its leases, and what each side saw. */
    private static final class Stage {
        final String form;
        final CosmosContainer container;
        final CosmosContainer leases;
        final CosmosAsyncContainer monitored;
        final CosmosAsyncContainer leasing;
        final String database;
        final Set<String> theirs = ConcurrentHashMap.newKeySet();
        final Path ours;

        Stage(Context context, String form) throws IOException {
            this.form = form;
            container = context.container(new CosmosContainerProperties("items", "/pk"), null);
            context.databases.get(0).createContainer("leases", "/id");
            leases = context.databases.get(0).getContainer("leases");
            database = context.databases.get(0).getId();
            monitored = context.async.getDatabase(database).getContainer("items");
            leasing = context.async.getDatabase(database).getContainer("leases");
            ours = Files.createTempFile("headwater", ".seen");
            ours.toFile().deleteOnExit();
        }

        ChangeFeedProcessor java(String host) {
            var options = new ChangeFeedProcessorOptions()
                .setLeasePrefix("fleet")
                .setFeedPollDelay(Duration.ofMillis(200))
                .setLeaseAcquireInterval(Duration.ofSeconds(2))
                .setLeaseRenewInterval(Duration.ofSeconds(2))
                .setLeaseExpirationInterval(Duration.ofSeconds(8))
                .setStartFromBeginning(true);
            var builder = new ChangeFeedProcessorBuilder()
                .hostName(host).feedContainer(monitored).leaseContainer(leasing).options(options);
            if (form.equals("java-pk")) {
                builder.handleChanges(items -> items.forEach(each -> theirs.add(each.get("id").asText())));
            } else {
                builder.handleLatestVersionChanges(
                    items -> items.forEach(each -> theirs.add(each.getCurrent().get("id").asText())));
            }
            return builder.buildChangeFeedProcessor();
        }

        Process headwater(String host) throws IOException {
            String at = Harness.HTTP + "/" + database;
            return new ProcessBuilder(
                BINARY, "run", at + "/items", "--leases", at + "/leases", "--name", "fleet", "--shared", form,
                "--host", host, "--from", "beginning", "--expiration", "8", "--exec", "sh",
                "--", "-c", "cat >> " + ours)
                .redirectErrorStream(true).redirectOutput(ProcessBuilder.Redirect.DISCARD).start();
        }

        void fill(int from, int to) {
            for (int number = from; number < to; number++) {
                container.createItem(object("id", "" + number, "pk", "k" + number));
            }
        }

        Set<String> seenByOurs() throws IOException {
            Set<String> seen = new TreeSet<>();
            for (String line : Files.readAllLines(ours)) {
                try {
                    seen.add(Harness.JSON.readTree(line).get("id").asText());
                } catch (IOException half) {
                    // It is being written.
                }
            }
            return seen;
        }

        boolean has(int from, int to) throws IOException {
            Set<String> all = new TreeSet<>(theirs);
            all.addAll(seenByOurs());
            for (int number = from; number < to; number++) {
                if (!all.contains("" + number)) return false;
            }
            return true;
        }

        long owned(String host) {
            String query = "SELECT * FROM c WHERE c.Owner = '" + host + "'";
            return leases.queryItems(query, new CosmosQueryRequestOptions(), JsonNode.class).stream().count();
        }
    }

    interface Question {
        boolean isSo() throws Exception;
    }

    private static void until(String what, Question question) throws Exception {
        long end = System.nanoTime() + PATIENCE.toNanos();
        while (!question.isSo()) {
            ensure(System.nanoTime() < end, "it never came so far: " + what);
            Thread.sleep(100);
        }
    }

    private static void fleet(Context context, String form) throws Exception {
        Stage stage = new Stage(context, form);
        ChangeFeedProcessor java = stage.java("java");
        Process ours = null;
        try {
            stage.fill(0, 30);
            java.start().block();
            until("Java alone", () -> stage.has(0, 30));
            ours = stage.headwater("ours");
            until("both have leases", () -> stage.owned("ours") > 0 && stage.owned("java") > 0);
            stage.fill(30, 60);
            until("both together", () -> stage.has(30, 60));
            ensure(!stage.seenByOurs().isEmpty(), "ours took part");
            ours.destroyForcibly().waitFor();
            stage.fill(60, 90);
            until("Java after ours was killed", () -> stage.has(60, 90) && stage.owned("ours") == 0);
            ours = stage.headwater("again");
            until("ours has leases again", () -> stage.owned("again") > 0);
            java.stop().block();
            stage.fill(90, 120);
            until("ours after Java stopped", () -> stage.has(90, 120) && stage.owned("java") == 0);
        } finally {
            if (java.isStarted()) java.stop().block();
            if (ours != null) ours.destroyForcibly().waitFor();
        }
    }
}
