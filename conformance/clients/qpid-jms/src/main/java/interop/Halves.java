package interop;

import static interop.Client.expect;
import static interop.Client.receive;
import static interop.Client.text;
import static interop.HalfGroup.ACCEPTED;
import static interop.HalfGroup.COMMIT;
import static interop.HalfGroup.ROLLBACK;
import static interop.HalfGroup.asked;
import static interop.HalfGroup.outcome;

import jakarta.jms.BytesMessage;
import jakarta.jms.InvalidDestinationException;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;

/** The checks of half messages that are put and resolved by messages, outside of and in transacted sessions. */
final class Halves {
    private static final String UNKNOWN_ID = "half:unknown-id";
    private static final String CONFLICT = "half:conflict";
    private static final String ID_CONFLICT = "half:id-conflict";
    private static final String ID_REQUIRED = "half:id-required";
    private static final String INVALID = "amqp:invalid-field";
    private static final String NOT_ALLOWED = "amqp:not-allowed";
    private static final int LARGE_BODY_BYTES = 1 << 20;
    private static final int ID_OCTETS = 256;
    private static final long TIME_TO_LIVE_MS = 400;
    private static final List<String> ID_TYPES = List.of("DEFAULT", "UUID", "UUID_STRING", "PREFIXED_UUID_STRING");

    private Halves() {
    }

    interface Check {
        void run(HalfGroup group) throws Exception;
    }

    static void register(Interop interop, String name, String options, Check check) {
        interop.check("half messages: " + name, options, client -> check.run(new HalfGroup(client)));
    }

    static void register(Interop interop) {
        register(interop, "nobody sees one that was put; committed, it is delivered as it was sent", "", Halves::commit);
        register(interop, "rolled back, it is never delivered", "", Halves::rollBack);
        register(interop, "put again: accepted, one message", "", Halves::putAgain);
        register(interop, "commit and rollback again: accepted, delivered once", "", Halves::resolveAgain);
        register(interop, "the opposite of what was decided: the send fails with half:conflict, and by whom", "",
            Halves::contradiction);
        register(interop, "put with other content, or when it is decided: half:id-conflict, half:conflict", "",
            Halves::putConflict);
        register(interop, "put without an id: half:id-required", "", Halves::withoutId);
        register(interop, "unknown id: half:unknown-id, not InvalidDestinationException, and the producer goes on", "",
            Halves::unknown);
        register(interop, "another JMSType, no JMSCorrelationID: amqp:invalid-field", "", Halves::invalid);
        for (String type : ID_TYPES) {
            register(interop, "JMSMessageID of type " + type + " as JMSCorrelationID",
                "jms.messageIDPolicy.messageIDType=" + type, Halves::messageId);
        }
        register(interop, "the property half_id goes before the JMSMessageID", "", Halves::idProperty);
        register(interop, "reserved names and other values are refused, not dropped", "", Halves::reserved);
        register(interop, "pre-settled producers are refused", "jms.presettlePolicy.presettleProducers=true",
            Halves::settled);
        register(interop, "bad addresses and wrong ends refused", "", Halves::addresses);
        register(interop, "by another connection, when the producer is gone", "", Halves::elsewhere);
        register(interop, "the order of the queue is that of the commits", "", Halves::order);
        register(interop, "through a producer without a destination", "", Halves::anonymous);
        register(interop, "a BytesMessage of 1 MiB", "", Halves::large);
        register(interop, "failover: a put whose outcome is lost is sent again, one message", "", Halves::failover);
        register(interop, "its time to live starts at the commit", "jms.localMessageExpiry=false", Halves::timeToLive);
        register(interop, "in a transacted session: a put that is rolled back leaves nothing; committed, it is prepared",
            "", Halves::transactionalPut);
        register(interop, "in a transacted session: a resolution is done at its commit, not at its rollback", "",
            Halves::transactionalResolution);
        register(interop, "in a transacted session: refused, the send fails; the next transaction is free of it",
            "jms.forceSyncSend=true", Halves::transactionalRefusal);
        register(interop, "in a transacted session: an unknown id: the commit fails and nothing happens", "",
            Halves::transactionalUnknown);
        register(interop, "in a transacted session: decided otherwise meanwhile, the commit fails, nothing happens", "",
            Halves::transactionalConflict);
        register(interop, "in a transacted session: what is received and what is decided by it, both or neither", "",
            Halves::transactionalBoth);
        interop.skip("half messages, ids of type ulong and binary", "JMS chooses the message-id, as string or uuid");
        interop.skip("half messages, capability and half-version in the answer to the attach", "JMS does not show them");
        interop.skip("half messages, half_resolved_by in the error's map", "JMS shows the description, which repeats it");
    }

