package interop;

import static interop.Peer.TIMEOUT_MS;
import static interop.Peer.bodies;
import static interop.Peer.body;
import static interop.Peer.expect;
import static interop.Peer.numbers;
import static interop.Peer.receive;
import static interop.Peer.receiver;

import java.io.InputStream;
import java.io.OutputStream;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.qpid.protonj2.client.Delivery;
import org.apache.qpid.protonj2.client.DeliveryMode;
import org.apache.qpid.protonj2.client.DeliveryState;
import org.apache.qpid.protonj2.client.DistributionMode;
import org.apache.qpid.protonj2.client.Message;
import org.apache.qpid.protonj2.client.OutputStreamOptions;
import org.apache.qpid.protonj2.client.Receiver;
import org.apache.qpid.protonj2.client.ReceiverOptions;
import org.apache.qpid.protonj2.client.Sender;
import org.apache.qpid.protonj2.client.SenderOptions;
import org.apache.qpid.protonj2.client.StreamReceiver;
import org.apache.qpid.protonj2.client.StreamReceiverOptions;
import org.apache.qpid.protonj2.client.StreamSender;
import org.apache.qpid.protonj2.client.StreamSenderMessage;
import org.apache.qpid.protonj2.client.Tracker;

/** The checks of settling, credit, links and connections. */
final class Behaviour {
    private static final int LARGE_BODY_BYTES = 8 * 1024 * 1024;
    private static final int ORDERED_MESSAGES = 1_000;
    private static final int COMPETING_MESSAGES = 200;

    private Behaviour() {
    }

    static void register(Interop interop) {
        interop.check("large message of 8 MiB", Behaviour::large);
        interop.check("large message of 8 MiB, streamed both ways", Behaviour::streamed);
        interop.check("send unsettled: accepted and settled", Behaviour::unsettledSend);
        interop.check("send pre-settled", Behaviour::presettledSend);
        interop.check("receive pre-settled: gone without a disposition", Behaviour::presettledReceive);
        interop.check("outcome accepted: gone", peer ->
            expect("left", List.of("second"), afterOutcome(peer, DeliveryState.accepted())));
        interop.check("outcome rejected: not delivered again", peer ->
            expect("left", List.of("second"), afterOutcome(peer, DeliveryState.rejected("amqp:internal-error", "no"))));
        interop.check("outcome released: comes again, delivery-count unchanged", peer ->
            redelivered(peer, DeliveryState.released(), 0));
        interop.check("outcome modified, delivery-failed: delivery-count + 1, with annotations", Behaviour::modified);
        interop.check("outcome modified, undeliverable-here: not to this link, but to another", Behaviour::undeliverableHere);
        interop.check("credit: as many messages as credit", Behaviour::credit);
        interop.check("drain: of 3 messages and of 0", Behaviour::drain);
        interop.check("reconnect: what was not settled comes again", Behaviour::reconnect);
        interop.check("browse by distribution-mode copy", Behaviour::browse);
        interop.check("order of 1,000 messages", Behaviour::order);
        interop.check("two competing receivers: each message exactly once", Behaviour::competing);
        interop.check("dynamic receiver: request and reply", Behaviour::requestReply);
        interop.check("anonymous sender: to two queues", Behaviour::anonymousSender);
    }

    static byte[] largeBody() {
        byte[] body = new byte[LARGE_BODY_BYTES];
        new Random(1).nextBytes(body);
        return body;
    }

    private static void large(Peer peer) throws Exception {
        byte[] body = largeBody();
        expect("same octets", true, Arrays.equals(body, (byte[]) peer.roundTrip(Message.create(body)).body()));
    }

