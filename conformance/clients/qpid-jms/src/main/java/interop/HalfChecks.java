package interop;

import static interop.Client.expect;
import static interop.Client.receive;
import static interop.Client.text;
import static interop.HalfGroup.ACCEPTED;
import static interop.HalfGroup.BY_OUTCOME;
import static interop.HalfGroup.COMMIT;
import static interop.HalfGroup.ROLLBACK;
import static interop.HalfGroup.asked;
import static interop.HalfGroup.outcome;

import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** The checks of half messages about which the broker asks. */
final class HalfChecks {
    private static final String CONFLICT = "half:conflict";
    private static final String PULL = "jms.prefetchPolicy.all=0";
    private static final String OUTCOME = "JMS_AMQP_ACK_TYPE";
    private static final int REJECTED = 2;
    private static final int RELEASED = 3;
    private static final int MODIFIED_FAILED = 4;
    private static final int SOON_MS = 100;
    private static final long FOUR_HOURS_MS = 4 * 3_600_000L;
    private static final long MINUTE_MS = 60_000;

    private HalfChecks() {
    }

    static void register(Interop interop) {
        Halves.register(interop, "asked; the check says everything; answered to JMSReplyTo", "", HalfChecks::message);
        Halves.register(interop, "asked by a MessageListener that answers; by turns commit and rollback", "",
            HalfChecks::listener);
        Halves.register(interop, "AUTO_ACKNOWLEDGE decides nothing", "", group ->
            ignored(group, Session.AUTO_ACKNOWLEDGE, 0));
        Halves.register(interop, "CLIENT_ACKNOWLEDGE decides nothing", "", group ->
            ignored(group, Session.CLIENT_ACKNOWLEDGE, 1));
        Halves.register(interop, "rejected without by-outcome decides nothing", "", group ->
            ignored(group, Client.INDIVIDUAL_ACKNOWLEDGE, REJECTED));
        Halves.register(interop, "by outcome: AUTO_ACKNOWLEDGE commits", "", group ->
            decided(group, Session.AUTO_ACKNOWLEDGE, 0));
        Halves.register(interop, "by outcome: CLIENT_ACKNOWLEDGE commits", "", group ->
            decided(group, Session.CLIENT_ACKNOWLEDGE, 1));
        Halves.register(interop, "by outcome: rejected rolls back", "", group ->
            decided(group, Client.INDIVIDUAL_ACKNOWLEDGE, REJECTED));
        Halves.register(interop, "by outcome: released is asked again after a second as the same attempt; modified not",
            "", HalfChecks::released);
        Halves.register(interop, "by outcome: a MessageListener that throws decides nothing and is asked again", "",
            HalfChecks::throwing);
        Halves.register(interop, "by outcome: a connection that ends decides nothing; another is asked",
            "jms.prefetchPolicy.all=1", HalfChecks::ended);
        Halves.register(interop, "by outcome: a transacted session decides nothing", "", HalfChecks::transacted);
        Halves.register(interop, "pull: receiveNoWait without prefetch takes what is due, and then finds none", PULL,
            HalfChecks::pull);
    }

    private static void message(HalfGroup group) throws Exception {
        Message put = group.half("1", "the body", 200);
        put.setStringProperty("color", "blue");
        try (MessageConsumer consumer = group.checker(Session.AUTO_ACKNOWLEDGE, "")) {
            group.prepared(put);
            Message check = asked(consumer, "1");
            expect("body", "the body", text(check));
            expect("JMSReplyTo", group.resolveAddress(), ((Queue) check.getJMSReplyTo()).getQueueName());
            expect("JMSMessageID is its own", false, check.getJMSMessageID().equals(put.getJMSMessageID()));
            List<Object> got = List.of(check.getStringProperty("color"), check.getStringProperty("half_id"),
                check.getStringProperty("half_group"), check.getStringProperty("half_destination"),
                check.getIntProperty("half_attempt"));
            expect("color, half_id, half_group, half_destination, half_attempt",
                List.of("blue", "1", group.group, group.client.queueName, 1), got);
            long age = check.getLongProperty("half_age_ms");
            expect("half_age_ms is 200 or a little more", true, age >= 200 && age < Client.TIMEOUT_MS);
            long left = check.getLongProperty("half_deadline") - System.currentTimeMillis();
            expect("half_deadline in 4 h", true, Math.abs(left - FOUR_HOURS_MS) < MINUTE_MS);
            Message answer = group.resolution(check.getJMSCorrelationID(), COMMIT);
            answer.setStringProperty("half_reason", "it was done");
            String told = outcome(() -> group.session.createProducer(check.getJMSReplyTo()).send(answer));
            expect("answer", ACCEPTED, told);
        }
        expect("queue", List.of("the body"), group.queued());
    }

    /** The session of the listener is its own; what it sends on another is used by no other thread meanwhile. */
    private static void listener(HalfGroup group) throws Exception {
        BlockingQueue<String> answers = new LinkedBlockingQueue<>();
        try (MessageConsumer consumer = group.checker(Session.AUTO_ACKNOWLEDGE, "");
             Session answering = group.client.session()) {
            HalfGroup answerer = group.on(answering);
            consumer.setMessageListener(check -> {
                try {
                    String halfId = check.getJMSCorrelationID();
                    boolean even = Integer.parseInt(halfId) % 2 == 0;
                    answers.add(even ? answerer.commit(halfId) : answerer.rollBack(halfId));
                } catch (Exception problem) {
                    answers.add(problem.toString());
                }
            });
            for (String number : Client.numbers(10)) {
                group.prepared(group.half(number, number, SOON_MS));
            }
            for (int number = 0; number < 10; number++) {
                expect("answer", ACCEPTED, answers.poll(Client.TIMEOUT_MS, TimeUnit.MILLISECONDS));
            }
        }
        List<String> bodies = group.queued();
        bodies.sort(null);
        expect("queue", List.of("0", "2", "4", "6", "8"), bodies);
    }

