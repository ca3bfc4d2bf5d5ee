package interop;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Qpid JMS against any AMQP 1.0 broker: Interop amqp://host:port
 *
 * <p>Prints one line for each check and exits 0 if none failed. Each check has its own queue and its own connection.
 */
public final class Interop {
    private static final String[] SKIPS = {
        "body amqp-sequence: JMS has StreamMessage, which travels as an amqp-value list",
        "several data sections: JMS has one body",
        "modified with message-annotations: JMS can set no annotations",
        "first-acquirer: JMS does not show it",
        "receiver-settle-mode second: Qpid JMS uses first",
        "amqp-value of a number by itself: Qpid JMS writes typed numbers in lists and maps only",
        "amqp-value array, described: Java arrays and described values are not what JMS hands out again",
        "transactional acquisition: Qpid JMS never sets a txn-id on a link",
        "transaction, outcomes other than accepted, and outcomes that are not settled: JMS has none",
        "transaction, two in one session, one over two sessions: a JMS session has its own and one at a time",
    };

    private final String url;
    private final String part;
    private final Map<String, Check> checks = new LinkedHashMap<>();
    private final Map<String, String> options = new LinkedHashMap<>();
    private final List<String> skips = new ArrayList<>(List.of(SKIPS));

    private Interop(String url, String part) {
        this.url = url;
        this.part = part;
    }

    interface Check {
        void run(Client client) throws Exception;
    }

    void check(String name, Check check) {
        checks.put(name, check);
    }

    /** A check whose connection has options of Qpid JMS's connection URI. */
    void check(String name, String connectionOptions, Check check) {
        checks.put(name, check);
        options.put(name, connectionOptions);
    }

    /** A check that cannot be made in this run, and why. */
    void skip(String name, String reason) {
        skips.add(name + ": " + reason);
    }

    private boolean run(String name, Check check) {
        try (Client client = new Client(url, options.getOrDefault(name, ""))) {
            check.run(client);
        } catch (Exception problem) {
            String message = problem instanceof Client.Failure ? problem.getMessage() : "expected no error, got " + problem;
            System.out.println("FAIL " + name + ": " + message.replaceAll("\\s+", " "));
            return false;
        }
        System.out.println("ok " + name);
        return true;
    }

    private boolean runAll() {
        int ran = 0;
        int failed = 0;
        for (Map.Entry<String, Check> item : checks.entrySet()) {
            if (item.getKey().contains(part)) {
                ran++;
                failed += run(item.getKey(), item.getValue()) ? 0 : 1;
            }
        }
        for (String reason : skips) {
            System.out.println("skip " + reason);
        }
        return ran > 0 && failed == 0;
    }

    public static void main(String[] arguments) {
        if (arguments.length != 1 && arguments.length != 2) {
            System.err.println("usage: Interop amqp://host:port [part of a check's name]");
            System.exit(2);
        }
        Interop interop = new Interop(arguments[0], arguments.length == 2 ? arguments[1] : "");
        Messages.register(interop);
        Behaviour.register(interop);
        Transactions.register(interop);
        Isolation.register(interop);
        TransactionEnds.register(interop);
        DeadLetters.register(interop);
        Halves.register(interop);
        HalfChecks.register(interop);
        HalfSets.register(interop);
        Sequences.register(interop);
        Topics.register(interop);
        Times.register(interop);
        boolean passed = interop.runAll();
        System.exit(passed ? 0 : 1);
    }
}