    private static void streamed(Peer peer) throws Exception {
        byte[] body = largeBody();
        try (StreamSender sender = peer.connection().openStreamSender(peer.queue)) {
            StreamSenderMessage message = sender.beginMessage();
            try (OutputStream stream = message.body(new OutputStreamOptions().bodyLength(body.length))) {
                stream.write(body);
            }
            message.complete();
            message.tracker().awaitAccepted(TIMEOUT_MS, TimeUnit.MILLISECONDS);
        }
        StreamReceiverOptions options = new StreamReceiverOptions().creditWindow(0).autoAccept(false);
        try (StreamReceiver receiver = peer.connection().openStreamReceiver(peer.queue, options)) {
            receiver.addCredit(1);
            var delivery = receiver.receive(TIMEOUT_MS, TimeUnit.MILLISECONDS);
            expect("a delivery", true, delivery != null);
            try (InputStream stream = delivery.message().body()) {
                expect("same octets", true, Arrays.equals(body, stream.readAllBytes()));
            }
            delivery.accept();
        }
        expect("left", List.of(), peer.rest());
    }

    private static void unsettledSend(Peer peer) throws Exception {
        Sender sender = Peer.sender(peer.plain(), peer.queue, new SenderOptions());
        Tracker tracker = sender.send(Message.create("unsettled").durable(true));
        tracker.awaitSettlement(TIMEOUT_MS, TimeUnit.MILLISECONDS);
        expect("accepted", true, tracker.remoteState().isAccepted());
        expect("settled by the broker", true, tracker.remoteSettled());
        sender.close();
        expect("in the queue", List.of("unsettled"), peer.rest());
    }

    private static void presettledSend(Peer peer) throws Exception {
        Sender sender = Peer.sender(peer.plain(), peer.queue, new SenderOptions().deliveryMode(DeliveryMode.AT_MOST_ONCE));
        for (String body : numbers(10)) {
            sender.send(Message.create(body));
        }
        sender.close();
        expect("in the queue", numbers(10), peer.rest());
    }

    private static void presettledReceive(Peer peer) throws Exception {
        peer.send(numbers(3));
        Receiver receiver = receiver(peer.plain(), peer.queue, 2,
            new ReceiverOptions().deliveryMode(DeliveryMode.AT_MOST_ONCE));
        for (Delivery delivery : receive(receiver, 2)) {
            expect("settled by the broker", true, delivery.remoteSettled());
        }
        receiver.close();
        expect("left", List.of("2"), peer.rest());
    }

    private static List<String> afterOutcome(Peer peer, DeliveryState outcome) throws Exception {
        peer.send(List.of("first", "second"));
        Receiver receiver = receiver(peer.plain(), peer.queue, 1);
        Delivery delivery = receive(receiver);
        expect("body", "first", body(delivery));
        delivery.disposition(outcome, true);
        receiver.close();
        return peer.rest();
    }

    private static Message<Object> redelivered(Peer peer, DeliveryState outcome, long count) throws Exception {
        peer.send(List.of("first"));
        Receiver receiver = receiver(peer.plain(), peer.queue, 1);
        receive(receiver).disposition(outcome, true);
        receiver.close();
        Message<Object> message = peer.next();
        expect("body", "first", message.body());
        expect("delivery-count", count, message.deliveryCount());
        expect("first-acquirer", false, message.firstAcquirer());
        return message;
    }

    private static void modified(Peer peer) throws Exception {
        DeliveryState outcome = DeliveryState.modified(true, false, java.util.Map.of("x-opt-added", "later"));
        expect("message-annotation", "later", redelivered(peer, outcome, 1).annotation("x-opt-added"));
    }

    private static void undeliverableHere(Peer peer) throws Exception {
        peer.send(List.of("first"));
        Receiver here = receiver(peer.plain(), peer.queue, 2);
        receive(here).modified(true, true);
        peer.send(List.of("second"));
        expect("next at this link", "second", body(receive(here).accept()));
        expect("at another link", List.of("first"), peer.rest());
        here.close();
    }

