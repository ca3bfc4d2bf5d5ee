package interop;

import static interop.Client.sendTexts;

import jakarta.jms.MessageConsumer;
import jakarta.jms.Session;
import java.util.List;

/**
 * The process that is killed in the middle of a transaction: Victim amqp://host:port queue results commit-first
 *
 * <p>Takes two messages from the queue to the results, commits if it is told so and does the same again, says that it
 * is ready, and waits. It ends by itself when whoever started it has gone.
 */
final class Victim {
    static final String READY = "ready";

    private Victim() {
    }

    public static void main(String[] arguments) throws Exception {
        try (Client client = new Client(arguments[0], "", arguments[1])) {
            Session session = client.transacted();
            MessageConsumer consumer = session.createConsumer(client.queue(session));
            move(session, consumer, arguments[2]);
            if (Boolean.parseBoolean(arguments[3])) {
                session.commit();
                move(session, consumer, arguments[2]);
            }
            System.out.println(READY);
            while (System.in.read() >= 0) {
                continue;
            }
        }
        System.exit(1);
    }

    private static void move(Session session, MessageConsumer consumer, String results) throws Exception {
        List<String> bodies = Client.receiveTexts(consumer, 2);
        sendTexts(session, results, bodies);
    }
}
