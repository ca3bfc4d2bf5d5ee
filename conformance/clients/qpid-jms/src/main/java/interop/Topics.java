package interop;

import static interop.Client.expect;
import static interop.Client.receive;
import static interop.Client.receiveTexts;
import static interop.Client.text;

import jakarta.jms.InvalidClientIDException;
import jakarta.jms.InvalidDestinationException;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.ResourceAllocationException;
import jakarta.jms.Session;
import jakarta.jms.TemporaryTopic;
import jakarta.jms.TextMessage;
import jakarta.jms.Topic;
import java.util.ArrayList;
import java.util.List;
import java.util.UUID;

/** Topics and subscriptions, as Jakarta Messaging has them. */
final class Topics {
    private static final long NOTHING_MS = 300;

    private Topics() {}

    static void register(Interop interop) {
        interop.check("topic, each subscriber gets each message", Topics::eachSubscriber);
        interop.check("topic, a selector of a subscription", Topics::selector);
        interop.check("topic, nothing of the own connection", Topics::noLocal);
        interop.check("topic, a pattern of names", Topics::pattern);
        interop.check("topic, in a transaction", Topics::transaction);
        interop.check("topic, temporary, for replies", Topics::temporary);
        interop.check("topic, durable subscriber", withId(), Topics::durable);
        interop.check("topic, durable subscriber with another selector", withId(), Topics::otherSelector);
        interop.check("topic, durable, nothing of the own connection", withId(), Topics::durableNoLocal);
        interop.check("topic, shared consumers", Topics::shared);
        interop.check("topic, shared durable consumers", withId(), Topics::sharedDurable);
        interop.check("topic, shared durable consumers without client identifier", Topics::global);
        interop.check("a client identifier is that of one connection", withId(), Topics::oneConnection);
    }

    private static String withId() {
        return "jms.clientID=clients-" + UUID.randomUUID();
    }

    private static void send(Session session, Topic topic, String... bodies) throws JMSException {
        try (MessageProducer producer = session.createProducer(topic)) {
            for (String body : bodies) {
                TextMessage message = session.createTextMessage(body);
                message.setStringProperty("body", body);
                producer.send(message);
            }
        }
    }

    private static List<String> rest(MessageConsumer... consumers) throws JMSException {
        List<String> bodies = new ArrayList<>();
        for (MessageConsumer consumer : consumers) {
            for (Message next = consumer.receive(NOTHING_MS); next != null; next = consumer.receive(NOTHING_MS)) {
                bodies.add(text(next));
            }
        }
        return bodies;
    }

    private static void eachSubscriber(Client client) throws Exception {
        try (Session session = client.session(); Client other = client.another(); Session another = other.session()) {
            Topic topic = session.createTopic(client.queueName);
            send(session, topic, "nobody is there");
            MessageConsumer one = session.createConsumer(topic);
            MessageConsumer two = another.createConsumer(topic);
            send(session, topic, "a", "b");
            expect("first subscriber", List.of("a", "b"), receiveTexts(one, 2));
            expect("second subscriber", List.of("a", "b"), receiveTexts(two, 2));
            expect("and nothing else", List.of(), rest(one, two));
        }
    }

    private static void selector(Client client) throws Exception {
        try (Session session = client.session()) {
            Topic topic = session.createTopic(client.queueName);
            MessageConsumer some = session.createConsumer(topic, "body IN ('b', 'x')");
            send(session, topic, "a", "b", "c");
            expect("what passes", List.of("b"), rest(some));
        }
    }

    private static void noLocal(Client client) throws Exception {
        try (Session session = client.session(); Client other = client.another(); Session another = other.session()) {
            Topic topic = session.createTopic(client.queueName);
            MessageConsumer foreign = session.createConsumer(topic, null, true);
            MessageConsumer some = session.createConsumer(topic, "body <> 'b'", true);
            send(session, topic, "own");
            send(another, topic, "a", "b");
            expect("what others send", List.of("a", "b"), rest(foreign));
            expect("what others send, and passes", List.of("a"), rest(some));
        }
    }

    private static void durableNoLocal(Client client) throws Exception {
        Topic topic;
        try (Session session = client.session()) {
            topic = session.createTopic(client.queueName);
            session.createDurableConsumer(topic, "mine", null, true).close();
            send(session, topic, "own");
        }
        try (Client other = new Client(client.url, "", client.queueName); Session another = other.session()) {
            send(another, topic, "a");
        }
        client.reconnect();
        try (Session session = client.session()) {
            MessageConsumer consumer = session.createDurableConsumer(topic, "mine", null, true);
            send(session, topic, "own, too");
            expect("what others sent", List.of("a"), rest(consumer));
            consumer.close();
            session.unsubscribe("mine");
        }
    }

    private static void pattern(Client client) throws Exception {
        try (Session session = client.session()) {
            MessageConsumer one = session.createConsumer(session.createTopic(client.queueName + ".*.new"));
            MessageConsumer any = session.createConsumer(session.createTopic(client.queueName + ".#"));
            send(session, session.createTopic(client.queueName + ".eu.new"), "1");
            send(session, session.createTopic(client.queueName + ".eu"), "2");
            expect("one word", List.of("1"), rest(one));
            expect("any number of words", List.of("1", "2"), rest(any));
        }
    }