    private static void credit(Peer peer) throws Exception {
        peer.send(numbers(10));
        Receiver receiver = receiver(peer.plain(), peer.queue, 3);
        expect("received", numbers(3), bodies(receive(receiver, 3)));
        Receiver other = receiver(peer.plain(), peer.queue, 100);
        expect("what the first has no credit for", numbers(3, 10), Peer.drained(other, true));
        expect("more than credit", null, receiver.tryReceive());
        receiver.close();
        expect("left", numbers(3), peer.rest());
    }

    private static void drain(Peer peer) throws Exception {
        peer.send(numbers(3));
        expect("of 3", numbers(3), peer.rest());
        expect("of 0", List.of(), peer.rest());
        Receiver receiver = receiver(peer.plain(), peer.queue, 10);
        receiver.drain().get(TIMEOUT_MS, TimeUnit.MILLISECONDS);
        peer.send(List.of("later"));
        expect("no credit after the drain", List.of("later"), peer.rest());
        peer.send(List.of("with new credit"));
        receiver.addCredit(1);
        expect("received", "with new credit", body(receive(receiver).accept()));
        receiver.close();
    }

    private static void reconnect(Peer peer) throws Exception {
        peer.send(numbers(2));
        expect("received", numbers(2), bodies(receive(receiver(peer.plain(), peer.queue, 2), 2)));
        peer.reconnect();
        expect("after reconnect", numbers(2), peer.rest());
    }

    static List<String> browsed(Peer peer) throws Exception {
        ReceiverOptions options = new ReceiverOptions();
        options.sourceOptions().distributionMode(DistributionMode.COPY);
        return Peer.drained(receiver(peer.plain(), peer.queue, ORDERED_MESSAGES, options), true);
    }

    private static void browse(Peer peer) throws Exception {
        peer.send(numbers(3));
        expect("browsed", numbers(3), browsed(peer));
        expect("left", numbers(3), peer.rest());
    }

    private static void order(Peer peer) throws Exception {
        peer.send(numbers(ORDERED_MESSAGES));
        expect("order", numbers(ORDERED_MESSAGES), peer.rest());
    }

    private static void competing(Peer peer) throws Exception {
        List<Receiver> receivers = List.of(
            receiver(peer.plain(), peer.queue, 0), receiver(peer.session(), peer.queue, 0));
        peer.send(numbers(COMPETING_MESSAGES));
        List<Integer> all = new ArrayList<>();
        for (int turn = 0; turn < COMPETING_MESSAGES; turn += receivers.size()) {
            for (Receiver receiver : receivers) {
                receiver.addCredit(1);
            }
            for (Receiver receiver : receivers) {
                all.add(Integer.valueOf(body(receive(receiver).accept())));
            }
        }
        Collections.sort(all);
        expect("union", IntStream.range(0, COMPETING_MESSAGES).boxed().collect(Collectors.toList()), all);
        for (Receiver receiver : receivers) {
            receiver.close();
        }
        expect("left", List.of(), peer.rest());
    }

    private static void requestReply(Peer peer) throws Exception {
        Receiver replies = peer.plain().openDynamicReceiver();
        replies.openFuture().get(TIMEOUT_MS, TimeUnit.MILLISECONDS);
        Message<Object> request = peer.roundTrip(Message.create("request").replyTo(replies.address()));
        Peer.send(peer.plain(), request.replyTo(), List.of("reply to " + request.body()));
        expect("reply", "reply to request", body(receive(replies)));
        replies.close();
    }

    private static void anonymousSender(Peer peer) throws Exception {
        Sender sender = peer.plain().openAnonymousSender();
        sender.openFuture().get(TIMEOUT_MS, TimeUnit.MILLISECONDS);
        for (String queue : List.of(peer.queue("a"), peer.queue("b"))) {
            Peer.receiver(peer.plain(), queue, 0).close();
            sender.send(Message.create("to " + queue).to(queue)).awaitAccepted(TIMEOUT_MS, TimeUnit.MILLISECONDS);
            expect("in the queue", List.of("to " + queue), peer.rest(queue));
        }
        sender.close();
    }
}
