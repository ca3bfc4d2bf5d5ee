package interop;

import static interop.Client.expect;
import static interop.Client.numbers;
import static interop.Client.receive;
import static interop.Client.receiveTexts;
import static interop.Client.sendTexts;
import static interop.Client.text;

import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Session;
import jakarta.jms.TransactionRolledBackException;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import org.apache.qpid.jms.JmsTransactionInDoubtException;

/** The checks of transactions that end without the application's commit, and of large ones. */
final class TransactionEnds {
    private static final int MANY = 5_000;
    /** Set to the most operations that the broker allows in one transaction if they are other than the default here. */
    private static final String OPERATIONS = "AMQP_TXN_OPERATIONS";
    private static final String OPERATIONS_DEFAULT = "10000";
    /** Set to the seconds after which the broker rolls a transaction back, to see what comes afterwards. */
    private static final String TIMEOUT_S = "AMQP_TXN_TIMEOUT_S";
    private static final String ONE_CREDIT = "jms.prefetchPolicy.all=1";

    private TransactionEnds() {
    }

    static void register(Interop interop) {
        interop.check("transaction open when its session is closed: rolled back", ONE_CREDIT, TransactionEnds::sessionClosed);
        interop.check("transaction open when its connection is closed: rolled back", ONE_CREDIT,
            TransactionEnds::connectionClosed);
        interop.check("transaction open when its process is killed: rolled back, what it received comes again",
            client -> killed(client, false));
        interop.check("transaction open when its process is killed, the next after a commit: the commit stays",
            client -> killed(client, true));
        interop.check("transaction of 5,000 sends: commit", client -> many(client, true));
        interop.check("transaction of 5,000 sends: rollback", client -> many(client, false));
        interop.check("transaction of 5,000 receives: rollback, commit", TransactionEnds::manyReceives);
        limits(interop);
    }

    private static void limits(Interop interop) {
        int allowed = Integer.parseInt(System.getenv().getOrDefault(OPERATIONS, OPERATIONS_DEFAULT));
        interop.check("transaction with more sends than the broker allows: commit fails, nothing is visible",
            client -> tooManySends(client, allowed));
        interop.check("transaction with more receives than the broker allows: commit fails, all come again",
            client -> tooManyReceives(client, allowed));
        String seconds = System.getenv(TIMEOUT_S);
        String late = "transaction older than the broker allows: commit fails, the session goes on";
        if (seconds == null) {
            interop.skip(late, TIMEOUT_S + " does not say how old");
        } else {
            interop.check(late, "jms.prefetchPolicy.all=0", client -> tooLate(client, Double.parseDouble(seconds)));
        }
    }

    private static void openTransaction(Client client, Session session) throws Exception {
        MessageConsumer consumer = session.createConsumer(client.queue(session));
        expect("received", List.of("0", "1"), receiveTexts(consumer, 2));
        sendTexts(session, client.queueName("results"), numbers(3));
    }

    private static void rolledBack(Client client) throws Exception {
        expect("results", List.of(), client.rest(client.queueName("results")));
        expect("comes again", numbers(5), client.rest());
    }

    private static void sessionClosed(Client client) throws Exception {
        client.sendTexts(numbers(5));
        Session session = client.transacted();
        openTransaction(client, session);
        session.close();
        rolledBack(client);
    }

    private static void connectionClosed(Client client) throws Exception {
        client.sendTexts(numbers(5));
        try (Client another = client.another()) {
            openTransaction(another, another.transacted());
        }
        rolledBack(client);
    }

    /** The broker learns of the end by itself; what comes again proves that it has, so that nothing needs to be awaited. */
    private static void killed(Client client, boolean afterCommit) throws Exception {
        client.sendTexts(numbers(5));
        String results = client.queueName("results");
        List<String> command = List.of(Path.of(System.getProperty("java.home"), "bin", "java").toString(), "-cp",
            System.getProperty("java.class.path"), Victim.class.getName(), client.url, client.queueName, results,
            String.valueOf(afterCommit));
        Process victim = new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
        try (BufferedReader said = new BufferedReader(
            new InputStreamReader(victim.getInputStream(), StandardCharsets.UTF_8))) {
            expect("the other process", Victim.READY, said.readLine());
            expect("results before the kill", afterCommit ? List.of("0", "1") : List.of(), client.rest(results));
        } finally {
            victim.destroyForcibly().waitFor();
        }
        int first = afterCommit ? 2 : 0;
        try (MessageConsumer consumer = client.consumer(Session.AUTO_ACKNOWLEDGE)) {
            for (String body : numbers(first, 5)) {
                Message message = receive(consumer);
                expect("comes again", body, text(message));
                if (Integer.parseInt(body) < first + 2) {
                    expect("JMSRedelivered of what was received", true, message.getJMSRedelivered());
                    expect("JMSXDeliveryCount", 2, message.getIntProperty("JMSXDeliveryCount"));
                }
            }
            expect("more", null, consumer.receiveNoWait());
        }
        expect("results after the kill", List.of(), client.rest(results));
    }

