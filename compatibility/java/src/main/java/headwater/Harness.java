// What a compatibility program needs around its checks: names, results, and a line to the runner.
// A check passes by returning. Nothing here knows a database operation.

package headwater;

import com.azure.cosmos.CosmosException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.net.HttpURLConnection;
import java.net.URI;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.time.Duration;
import java.time.ZoneOffset;
import java.time.ZonedDateTime;
import java.time.format.DateTimeFormatter;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Comparator;
import java.util.List;
import java.util.Objects;
import java.util.UUID;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

final class Harness {
    static final String ENDPOINT = System.getenv("HEADWATER_ENDPOINT_HTTPS");
    static final String HTTP = System.getenv("HEADWATER_ENDPOINT");
    static final String KEY = System.getenv("HEADWATER_ACCOUNT_KEY");
    static final ObjectMapper JSON = new ObjectMapper();
    private static final Duration CHECK_TIME_MAX = Duration.ofSeconds(80);
    private static final BufferedReader ANSWERS = new BufferedReader(new InputStreamReader(System.in));
    private static final PrintStream OUT = new PrintStream(System.out, true, StandardCharsets.UTF_8);

    interface Work {
        void run(Context context) throws Exception;
    }

    private record Check(String group, String name, Work work) {}

    private static final List<Check> CHECKS = new ArrayList<>();

    private Harness() {}

    static void check(String group, String name, Work work) {
        CHECKS.add(new Check(group, name, work));
    }

    /** Says that the client itself lacks what a check is about. */
    static void notOffered(String group, String name) {
        CHECKS.add(new Check(group, name, null));
    }

    static void equal(Object found, Object expected, String about) {
        if (!Objects.equals(found, expected)) {
            throw new AssertionError(about + ": found " + found + ", expected " + expected);
        }
    }

    static void ensure(boolean holds, String otherwise) {
        if (!holds) throw new AssertionError(otherwise);
    }

    /** Does the work and demands that the server refuses it with this status. */
    static CosmosException fails(int status, Runnable work) {
        try {
            work.run();
        } catch (CosmosException refused) {
            equal(refused.getStatusCode(), status, "the status");
            return refused;
        }
        throw new AssertionError("expected " + status + ", but it succeeded");
    }

    static ObjectNode object(Object... namesAndValues) {
        ObjectNode object = JSON.createObjectNode();
        for (int at = 0; at < namesAndValues.length; at += 2) {
            object.set((String) namesAndValues[at], JSON.valueToTree(namesAndValues[at + 1]));
        }
        return object;
    }

    static ObjectNode plain(JsonNode item) {
        ObjectNode kept = item.deepCopy();
        List<String> names = new ArrayList<>();
        kept.fieldNames().forEachRemaining(names::add);
        names.stream().filter(name -> name.startsWith("_")).forEach(kept::remove);
        return kept;
    }

    static String unique(String prefix) {
        return prefix + "-" + UUID.randomUUID().toString().substring(0, 8);
    }

    static List<String> numbers(int from, int to) {
        return IntStream.range(from, to).mapToObj(Integer::toString).toList();
    }

    static List<String> sorted(List<String> ids) {
        return ids.stream().sorted(Comparator.comparingInt(Integer::parseInt)).toList();
    }

    static void restartServer() throws IOException {
        OUT.println("{\"control\":\"restart\"}");
        String answer = ANSWERS.readLine();
        ensure(answer != null && answer.contains("true"), "the runner could not: " + answer);
    }

    /** A signed request to Headwater's own path, which no official client knows. */
    static void split(String database, String container, String range) throws Exception {
        String date = DateTimeFormatter.RFC_1123_DATE_TIME.format(ZonedDateTime.now(ZoneOffset.UTC));
        String link = "dbs/" + database + "/colls/" + container;
        String text = "post\ncolls\n" + link + "\n" + date.toLowerCase() + "\n\n";
        Mac mac = Mac.getInstance("HmacSHA256");
        mac.init(new SecretKeySpec(Base64.getDecoder().decode(KEY), "HmacSHA256"));
        String signature = Base64.getEncoder().encodeToString(mac.doFinal(text.getBytes(StandardCharsets.UTF_8)));
        String token = URLEncoder.encode("type=master&ver=1.0&sig=" + signature, StandardCharsets.UTF_8);
        URI uri = URI.create(HTTP + "/_headwater/partitions/" + database + "/" + container + "/split");
        HttpURLConnection connection = (HttpURLConnection) uri.toURL().openConnection();
        connection.setRequestMethod("POST");
        connection.setRequestProperty("authorization", token);
        connection.setRequestProperty("x-ms-date", date);
        connection.setDoOutput(true);
        try (OutputStream out = connection.getOutputStream()) {
            out.write(JSON.writeValueAsBytes(object("range", range)));
        }
        equal(connection.getResponseCode(), 200, "the split");
    }

    /** Trusts the server's own authority, as an administrator would tell a virtual machine to. */
    static void trustAuthority() throws Exception {
        KeyStore store = KeyStore.getInstance("PKCS12");
        store.load(null, null);
        try (var in = Files.newInputStream(Path.of(System.getenv("HEADWATER_AUTHORITY")))) {
            store.setCertificateEntry("headwater", CertificateFactory.getInstance("X.509").generateCertificate(in));
        }
        Path file = Files.createTempFile("headwater", ".p12");
        file.toFile().deleteOnExit();
        try (var out = Files.newOutputStream(file)) {
            store.store(out, "changeit".toCharArray());
        }
        System.setProperty("javax.net.ssl.trustStore", file.toString());
        System.setProperty("javax.net.ssl.trustStorePassword", "changeit");
        System.setProperty("javax.net.ssl.trustStoreType", "PKCS12");
    }

    /** Runs every check, one after the other; false if one failed. */
    static boolean run(Context context) throws Exception {
        String only = Objects.requireNonNullElse(System.getenv("HEADWATER_ONLY"), "");
        boolean green = true;
        ExecutorService worker = Executors.newCachedThreadPool(work -> {
            Thread thread = new Thread(work);
            thread.setDaemon(true);
            return thread;
        });
        for (Check check : CHECKS) {
            if (!(check.group + ": " + check.name).contains(only)) continue;
            if (check.work == null) {
                OUT.println(JSON.writeValueAsString(object(
                    "client", "java", "group", check.group, "check", check.name, "ok", true, "offered", false)));
                continue;
            }
            String detail = "";
            try {
                var done = worker.submit(() -> {
                    check.work.run(context);
                    return null;
                });
                done.get(CHECK_TIME_MAX.toSeconds(), TimeUnit.SECONDS);
                context.end();
            } catch (Throwable problem) {
                Throwable cause = problem.getCause() == null ? problem : problem.getCause();
                detail = cause.getClass().getSimpleName() + ": " + cause.getMessage();
                detail = detail.substring(0, Math.min(600, detail.length()));
                if (System.getenv("HEADWATER_VERBOSE") != null) cause.printStackTrace();
                context.databases.clear();
            }
            green &= detail.isEmpty();
            OUT.println(JSON.writeValueAsString(object(
                "client", "java", "group", check.group, "check", check.name, "ok", detail.isEmpty(), "detail", detail)));
        }
        return green;
    }
}