    private static void commit(HalfGroup group) throws Exception {
        Message put = group.half(null, "the body");
        put.setStringProperty("color", "blue");
        put.setLongProperty("size", 7);
        put.setJMSType("order");
        group.prepared(put);
        group.client.sendTexts(List.of("later"));
        expect("what a browser sees", List.of("later"), group.client.browsed());
        try (MessageConsumer consumer = group.client.consumer(Session.AUTO_ACKNOWLEDGE)) {
            expect("first that a consumer gets", "later", text(receive(consumer)));
            expect("commit", ACCEPTED, group.commit(put.getJMSMessageID()));
            Message received = receive(consumer);
            expect("body", "the body", text(received));
            List<Object> got = List.of(received.getJMSMessageID(), received.getJMSType(),
                received.getStringProperty("color"), received.getLongProperty("size"));
            expect("JMSMessageID, JMSType, color, size", List.of(put.getJMSMessageID(), "order", "blue", 7L), got);
        }
    }

    private static void rollBack(HalfGroup group) throws Exception {
        group.prepared("1", "never");
        expect("rollback", ACCEPTED, group.rollBack("1"));
        expect("queue", List.of(), group.queued());
    }

    /** Each send has a JMSMessageID of its own; what makes it the same is half_id. */
    private static void putAgain(HalfGroup group) throws Exception {
        for (int time = 0; time < 3; time++) {
            group.prepared("1", "once");
        }
        expect("commit", ACCEPTED, group.commit("1"));
        expect("queue", List.of("once"), group.queued());
    }

    private static void resolveAgain(HalfGroup group) throws Exception {
        group.prepared("1", "once");
        group.prepared("2", "never");
        for (int time = 0; time < 3; time++) {
            expect("commit", ACCEPTED, group.commit("1"));
            expect("rollback", ACCEPTED, group.rollBack("2"));
        }
        expect("queue", List.of("once"), group.queued());
    }

    private static void contradiction(HalfGroup group) throws Exception {
        group.prepared("1", "committed");
        group.prepared("2", "rolled back");
        expect("commit", ACCEPTED, group.commit("1"));
        expect("rollback", ACCEPTED, group.rollBack("2"));
        told(group, "1", ROLLBACK, "half_state=committed");
        told(group, "2", COMMIT, "half_state=rolled");
        expect("queue", List.of("committed"), group.queued());
    }

    private static void told(HalfGroup group, String halfId, String what, String state) {
        try {
            group.resolve(halfId, what);
        } catch (JMSException refused) {
            expect("condition", CONFLICT, HalfGroup.condition(refused));
            for (String word : List.of(state, "half_resolved_by=producer", "half_resolved_at=")) {
                expect("the description has " + word, true, refused.getMessage().contains(word));
            }
            return;
        }
        throw new Client.Failure(what, "an exception", null);
    }

    private static void putConflict(HalfGroup group) throws Exception {
        group.prepared("1", "content");
        expect("other content", ID_CONFLICT, group.put(group.half("1", "other")));
        MessageProducer other = group.producer(group.putAddress() + "-2");
        expect("other destination", ID_CONFLICT, outcome(() -> other.send(group.half("1", "content"))));
        expect("commit", ACCEPTED, group.commit("1"));
        expect("put after the commit", CONFLICT, group.put(group.half("1", "content")));
        group.prepared("2", "content");
        expect("rollback", ACCEPTED, group.rollBack("2"));
        expect("put after the rollback", CONFLICT, group.put(group.half("2", "content")));
        expect("queue", List.of("content"), group.queued());
    }

