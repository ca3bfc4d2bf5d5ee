package interop;

import static interop.Client.expect;
import static interop.Client.receive;
import static interop.Client.text;

import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import java.util.List;

/** The checks of messages that come later, of those that expire, and of priorities, which are one where a queue has none. */
final class Times {
    private static final long DELAY_MS = 600;
    private static final long PATIENCE_MS = 20_000;

    private Times() {
    }

    static void register(Interop interop) {
        interop.check("times: setDeliveryDelay, in the order of the times", Times::delayed);
        interop.check("times: setDeliveryDelay in a transacted session", Times::delayedInTransaction);
        interop.check("times: setPriority, carried, and in order inside each", Times::urgent);
        interop.check("times: setTimeToLive, not given out any more", Times::expired);
    }

    private static void delayed(Client client) throws Exception {
        try (Session session = client.session();
             MessageProducer producer = session.createProducer(client.queue(session));
             MessageConsumer consumer = session.createConsumer(client.queue(session))) {
            long began = System.currentTimeMillis();
            for (int factor : new int[] {2, 0, 1}) {
                producer.setDeliveryDelay(factor * DELAY_MS);
                producer.send(session.createTextMessage("after " + factor));
            }
            expect("at once", "after 0", text(receive(consumer)));
            for (int factor : new int[] {1, 2}) {
                Message message = consumer.receive(PATIENCE_MS);
                expect("in order", "after " + factor, text(message));
                long passed = System.currentTimeMillis() - began;
                expect("not early, after " + factor, true, passed >= factor * DELAY_MS - 1);
                expect("its delivery time", true, message.getJMSDeliveryTime() >= began + factor * DELAY_MS);
            }
        }
    }

    private static void delayedInTransaction(Client client) throws Exception {
        try (Session session = client.transacted();
             MessageProducer producer = session.createProducer(client.queue(session));
             MessageConsumer consumer = session.createConsumer(client.queue(session))) {
            producer.setDeliveryDelay(DELAY_MS);
            producer.send(session.createTextMessage("rolled back"));
            session.rollback();
            producer.send(session.createTextMessage("committed"));
            long sent = System.currentTimeMillis();
            session.commit();
            expect("the committed one", "committed", text(consumer.receive(PATIENCE_MS)));
            expect("not early", true, System.currentTimeMillis() >= sent + DELAY_MS - 50);
            session.commit();
            expect("nothing else", null, consumer.receive(DELAY_MS));
        }
    }

    private static void urgent(Client client) throws Exception {
        int[] priorities = {4, 9, 0, 9, 4, 0};
        try (Session session = client.session(); MessageProducer producer = session.createProducer(client.queue(session))) {
            for (int place = 0; place < priorities.length; place++) {
                producer.setPriority(priorities[place]);
                producer.send(session.createTextMessage(Integer.toString(place)));
            }
            int[] before = new int[10];
            java.util.Arrays.fill(before, -1);
            try (MessageConsumer consumer = session.createConsumer(client.queue(session))) {
                for (int count = 0; count < priorities.length; count++) {
                    Message message = receive(consumer);
                    int place = Integer.parseInt(text(message));
                    expect("priority", priorities[place], message.getJMSPriority());
                    expect("in order inside its priority", true, before[priorities[place]] < place);
                    before[priorities[place]] = place;
                }
            }
        }
    }

    private static void expired(Client client) throws Exception {
        try (Session session = client.session();
             MessageProducer producer = session.createProducer(client.queue(session))) {
            producer.setTimeToLive(DELAY_MS);
            producer.send(session.createTextMessage("short"));
            producer.setTimeToLive(0);
            producer.send(session.createTextMessage("for ever"));
            Thread.sleep(DELAY_MS + 100);
            try (MessageConsumer consumer = session.createConsumer(client.queue(session))) {
                expect("what is left", List.of("for ever"), Client.receiveTexts(consumer, 1));
            }
        }
    }
}
