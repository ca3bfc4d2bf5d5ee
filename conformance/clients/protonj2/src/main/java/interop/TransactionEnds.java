package interop;

import static interop.Peer.TIMEOUT_MS;
import static interop.Peer.bodies;
import static interop.Peer.body;
import static interop.Peer.expect;
import static interop.Peer.numbers;
import static interop.Peer.receive;
import static interop.Peer.receiver;
import static interop.Peer.send;
import static interop.Peer.sender;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.qpid.protonj2.client.Delivery;
import org.apache.qpid.protonj2.client.DeliveryMode;
import org.apache.qpid.protonj2.client.Message;
import org.apache.qpid.protonj2.client.Receiver;
import org.apache.qpid.protonj2.client.Sender;
import org.apache.qpid.protonj2.client.SenderOptions;
import org.apache.qpid.protonj2.client.Session;
import org.apache.qpid.protonj2.client.Tracker;
import org.apache.qpid.protonj2.client.Transactional;
import org.apache.qpid.protonj2.client.exceptions.ClientException;
import org.apache.qpid.protonj2.client.exceptions.ClientTransactionRolledBackException;

/** The checks of transactions that end without the application's commit, and of large ones. */
final class TransactionEnds {
    private static final int MANY = 5_000;
    /** Set to the most operations that the broker allows in one transaction if they are other than the default here. */
    private static final String OPERATIONS = "AMQP_TXN_OPERATIONS";
    private static final String OPERATIONS_DEFAULT = "10000";
    /** Set to the seconds after which the broker rolls a transaction back, to see what comes afterwards. */
    private static final String TIMEOUT_S = "AMQP_TXN_TIMEOUT_S";

    private TransactionEnds() {
    }

    static void register(Interop interop) {
        interop.check("transaction open when its session is closed: rolled back", TransactionEnds::sessionClosed);
        interop.check("transaction open when its connection is closed: rolled back", TransactionEnds::connectionClosed);
        interop.check("transaction open when its connection is cut: rolled back, what it received comes again",
            TransactionEnds::connectionCut);
        interop.check("transaction whose connection is cut before the answer to the commit: all of it or nothing",
            TransactionEnds::answerLost);
        interop.check("transaction of 5,000 sends and 5,000 receives: rollback, commit", TransactionEnds::many);
        limits(interop);
    }

    private static void limits(Interop interop) {
        int allowed = Integer.parseInt(System.getenv().getOrDefault(OPERATIONS, OPERATIONS_DEFAULT));
        for (DeliveryMode mode : DeliveryMode.values()) {
            String sends = mode == DeliveryMode.AT_MOST_ONCE ? "pre-settled sends" : "unsettled sends";
            interop.check("transaction with more " + sends + " than the broker allows: commit fails, nothing is visible",
                peer -> tooMany(peer, mode, allowed));
        }
        String seconds = System.getenv(TIMEOUT_S);
        String late = "transaction older than the broker allows: commit fails, the session goes on";
        if (seconds == null) {
            interop.skip(late, TIMEOUT_S + " does not say how old");
        } else {
            interop.check(late, peer -> tooLate(peer, Double.parseDouble(seconds)));
        }
    }

    /** Leaves a transaction open in which two messages were accepted and three sent. */
    private static Session openTransaction(Peer peer) throws Exception {
        Session session = peer.session();
        session.beginTransaction();
        for (Delivery delivery : receive(receiver(session, peer.queue, 2), 2)) {
            delivery.accept();
        }
        send(session, peer.queue("results"), numbers(3));
        return session;
    }

    private static void rolledBack(Peer peer) throws Exception {
        expect("results", List.of(), peer.rest(peer.queue("results")));
        expect("comes again", numbers(4), peer.rest());
    }

    private static void sessionClosed(Peer peer) throws Exception {
        peer.send(numbers(4));
        Session session = openTransaction(peer);
        session.close();
        rolledBack(peer);
    }

    private static void connectionClosed(Peer peer) throws Exception {
        peer.send(numbers(4));
        try (Peer another = peer.another()) {
            openTransaction(another);
        }
        rolledBack(peer);
    }

