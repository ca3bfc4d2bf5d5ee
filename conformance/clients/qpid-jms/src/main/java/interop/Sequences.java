package interop;

import static interop.Client.expect;
import static interop.HalfGroup.ACCEPTED;

import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import java.util.ArrayList;
import java.util.List;

/** The checks of sequenced streams: the place of a message in properties, accepted in order and exactly once. */
final class Sequences {
    private static final String GAP = "seq:gap";
    private static final String STALE = "seq:stale";
    private static final String INVALID = "amqp:invalid-field";
    private static final int MESSAGES = 100;

    private Sequences() {
    }

    static void register(Interop interop) {
        interop.check("sequences: in order; sent again, accepted and not delivered again", Sequences::duplicates);
        interop.check("sequences: a gap is an exception that says what is expected", Sequences::gap);
        interop.check("sequences: a new id, a late one of the old id", Sequences::newId);
        interop.check("sequences: properties that are wrong: amqp:invalid-field", Sequences::invalid);
        interop.check("sequences: a producer that cannot know where it was sends all again", Sequences::again);
        interop.check("sequences: failover: sent again, one message", Sequences::failover);
        interop.check("sequences: in a transacted session: rollback and again, commit", Sequences::transaction);
        interop.check("sequences: in a transacted session: the stream has moved, the commit fails", Sequences::moved);
        interop.skip("sequences, message annotations, stream as a link property", "JMS can set neither");
    }

    private static Message message(Session session, int id, int number, int previous) throws JMSException {
        Message message = session.createTextMessage(id + "/" + number);
        message.setStringProperty("seq_stream", "stream-1");
        message.setLongProperty("seq_id", id);
        message.setIntProperty("seq_no", number);
        message.setIntProperty("seq_prev", previous);
        return message;
    }

    private static String send(Session session, String queue, int id, int number, int previous) {
        return HalfGroup.outcome(() -> {
            try (MessageProducer producer = session.createProducer(session.createQueue(queue))) {
                producer.send(message(session, id, number, previous));
            }
        });
    }

    private static void duplicates(Client client) throws Exception {
        try (Session session = client.session()) {
            for (int[] place : new int[][] {{1, 0}, {2, 1}, {2, 1}, {1, 0}, {5, 2}}) {
                expect("number " + place[0], ACCEPTED, send(session, client.queueName, 1, place[0], place[1]));
            }
        }
        expect("queue", List.of("1/1", "1/2", "1/5"), client.rest());
    }

    private static void gap(Client client) throws Exception {
        try (Session session = client.session(); MessageProducer producer = session.createProducer(client.queue(session))) {
            expect("1", ACCEPTED, send(session, client.queueName, 1, 1, 0));
            try {
                producer.send(message(session, 1, 3, 2));
                throw new Client.Failure("3 after 1", "an exception", null);
            } catch (JMSException refused) {
                expect("condition", GAP, HalfGroup.condition(refused));
                expect("the description has the number 1", true, refused.getMessage().matches("(?s).*\\b1\\b.*"));
            }
            expect("2", ACCEPTED, send(session, client.queueName, 1, 2, 1));
            expect("3", ACCEPTED, send(session, client.queueName, 1, 3, 2));
        }
        expect("queue", List.of("1/1", "1/2", "1/3"), client.rest());
    }

    private static void newId(Client client) throws Exception {
        try (Session session = client.session()) {
            expect("id 1", ACCEPTED, send(session, client.queueName, 1, 1, 0));
            expect("id 7", ACCEPTED, send(session, client.queueName, 7, 1, 0));
            expect("a duplicate of id 1", ACCEPTED, send(session, client.queueName, 1, 1, 0));
            expect("a later one of id 1", STALE, send(session, client.queueName, 1, 2, 1));
            expect("id 9 without its start", GAP, send(session, client.queueName, 9, 2, 1));
        }
        expect("queue", List.of("1/1", "7/1"), client.rest());
    }

    private static void invalid(Client client) throws Exception {
        try (Session session = client.session(); MessageProducer producer = session.createProducer(client.queue(session))) {
            expect("id 0", INVALID, send(session, client.queueName, 0, 1, 0));
            expect("number 0", INVALID, send(session, client.queueName, 1, 0, 0));
            expect("prev is the number", INVALID, send(session, client.queueName, 1, 1, 1));
            expect("prev below 0", INVALID, send(session, client.queueName, 1, 1, -1));
            Message text = message(session, 1, 1, 0);
            text.setStringProperty("seq_no", "1");
            expect("number as text", INVALID, HalfGroup.outcome(() -> producer.send(text)));
        }
        expect("queue", List.of(), client.rest());
    }

    private static void again(Client client) throws Exception {
        List<String> bodies = new ArrayList<>();
        for (int sent : new int[] {MESSAGES / 2, MESSAGES}) {
            try (Session session = client.session();
                 MessageProducer producer = session.createProducer(client.queue(session))) {
                for (int number = 1; number <= sent; number++) {
                    producer.send(message(session, 1, number, number - 1));
                }
            }
            client.reconnect();
        }
        for (int number = 1; number <= MESSAGES; number++) {
            bodies.add("1/" + number);
        }
        expect("queue", bodies, client.rest());
    }

    private static void failover(Client client) throws Exception {
        try (Relay relay = new Relay(client.url, "1/2");
             Client relayed = new Client(relay.url(), "", client.queueName); Session session = relayed.session()) {
            for (int number = 1; number <= 3; number++) {
                expect("number " + number, ACCEPTED, send(session, client.queueName, 1, number, number - 1));
            }
            expect("the connection broke", true, relay.wasCut());
        }
        expect("queue", List.of("1/1", "1/2", "1/3"), client.rest());
    }

    private static void transaction(Client client) throws Exception {
        try (Session session = client.transacted()) {
            for (boolean commit : List.of(false, true)) {
                expect("1", ACCEPTED, send(session, client.queueName, 1, 1, 0));
                expect("2", ACCEPTED, send(session, client.queueName, 1, 2, 1));
                expect("queue before the end", List.of(), client.rest());
                if (commit) {
                    session.commit();
                } else {
                    session.rollback();
                }
            }
        }
        expect("queue", List.of("1/1", "1/2"), client.rest());
    }

    private static void moved(Client client) throws Exception {
        try (Session session = client.transacted(); Session other = client.session()) {
            expect("in the transaction", ACCEPTED, send(session, client.queueName, 1, 1, 0));
            expect("meanwhile", ACCEPTED, send(other, client.queueName, 1, 3, 0));
            expect("commit", "amqp:transaction:rollback", HalfGroup.outcome(session::commit));
        }
        expect("queue", List.of("1/3"), client.rest());
    }
}
