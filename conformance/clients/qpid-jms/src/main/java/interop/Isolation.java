package interop;

import static interop.Client.expect;
import static interop.Client.numbers;
import static interop.Client.receive;
import static interop.Client.receiveTexts;
import static interop.Client.sendTexts;
import static interop.Client.text;

import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

/** The checks of what others see of an open transaction, and of transactions beside each other. */
final class Isolation {
    private static final int SESSIONS = 8;
    private static final int WORKERS = 4;
    private static final int WORK_MESSAGES = 400;
    private static final long QUIET_MS = 500;
    private static final double ROLLBACK_SHARE = 0.3;
    private static final String ONE_CREDIT = "jms.prefetchPolicy.all=1";

    private Isolation() {
    }

    static void register(Interop interop) {
        interop.check("transaction, open sends: a consumer sees none of them until the commit", Isolation::unseen);
        interop.check("transaction, open sends: a browser sees none of them until the commit", Isolation::notBrowsed);
        interop.check("transaction, rolled back sends: neither consumer nor browser ever sees them", Isolation::neverSeen);
        interop.check("transaction, open receives: no other consumer gets the messages", ONE_CREDIT, Isolation::notForOthers);
        interop.check("transaction, sends beside sends without one: order of the commit", Isolation::orderOfCommit);
        interop.check("transaction, several sessions of one connection beside each other", Isolation::sessions);
        interop.check("transaction over several queues: commit and rollback", Isolation::severalQueues);
        interop.check("transaction over several queues with an anonymous producer", Isolation::anonymousProducer);
        interop.check("transaction, four competing workers with random rollbacks: exactly once", ONE_CREDIT,
            Isolation::workers);
    }

    /** A drain that is answered proves that nothing was there to be had; the same from another connection. */
    private static void unseen(Client client) throws Exception {
        try (Session session = client.transacted(); Client another = client.another();
             MessageConsumer waiting = another.consumer(Session.AUTO_ACKNOWLEDGE)) {
            sendTexts(session, client.queueName, numbers(3));
            expect("with the connection's other session", List.of(), client.rest());
            expect("with another connection", null, waiting.receiveNoWait());
            client.sendTexts(List.of("plain"));
            expect("what is no part of the transaction", "plain", text(receive(waiting)));
            expect("with another connection", null, waiting.receiveNoWait());
            session.commit();
            expect("after the commit", numbers(3), receiveTexts(waiting, 3));
        }
    }

    private static void notBrowsed(Client client) throws Exception {
        try (Session session = client.transacted()) {
            client.sendTexts(List.of("plain"));
            sendTexts(session, client.queueName, numbers(3));
            expect("browsed", List.of("plain"), client.browsed());
            session.commit();
            expect("browsed after the commit", List.of("plain", "0", "1", "2"), client.browsed());
        }
    }

    private static void neverSeen(Client client) throws Exception {
        try (Session session = client.transacted(); MessageConsumer waiting = client.consumer(Session.AUTO_ACKNOWLEDGE)) {
            sendTexts(session, client.queueName, numbers(3));
            session.rollback();
            expect("browsed", List.of(), client.browsed());
            expect("received", null, waiting.receiveNoWait());
            client.sendTexts(List.of("plain"));
            expect("received", "plain", text(receive(waiting)));
        }
    }

    private static void notForOthers(Client client) throws Exception {
        client.sendTexts(numbers(3));
        try (Session session = client.transacted(); Client another = client.another()) {
            try (MessageConsumer consumer = session.createConsumer(client.queue(session))) {
                expect("received", numbers(3), receiveTexts(consumer, 3));
            }
            expect("for another", List.of(), another.rest());
            session.rollback();
            expect("for another after the rollback", numbers(3), another.rest());
        }
        client.sendTexts(numbers(2));
        try (Session session = client.transacted(); Client another = client.another()) {
            try (MessageConsumer consumer = session.createConsumer(client.queue(session))) {
                expect("received", numbers(2), receiveTexts(consumer, 2));
            }
            session.commit();
            expect("for another after the commit", List.of(), another.rest());
            expect("browsed after the commit", List.of(), another.browsed());
        }
    }

    /** A message has its place in the queue from the moment at which it becomes available. */
    private static void orderOfCommit(Client client) throws Exception {
        try (Session first = client.transacted(); Session second = client.transacted()) {
            sendTexts(first, client.queueName, List.of("first a"));
            sendTexts(second, client.queueName, List.of("second a"));
            sendTexts(first, client.queueName, List.of("first b"));
            second.commit();
            client.sendTexts(List.of("plain"));
            first.commit();
        }
        expect("in the queue", List.of("second a", "plain", "first a", "first b"), client.rest());
    }