    private static void withoutId(HalfGroup group) throws Exception {
        expect("one of 257 octets", ID_REQUIRED, group.put(group.half("x".repeat(ID_OCTETS + 1), "long")));
        expect("an empty one", ID_REQUIRED, group.put(group.half("", "empty")));
        group.prepared("x".repeat(ID_OCTETS), "longest");
        group.producer(group.putAddress()).setDisableMessageID(true);
        expect("neither", ID_REQUIRED, group.put(group.half(null, "no id")));
        group.prepared("2", "without JMSMessageID");
    }

    private static void unknown(HalfGroup group) throws Exception {
        group.prepared("1", "body");
        try {
            group.resolve("2", COMMIT);
            throw new Client.Failure("commit", "an exception", null);
        } catch (JMSException refused) {
            expect("condition", UNKNOWN_ID, HalfGroup.condition(refused));
            expect("InvalidDestinationException", false, refused instanceof InvalidDestinationException);
        }
        expect("rollback", UNKNOWN_ID, group.rollBack("2"));
        HalfGroup elsewhere = new HalfGroup(group.client, group.group + "-2", group.session);
        expect("another group", UNKNOWN_ID, elsewhere.commit("1"));
        expect("the producer goes on", ACCEPTED, group.commit("1"));
    }

    private static void invalid(HalfGroup group) throws Exception {
        group.prepared("1", "body");
        expect("another JMSType", INVALID, outcome(() -> group.resolve("1", "Commit")));
        expect("no JMSType", INVALID, outcome(() -> group.resolve("1", null)));
        expect("no JMSCorrelationID", INVALID, group.commit(null));
        expect("rollback", ACCEPTED, group.rollBack("1"));
    }

    private static void messageId(HalfGroup group) throws Exception {
        String ownPrefix = "ID:AMQP_NO_PREFIX:"; // of a string that has no "ID:" itself; JMSCorrelationID comes without
        Message committed = group.half(null, "committed", 100);
        Message rolledBack = group.half(null, "rolled back", 60_000);
        try (MessageConsumer consumer = group.checker(Session.AUTO_ACKNOWLEDGE, "")) {
            group.prepared(committed);
            group.prepared(rolledBack);
            Message check = asked(consumer, committed.getJMSMessageID().replace(ownPrefix, ""));
            expect("answer", ACCEPTED, group.commit(check.getJMSCorrelationID()));
        }
        expect("again", ACCEPTED, group.commit(committed.getJMSMessageID()));
        expect("rollback", ACCEPTED, group.rollBack(rolledBack.getJMSMessageID()));
        expect("queue", List.of("committed"), group.queued());
    }

    private static void idProperty(HalfGroup group) throws Exception {
        Message put = group.half("order-1", "body");
        group.prepared(put);
        expect("by JMSMessageID", UNKNOWN_ID, group.commit(put.getJMSMessageID()));
        expect("by half_id", ACCEPTED, group.commit("order-1"));
        Message received = group.client.next();
        expect("JMSMessageID", put.getJMSMessageID(), received.getJMSMessageID());
        expect("half_id", "order-1", received.getStringProperty("half_id"));
    }

    private static void reserved(HalfGroup group) throws Exception {
        for (Map.Entry<String, Object> each : List.<Map.Entry<String, Object>>of(
            Map.entry("half_other", 1), Map.entry("seq_id", 1L), Map.entry(HalfGroup.FIRST_CHECK, "soon"),
            Map.entry(HalfGroup.FIRST_CHECK, -1), Map.entry("half_max_age_ms", 14_400_001L), Map.entry("half_id", 7))) {
            Message put = group.half("1", "body");
            put.setObjectProperty(each.getKey(), each.getValue());
            String expected = each.getKey().matches("half_other|seq_id") ? NOT_ALLOWED : INVALID;
            expect(each.getKey() + "=" + each.getValue(), expected, group.put(put));
        }
        expect("commit", UNKNOWN_ID, group.commit("1"));
    }

    private static void settled(HalfGroup group) throws Exception {
        for (String address : List.of(group.putAddress(), group.resolveAddress())) {
            expect(address, NOT_ALLOWED, outcome(() -> group.producer(address)));
        }
    }

