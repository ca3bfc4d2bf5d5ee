package interop;

import java.net.URI;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.qpid.protonj2.client.Client;
import org.apache.qpid.protonj2.client.Connection;
import org.apache.qpid.protonj2.client.ConnectionOptions;
import org.apache.qpid.protonj2.client.Delivery;
import org.apache.qpid.protonj2.client.Message;
import org.apache.qpid.protonj2.client.Receiver;
import org.apache.qpid.protonj2.client.ReceiverOptions;
import org.apache.qpid.protonj2.client.Sender;
import org.apache.qpid.protonj2.client.SenderOptions;
import org.apache.qpid.protonj2.client.Session;
import org.apache.qpid.protonj2.client.Tracker;

/** One connection and the queue of one check. */
final class Peer implements AutoCloseable {
    static final long TIMEOUT_MS = 20_000;
    /** Between two looks at a drain that is under way; the session's window opens only for who reads. */
    private static final long LOOK_MS = 20;
    /** More than any check puts into a queue. */
    private static final int CREDIT_FOR_ALL = 100_000;

    final URI url;
    final String queue;
    private final Client client = Client.create();
    private Connection connection;
    private Session plain;

    Peer(String url) throws Exception {
        this(URI.create(url), "clients-protonj2-" + UUID.randomUUID().toString().substring(0, 13));
    }

    /** A connection to the queue of another, perhaps by another way. */
    Peer(URI url, String queue) throws Exception {
        this.url = url;
        this.queue = queue;
        connect();
    }

    private void connect() throws Exception {
        ConnectionOptions options = new ConnectionOptions().openTimeout(TIMEOUT_MS).closeTimeout(TIMEOUT_MS)
            .sendTimeout(TIMEOUT_MS).requestTimeout(TIMEOUT_MS).drainTimeout(TIMEOUT_MS);
        String user = System.getenv("AMQP_USER");
        if (user == null) {
            options.saslOptions().addAllowedMechanism("ANONYMOUS");
        } else {
            options.user(user).password(System.getenv("AMQP_PASSWORD"));
            options.saslOptions().addAllowedMechanism("PLAIN");
        }
        connection = client.connect(url.getHost(), url.getPort(), options);
        connection.openFuture().get(TIMEOUT_MS, TimeUnit.MILLISECONDS);
        plain = session();
    }

    Peer another() throws Exception {
        return new Peer(url, queue);
    }

    void reconnect() throws Exception {
        connection.close();
        connect();
    }

    @Override
    public void close() {
        connection.close();
        client.close();
    }

    Connection connection() {
        return connection;
    }

    /** The session of everything that belongs to no transaction. */
    Session plain() {
        return plain;
    }

    Session session() throws Exception {
        Session session = connection.openSession();
        session.openFuture().get(TIMEOUT_MS, TimeUnit.MILLISECONDS);
        return session;
    }

    /** The name of a queue of this check beside the one that each check has. */
    String queue(String suffix) {
        return queue + "-" + suffix;
    }

    static Sender sender(Session session, String queue, SenderOptions options) throws Exception {
        Sender sender = session.openSender(queue, options);
        sender.openFuture().get(TIMEOUT_MS, TimeUnit.MILLISECONDS);
        return sender;
    }

    /** A receiver that gets as many messages as it is given credit, and gives no outcome by itself. */
    static Receiver receiver(Session session, String queue, int credit) throws Exception {
        return receiver(session, queue, credit, new ReceiverOptions());
    }

    static Receiver receiver(Session session, String queue, int credit, ReceiverOptions options) throws Exception {
        Receiver receiver = session.openReceiver(queue, options.creditWindow(0).autoAccept(false));
        receiver.openFuture().get(TIMEOUT_MS, TimeUnit.MILLISECONDS);
        if (credit > 0) {
            receiver.addCredit(credit);
        }
        return receiver;
    }

