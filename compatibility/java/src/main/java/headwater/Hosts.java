// Hosts of the client's change feed processor, for `headwater bench processor`: no checks, only work. Prints the
// id of every change it is given, and ends when its standard input does, so that it never outlives who began it.
//
//   Hosts DATABASE CONTAINER LEASES NAME[,NAME] defaults|settled|fast

package headwater;

import com.azure.cosmos.ChangeFeedProcessorBuilder;
import com.azure.cosmos.CosmosAsyncDatabase;
import com.azure.cosmos.models.ChangeFeedProcessorOptions;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;

public final class Hosts {
    private Hosts() {}

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        String container = arguments[1];
        String leases = arguments[2];
        for (String name : arguments[3].split(",")) {
            // Every host has a client of its own, as if it were a process of its own.
            CosmosAsyncDatabase database = Context.builder(Harness.KEY).buildAsyncClient().getDatabase(arguments[0]);
            new ChangeFeedProcessorBuilder()
                .hostName(name)
                .feedContainer(database.getContainer(container))
                .leaseContainer(database.getContainer(leases))
                .options(options(arguments[4]))
                .handleLatestVersionChanges(
                    items -> items.forEach(each -> out.println(each.getCurrent().get("id").asText())))
                .buildChangeFeedProcessor()
                .start().block();
        }
        while (System.in.read() >= 0) {
            // Nothing is said; only the end counts.
        }
        // The client keeps threads of its own.
        System.exit(0);
    }

    private static ChangeFeedProcessorOptions options(String settings) {
        var options = new ChangeFeedProcessorOptions().setStartFromBeginning(true);
        switch (settings) {
            case "defaults" -> { }
            case "settled" -> options.setLeaseAcquireInterval(Duration.ofSeconds(1));
            case "fast" -> options
                // In whole seconds: with less it never takes a lease.
                .setLeaseRenewInterval(Duration.ofSeconds(1))
                .setLeaseAcquireInterval(Duration.ofSeconds(1))
                .setLeaseExpirationInterval(Duration.ofSeconds(3))
                .setFeedPollDelay(Duration.ofMillis(100));
            default -> throw new IllegalArgumentException(settings);
        }
        return options;
    }
}
