package interop;

import static interop.Client.expect;
import static interop.Client.receive;
import static interop.HalfGroup.ACCEPTED;
import static interop.HalfGroup.outcome;

import jakarta.jms.JMSException;
import jakarta.jms.MapMessage;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.ObjectMessage;
import jakarta.jms.Queue;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** The checks of half-message sets: an epoch that is staged, sealed, committed once, and asked about. */
final class HalfSets {
    private static final Pattern FOUND = Pattern.compile("there are (\\d+) with (\\d+)");
    private static final String MISMATCH = "half:mismatch";
    private static final String DECIDED = "half:decided";
    private static final String PRODUCER = "p";

    private HalfSets() {
    }

    static void register(Interop interop) {
        Halves.register(interop, "sets: staged by nobody seen, sealed, committed with their epoch in the order named", "",
            HalfSets::commit);
        Halves.register(interop, "sets: an epoch that is decided stays so; status says it", "", HalfSets::decided);
        Halves.register(interop, "sets: one that is voided is gone", "", HalfSets::voided);
        interop.skip("half-message sets, the checksum of what was sent",
            "JMS does not show the octets that it sends; the broker names their sum, the count is compared");
    }

    private static void stage(HalfGroup group, long epoch, String set, String... bodies) throws JMSException {
        String address = "$half-set/" + group.group + "/" + PRODUCER + "/" + epoch + "/" + set + "/"
            + group.client.queueName;
        Client.sendTexts(group.session, address, List.of(bodies));
    }

    private static MapMessage request(HalfGroup group, String subject, long epoch) throws JMSException {
        MapMessage message = group.session.createMapMessage();
        message.setJMSType(subject);
        message.setString("producer", PRODUCER);
        message.setLong("epoch", epoch);
        return message;
    }

    private static void tell(HalfGroup group, MapMessage message) throws JMSException {
        group.producer(group.resolveAddress()).send(message);
    }

    private static void seal(HalfGroup group, long epoch, String set, long count, long checksum) throws JMSException {
        MapMessage message = request(group, "seal", epoch);
        message.setString("set", set);
        message.setLong("count", count);
        message.setLong("checksum", checksum);
        tell(group, message);
    }

    /** Seals with the checksum that the broker names if its count is ours; the line that names the set. */
    private static String sealed(HalfGroup group, long epoch, String set, long count) throws JMSException {
        try {
            seal(group, epoch, set, count, 0);
        } catch (JMSException refused) {
            expect("the first seal", MISMATCH, HalfGroup.condition(refused));
            Matcher found = FOUND.matcher(refused.getMessage());
            expect("whether the error has both numbers", true, found.find());
            expect("count", String.valueOf(count), found.group(1));
            seal(group, epoch, set, count, Long.parseUnsignedLong(found.group(2)));
            return set + " " + count + " " + found.group(2);
        }
        throw new Client.Failure("the seal with another checksum", MISMATCH, ACCEPTED);
    }

    private static void commitEpoch(HalfGroup group, long epoch, String... lines) throws JMSException {
        MapMessage message = request(group, "commit-epoch", epoch);
        message.setString("sets", String.join("\n", lines));
        tell(group, message);
    }

    /** Whether it is decided, and how many sets won. A map of AMQP that no JMS client sent is an ObjectMessage. */
    private static List<Object> status(HalfGroup group, long epoch) throws JMSException {
        Queue replies = group.session.createTemporaryQueue();
        try (MessageConsumer consumer = group.session.createConsumer(replies)) {
            MapMessage message = request(group, "status", epoch);
            message.setJMSReplyTo(replies);
            message.setJMSCorrelationID("asked");
            tell(group, message);
            Message reply = receive(consumer);
            expect("JMSType, JMSCorrelationID", List.of("ok", "asked"),
                List.of(reply.getJMSType(), reply.getJMSCorrelationID()));
            Map<?, ?> body = (Map<?, ?>) ((ObjectMessage) reply).getObject();
            return List.of(body.get("decided"), ((List<?>) body.get("winners")).size());
        }
    }

    private static void commit(HalfGroup group) throws Exception {
        stage(group, 1, "one", "1", "2");
        stage(group, 1, "two", "3");
        String one = sealed(group, 1, "one", 2);
        String two = sealed(group, 1, "two", 1);
        expect("what a browser sees", List.of(), group.client.browsed());
        expect("commit", ACCEPTED, outcome(() -> commitEpoch(group, 1, two, one)));
        expect("queue", List.of("3", "1", "2"), group.queued());
    }

    private static void decided(HalfGroup group) throws Exception {
        expect("decided, winners, before", List.of(false, 0), status(group, 7));
        stage(group, 7, "one", "1");
        String one = sealed(group, 7, "one", 1);
        expect("commit", ACCEPTED, outcome(() -> commitEpoch(group, 7, one)));
        expect("commit again", ACCEPTED, outcome(() -> commitEpoch(group, 7, one)));
        expect("decided, winners, after", List.of(true, 1), status(group, 7));
        expect("stage for it", DECIDED, outcome(() -> stage(group, 7, "late", "2")));
        expect("queue", List.of("1"), group.queued());
    }

    private static void voided(HalfGroup group) throws Exception {
        stage(group, 1, "one", "1");
        stage(group, 1, "two", "2");
        String two = sealed(group, 1, "two", 1);
        MapMessage message = request(group, "void", 1);
        message.setString("sets", "one\nnever");
        expect("void", ACCEPTED, outcome(() -> tell(group, message)));
        expect("commit", ACCEPTED, outcome(() -> commitEpoch(group, 1, two)));
        expect("queue", List.of("2"), group.queued());
    }
}