    /** Sends one string for each body in the session's transaction, if it has one, and waits for all outcomes. */
    static void send(Session session, String queue, List<String> bodies) throws Exception {
        Sender sender = sender(session, queue, new SenderOptions());
        List<Tracker> trackers = new ArrayList<>();
        for (String body : bodies) {
            trackers.add(sender.send(Message.create(body)));
        }
        for (Tracker tracker : trackers) {
            tracker.awaitAccepted(TIMEOUT_MS, TimeUnit.MILLISECONDS);
        }
        sender.close();
    }

    void send(List<String> bodies) throws Exception {
        send(plain, queue, bodies);
    }

    static Delivery receive(Receiver receiver) throws Exception {
        Delivery delivery = receiver.receive(TIMEOUT_MS, TimeUnit.MILLISECONDS);
        if (delivery == null) {
            throw new Failure("receive", "a message within " + TIMEOUT_MS + " ms", null);
        }
        return delivery;
    }

    static List<Delivery> receive(Receiver receiver, int count) throws Exception {
        List<Delivery> deliveries = new ArrayList<>();
        while (deliveries.size() < count) {
            deliveries.add(receive(receiver));
        }
        return deliveries;
    }

    static String body(Delivery delivery) throws Exception {
        Object body = delivery.message().body();
        return String.valueOf(body);
    }

    static List<String> bodies(List<Delivery> deliveries) throws Exception {
        List<String> bodies = new ArrayList<>();
        for (Delivery delivery : deliveries) {
            bodies.add(body(delivery));
        }
        return bodies;
    }

    /** Makes a receiver, and accepts what the queue delivers first. */
    Message<Object> next() throws Exception {
        Receiver receiver = receiver(plain, queue, 1);
        Delivery delivery = receive(receiver);
        Message<Object> message = delivery.message();
        delivery.accept();
        receiver.close();
        return message;
    }

    Message<Object> roundTrip(Message<?> message) throws Exception {
        Sender sender = sender(plain, queue, new SenderOptions());
        sender.send(message).awaitAccepted(TIMEOUT_MS, TimeUnit.MILLISECONDS);
        sender.close();
        return next();
    }

    /** Takes everything that the queue has now; a drain that is answered tells that it is all. */
    List<String> rest() throws Exception {
        return rest(queue);
    }

    List<String> rest(String ofQueue) throws Exception {
        return drained(receiver(plain, ofQueue, CREDIT_FOR_ALL), true);
    }

    /** Drains a receiver that has credit, and closes it. */
    static List<String> drained(Receiver receiver, boolean accept) throws Exception {
        List<String> bodies = new ArrayList<>();
        Future<Receiver> drain = receiver.drain();
        while (true) {
            boolean done = drain.isDone();
            Delivery delivery = done ? receiver.tryReceive() : receiver.receive(LOOK_MS, TimeUnit.MILLISECONDS);
            if (delivery != null) {
                bodies.add(body(delivery));
                if (accept) {
                    delivery.accept();
                }
            } else if (done) {
                break;
            }
        }
        drain.get();
        receiver.close();
        return bodies;
    }

    static void expect(String what, Object expected, Object got) {
        Object[] left = {expected};
        Object[] right = {got};
        if (!Arrays.deepEquals(left, right)) {
            throw new Failure(what, expected, got);
        }
    }

    static List<String> numbers(int count) {
        return numbers(0, count);
    }

    /** The numbers from first up to, not including, end. */
    static List<String> numbers(int first, int end) {
        return IntStream.range(first, end).mapToObj(String::valueOf).collect(Collectors.toList());
    }

    /** The broker answered other than the standard says. */
    static final class Failure extends RuntimeException {
        private static final int SHOWN_CHARACTERS = 300;
        private static final long serialVersionUID = 1L;

        Failure(String what, Object expected, Object got) {
            super(what + ": expected " + show(expected) + ", got " + show(got));
        }

        private static String show(Object value) {
            String text = Arrays.deepToString(new Object[] {value});
            return text.length() > SHOWN_CHARACTERS ? text.substring(0, SHOWN_CHARACTERS) + "..." : text;
        }
    }
}