    /** Lets the session acknowledge, with an outcome where one is given. */
    private static void settle(Message check, int outcome) throws Exception {
        if (outcome > 0) {
            check.setIntProperty(OUTCOME, outcome);
            check.acknowledge();
        }
    }

    /** Had the acknowledgement decided anything, one of the two answers after it would be a conflict. */
    private static void ignored(HalfGroup group, int mode, int outcome) throws Exception {
        try (MessageConsumer consumer = group.checker(mode, "")) {
            for (String halfId : List.of(ROLLBACK, COMMIT)) {
                group.prepared(group.half(halfId, halfId, SOON_MS));
                settle(asked(consumer, halfId), outcome);
                expect(halfId, ACCEPTED, outcome(() -> group.resolve(halfId, halfId)));
            }
        }
        expect("queue", List.of(COMMIT), group.queued());
    }

    private static void decided(HalfGroup group, int mode, int outcome) throws Exception {
        boolean commits = outcome != REJECTED;
        MessageConsumer checks = group.checker(mode, BY_OUTCOME);
        try (MessageConsumer consumer = group.client.consumer(Session.AUTO_ACKNOWLEDGE)) {
            group.prepared(group.half("1", "body", SOON_MS));
            settle(asked(checks, "1"), outcome);
            if (commits) {
                expect("delivered", "body", text(receive(consumer)));
            }
        }
        checks.close();
        expect("commit", commits ? ACCEPTED : CONFLICT, group.commit("1"));
        expect("rollback", commits ? CONFLICT : ACCEPTED, group.rollBack("1"));
        expect("queue", List.of(), group.queued());
    }

    private static void released(HalfGroup group) throws Exception {
        try (MessageConsumer consumer = group.checker(Client.INDIVIDUAL_ACKNOWLEDGE, BY_OUTCOME)) {
            group.prepared(group.half("1", "modified", SOON_MS));
            settle(asked(consumer, "1"), MODIFIED_FAILED);
            group.prepared(group.half("2", "released", SOON_MS));
            settle(asked(consumer, "2"), RELEASED);
            Message again = asked(consumer, "2");
            expect("half_attempt", 1, again.getIntProperty("half_attempt"));
            expect("rollback", ACCEPTED, group.rollBack("1"));
            expect("commit", ACCEPTED, group.commit("2"));
        }
        expect("queue", List.of("released"), group.queued());
    }

    private static void throwing(HalfGroup group) throws Exception {
        BlockingQueue<Integer> attempts = new LinkedBlockingQueue<>();
        try (MessageConsumer consumer = group.checker(Session.AUTO_ACKNOWLEDGE, BY_OUTCOME)) {
            consumer.setMessageListener(check -> {
                try {
                    attempts.add(check.getIntProperty("half_attempt"));
                } catch (Exception problem) {
                    attempts.add(0);
                }
                if (attempts.size() == 1) {
                    throw new IllegalStateException("thrown by this check");
                }
            });
            group.prepared(group.half("1", "body", SOON_MS));
            try (MessageConsumer delivered = group.client.consumer(Session.AUTO_ACKNOWLEDGE)) {
                expect("delivered after the second", "body", text(receive(delivered)));
            }
        }
        expect("attempts", List.of(1, 1), List.copyOf(attempts));
    }

    private static void ended(HalfGroup group) throws Exception {
        try (Client another = group.client.another()) {
            MessageConsumer there = new HalfGroup(another).checker(Client.INDIVIDUAL_ACKNOWLEDGE, BY_OUTCOME);
            group.prepared(group.half("1", "never", 0));
            asked(there, "1");
        }
        try (MessageConsumer here = group.checker(Session.AUTO_ACKNOWLEDGE, "")) {
            asked(here, "1");
        }
        expect("rollback", ACCEPTED, group.rollBack("1"));
        expect("queue", List.of(), group.queued());
    }

    /** Checks are answered outside of transactions: the link ends, and whatever the commit says, nothing is decided. */
    private static void transacted(HalfGroup group) throws Exception {
        try (Session session = group.client.transacted()) {
            MessageConsumer consumer = session.createConsumer(session.createQueue(group.checkAddress() + BY_OUTCOME));
            group.prepared(group.half("1", "never", SOON_MS));
            asked(consumer, "1");
            outcome(session::commit);
        }
        expect("rollback", ACCEPTED, group.rollBack("1"));
        expect("queue", List.of(), group.queued());
    }

    private static void pull(HalfGroup group) throws Exception {
        try (MessageConsumer consumer = group.checker(Session.AUTO_ACKNOWLEDGE, "")) {
            expect("none is due", null, consumer.receiveNoWait());
            group.prepared(group.half("1", "one", 0));
            group.prepared(group.half("2", "two", 0));
            for (int count = 0; count < 2; count++) {
                expect("a check is there", true, consumer.receiveNoWait() != null);
            }
            expect("both were asked", null, consumer.receiveNoWait());
        }
        expect("commit", ACCEPTED, group.commit("1"));
        expect("rollback", ACCEPTED, group.rollBack("2"));
    }
}