    private static void sessions(Client client) throws Exception {
        List<Session> sessions = new ArrayList<>();
        List<MessageConsumer> consumers = new ArrayList<>();
        for (int number = 0; number < SESSIONS; number++) {
            Session session = client.transacted();
            sessions.add(session);
            consumers.add(session.createConsumer(session.createQueue(client.queueName("in-" + number))));
            try (Session plain = client.session()) {
                sendTexts(plain, client.queueName("in-" + number), List.of("task " + number));
            }
        }
        for (String suffix : List.of("a", "b")) {
            for (int number = 0; number < SESSIONS; number++) {
                sendTexts(sessions.get(number), client.queueName, List.of(number + suffix));
            }
        }
        List<String> committed = new ArrayList<>();
        for (int number = SESSIONS - 1; number >= 0; number--) {
            expect("received", "task " + number, text(receive(consumers.get(number))));
            if (number % 2 == 0) {
                sessions.get(number).commit();
                committed.addAll(List.of(number + "a", number + "b"));
            } else {
                sessions.get(number).rollback();
            }
            consumers.get(number).close();
        }
        expect("in the queue, in the order of the commits", committed, client.rest());
        for (int number = 0; number < SESSIONS; number++) {
            List<String> left = number % 2 == 0 ? List.of() : List.of("task " + number);
            expect("left", left, client.rest(client.queueName("in-" + number)));
        }
    }

    private static void severalQueues(Client client) throws Exception {
        List<String> inputs = List.of(client.queueName("in-a"), client.queueName("in-b"));
        List<String> outputs = List.of(client.queueName("out-a"), client.queueName("out-b"), client.queueName("out-c"));
        try (Session session = client.transacted()) {
            for (String input : inputs) {
                sendTexts(session, input, numbers(2));
            }
            session.commit();
            for (int turn = 0; turn < 2; turn++) {
                for (String input : inputs) {
                    try (MessageConsumer consumer = session.createConsumer(session.createQueue(input))) {
                        expect("received", numbers(2), receiveTexts(consumer, 2));
                    }
                }
                for (String output : outputs) {
                    sendTexts(session, output, numbers(3));
                }
                for (String output : outputs) {
                    expect("before the end", List.of(), client.rest(output));
                }
                if (turn == 0) {
                    session.rollback();
                } else {
                    session.commit();
                }
                for (String output : outputs) {
                    expect("afterwards", turn == 0 ? List.of() : numbers(3), client.rest(output));
                }
            }
        }
        for (String input : inputs) {
            expect("left", List.of(), client.rest(input));
        }
    }

    private static void anonymousProducer(Client client) throws Exception {
        List<String> queues = List.of(client.queueName("a"), client.queueName("b"), client.queueName("c"));
        try (Session session = client.transacted(); MessageProducer producer = session.createProducer(null)) {
            for (boolean commit : List.of(false, true)) {
                for (String queue : queues) {
                    producer.send(session.createQueue(queue), session.createTextMessage("to " + queue));
                }
                if (commit) {
                    session.commit();
                } else {
                    session.rollback();
                }
                for (String queue : queues) {
                    expect("in the queue", commit ? List.of("to " + queue) : List.of(), client.rest(queue));
                }
            }
        }
    }

    /** Two connections with two sessions each take from one queue and put into another. */
    private static void workers(Client client) throws Exception {
        String results = client.queueName("results");
        client.sendTexts(numbers(WORK_MESSAGES));
        ExecutorService threads = Executors.newFixedThreadPool(WORKERS);
        try (Client another = client.another()) {
            List<Future<Integer>> taken = new ArrayList<>();
            for (int worker = 0; worker < WORKERS; worker++) {
                Client mine = worker % 2 == 0 ? client : another;
                Random random = new Random(worker);
                taken.add(threads.submit(() -> work(mine, results, random)));
            }
            int sum = 0;
            for (Future<Integer> count : taken) {
                sum += count.get(10 * Client.TIMEOUT_MS, TimeUnit.MILLISECONDS);
            }
            expect("committed by all", WORK_MESSAGES, sum);
        } finally {
            threads.shutdownNow();
        }
        TreeMap<Integer, Integer> times = new TreeMap<>();
        for (String result : client.rest(results)) {
            times.merge(Integer.valueOf(result), 1, Integer::sum);
        }
        TreeMap<Integer, Integer> once = new TreeMap<>();
        for (int number = 0; number < WORK_MESSAGES; number++) {
            once.put(number, 1);
        }
        expect("results, each once", once, times);
        expect("left", List.of(), client.rest());
    }

    private static int work(Client client, String results, Random random) throws Exception {
        int committed = 0;
        try (Session session = client.transacted();
             MessageConsumer consumer = session.createConsumer(client.queue(session));
             MessageProducer producer = session.createProducer(session.createQueue(results))) {
            for (Message task = consumer.receive(QUIET_MS); task != null; task = consumer.receive(QUIET_MS)) {
                producer.send(session.createTextMessage(text(task)));
                if (random.nextDouble() < ROLLBACK_SHARE) {
                    session.rollback();
                } else {
                    session.commit();
                    committed++;
                }
            }
        }
        return committed;
    }
}
