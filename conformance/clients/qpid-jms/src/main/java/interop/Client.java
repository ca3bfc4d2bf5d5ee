package interop;

import jakarta.jms.BytesMessage;
import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.UUID;
import org.apache.qpid.jms.JmsConnectionFactory;

/** One connection and the queue of one check. */
final class Client implements AutoCloseable {
    static final long TIMEOUT_MS = 20_000;
    /** Qpid JMS's own acknowledge mode: each message has its own outcome. */
    static final int INDIVIDUAL_ACKNOWLEDGE = 101;

    private final String url;
    private final String options;
    final String queueName = "clients-qpid-jms-" + UUID.randomUUID().toString().substring(0, 13);
    private Connection connection;

    /** Options are those of Qpid JMS's connection URI, such as "jms.prefetchPolicy.all=1". */
    Client(String url, String options) throws JMSException {
        this.url = url;
        this.options = options;
        connection = connect();
    }

    private Connection connect() throws JMSException {
        String user = System.getenv("AMQP_USER");
        boolean mechanismChosen = options.contains("saslMechanisms");
        String mechanism = "amqp.saslMechanisms=" + (user == null ? "ANONYMOUS" : "PLAIN");
        String query = mechanismChosen ? options : options + (options.isEmpty() ? "" : "&") + mechanism;
        JmsConnectionFactory factory = new JmsConnectionFactory(url + "?jms.requestTimeout=" + TIMEOUT_MS + "&" + query);
        Connection opened = user == null
            ? factory.createConnection()
            : factory.createConnection(user, System.getenv("AMQP_PASSWORD"));
        opened.start();
        return opened;
    }

    void reconnect() throws JMSException {
        connection.close();
        connection = connect();
    }

    @Override
    public void close() throws JMSException {
        connection.close();
    }

    Session session() throws JMSException {
        return session(Session.AUTO_ACKNOWLEDGE);
    }

    Session session(int acknowledgeMode) throws JMSException {
        return connection.createSession(false, acknowledgeMode);
    }

    Queue queue(Session session) throws JMSException {
        return session.createQueue(queueName);
    }

    MessageConsumer consumer(int acknowledgeMode) throws JMSException {
        Session session = session(acknowledgeMode);
        return session.createConsumer(queue(session));
    }

    /** Sends one text message for each body. */
    void sendTexts(List<String> bodies) throws JMSException {
        try (Session session = session(); MessageProducer producer = session.createProducer(queue(session))) {
            for (String body : bodies) {
                producer.send(session.createTextMessage(body));
            }
        }
    }

    /** Makes a message, sends it, and returns what comes back. */
    Message roundTrip(Making making) throws Exception {
        try (Session session = session(); MessageProducer producer = session.createProducer(queue(session))) {
            producer.send(making.make(session));
        }
        return next();
    }

    /** What the queue delivers first, on a new link; accepted. */
    Message next() throws JMSException {
        try (Session session = session(); MessageConsumer consumer = session.createConsumer(queue(session))) {
            return receive(consumer);
        }
    }

    List<String> nextTexts(int count) throws JMSException {
        try (Session session = session(); MessageConsumer consumer = session.createConsumer(queue(session))) {
            List<String> bodies = new ArrayList<>();
            while (bodies.size() < count) {
                bodies.add(text(receive(consumer)));
            }
            return bodies;
        }
    }

    static Message receive(MessageConsumer consumer) throws JMSException {
        Message message = consumer.receive(TIMEOUT_MS);
        if (message == null) {
            throw new Failure("receive", "a message within " + TIMEOUT_MS + " ms", null);
        }
        return message;
    }

    static String text(Message message) throws JMSException {
        return message instanceof TextMessage ? ((TextMessage) message).getText() : message.getClass().getName();
    }

    static byte[] octets(Message message) throws JMSException {
        if (!(message instanceof BytesMessage)) {
            throw new Failure("message", "a BytesMessage", message.getClass().getName());
        }
        return message.getBody(byte[].class);
    }

    static void expect(String what, Object expected, Object got) {
        Object[] left = {expected};
        Object[] right = {got};
        if (!Arrays.deepEquals(left, right)) {
            throw new Failure(what, expected, got);
        }
    }

    interface Making {
        Message make(Session session) throws Exception;
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