    private static void addresses(HalfGroup group) throws Exception {
        for (String address : List.of("$half", "$half/g", "$half/g/", "$half/a b/q", "$half-resolve/g/q")) {
            try {
                group.producer(address);
                throw new Client.Failure(address, "an exception", null);
            } catch (InvalidDestinationException refused) {
                expect(address, "amqp:not-found", HalfGroup.condition(refused));
            }
        }
        expect("a producer to the checks", NOT_ALLOWED, outcome(() -> group.producer(group.checkAddress())));
        expect("a consumer of resolutions", NOT_ALLOWED, outcome(() ->
            group.session.createConsumer(group.session.createQueue(group.resolveAddress()))));
    }

    private static void elsewhere(HalfGroup group) throws Exception {
        group.prepared("1", "body");
        group.client.close();
        try (Client another = group.client.another()) {
            HalfGroup other = new HalfGroup(another);
            expect("commit", ACCEPTED, other.commit("1"));
            expect("queue", List.of("body"), other.queued());
        }
    }

    private static void order(HalfGroup group) throws Exception {
        List<String> bodies = Client.numbers(100);
        for (String body : bodies) {
            group.prepared(body, body);
        }
        Collections.reverse(bodies);
        Collections.rotate(bodies, 37);
        expect("commits", List.of(ACCEPTED), bodies.stream().map(group::commit).distinct().collect(Collectors.toList()));
        expect("queue", bodies, group.queued());
    }

    private static void anonymous(HalfGroup group) throws Exception {
        group.client.sendTexts(List.of("the queue is there"));
        Session session = group.session;
        try (MessageProducer producer = session.createProducer(null)) {
            expect("put", ACCEPTED, outcome(() ->
                producer.send(session.createQueue(group.putAddress()), group.half("1", "body"))));
            for (String what : List.of(COMMIT, ROLLBACK)) {
                expect(what, what.equals(COMMIT) ? ACCEPTED : CONFLICT, outcome(() ->
                    producer.send(session.createQueue(group.resolveAddress()), group.resolution("1", what))));
            }
        }
        expect("queue", List.of("the queue is there", "body"), group.queued());
    }

    private static void large(HalfGroup group) throws Exception {
        byte[] body = new byte[LARGE_BODY_BYTES];
        Arrays.fill(body, (byte) 'h');
        BytesMessage put = group.session.createBytesMessage();
        put.writeBytes(body);
        put.setIntProperty(HalfGroup.FIRST_CHECK, 0);
        try (MessageConsumer consumer = group.checker(Session.AUTO_ACKNOWLEDGE, "")) {
            group.prepared(put);
            Message check = asked(consumer, put.getJMSMessageID());
            expect("half_body_omitted", true, check.getBooleanProperty("half_body_omitted"));
        }
        expect("commit", ACCEPTED, group.commit(put.getJMSMessageID()));
        expect("same octets", true, Arrays.equals(body, Client.octets(group.client.next())));
    }

    /** Qpid JMS sends the same message again, with the same JMSMessageID, so that it is the same half message. */
    private static void failover(HalfGroup group) throws Exception {
        try (Relay relay = new Relay(group.client.url, "cut behind this");
             Client relayed = new Client(relay.url(), "", group.client.queueName)) {
            HalfGroup there = new HalfGroup(relayed);
            Message put = there.half(null, "cut behind this");
            there.prepared(put);
            expect("the connection broke", true, relay.wasCut());
            expect("commit", ACCEPTED, there.commit(put.getJMSMessageID()));
        }
        expect("queue", List.of("cut behind this"), group.queued());
    }

    /** Qpid JMS writes absolute-expiry-time beside ttl and drops what it says is over, unless told not to. */
    private static void timeToLive(HalfGroup group) throws Exception {
        try (MessageConsumer consumer = group.client.consumer(Session.AUTO_ACKNOWLEDGE)) {
            group.producer(group.putAddress()).setTimeToLive(TIME_TO_LIVE_MS);
            group.prepared("1", "committed later");
            Thread.sleep(TIME_TO_LIVE_MS + 100);
            expect("commit", ACCEPTED, group.commit("1"));
            expect("delivered", "committed later", text(receive(consumer)));
        }
    }

