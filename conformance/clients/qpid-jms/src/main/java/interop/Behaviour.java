package interop;

import static interop.Client.expect;
import static interop.Client.numbers;
import static interop.Client.receive;
import static interop.Client.text;

import jakarta.jms.CompletionListener;
import jakarta.jms.DeliveryMode;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import jakarta.jms.TemporaryQueue;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

/** The checks of settling, credit, links and connections. */
final class Behaviour {
    private static final int LARGE_BODY_BYTES = 8 * 1024 * 1024;
    private static final int ORDERED_MESSAGES = 1_000;
    private static final int COMPETING_MESSAGES = 200;
    private static final long QUIET_MS = 500;
    private static final String ONE_CREDIT = "jms.prefetchPolicy.all=1";
    private static final String TEN_CREDITS = "jms.prefetchPolicy.all=10";
    private static final String PULL = "jms.prefetchPolicy.all=0";

    /** The property by which Qpid JMS lets an application choose the outcome, and its values. */
    private static final String OUTCOME = "JMS_AMQP_ACK_TYPE";
    private static final int ACCEPTED = 1;
    private static final int REJECTED = 2;
    private static final int RELEASED = 3;
    private static final int MODIFIED_FAILED = 4;
    private static final int MODIFIED_FAILED_UNDELIVERABLE = 5;

    private Behaviour() {
    }

    static void register(Interop interop) {
        interop.check("large message of 8 MiB", Behaviour::largeMessage);
        interop.check("send unsettled, durable: the completion listener hears of the outcome", Behaviour::asyncSend);
        interop.check("send pre-settled", "jms.presettlePolicy.presettleProducers=true", Behaviour::presettledProducer);
        interop.check("receive pre-settled: gone without a disposition",
            "jms.presettlePolicy.presettleConsumers=true&" + ONE_CREDIT, Behaviour::presettledConsumer);
        interop.check("outcome accepted: gone", ONE_CREDIT, client ->
            expect("next", "second", text(nextAfter(client, ACCEPTED))));
        interop.check("outcome rejected: not delivered again", ONE_CREDIT, client ->
            expect("next", "second", text(nextAfter(client, REJECTED))));
        interop.check("outcome released: comes again, delivery-count unchanged", ONE_CREDIT, client ->
            redelivered(nextAfter(client, RELEASED), 1));
        interop.check("outcome modified, delivery-failed: delivery-count + 1", ONE_CREDIT, client ->
            redelivered(nextAfter(client, MODIFIED_FAILED), 2));
        interop.check("outcome modified, undeliverable-here: not to this link, but to another", ONE_CREDIT,
            Behaviour::undeliverableHere);
        interop.check("session recover: comes again to the same consumer", Behaviour::recover);
        interop.check("drain: receiveNoWait takes 3 messages and then finds none", TEN_CREDITS, Behaviour::drain);
        interop.check("pull: a receive without prefetch gives its credit back by drain", PULL, Behaviour::pull);
        interop.check("reconnect: what was not settled comes again", Behaviour::reconnect);
        interop.check("browse: a QueueBrowser takes nothing away", Behaviour::browse);
        interop.check("selectors: each consumer takes its own messages, in order", Behaviour::selectors);
        interop.check("selectors: header fields, a reply by JMSCorrelationID, a drain", TEN_CREDITS,
            Behaviour::selectedHeaders);
        interop.check("selectors: a QueueBrowser shows what fits", Behaviour::selectedBrowse);
        interop.check("order of 1,000 messages", Behaviour::order);
        interop.check("two competing consumers: each message exactly once", ONE_CREDIT, Behaviour::competing);
        interop.check("temporary queue: request and reply", Behaviour::requestReply);
        if (System.getenv("AMQP_USER") != null) {
            for (String mechanism : List.of("SCRAM-SHA-256", "SCRAM-SHA-512")) {
                interop.check("SASL " + mechanism, "amqp.saslMechanisms=" + mechanism, Behaviour::order);
            }
        }
    }

    private static void largeMessage(Client client) throws Exception {
        byte[] body = new byte[LARGE_BODY_BYTES];
        new Random(1).nextBytes(body);
        byte[] received = Client.octets(client.roundTrip(session -> Messages.bytesMessage(session, body)));
        expect("length", body.length, received.length);
        expect("same octets", true, java.util.Arrays.equals(body, received));
    }

    private static void asyncSend(Client client) throws Exception {
        CompletableFuture<Void> outcome = new CompletableFuture<>();
        CompletionListener listener = new CompletionListener() {
            @Override
            public void onCompletion(Message message) {
                outcome.complete(null);
            }

            @Override
            public void onException(Message message, Exception exception) {
                outcome.completeExceptionally(exception);
            }
        };
        try (Session session = client.session(); MessageProducer producer = session.createProducer(client.queue(session))) {
            producer.setDeliveryMode(DeliveryMode.PERSISTENT);
            producer.send(session.createTextMessage("unsettled"), listener);
            outcome.get(Client.TIMEOUT_MS, TimeUnit.MILLISECONDS);
        }
        expect("body", "unsettled", text(client.next()));
    }

