package interop;

import static interop.Client.expect;
import static interop.Client.receive;

import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** The producers and consumers of one group of half messages, named as the queue of the check. */
final class HalfGroup {
    static final String ACCEPTED = "accepted";
    static final String COMMIT = "commit";
    static final String ROLLBACK = "rollback";
    static final String BY_OUTCOME = "/by-outcome";
    static final String FIRST_CHECK = "half_first_check_ms";

    private static final Pattern CONDITION = Pattern.compile("condition = ([a-z:-]+)");
    private static final String END = "the end";

    final Client client;
    final String group;
    final Session session;
    private final Map<String, MessageProducer> producers = new HashMap<>();

    HalfGroup(Client client) throws JMSException {
        this(client, client.queueName, client.session());
    }

    HalfGroup(Client client, String group, Session session) {
        this.client = client;
        this.group = group;
        this.session = session;
    }

    /** The same on another session, so that puts and resolutions belong to its transaction. */
    HalfGroup on(Session other) {
        return new HalfGroup(client, group, other);
    }

    String putAddress() {
        return "$half/" + group + "/" + client.queueName;
    }

    String resolveAddress() {
        return "$half-resolve/" + group;
    }

    String checkAddress() {
        return "$half-check/" + group;
    }

    MessageProducer producer(String address) throws JMSException {
        MessageProducer found = producers.get(address);
        if (found == null) {
            found = session.createProducer(session.createQueue(address));
            producers.put(address, found);
        }
        return found;
    }

    /** A text message whose half-id is the application property, or without one its JMSMessageID. */
    Message half(String halfId, String body) throws JMSException {
        Message message = session.createTextMessage(body);
        if (halfId != null) {
            message.setStringProperty("half_id", halfId);
        }
        return message;
    }

    /** The same, about which the broker asks after so many milliseconds. */
    Message half(String halfId, String body, int firstCheckMs) throws JMSException {
        Message message = half(halfId, body);
        message.setIntProperty(FIRST_CHECK, firstCheckMs);
        return message;
    }

    Message resolution(String halfId, String what) throws JMSException {
        Message message = session.createMessage();
        message.setJMSCorrelationID(halfId);
        message.setJMSType(what);
        return message;
    }

    interface Sending {
        void send() throws JMSException;
    }

    /** "accepted", or the condition with which JMS says that it failed. */
    static String outcome(Sending sending) {
        try {
            sending.send();
        } catch (JMSException failed) {
            return condition(failed);
        }
        return ACCEPTED;
    }

    static String condition(JMSException failed) {
        Matcher found = CONDITION.matcher(String.valueOf(failed.getMessage()));
        return found.find() ? found.group(1) : failed.toString();
    }

    String put(Message message) {
        return outcome(() -> producer(putAddress()).send(message));
    }

    void prepared(Message message) {
        expect("put", ACCEPTED, put(message));
    }

    void prepared(String halfId, String body) throws JMSException {
        prepared(half(halfId, body));
    }

    void resolve(String halfId, String what) throws JMSException {
        producer(resolveAddress()).send(resolution(halfId, what));
    }

    String commit(String halfId) {
        return outcome(() -> resolve(halfId, COMMIT));
    }

    String rollBack(String halfId) {
        return outcome(() -> resolve(halfId, ROLLBACK));
    }

    /** A consumer of checks; the way is empty or by outcome. */
    MessageConsumer checker(int acknowledgeMode, String way) throws JMSException {
        Session own = client.session(acknowledgeMode);
        return own.createConsumer(own.createQueue(checkAddress() + way));
    }

    /** The next check, which must be about this one. */
    static Message asked(MessageConsumer consumer, String halfId) throws JMSException {
        Message message = receive(consumer);
        expect("JMSCorrelationID", halfId, message.getJMSCorrelationID());
        expect("JMSType", "check", message.getJMSType());
        return message;
    }

    /** What the queue has: everything before a message that is sent after it. */
    List<String> queued() throws JMSException {
        client.sendTexts(List.of(END));
        List<String> bodies = new ArrayList<>();
        try (Session own = client.session(); MessageConsumer consumer = own.createConsumer(client.queue(own))) {
            for (String body = Client.text(receive(consumer)); !END.equals(body); body = Client.text(receive(consumer))) {
                bodies.add(body);
            }
        }
        return bodies;
    }
}
