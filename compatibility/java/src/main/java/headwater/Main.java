// Runs the checks with the official Java client, in gateway mode over TLS.

package headwater;

public final class Main {
    private Main() {}

    public static void main(String[] arguments) throws Exception {
        Harness.trustAuthority();
        AccountChecks.register();
        ItemChecks.register();
        QueryChecks.register();
        FeedChecks.register();
        ProcessorChecks.register();
        MixedFleetChecks.register();
        ScriptChecks.register();
        boolean green = Harness.run(new Context());
        // The client keeps threads of its own.
        System.exit(green ? 0 : 1);
    }
}