    private static void many(Client client, boolean commit) throws Exception {
        try (Session session = client.transacted()) {
            sendTexts(session, client.queueName, numbers(MANY));
            expect("before the end", List.of(), client.rest());
            if (commit) {
                session.commit();
            } else {
                session.rollback();
            }
        }
        expect("in the queue", commit ? numbers(MANY) : List.of(), client.rest());
    }

    /** In transactions, since outside of them each send would wait for its own sync. */
    private static void fill(Client client, int count) throws Exception {
        try (Session session = client.transacted()) {
            for (int first = 0; first < count; first += MANY) {
                sendTexts(session, client.queueName, numbers(first, Math.min(count, first + MANY)));
                session.commit();
            }
        }
    }

    private static void manyReceives(Client client) throws Exception {
        fill(client, MANY);
        try (Session session = client.transacted(); MessageConsumer consumer = session.createConsumer(client.queue(session))) {
            expect("received", numbers(MANY), receiveTexts(consumer, MANY));
            session.rollback();
            expect("received again", numbers(MANY), receiveTexts(consumer, MANY));
            session.commit();
        }
        expect("left", List.of(), client.rest());
    }

    /**
     * Qpid JMS says that it is in doubt when the broker rejects a commit with the standard's own condition for it, and
     * that the transaction was rolled back for any other condition. So the condition decides here.
     */
    private static void commitFails(Session session) throws JMSException {
        try {
            session.commit();
        } catch (TransactionRolledBackException expected) {
            return;
        } catch (JmsTransactionInDoubtException rejected) {
            String message = String.valueOf(rejected.getMessage());
            expect("amqp:transaction:rollback in " + message, true, message.contains("amqp:transaction:rollback"));
            return;
        }
        throw new Client.Failure("commit", "TransactionRolledBackException", "no error");
    }

    private static void tooManySends(Client client, int allowed) throws Exception {
        try (Session session = client.transacted()) {
            sendTexts(session, client.queueName, numbers(allowed + 1));
            commitFails(session);
            expect("in the queue", List.of(), client.rest());
            sendTexts(session, client.queueName, numbers(allowed));
            session.commit();
        }
        expect("in the queue", numbers(allowed), client.rest());
    }

    /** The one too many may return before the others, so that their order says nothing. */
    private static void tooManyReceives(Client client, int allowed) throws Exception {
        fill(client, allowed + 1);
        List<String> all = new ArrayList<>();
        try (Session session = client.transacted(); MessageConsumer consumer = session.createConsumer(client.queue(session))) {
            expect("received", numbers(allowed + 1), receiveTexts(consumer, allowed + 1));
            commitFails(session);
            all.addAll(receiveTexts(consumer, allowed));
            session.commit();
        }
        all.addAll(client.rest());
        all.sort(Comparator.comparing(Integer::valueOf));
        expect("received again and left", numbers(allowed + 1), all);
    }

    /**
     * What the transaction held is free at the moment of the timeout: another consumer gets it before anybody commits. Its
     * own consumer, without prefetch, does not ask for it.
     */
    private static void tooLate(Client client, double seconds) throws Exception {
        client.sendTexts(numbers(2));
        try (Session session = client.transacted(); Client another = client.another();
             MessageConsumer consumer = session.createConsumer(client.queue(session))) {
            expect("received", numbers(2), receiveTexts(consumer, 2));
            sendTexts(session, client.queueName("results"), numbers(3));
            try (MessageConsumer waiting = another.consumer(Session.AUTO_ACKNOWLEDGE)) {
                Message message = waiting.receive((long) (seconds * 1_000) + Client.TIMEOUT_MS);
                expect("free at the timeout", "0", message == null ? null : text(message));
                expect("free at the timeout", "1", text(receive(waiting)));
            }
            commitFails(session);
            expect("results", List.of(), client.rest(client.queueName("results")));
            sendTexts(session, client.queueName("results"), numbers(2));
            session.commit();
            expect("results", numbers(2), client.rest(client.queueName("results")));
        }
    }
}
