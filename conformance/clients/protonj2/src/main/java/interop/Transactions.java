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
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.qpid.protonj2.client.Delivery;
import org.apache.qpid.protonj2.client.DeliveryMode;
import org.apache.qpid.protonj2.client.DeliveryState;
import org.apache.qpid.protonj2.client.Message;
import org.apache.qpid.protonj2.client.Receiver;
import org.apache.qpid.protonj2.client.ReceiverOptions;
import org.apache.qpid.protonj2.client.Sender;
import org.apache.qpid.protonj2.client.SenderOptions;
import org.apache.qpid.protonj2.client.Session;
import org.apache.qpid.protonj2.client.Tracker;
import org.apache.qpid.protonj2.client.Transactional;

/** The checks of posting and retirement: what a commit and a rollback do, and what others see before. */
final class Transactions {
    private static final int SESSIONS = 8;
    private static final int LOOP_MESSAGES = 300;
    private static final int LOOP_BATCH = 5;
    private static final double ROLLBACK_SHARE = 0.3;

    private Transactions() {
    }

    static void register(Interop interop) {
        for (boolean commit : List.of(true, false)) {
            String end = commit ? "commit" : "rollback";
            interop.check("transaction, sends: " + end, peer -> sends(peer, new SenderOptions(), commit));
            interop.check("transaction, pre-settled sends: " + end, peer ->
                sends(peer, new SenderOptions().deliveryMode(DeliveryMode.AT_MOST_ONCE), commit));
            interop.check("transaction, receives: " + end, peer -> receives(peer, commit));
            interop.check("transaction, received without an outcome: the " + end + " leaves it with its link", peer ->
                withoutOutcome(peer, commit));
        }
        interop.check("transaction, provisional outcome of a send: transactional-state before the commit",
            Transactions::provisional);
        interop.check("transaction, open sends: neither receiver nor browser sees them until the commit",
            Transactions::unseen);
        interop.check("transaction, receives with a credit window, accepted by themselves", Transactions::autoAccepted);
        interop.check("transaction, outcomes accepted, rejected, released, modified: commit", Transactions::outcomes);
        interop.check("transaction, outcomes accepted, rejected, released, modified: rollback, default outcome modified",
            peer -> rolledBackOutcomes(peer, DeliveryState.modified(true, false), 1));
        interop.check("transaction, outcomes accepted, rejected, released, modified: rollback, default outcome released",
            peer -> rolledBackOutcomes(peer, DeliveryState.released(), 0));
        interop.check("transaction, rollback, default outcome rejected: does not come again", Transactions::defaultRejected);
        interop.check("transaction, the first is rolled back, its delivery accepted in the second",
            Transactions::acceptedInTheNext);
        interop.check("transaction, order after rollback", Transactions::order);
        interop.check("transaction, 100 on one session by turns committed and rolled back", Transactions::byTurns);
        interop.check("transaction without work: commit, rollback", Transactions::withoutWork);
        interop.check("transaction, message of 8 MiB: commit and rollback of send and receive", Transactions::large);
        interop.check("transaction over several queues and links of a session", Transactions::severalQueues);
        interop.check("transaction with an anonymous sender", Transactions::anonymousSender);
        interop.check("transaction, several sessions of one connection beside each other", Transactions::sessions);
        interop.check("transaction, consume-transform-produce with random rollbacks: exactly once, in order",
            Transactions::loop);
    }

    static void end(Session session, boolean commit) throws Exception {
        if (commit) {
            session.commitTransaction();
        } else {
            session.rollbackTransaction();
        }
    }

    private static void sends(Peer peer, SenderOptions options, boolean commit) throws Exception {
        Session session = peer.session();
        Sender sender = sender(session, peer.queue, options);
        session.beginTransaction();
        for (String body : numbers(10)) {
            sender.send(Message.create(body));
        }
        end(session, commit);
        expect("in the queue", commit ? numbers(10) : List.of(), peer.rest());
        session.beginTransaction();
        sender.send(Message.create("next transaction"));
        session.commitTransaction();
        sender.send(Message.create("no transaction")).awaitSettlement(TIMEOUT_MS, TimeUnit.MILLISECONDS);
        sender.close();
        expect("in the queue", List.of("next transaction", "no transaction"), peer.rest());
    }

