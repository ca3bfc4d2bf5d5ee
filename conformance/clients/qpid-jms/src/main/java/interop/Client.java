package interop;

import jakarta.jms.BytesMessage;
import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.QueueBrowser;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.UUID;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.qpid.jms.JmsConnectionFactory;

/** One connection and the queue of one check. */
final class Client implements AutoCloseable {
    static final long TIMEOUT_MS = 20_000;
    /** Qpid JMS's own acknowledge mode: each message has its own outcome. */
    static final int INDIVIDUAL_ACKNOWLEDGE = 101;

    final String url;
    private final String options;
    final String queueName;
    private Connection connection;

    /** Options are those of Qpid JMS's connection URI, such as "jms.prefetchPolicy.all=1". */
    Client(String url, String options) throws JMSException {
        this(url, options, "clients-qpid-jms-" + UUID.randomUUID().toString().substring(0, 13));
    }

    Client(String url, String options, String queueName) throws JMSException {
        this.url = url;
        this.options = options;
        this.queueName = queueName;
        connection = connect();
    }

    /** Another connection to the same queue, with the same options. */
    Client another() throws JMSException {
        return new Client(url, options, queueName);
    }

    private Connection connect() throws JMSException {
        String user = System.getenv("AMQP_USER");
        boolean mechanismChosen = options.contains("saslMechanisms");
        String nested = url.startsWith("failover:") ? "failover.nested." : "";
        String mechanism = nested + "amqp.saslMechanisms=" + (user == null ? "ANONYMOUS" : "PLAIN");
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

    Session transacted() throws JMSException {
        return connection.createSession(true, Session.SESSION_TRANSACTED);
    }

    Queue queue(Session session) throws JMSException {
        return session.createQueue(queueName);
    }

    /** The name of a queue of this check beside the one that each check has. */
    String queueName(String suffix) {
        return queueName + "-" + suffix;
    }

    MessageConsumer consumer(int acknowledgeMode) throws JMSException {
        Session session = session(acknowledgeMode);
        return session.createConsumer(queue(session));
    }

    /** Sends one text message for each body. */
    void sendTexts(List<String> bodies) throws JMSException {
        try (Session session = session()) {
            sendTexts(session, queueName, bodies);
        }
    }

    /** The same on a session that is there, so that the messages belong to its transaction, if it has one. */
    static void sendTexts(Session session, String queueName, List<String> bodies) throws JMSException {
        try (MessageProducer producer = session.createProducer(session.createQueue(queueName))) {
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
            return receiveTexts(consumer, count);
        }
    }

    /** Takes everything that the queue has for a new consumer now; a drain that is answered tells that it is all. */
    List<String> rest() throws JMSException {
        return rest(queueName);
    }

    List<String> rest(String ofQueue) throws JMSException {
        try (Session session = session(); MessageConsumer consumer = session.createConsumer(session.createQueue(ofQueue))) {
            List<String> bodies = new ArrayList<>();
            for (Message message = consumer.receiveNoWait(); message != null; message = consumer.receiveNoWait()) {
                bodies.add(text(message));
            }
            return bodies;
        }
    }

    /** What a browser sees now. */
    List<String> browsed() throws JMSException {
        try (Session session = session(); QueueBrowser browser = session.createBrowser(queue(session))) {
            List<String> bodies = new ArrayList<>();
            for (Object message : Collections.list(browser.getEnumeration())) {
                bodies.add(text((Message) message));
            }
            return bodies;
        }
    }

    static List<String> receiveTexts(MessageConsumer consumer, int count) throws JMSException {
        List<String> bodies = new ArrayList<>();
        while (bodies.size() < count) {
            bodies.add(text(receive(consumer)));
        }
        return bodies;
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

    static List<String> numbers(int count) {
        return numbers(0, count);
    }

    /** The numbers from first up to, not including, end. */
    static List<String> numbers(int first, int end) {
        return IntStream.range(first, end).mapToObj(String::valueOf).collect(Collectors.toList());
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
