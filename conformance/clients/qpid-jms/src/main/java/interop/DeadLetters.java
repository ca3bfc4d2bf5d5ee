package interop;

import static interop.Client.expect;
import static interop.Client.receive;
import static interop.Client.text;

import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.QueueBrowser;
import jakarta.jms.Session;
import java.util.Collections;
import java.util.Enumeration;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/** The checks of messages that fail too often: this broker's own rule, ten times and the queue dead-letters. */
final class DeadLetters {
    private static final String ADDRESS = "dead-letters";
    private static final int TRIES = 10;
    private static final long PATIENCE_MS = 20_000;

    private DeadLetters() {
    }

    static void register(Interop interop) {
        interop.check("dead letters: a transacted session that rolls back ten times", DeadLetters::rolledBack);
        interop.check("dead letters: a transacted MessageListener that fails on one of 100", DeadLetters::listener);
    }

    private static void rolledBack(Client client) throws Exception {
        String mine = client.queueName;
        client.sendTexts(List.of(mine, "after it"));
        try (Session session = client.transacted(); MessageConsumer consumer = session.createConsumer(client.queue(session))) {
            for (int attempt = 1; attempt <= TRIES; attempt++) {
                Message message = receive(consumer);
                expect("text", mine, text(message));
                expect("attempt", attempt, message.getIntProperty("JMSXDeliveryCount"));
                session.rollback();
            }
            expect("after ten rollbacks", "after it", text(receive(consumer)));
            session.commit();
        }
        expect("dead letters of this text", 1L, dead(client, mine));
    }

    /** The others are handled once each. */
    private static void listener(Client client) throws Exception {
        String mine = client.queueName;
        for (int number = 0; number < 100; number++) {
            client.sendTexts(List.of(number == 42 ? mine : "text " + number));
        }
        AtomicInteger handled = new AtomicInteger();
        AtomicInteger failed = new AtomicInteger();
        CountDownLatch all = new CountDownLatch(99 + TRIES);
        try (Session session = client.transacted(); MessageConsumer consumer = session.createConsumer(client.queue(session))) {
            consumer.setMessageListener(message -> {
                try {
                    if (mine.equals(text(message))) {
                        failed.incrementAndGet();
                        session.rollback();
                    } else {
                        session.commit();
                        handled.incrementAndGet();
                    }
                } catch (Exception problem) {
                    throw new IllegalStateException(problem);
                } finally {
                    all.countDown();
                }
            });
            expect("all in time", true, all.await(PATIENCE_MS, TimeUnit.MILLISECONDS));
        }
        expect("handled", 99, handled.get());
        expect("failed", TRIES, failed.get());
        expect("dead letters of this text", 1L, dead(client, mine));
    }

    /** How many there are of a text; one that moves is there as soon as its commit is. */
    private static long dead(Client client, String text) throws Exception {
        long found = 0;
        for (long until = System.currentTimeMillis() + PATIENCE_MS; found == 0 && System.currentTimeMillis() < until;) {
            try (Session session = client.transacted();
                 QueueBrowser browser = session.createBrowser(session.createQueue(ADDRESS))) {
                found = Collections.list((Enumeration<?>) browser.getEnumeration()).stream()
                    .filter(message -> isText((Message) message, text)).count();
            }
        }
        return found;
    }

    private static boolean isText(Message message, String text) {
        try {
            return text.equals(text(message));
        } catch (JMSException | RuntimeException noText) {
            return false;
        }
    }
}