    private static void receives(Peer peer, boolean commit) throws Exception {
        peer.send(numbers(5));
        Session session = peer.session();
        Receiver receiver = receiver(session, peer.queue, 3);
        session.beginTransaction();
        List<Delivery> deliveries = receive(receiver, 3);
        expect("received", numbers(3), bodies(deliveries));
        for (Delivery delivery : deliveries) {
            delivery.accept();
        }
        expect("for others while it is open", numbers(3, 5), peer.rest());
        end(session, commit);
        expect("for others after the end", commit ? List.of() : numbers(3), peer.rest());
        receiver.close();
    }

    /** A delivery belongs to a transaction by its outcome alone; without one it stays acquired and unsettled. */
    private static void withoutOutcome(Peer peer, boolean commit) throws Exception {
        peer.send(numbers(2));
        Session session = peer.session();
        Receiver receiver = receiver(session, peer.queue, 2);
        session.beginTransaction();
        List<Delivery> deliveries = receive(receiver, 2);
        end(session, commit);
        expect("for others", List.of(), peer.rest());
        expect("settled by the broker", false, deliveries.get(0).remoteSettled());
        deliveries.get(0).accept();
        deliveries.get(1).release();
        receiver.close();
        expect("left", List.of("1"), peer.rest());
    }

    private static void provisional(Peer peer) throws Exception {
        Session session = peer.session();
        Sender sender = sender(session, peer.queue, new SenderOptions());
        for (boolean commit : List.of(false, true)) {
            session.beginTransaction();
            Tracker tracker = sender.send(Message.create("sent"));
            tracker.awaitSettlement(TIMEOUT_MS, TimeUnit.MILLISECONDS);
            expect("transactional", true, tracker.remoteState() instanceof Transactional);
            expect("accepted, if it commits", true, ((Transactional) tracker.remoteState()).getOutcome().isAccepted());
            expect("in the queue", List.of(), peer.rest());
            end(session, commit);
        }
        sender.close();
        expect("in the queue", List.of("sent"), peer.rest());
    }

    private static void unseen(Peer peer) throws Exception {
        Session session = peer.session();
        session.beginTransaction();
        send(session, peer.queue, numbers(3));
        try (Peer another = peer.another()) {
            expect("with the connection's other session", List.of(), peer.rest());
            expect("with another connection", List.of(), another.rest());
            expect("browsed", List.of(), Behaviour.browsed(another));
            session.commitTransaction();
            expect("browsed after the commit", numbers(3), Behaviour.browsed(another));
            expect("with another connection after the commit", numbers(3), another.rest());
        }
    }

    /** The client accepts what it hands out, in the transaction, and renews its credit as it goes. */
    private static void autoAccepted(Peer peer) throws Exception {
        peer.send(numbers(60));
        Session session = peer.session();
        Receiver receiver = session.openReceiver(peer.queue, new ReceiverOptions().creditWindow(10));
        for (int first = 0; first < 40; first += 20) {
            session.beginTransaction();
            expect("received", numbers(first, first + 20), bodies(receive(receiver, 20)));
            session.commitTransaction();
        }
        session.beginTransaction();
        expect("received", numbers(40, 45), bodies(receive(receiver, 5)));
        session.rollbackTransaction();
        session.close();
        expect("left", numbers(40, 60), peer.rest());
    }

    private static List<DeliveryState> fourOutcomes() {
        return List.of(DeliveryState.accepted(), DeliveryState.rejected("amqp:internal-error", "no"),
            DeliveryState.released(), DeliveryState.modified(true, false));
    }

    private static void outcomes(Peer peer) throws Exception {
        peer.send(List.of("accepted", "rejected", "released", "modified"));
        Session session = peer.session();
        Receiver receiver = receiver(session, peer.queue, 4);
        session.beginTransaction();
        List<Delivery> deliveries = receive(receiver, 4);
        for (int index = 0; index < 4; index++) {
            deliveries.get(index).disposition(fourOutcomes().get(index), true);
        }
        expect("for others while it is open", List.of(), peer.rest());
        session.commitTransaction();
        receiver.close();
        Receiver after = receiver(peer.plain(), peer.queue, 2);
        for (String body : List.of("released", "modified")) {
            Message<Object> message = receive(after).accept().message();
            expect("comes again", body, message.body());
            expect("delivery-count of " + body, body.equals("modified") ? 1L : 0L, message.deliveryCount());
        }
        after.close();
        expect("left", List.of(), peer.rest());
    }