    private static void presettledProducer(Client client) throws Exception {
        List<String> bodies = numbers(10);
        client.sendTexts(bodies);
        expect("bodies", bodies, client.nextTexts(bodies.size()));
    }

    private static void presettledConsumer(Client client) throws Exception {
        client.sendTexts(List.of("first", "second"));
        try (Session session = client.session(Client.INDIVIDUAL_ACKNOWLEDGE);
             MessageConsumer consumer = session.createConsumer(client.queue(session))) {
            expect("body", "first", text(receive(consumer)));
            expect("body", "second", text(receive(consumer)));
        }
        client.sendTexts(List.of("third"));
        expect("next", "third", text(client.next()));
    }

    private static void settle(Message message, int outcome) throws Exception {
        message.setIntProperty(OUTCOME, outcome);
        message.acknowledge();
    }

    /** Gives "first" an outcome, closes the link, and returns what the queue delivers first afterwards. */
    private static Message nextAfter(Client client, int outcome) throws Exception {
        client.sendTexts(List.of("first", "second"));
        try (MessageConsumer consumer = client.consumer(Client.INDIVIDUAL_ACKNOWLEDGE)) {
            Message message = receive(consumer);
            expect("body", "first", text(message));
            expect("JMSXDeliveryCount at first", 1, message.getIntProperty("JMSXDeliveryCount"));
            settle(message, outcome);
        }
        return client.next();
    }

    /** JMSXDeliveryCount is the header's delivery-count and one more. */
    private static void redelivered(Message message, int count) throws Exception {
        expect("body", "first", text(message));
        expect("JMSXDeliveryCount", count, message.getIntProperty("JMSXDeliveryCount"));
        expect("JMSRedelivered", count > 1, message.getJMSRedelivered());
    }

    private static void undeliverableHere(Client client) throws Exception {
        client.sendTexts(List.of("first"));
        try (MessageConsumer here = client.consumer(Client.INDIVIDUAL_ACKNOWLEDGE)) {
            Message message = receive(here);
            expect("body", "first", text(message));
            settle(message, MODIFIED_FAILED_UNDELIVERABLE);
            client.sendTexts(List.of("second"));
            Message next = receive(here);
            expect("next at this link", "second", text(next));
            settle(next, ACCEPTED);
            redelivered(client.next(), 2);
        }
    }

    private static void recover(Client client) throws Exception {
        client.sendTexts(List.of("first", "second"));
        Session session = client.session(Session.CLIENT_ACKNOWLEDGE);
        MessageConsumer consumer = session.createConsumer(client.queue(session));
        expect("body", "first", text(receive(consumer)));
        expect("body", "second", text(receive(consumer)));
        session.recover();
        expect("again", List.of("first", "second"), List.of(text(receive(consumer)), text(receive(consumer))));
    }

    private static void drain(Client client) throws Exception {
        client.sendTexts(numbers(3));
        try (MessageConsumer consumer = client.consumer(Session.AUTO_ACKNOWLEDGE)) {
            List<String> bodies = new ArrayList<>();
            for (Message message = consumer.receiveNoWait(); message != null; message = consumer.receiveNoWait()) {
                bodies.add(text(message));
            }
            expect("bodies", numbers(3), bodies);
            client.sendTexts(List.of("later"));
            expect("after the drain", "later", text(receive(consumer)));
        }
    }

    private static void pull(Client client) throws Exception {
        try (MessageConsumer puller = client.consumer(Session.AUTO_ACKNOWLEDGE)) {
            expect("nothing in the queue", null, puller.receive(QUIET_MS));
            client.sendTexts(numbers(2));
            expect("the puller has no credit left, so another consumer gets both", numbers(2), client.nextTexts(2));
            client.sendTexts(List.of("later"));
            expect("pulled", "later", text(receive(puller)));
        }
    }

    private static void reconnect(Client client) throws Exception {
        client.sendTexts(List.of("first", "second"));
        expect("body", "first", text(receive(client.consumer(Client.INDIVIDUAL_ACKNOWLEDGE))));
        client.reconnect();
        expect("after reconnect", List.of("first", "second"), client.nextTexts(2));
    }