    private static void transaction(Client client) throws Exception {
        try (Session session = client.session(); Session transacted = client.transacted()) {
            Topic topic = session.createTopic(client.queueName);
            MessageConsumer consumer = session.createConsumer(topic);
            send(transacted, topic, "a");
            transacted.rollback();
            send(transacted, topic, "b", "c");
            expect("before the commit", List.of(), rest(consumer));
            transacted.commit();
            expect("after it", List.of("b", "c"), rest(consumer));
        }
    }

    private static void temporary(Client client) throws Exception {
        try (Session session = client.session(); Client other = client.another(); Session another = other.session()) {
            Topic topic = another.createTopic(client.queueName);
            MessageConsumer service = another.createConsumer(topic);
            TemporaryTopic replies = session.createTemporaryTopic();
            MessageConsumer consumer = session.createConsumer(replies);
            TextMessage request = session.createTextMessage("request");
            request.setJMSReplyTo(replies);
            try (MessageProducer producer = session.createProducer(topic)) {
                producer.send(request);
            }
            Message came = receive(service);
            try (MessageProducer producer = another.createProducer(null)) {
                producer.send(came.getJMSReplyTo(), another.createTextMessage("reply"));
            }
            expect("reply", "reply", text(receive(consumer)));
            consumer.close();
            replies.delete();
        }
    }

    private static void durable(Client client) throws Exception {
        Topic topic;
        try (Session session = client.session()) {
            topic = session.createTopic(client.queueName);
            MessageConsumer consumer = session.createDurableConsumer(topic, "mine");
            send(session, topic, "a");
            expect("while it is there", "a", text(receive(consumer)));
            consumer.close();
            send(session, topic, "b");
        }
        client.reconnect();
        try (Session session = client.session()) {
            MessageConsumer consumer = session.createDurableConsumer(topic, "mine");
            expect("what came meanwhile", List.of("b"), rest(consumer));
            consumer.close();
            send(session, topic, "c");
            session.unsubscribe("mine");
            consumer = session.createDurableConsumer(topic, "mine");
            expect("after it was unsubscribed", List.of(), rest(consumer));
            consumer.close();
            session.unsubscribe("mine");
            try {
                session.unsubscribe("mine");
                throw new Client.Failure("unsubscribe twice", "an InvalidDestinationException", null);
            } catch (InvalidDestinationException expected) {
                expect("told", true, expected.getMessage() != null);
            }
        }
    }

    private static void otherSelector(Client client) throws Exception {
        try (Session session = client.session()) {
            Topic topic = session.createTopic(client.queueName);
            session.createDurableConsumer(topic, "mine", "body = 'a'", false).close();
            send(session, topic, "a");
            MessageConsumer consumer = session.createDurableConsumer(topic, "mine", "body = 'b'", false);
            send(session, topic, "a", "b");
            expect("a new subscription", List.of("b"), rest(consumer));
            consumer.close();
            session.unsubscribe("mine");
        }
    }

    private static void shared(Client client) throws Exception {
        try (Session session = client.session(); Session another = client.session()) {
            Topic topic = session.createTopic(client.queueName);
            MessageConsumer one = session.createSharedConsumer(topic, "ours");
            MessageConsumer two = another.createSharedConsumer(topic, "ours");
            send(session, topic, "a", "b", "c", "d");
            List<String> got = rest(one, two);
            got.sort(null);
            expect("each message to one of them", List.of("a", "b", "c", "d"), got);
        }
    }

    private static void sharedDurable(Client client) throws Exception {
        shareDurable(client);
    }

    private static void global(Client client) throws Exception {
        try (Client other = client.another(); Session there = other.session()) {
            there.createSharedDurableConsumer(there.createTopic(client.queueName), name(client)).close();
        }
        shareDurable(client);
    }

    private static String name(Client client) {
        return "ours-" + client.queueName;
    }

    private static void shareDurable(Client client) throws Exception {
        try (Session session = client.session(); Session another = client.session()) {
            Topic topic = session.createTopic(client.queueName);
            MessageConsumer one = session.createSharedDurableConsumer(topic, name(client));
            MessageConsumer two = another.createSharedDurableConsumer(topic, name(client));
            send(session, topic, "a", "b", "c", "d");
            List<String> got = rest(one, two);
            got.sort(null);
            expect("each message to one of them", List.of("a", "b", "c", "d"), got);
            one.close();
            two.close();
            send(session, topic, "e");
            one = session.createSharedDurableConsumer(topic, name(client));
            expect("what came while nobody was there", List.of("e"), rest(one));
            one.close();
            session.unsubscribe(name(client));
            one = session.createSharedDurableConsumer(topic, name(client));
            expect("after it was unsubscribed", List.of(), rest(one));
            one.close();
            session.unsubscribe(name(client));
        }
    }

    private static void oneConnection(Client client) throws Exception {
        try (Client second = client.another()) {
            throw new Client.Failure("second connection", "an InvalidClientIDException", second);
        } catch (InvalidClientIDException | ResourceAllocationException expected) {
            expect("told", true, expected.getMessage() != null);
        }
    }
}