    /** The client settles what it retires, so that the default outcome of its source is what a rollback leaves (4.4.5). */
    private static void rolledBackOutcomes(Peer peer, DeliveryState defaultOutcome, long count) throws Exception {
        peer.send(numbers(4));
        Session session = peer.session();
        ReceiverOptions options = new ReceiverOptions();
        options.sourceOptions().defaultOutcome(defaultOutcome);
        Receiver receiver = receiver(session, peer.queue, 4, options);
        for (int turn = 0; turn < 2; turn++) {
            session.beginTransaction();
            List<Delivery> deliveries = receive(receiver, 4);
            expect("received", numbers(4), bodies(deliveries));
            for (int index = 0; index < 4; index++) {
                expect("delivery-count", turn * count, deliveries.get(index).message().deliveryCount());
                deliveries.get(index).disposition(fourOutcomes().get(index), true);
            }
            session.rollbackTransaction();
            if (turn == 0) {
                receiver.addCredit(4);
            }
        }
        receiver.close();
        expect("left", numbers(4), peer.rest());
    }

    private static void defaultRejected(Peer peer) throws Exception {
        peer.send(numbers(2));
        Session session = peer.session();
        ReceiverOptions options = new ReceiverOptions();
        options.sourceOptions().defaultOutcome(DeliveryState.rejected("amqp:internal-error", "rolled back"));
        Receiver receiver = receiver(session, peer.queue, 1, options);
        session.beginTransaction();
        receive(receiver).accept();
        session.rollbackTransaction();
        receiver.close();
        expect("left", List.of("1"), peer.rest());
    }

    private static void acceptedInTheNext(Peer peer) throws Exception {
        peer.send(numbers(2));
        Session session = peer.session();
        Receiver receiver = receiver(session, peer.queue, 2);
        session.beginTransaction();
        List<Delivery> deliveries = receive(receiver, 2);
        session.rollbackTransaction();
        session.beginTransaction();
        deliveries.get(0).accept();
        session.commitTransaction();
        receiver.close();
        expect("left", List.of("1"), peer.rest());
    }

    private static void order(Peer peer) throws Exception {
        peer.send(numbers(20));
        Session session = peer.session();
        Receiver receiver = receiver(session, peer.queue, 0);
        for (int count = 1; count < 10; count++) { // a tenth failure would be the last one of the first message
            session.beginTransaction();
            receiver.addCredit(count);
            List<Delivery> deliveries = receive(receiver, count);
            expect("received", numbers(count), bodies(deliveries));
            for (int index = count - 1; index >= 0; index--) {
                deliveries.get(index).accept();
            }
            session.rollbackTransaction();
        }
        receiver.close();
        expect("left", numbers(20), peer.rest());
    }

    private static void byTurns(Peer peer) throws Exception {
        List<String> committed = new ArrayList<>();
        Session session = peer.session();
        Sender sender = sender(session, peer.queue, new SenderOptions());
        for (int number = 0; number < 100; number++) {
            session.beginTransaction();
            sender.send(Message.create(String.valueOf(number)));
            end(session, number % 3 == 0);
            if (number % 3 == 0) {
                committed.add(String.valueOf(number));
            }
        }
        sender.close();
        expect("in the queue", committed, peer.rest());
    }

    private static void withoutWork(Peer peer) throws Exception {
        Session session = peer.session();
        for (boolean commit : List.of(true, false, false, true)) {
            session.beginTransaction();
            end(session, commit);
        }
        session.beginTransaction();
        send(session, peer.queue, List.of("afterwards"));
        session.commitTransaction();
        expect("in the queue", List.of("afterwards"), peer.rest());
    }

    private static void large(Peer peer) throws Exception {
        byte[] body = Behaviour.largeBody();
        Session session = peer.session();
        Sender sender = sender(session, peer.queue, new SenderOptions());
        for (boolean commit : List.of(false, true)) {
            session.beginTransaction();
            sender.send(Message.create(body));
            end(session, commit);
        }
        sender.close();
        Receiver receiver = receiver(session, peer.queue, 0);
        for (boolean commit : List.of(false, true)) {
            session.beginTransaction();
            receiver.addCredit(1);
            Delivery delivery = receive(receiver);
            expect("same octets", true, Arrays.equals(body, (byte[]) delivery.message().body()));
            delivery.accept();
            end(session, commit);
        }
        receiver.close();
        expect("left", List.of(), peer.rest());
    }

