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
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;

/** The checks of one transacted session: what a commit and a rollback do to sends, receives and their order. */
final class Transactions {
    private static final int LARGE_BODY_BYTES = 8 * 1024 * 1024;
    private static final int LOOP_MESSAGES = 300;
    private static final int LOOP_BATCH = 5;
    private static final double ROLLBACK_SHARE = 0.3;
    private static final String SETTLED_SENDS =
        "jms.presettlePolicy.presettleProducers=true&jms.presettlePolicy.presettleTransactedProducers=true";
    private static final List<Map.Entry<String, String>> PREFETCHES = List.of(
        Map.entry("1,000", ""), Map.entry("1", "jms.prefetchPolicy.all=1"), Map.entry("0", "jms.prefetchPolicy.all=0"));

    private Transactions() {
    }

    static void register(Interop interop) {
        interop.check("transaction, sends: commit", client -> sends(client, true));
        interop.check("transaction, sends: rollback", client -> sends(client, false));
        interop.check("transaction, pre-settled sends: commit", SETTLED_SENDS, client -> sends(client, true));
        interop.check("transaction, pre-settled sends: rollback", SETTLED_SENDS, client -> sends(client, false));
        interop.check("transaction, pre-settled sends, each producer closed behind its message", SETTLED_SENDS,
            Transactions::producersClosed);
        interop.check("transaction, receives: commit", Transactions::receivesCommitted);
        interop.check("transaction, consumer closed before the commit", Transactions::consumerClosedBeforeCommit);
        interop.check("transaction without work: commit, rollback", Transactions::withoutWork);
        interop.check("transaction, 100 on one session by turns committed and rolled back", Transactions::byTurns);
        interop.check("transaction, message of 8 MiB: commit and rollback of send and receive", Transactions::large);
        interop.check("transaction, sends and receives of one: rollback and commit", Transactions::bothWays);
        for (Map.Entry<String, String> each : PREFETCHES) {
            String prefetch = each.getKey();
            String options = each.getValue();
            interop.check("transaction, rollback of receives, prefetch " + prefetch
                + ": JMSRedelivered, JMSXDeliveryCount", options, Transactions::redelivery);
            interop.check("transaction, order after rollback, prefetch " + prefetch, options, Transactions::order);
            interop.check("transaction, order after rollback, another consumer, prefetch " + prefetch, options,
                Transactions::orderForAnother);
            interop.check("transaction, consume-transform-produce with random rollbacks, prefetch " + prefetch
                + ": exactly once, in order", options, Transactions::loop);
        }
        interop.check("transaction, rollback of receives, another consumer: JMSRedelivered, JMSXDeliveryCount",
            "jms.prefetchPolicy.all=0", Transactions::redeliveryToAnother);
        interop.check("transaction, redelivery policy: rejected after the second delivery",
            "jms.redeliveryPolicy.maxRedeliveries=1&jms.redeliveryPolicy.outcome=REJECTED", Transactions::redeliveryPolicy);
        interop.check("transaction in a MessageListener: rollback, then commit", Transactions::listener);
    }

    private static void end(Session session, boolean commit) throws JMSException {
        if (commit) {
            session.commit();
        } else {
            session.rollback();
        }
    }

    private static void sends(Client client, boolean commit) throws Exception {
        try (Session session = client.transacted()) {
            sendTexts(session, client.queueName, numbers(10));
            end(session, commit);
            expect("in the queue", commit ? numbers(10) : List.of(), client.rest());
            sendTexts(session, client.queueName, List.of("next transaction"));
            session.commit();
            expect("in the queue", List.of("next transaction"), client.rest());
        }
    }

    /** Message and detach are often read together; what came before the detach is part of the transaction all the same. */
    private static void producersClosed(Client client) throws Exception {
        try (Session session = client.transacted()) {
            for (int number = 0; number < 100; number++) {
                sendTexts(session, client.queueName, List.of(String.valueOf(number)));
                if (number % 10 == 9) {
                    session.commit();
                }
            }
        }
        expect("in the queue", numbers(100), client.rest());
    }

    private static void receivesCommitted(Client client) throws Exception {
        client.sendTexts(numbers(10));
        try (Session session = client.transacted()) {
            try (MessageConsumer consumer = session.createConsumer(client.queue(session))) {
                expect("received", numbers(4), receiveTexts(consumer, 4));
                session.commit();
                expect("received", numbers(4, 8), receiveTexts(consumer, 4));
                session.commit();
            }
        }
        expect("left", numbers(8, 10), client.rest());
    }