    /** Sends numbers from 0 on with the properties "number" and "colour". */
    private static void sendColours(Client client, int count) throws Exception {
        try (Session session = client.session(); MessageProducer producer = session.createProducer(client.queue(session))) {
            for (int number = 0; number < count; number++) {
                Message message = session.createTextMessage(String.valueOf(number));
                message.setIntProperty("number", number);
                message.setStringProperty("colour", number % 2 == 0 ? "red" : "blue");
                message.setJMSCorrelationID("c" + number);
                message.setJMSType(number < 5 ? "small" : "large");
                producer.send(message, DeliveryMode.NON_PERSISTENT, number % 10, 0);
            }
        }
    }

    private static List<String> selected(Client client, String selector, int count) throws Exception {
        List<String> bodies = new ArrayList<>();
        try (Session session = client.session(Session.AUTO_ACKNOWLEDGE);
             MessageConsumer consumer = session.createConsumer(client.queue(session), selector)) {
            for (int number = 0; number < count; number++) {
                bodies.add(text(receive(consumer)));
            }
            expect("and no more for " + selector, null, consumer.receiveNoWait());
        }
        return bodies;
    }

    private static void selectors(Client client) throws Exception {
        sendColours(client, 10);
        expect("blue", List.of("1", "3", "5", "7", "9"), selected(client, "colour = 'blue'", 5));
        expect("red, some", List.of("2", "4"), selected(client, "colour LIKE 'r_d' AND number BETWEEN 1 AND 5", 2));
        expect("none", List.of(), selected(client, "shape IS NOT NULL OR number > 100", 0));
        expect("the rest", List.of("0", "6", "8"), client.nextTexts(3));
    }

    private static void selectedHeaders(Client client) throws Exception {
        sendColours(client, 10);
        expect("by correlation", List.of("7"), selected(client, "JMSCorrelationID = 'c7'", 1));
        expect("by priority", List.of("8", "9"), selected(client, "JMSPriority >= 8", 2));
        expect("by type", List.of("5", "6"), selected(client, "JMSType = 'large' AND JMSDeliveryMode = 'NON_PERSISTENT'", 2));
        expect("by time", numbers(5), selected(client, "JMSTimestamp > 1000000000000", 5));
    }

    private static void selectedBrowse(Client client) throws Exception {
        sendColours(client, 6);
        try (Session session = client.session();
             jakarta.jms.QueueBrowser browser = session.createBrowser(client.queue(session), "colour = 'red'")) {
            List<String> bodies = new ArrayList<>();
            for (java.util.Enumeration<?> found = browser.getEnumeration(); found.hasMoreElements();) {
                bodies.add(text((Message) found.nextElement()));
            }
            expect("shown", List.of("0", "2", "4"), bodies);
        }
        expect("nothing is taken", numbers(6), client.nextTexts(6));
    }

    private static void browse(Client client) throws Exception {
        client.sendTexts(numbers(3));
        expect("browsed", numbers(3), client.browsed());
        expect("consumed", numbers(3), client.nextTexts(3));
    }

    private static void order(Client client) throws Exception {
        client.sendTexts(numbers(ORDERED_MESSAGES));
        expect("order", numbers(ORDERED_MESSAGES), client.nextTexts(ORDERED_MESSAGES));
    }

    /** Two consumers take messages by turns until neither has had one for a while. */
    private static void competing(Client client) throws Exception {
        List<MessageConsumer> consumers = List.of(
            client.consumer(Session.AUTO_ACKNOWLEDGE), client.consumer(Session.AUTO_ACKNOWLEDGE));
        client.sendTexts(numbers(COMPETING_MESSAGES));
        List<Integer> all = new ArrayList<>();
        int[] got = new int[consumers.size()];
        for (int idle = 0; idle < consumers.size();) {
            idle = 0;
            for (int index = 0; index < consumers.size(); index++) {
                Message message = consumers.get(index).receive(QUIET_MS);
                if (message == null) {
                    idle++;
                } else {
                    got[index]++;
                    all.add(Integer.valueOf(text(message)));
                }
            }
        }
        Collections.sort(all);
        expect("union", IntStream.range(0, COMPETING_MESSAGES).boxed().collect(Collectors.toList()), all);
        expect("both took part", true, got[0] > 0 && got[1] > 0);
    }

    private static void requestReply(Client client) throws Exception {
        Session session = client.session();
        TemporaryQueue replies = session.createTemporaryQueue();
        MessageConsumer replyConsumer = session.createConsumer(replies);
        try (MessageProducer producer = session.createProducer(client.queue(session))) {
            Message request = session.createTextMessage("request");
            request.setJMSReplyTo(replies);
            producer.send(request);
        }
        Message request = client.next();
        try (MessageProducer producer = session.createProducer(request.getJMSReplyTo())) {
            producer.send(session.createTextMessage("reply to " + text(request)));
        }
        expect("reply", "reply to request", text(receive(replyConsumer)));
        replyConsumer.close();
        replies.delete();
    }
}