    private static void severalQueues(Peer peer) throws Exception {
        List<String> inputs = List.of(peer.queue("in-a"), peer.queue("in-b"));
        List<String> outputs = List.of(peer.queue("out-a"), peer.queue("out-b"), peer.queue("out-c"));
        Session session = peer.session();
        List<Receiver> receivers = new ArrayList<>();
        for (String input : inputs) {
            send(peer.plain(), input, numbers(2));
            receivers.add(receiver(session, input, 0));
        }
        for (boolean commit : List.of(false, true)) {
            session.beginTransaction();
            for (Receiver receiver : receivers) {
                receiver.addCredit(2);
                for (Delivery delivery : receive(receiver, 2)) {
                    delivery.accept();
                }
            }
            for (String output : outputs) {
                send(session, output, numbers(3));
                expect("before the end", List.of(), peer.rest(output));
            }
            end(session, commit);
            for (String output : outputs) {
                expect("afterwards", commit ? numbers(3) : List.of(), peer.rest(output));
            }
        }
        for (String input : inputs) {
            expect("left", List.of(), peer.rest(input));
        }
    }

    private static void anonymousSender(Peer peer) throws Exception {
        List<String> queues = List.of(peer.queue("a"), peer.queue("b"));
        for (String queue : queues) {
            receiver(peer.plain(), queue, 0).close();
        }
        Session session = peer.session();
        Sender sender = session.openAnonymousSender();
        for (boolean commit : List.of(false, true)) {
            session.beginTransaction();
            for (String queue : queues) {
                sender.send(Message.create("to " + queue).to(queue)).awaitAccepted(TIMEOUT_MS, TimeUnit.MILLISECONDS);
            }
            end(session, commit);
            for (String queue : queues) {
                expect("in the queue", commit ? List.of("to " + queue) : List.of(), peer.rest(queue));
            }
        }
        sender.close();
    }

    private static void sessions(Peer peer) throws Exception {
        List<Session> sessions = new ArrayList<>();
        List<Receiver> receivers = new ArrayList<>();
        for (int number = 0; number < SESSIONS; number++) {
            send(peer.plain(), peer.queue("in-" + number), List.of("task " + number));
            Session session = peer.session();
            session.beginTransaction();
            sessions.add(session);
            receivers.add(receiver(session, peer.queue("in-" + number), 1));
        }
        for (String suffix : List.of("a", "b")) {
            for (int number = 0; number < SESSIONS; number++) {
                send(sessions.get(number), peer.queue, List.of(number + suffix));
            }
        }
        List<String> committed = new ArrayList<>();
        for (int number = SESSIONS - 1; number >= 0; number--) {
            expect("received", "task " + number, body(receive(receivers.get(number)).accept()));
            end(sessions.get(number), number % 2 == 0);
            if (number % 2 == 0) {
                committed.addAll(List.of(number + "a", number + "b"));
            }
        }
        expect("in the queue, in the order of the commits", committed, peer.rest());
        for (int number = 0; number < SESSIONS; number++) {
            List<String> left = number % 2 == 0 ? List.of() : List.of("task " + number);
            expect("left", left, peer.rest(peer.queue("in-" + number)));
        }
    }

    /** Takes up to five messages at a time to another queue, and one time in three takes it all back. */
    private static void loop(Peer peer) throws Exception {
        String results = peer.queue("results");
        peer.send(numbers(LOOP_MESSAGES));
        Random random = new Random(LOOP_MESSAGES);
        Session session = peer.session();
        Receiver receiver = receiver(session, peer.queue, 0);
        Sender sender = sender(session, results, new SenderOptions());
        int rollbacks = 0;
        for (int done = 0; done < LOOP_MESSAGES;) {
            int count = Math.min(1 + random.nextInt(LOOP_BATCH), LOOP_MESSAGES - done);
            session.beginTransaction();
            receiver.addCredit(count);
            for (Delivery delivery : receive(receiver, count)) {
                sender.send(Message.create("result of " + body(delivery)));
                delivery.accept();
            }
            boolean commit = random.nextDouble() >= ROLLBACK_SHARE;
            end(session, commit);
            done += commit ? count : 0;
            rollbacks += commit ? 0 : 1;
        }
        expect("some were rolled back", true, rollbacks > 0);
        expect("results", numbers(LOOP_MESSAGES).stream().map(number -> "result of " + number)
            .collect(Collectors.toList()), peer.rest(results));
        expect("left", List.of(), peer.rest());
    }
}