    /** Qpid JMS gives up what it has prefetched and keeps the link until the transaction ends. */
    private static void consumerClosedBeforeCommit(Client client) throws Exception {
        client.sendTexts(numbers(5));
        try (Session session = client.transacted()) {
            try (MessageConsumer consumer = session.createConsumer(client.queue(session))) {
                expect("received", numbers(2), receiveTexts(consumer, 2));
            }
            session.commit();
        }
        expect("left", numbers(2, 5), client.rest());
    }

    private static void withoutWork(Client client) throws Exception {
        try (Session session = client.transacted()) {
            session.commit();
            session.rollback();
            session.rollback();
            session.commit();
            sendTexts(session, client.queueName, List.of("afterwards"));
            session.commit();
        }
        expect("in the queue", List.of("afterwards"), client.rest());
    }

    private static void byTurns(Client client) throws Exception {
        List<String> committed = new ArrayList<>();
        try (Session session = client.transacted(); MessageProducer producer = session.createProducer(client.queue(session))) {
            for (int number = 0; number < 100; number++) {
                producer.send(session.createTextMessage(String.valueOf(number)));
                end(session, number % 2 == 0);
                if (number % 2 == 0) {
                    committed.add(String.valueOf(number));
                }
            }
        }
        expect("in the queue", committed, client.rest());
    }

    private static void large(Client client) throws Exception {
        byte[] body = new byte[LARGE_BODY_BYTES];
        new Random(1).nextBytes(body);
        try (Session session = client.transacted(); MessageProducer producer = session.createProducer(client.queue(session))) {
            producer.send(Messages.bytesMessage(session, new byte[] {1}));
            producer.send(Messages.bytesMessage(session, body));
            session.rollback();
            producer.send(Messages.bytesMessage(session, body));
            session.commit();
            try (MessageConsumer consumer = session.createConsumer(client.queue(session))) {
                expect("same octets", true, java.util.Arrays.equals(body, Client.octets(receive(consumer))));
                session.rollback();
                expect("same octets again", true, java.util.Arrays.equals(body, Client.octets(receive(consumer))));
                session.commit();
            }
        }
        expect("left", List.of(), client.rest());
    }

    private static void bothWays(Client client) throws Exception {
        String results = client.queueName("results");
        client.sendTexts(numbers(3));
        try (Session session = client.transacted(); MessageConsumer consumer = session.createConsumer(client.queue(session))) {
            for (boolean commit : List.of(false, true)) {
                List<String> received = receiveTexts(consumer, 3);
                expect("received", numbers(3), received);
                sendTexts(session, results, received);
                end(session, commit);
                expect("results", commit ? numbers(3) : List.of(), client.rest(results));
            }
        }
        expect("left", List.of(), client.rest());
    }

    private static void delivered(MessageConsumer consumer, String body, int count) throws Exception {
        Message message = receive(consumer);
        expect("body", body, text(message));
        expect("JMSXDeliveryCount of " + body, count, message.getIntProperty("JMSXDeliveryCount"));
        expect("JMSRedelivered of " + body, count > 1, message.getJMSRedelivered());
    }

    /**
     * Qpid JMS settles its transactional accepts and attaches with modified, delivery-failed as the default outcome.
     * So what was received counts one more at each rollback, and what was only prefetched does not.
     */
    private static void redelivery(Client client) throws Exception {
        client.sendTexts(numbers(3));
        try (Session session = client.transacted(); MessageConsumer consumer = session.createConsumer(client.queue(session))) {
            for (int count = 1; count <= 3; count++) {
                delivered(consumer, "0", count);
                session.rollback();
            }
            delivered(consumer, "0", 4);
            delivered(consumer, "1", 1);
            session.rollback();
            delivered(consumer, "0", 5);
            session.commit();
            delivered(consumer, "1", 2);
            delivered(consumer, "2", 1);
            session.rollback();
            delivered(consumer, "1", 3);
            session.commit();
            delivered(consumer, "2", 2);
            session.commit();
        }
        expect("left", List.of(), client.rest());
    }

