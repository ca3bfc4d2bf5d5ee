package interop;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.TimeUnit;

/**
 * Programs as people write them with Spring, Camel, Vert.x and RabbitMQ's client: Interop amqp://host:port
 *
 * <p>Prints one line for each check and exits 0 if none failed. Each check has queues of its own.
 */
public final class Interop {
    static final long TIMEOUT_MS = 20_000;
    private static final int SHOWN_CHARACTERS = 300;

    final String url;
    private final String part;
    private final Map<String, Check> checks = new LinkedHashMap<>();
    private final List<String> skips = new ArrayList<>();

    private Interop(String url, String part) {
        this.url = url;
        this.part = part;
    }

    interface Check {
        /** Runs with the name of a queue that nobody used before. */
        void run(String queue) throws Exception;
    }

    interface Condition {
        boolean holds() throws Exception;
    }

    void check(String name, Check check) {
        checks.put(name, check);
    }

    /** A check that cannot be made in this run, and why. */
    void skip(String name, String reason) {
        skips.add(name + ": " + reason);
    }

    /** A check of what a broker does only where its settings say so: a variable tells which names they hold for. */
    void checkWith(String variable, String name, Check check) {
        String prefix = System.getenv(variable);
        if (prefix == null) {
            skip(name, variable + " is not set: the broker needs settings for it");
        } else {
            check(name, queue -> check.run(prefix + queue));
        }
    }

    static String user() {
        return System.getenv("AMQP_USER");
    }

    static String password() {
        return System.getenv("AMQP_PASSWORD");
    }

    static void expect(String what, Object expected, Object got) {
        if (!Arrays.deepEquals(new Object[] {expected}, new Object[] {got})) {
            throw new Failure(what + ": expected " + show(expected) + ", got " + show(got));
        }
    }

    /** What comes next, within the time of one step. */
    static <T> T next(String what, BlockingQueue<T> from) throws InterruptedException {
        T found = from.poll(TIMEOUT_MS, TimeUnit.MILLISECONDS);
        if (found == null) {
            throw new Failure(what + ": expected something within " + TIMEOUT_MS + " ms, got nothing");
        }
        return found;
    }

    static <T> List<T> next(String what, BlockingQueue<T> from, int count) throws InterruptedException {
        List<T> found = new ArrayList<>();
        while (found.size() < count) {
            found.add(next(what, from));
        }
        return found;
    }

    static void until(String what, Condition condition) throws Exception {
        long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(TIMEOUT_MS);
        while (!condition.holds()) {
            if (System.nanoTime() > end) {
                throw new Failure(what + ": expected within " + TIMEOUT_MS + " ms, never came");
            }
            Thread.sleep(10);
        }
    }

    private static String show(Object value) {
        String text = Arrays.deepToString(new Object[] {value});
        return text.length() > SHOWN_CHARACTERS ? text.substring(0, SHOWN_CHARACTERS) + "..." : text;
    }

    private boolean run(String name, Check check) {
        try {
            check.run("clients-java-programs-" + UUID.randomUUID().toString().substring(0, 13));
        } catch (Exception problem) {
            String message = problem instanceof Failure ? problem.getMessage() : "expected no error, got " + problem;
            if (System.getenv("AMQP_TRACE") != null) {
                problem.printStackTrace();
            }
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
        Spring.register(interop);
        Camel.register(interop);
        Vertx.register(interop);
        RabbitMq.register(interop);
        System.exit(interop.runAll() ? 0 : 1);
    }

    /** The broker answered other than expected. */
    static final class Failure extends RuntimeException {
        private static final long serialVersionUID = 1L;

        Failure(String text) {
            super(text);
        }
    }
}