    // In transacted sessions

    private static void transactionalPut(HalfGroup group) throws Exception {
        try (Session session = group.client.transacted()) {
            HalfGroup transacted = group.on(session);
            transacted.prepared("1", "body");
            expect("before the end", UNKNOWN_ID, group.commit("1"));
            session.rollback();
            expect("after the rollback", UNKNOWN_ID, group.commit("1"));
            expect("queue", List.of(), group.queued());
            transacted.prepared("1", "body");
            session.commit();
            expect("queue", List.of(), group.queued());
            expect("commit", ACCEPTED, group.commit("1"));
            expect("queue", List.of("body"), group.queued());
        }
    }

    private static void transactionalResolution(HalfGroup group) throws Exception {
        group.prepared("1", "committed");
        group.prepared("2", "rolled back");
        try (Session session = group.client.transacted()) {
            HalfGroup transacted = group.on(session);
            for (boolean commit : List.of(false, true)) {
                transacted.resolve("1", COMMIT);
                transacted.resolve("2", ROLLBACK);
                expect("queue before the end", List.of(), group.queued());
                if (commit) {
                    session.commit();
                } else {
                    session.rollback();
                }
                expect("queue afterwards", commit ? List.of("committed") : List.of(), group.queued());
            }
        }
        expect("commit again", ACCEPTED, group.commit("1"));
        expect("rollback again", ACCEPTED, group.rollBack("2"));
    }

    /** Without forceSyncSend, Qpid JMS does not wait for the outcome of a send in a transaction. */
    private static void transactionalRefusal(HalfGroup group) throws Exception {
        try (Session session = group.client.transacted()) {
            HalfGroup transacted = group.on(session);
            Message other = transacted.half("1", "never");
            other.setIntProperty("half_other", 1);
            expect("put", NOT_ALLOWED, transacted.put(other));
            expect("resolution", INVALID, outcome(() -> transacted.resolve("1", "Commit")));
            session.rollback();
            transacted.prepared("2", "body");
            session.commit();
            expect("commit", ACCEPTED, group.commit("2"));
        }
        expect("put that was refused", UNKNOWN_ID, group.commit("1"));
        expect("queue", List.of("body"), group.queued());
    }

    /** What is not in memory is judged at the discharge. */
    private static void transactionalUnknown(HalfGroup group) throws Exception {
        try (Session session = group.client.transacted()) {
            HalfGroup transacted = group.on(session);
            transacted.prepared("1", "never");
            Client.sendTexts(session, group.client.queueName, List.of("of the same transaction"));
            transacted.resolve("2", COMMIT);
            expect("commit of the session", "amqp:transaction:rollback", outcome(session::commit));
        }
        expect("put of the same transaction", UNKNOWN_ID, group.commit("1"));
        expect("queue", List.of(), group.queued());
    }

    private static void transactionalConflict(HalfGroup group) throws Exception {
        group.prepared("1", "never");
        try (Session session = group.client.transacted()) {
            HalfGroup transacted = group.on(session);
            transacted.resolve("1", COMMIT);
            Client.sendTexts(session, group.client.queueName, List.of("of the same transaction"));
            expect("rollback", ACCEPTED, group.rollBack("1"));
            expect("commit", "amqp:transaction:rollback", outcome(session::commit));
        }
        expect("queue", List.of(), group.queued());
    }

    private static void transactionalBoth(HalfGroup group) throws Exception {
        String payments = group.client.queueName("payments");
        group.prepared("1", "the order");
        Client.sendTexts(group.session, payments, List.of("paid"));
        try (Session session = group.client.transacted();
             MessageConsumer consumer = session.createConsumer(session.createQueue(payments))) {
            for (boolean commit : List.of(false, true)) {
                expect("received", "paid", text(receive(consumer)));
                group.on(session).resolve("1", COMMIT);
                if (commit) {
                    session.commit();
                } else {
                    session.rollback();
                }
                expect("queue", commit ? List.of("the order") : List.of(), group.queued());
            }
        }
        expect("payments left", List.of(), group.client.rest(payments));
    }
}