    /** Without prefetch, nothing is on its way to the first consumer when its link ends and counts for that. */
    private static void redeliveryToAnother(Client client) throws Exception {
        client.sendTexts(numbers(3));
        try (Session session = client.transacted(); MessageConsumer consumer = session.createConsumer(client.queue(session))) {
            delivered(consumer, "0", 1);
            session.commit();
            delivered(consumer, "1", 1);
            session.rollback();
            delivered(consumer, "1", 2);
            session.rollback();
        }
        try (Client another = client.another(); MessageConsumer consumer = another.consumer(Session.AUTO_ACKNOWLEDGE)) {
            delivered(consumer, "1", 3);
            delivered(consumer, "2", 1);
        }
        expect("left", List.of(), client.rest());
    }

    private static void order(Client client) throws Exception {
        client.sendTexts(numbers(50));
        try (Session session = client.transacted(); MessageConsumer consumer = session.createConsumer(client.queue(session))) {
            for (int count = 1; count < 10; count++) { // a tenth failure would be the last one of the first message
                expect("received", numbers(count), receiveTexts(consumer, count));
                session.rollback();
            }
            expect("all", numbers(50), receiveTexts(consumer, 50));
            session.commit();
        }
        expect("left", List.of(), client.rest());
    }

    private static void orderForAnother(Client client) throws Exception {
        client.sendTexts(numbers(20));
        try (Session session = client.transacted()) {
            try (MessageConsumer consumer = session.createConsumer(client.queue(session))) {
                expect("received", numbers(5), receiveTexts(consumer, 5));
                session.commit();
                expect("received", numbers(5, 12), receiveTexts(consumer, 7));
                session.rollback();
            }
            client.sendTexts(List.of("20"));
            expect("all that were not committed", numbers(5, 21), client.rest());
        }
    }

    /** Takes up to five messages at a time to another queue, and one time in three takes it all back. */
    private static void loop(Client client) throws Exception {
        String results = client.queueName("results");
        client.sendTexts(numbers(LOOP_MESSAGES));
        Random random = new Random(LOOP_MESSAGES);
        int rollbacks = 0;
        try (Session session = client.transacted();
             MessageConsumer consumer = session.createConsumer(client.queue(session));
             MessageProducer producer = session.createProducer(session.createQueue(results))) {
            for (int done = 0; done < LOOP_MESSAGES;) {
                int count = Math.min(1 + random.nextInt(LOOP_BATCH), LOOP_MESSAGES - done);
                for (int taken = 0; taken < count; taken++) {
                    producer.send(session.createTextMessage("result of " + text(receive(consumer))));
                }
                boolean commit = random.nextDouble() >= ROLLBACK_SHARE;
                end(session, commit);
                done += commit ? count : 0;
                rollbacks += commit ? 0 : 1;
            }
        }
        expect("some were rolled back", true, rollbacks > 0);
        expect("results", numbers(LOOP_MESSAGES).stream().map(number -> "result of " + number)
            .collect(Collectors.toList()), client.rest(results));
        expect("left", List.of(), client.rest());
    }

    /** The outcome by which Qpid JMS gets rid of a message is no part of the transaction. */
    private static void redeliveryPolicy(Client client) throws Exception {
        client.sendTexts(List.of("poison", "good"));
        try (Session session = client.transacted(); MessageConsumer consumer = session.createConsumer(client.queue(session))) {
            delivered(consumer, "poison", 1);
            session.rollback();
            delivered(consumer, "poison", 2);
            session.rollback();
            delivered(consumer, "good", 1);
            session.commit();
        }
        expect("left", List.of(), client.rest());
    }

    private static void listener(Client client) throws Exception {
        client.sendTexts(List.of("task"));
        CompletableFuture<List<Integer>> counts = new CompletableFuture<>();
        List<Integer> seen = new ArrayList<>();
        try (Session session = client.transacted(); MessageConsumer consumer = session.createConsumer(client.queue(session))) {
            consumer.setMessageListener(message -> {
                try {
                    seen.add(message.getIntProperty("JMSXDeliveryCount"));
                    end(session, seen.size() == 3);
                    if (seen.size() == 3) {
                        counts.complete(seen);
                    }
                } catch (JMSException problem) {
                    counts.completeExceptionally(problem);
                }
            });
            expect("JMSXDeliveryCount", List.of(1, 2, 3), counts.get(Client.TIMEOUT_MS, TimeUnit.MILLISECONDS));
        }
        expect("left", List.of(), client.rest());
    }
}