    /** The broker learns of the end by itself; what comes again proves that it has, so that nothing needs to be awaited. */
    private static void connectionCut(Peer peer) throws Exception {
        peer.send(numbers(4));
        try (Relay relay = new Relay(peer.url); Peer victim = new Peer(relay.url(), peer.queue)) {
            openTransaction(victim);
            relay.close();
            Receiver receiver = receiver(peer.plain(), peer.queue, 4);
            List<Delivery> deliveries = new ArrayList<>();
            for (int count = 0; count < 4; count++) {
                deliveries.add(receive(receiver).accept());
            }
            List<String> again = bodies(deliveries);
            expect("first of what it received comes again before the second", true, again.indexOf("0") < again.indexOf("1"));
            expect("delivery-count of what it received", 1L,
                deliveries.get(again.indexOf("0")).message().deliveryCount());
            again.sort(null);
            expect("comes again", numbers(4), again);
            receiver.close();
            expect("results", List.of(), peer.rest(peer.queue("results")));
        }
    }

    private static void answerLost(Peer peer) throws Exception {
        peer.send(numbers(2));
        try (Relay relay = new Relay(peer.url); Peer victim = new Peer(relay.url(), peer.queue)) {
            Session session = openTransaction(victim);
            relay.mute();
            CompletableFuture<Void> committed = CompletableFuture.runAsync(() -> {
                try {
                    session.commitTransaction();
                } catch (ClientException problem) {
                    throw new IllegalStateException(problem);
                }
            });
            expect("the broker answers the commit", true, relay.awaitSwallowed(TIMEOUT_MS));
            relay.close();
            try {
                committed.get(TIMEOUT_MS, TimeUnit.MILLISECONDS);
                throw new Peer.Failure("commit", "an error", "no error");
            } catch (ExecutionException expected) {
                expect("error of the client", true, expected.getCause().getCause() instanceof ClientException);
            }
        }
        List<String> results = peer.rest(peer.queue("results"));
        List<String> left = peer.rest();
        expect("all or nothing", true, results.equals(numbers(3)) && left.isEmpty()
            || results.isEmpty() && left.equals(numbers(2)));
    }

    private static void many(Peer peer) throws Exception {
        Session session = peer.session();
        for (boolean commit : List.of(false, true)) {
            session.beginTransaction();
            send(session, peer.queue, numbers(MANY));
            Transactions.end(session, commit);
        }
        Receiver receiver = receiver(session, peer.queue, 0);
        for (boolean commit : List.of(false, true)) {
            session.beginTransaction();
            receiver.addCredit(MANY);
            for (int number = 0; number < MANY; number++) {
                expect("received", String.valueOf(number), body(receive(receiver).accept()));
            }
            Transactions.end(session, commit);
        }
        receiver.close();
        expect("left", List.of(), peer.rest());
    }

    private static void commitFails(Session session) throws Exception {
        try {
            session.commitTransaction();
        } catch (ClientTransactionRolledBackException expected) {
            return;
        } catch (ClientException other) {
            throw new Peer.Failure("commit", "ClientTransactionRolledBackException", other);
        }
        throw new Peer.Failure("commit", "ClientTransactionRolledBackException", "no error");
    }

    private static void tooMany(Peer peer, DeliveryMode mode, int allowed) throws Exception {
        Session session = peer.session();
        Sender sender = sender(session, peer.queue, new SenderOptions().deliveryMode(mode));
        session.beginTransaction();
        Tracker last = null;
        for (String body : numbers(allowed + 1)) {
            last = sender.send(Message.create(body));
        }
        if (mode == DeliveryMode.AT_LEAST_ONCE) {
            last.awaitSettlement(TIMEOUT_MS, TimeUnit.MILLISECONDS);
            expect("the last one is rejected", true, last.remoteState() instanceof Transactional outcome
                && outcome.getOutcome().isRejected());
        }
        commitFails(session);
        expect("in the queue", List.of(), peer.rest());
        session.beginTransaction();
        for (String body : numbers(3)) {
            sender.send(Message.create(body));
        }
        session.commitTransaction();
        sender.close();
        expect("in the queue", numbers(3), peer.rest());
    }

    /** What the transaction held is free at the moment of the timeout: another receiver gets it before anybody commits. */
    private static void tooLate(Peer peer, double seconds) throws Exception {
        peer.send(numbers(2));
        Session session = openTransaction(peer);
        Receiver waiting = receiver(peer.plain(), peer.queue, 2);
        for (String body : numbers(2)) {
            Delivery delivery = waiting.receive((long) (seconds * 1_000) + TIMEOUT_MS, TimeUnit.MILLISECONDS);
            expect("free at the timeout", body, delivery == null ? null : body(delivery.accept()));
        }
        waiting.close();
        commitFails(session);
        expect("results", List.of(), peer.rest(peer.queue("results")));
        session.beginTransaction();
        send(session, peer.queue("results"), numbers(2));
        session.commitTransaction();
        expect("results", numbers(2), peer.rest(peer.queue("results")));
    }
}
