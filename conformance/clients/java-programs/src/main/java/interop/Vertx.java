package interop;

import static interop.Interop.expect;
import static interop.Interop.next;
import static interop.Interop.until;

import io.vertx.amqp.AmqpClient;
import io.vertx.amqp.AmqpClientOptions;
import io.vertx.amqp.AmqpConnection;
import io.vertx.amqp.AmqpMessage;
import io.vertx.amqp.AmqpReceiver;
import io.vertx.amqp.AmqpReceiverOptions;
import io.vertx.amqp.AmqpSender;
import io.vertx.core.Future;
import java.net.URI;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** Vert.x AMQP client. */
final class Vertx {
    private final Interop interop;

    private Vertx(Interop interop) {
        this.interop = interop;
    }

    static void register(Interop interop) {
        Vertx vertx = new Vertx(interop);
        interop.check("vertx: send, acknowledge, receive", vertx::roundTrip);
        interop.check("vertx: outcomes by hand", vertx::outcomes);
        interop.check("vertx: request and reply by a dynamic receiver and an anonymous sender", vertx::requests);
        interop.check("vertx: a durable subscription", vertx::durable);
        interop.check("vertx: a selector", vertx::selector);
        interop.check("vertx: back-pressure", vertx::backPressure);
    }

    private interface Use {
        void with(AmqpConnection connection) throws Exception;
    }

    private static <T> T done(Future<T> future) throws Exception {
        return future.toCompletionStage().toCompletableFuture().get(Interop.TIMEOUT_MS, TimeUnit.MILLISECONDS);
    }

    private void connected(Use use) throws Exception {
        connected("clients-vertx-" + System.nanoTime(), use);
    }

    private void connected(String container, Use use) throws Exception {
        URI at = URI.create(interop.url);
        AmqpClientOptions options = new AmqpClientOptions().setHost(at.getHost()).setPort(at.getPort())
            .setContainerId(container);
        options.addEnabledSaslMechanism(Interop.user() == null ? "ANONYMOUS" : "PLAIN");
        if (Interop.user() != null) {
            options.setUsername(Interop.user()).setPassword(Interop.password());
        }
        AmqpClient client = AmqpClient.create(options);
        try {
            AmqpConnection connection = done(client.connect());
            use.with(connection);
            done(connection.close());
        } finally {
            done(client.close());
        }
    }

    private static AmqpMessage text(String body) {
        return AmqpMessage.create().withBody(body).durable(true).build();
    }

    private static LinkedBlockingQueue<AmqpMessage> receives(AmqpReceiver receiver) {
        LinkedBlockingQueue<AmqpMessage> found = new LinkedBlockingQueue<>();
        receiver.handler(found::add);
        return found;
    }

    private void roundTrip(String queue) throws Exception {
        connected(connection -> {
            AmqpSender sender = done(connection.createSender(queue));
            for (int index = 0; index < 10; index++) {
                done(sender.sendWithAck(text("body " + index)));
            }
            LinkedBlockingQueue<AmqpMessage> found = receives(done(connection.createReceiver(queue)));
            for (int index = 0; index < 10; index++) {
                expect("in order", "body " + index, next("receiver", found).bodyAsString());
            }
        });
    }

    private void outcomes(String queue) throws Exception {
        connected(connection -> {
            AmqpSender sender = done(connection.createSender(queue));
            done(sender.sendWithAck(text("a")));
            AmqpReceiverOptions byHand = new AmqpReceiverOptions().setAutoAcknowledgement(false);
            AmqpReceiver receiver = done(connection.createReceiver(queue, byHand));
            LinkedBlockingQueue<AmqpMessage> found = receives(receiver);
            next("first", found).released();
            AmqpMessage again = next("released", found);
            expect("released is not a failed delivery", 0, again.deliveryCount());
            again.modified(true, false);
            AmqpMessage failed = next("modified", found);
            expect("modified is one", 1, failed.deliveryCount());
            failed.accepted();
            done(sender.sendWithAck(text("b")));
            next("b", found).rejected();
            done(sender.sendWithAck(text("c")));
            AmqpMessage last = next("c", found);
            expect("rejected does not come again", "c", last.bodyAsString());
            last.accepted();
        });
    }

    private void requests(String queue) throws Exception {
        connected(connection -> {
            AmqpSender anybody = done(connection.createAnonymousSender());
            AmqpReceiver server = done(connection.createReceiver(queue));
            server.handler(message -> anybody.send(AmqpMessage.create().address(message.replyTo())
                .correlationId(message.id()).withBody(message.bodyAsString() + "!").build()));
            AmqpReceiver replies = done(connection.createDynamicReceiver());
            LinkedBlockingQueue<AmqpMessage> found = receives(replies);
            AmqpSender asks = done(connection.createSender(queue));
            for (int index = 0; index < 5; index++) {
                asks.send(AmqpMessage.create().id("id " + index).replyTo(replies.address()).withBody("q" + index).build());
                AmqpMessage reply = next("reply", found);
                expect("reply", List.of("id " + index, "q" + index + "!"), List.of(reply.correlationId(), reply.bodyAsString()));
            }
        });
    }

    private void durable(String topic) throws Exception {
        String container = "clients-vertx-" + topic;
        AmqpReceiverOptions options = new AmqpReceiverOptions().setDurable(true).setLinkName("subscription").addCapability("topic");
        connected(container, connection -> {
            LinkedBlockingQueue<AmqpMessage> found = receives(done(connection.createReceiver(topic, options)));
            AmqpSender sender = done(connection.createSender(topic));
            done(sender.sendWithAck(text("a")));
            expect("while it is there", "a", next("subscription", found).bodyAsString());
        });
        connected(connection -> {
            AmqpSender sender = done(connection.createSender(topic));
            done(sender.sendWithAck(text("while nobody was there")));
        });
        connected(container, connection -> {
            AmqpReceiver receiver = done(connection.createReceiver(topic, options));
            expect("and after", "while nobody was there", next("subscription", receives(receiver)).bodyAsString());
            done(receiver.close());
        });
    }

    private void selector(String queue) throws Exception {
        connected(connection -> {
            AmqpSender sender = done(connection.createSender(queue));
            for (String colour : List.of("blue", "red", "blue", "red")) {
                done(sender.sendWithAck(AmqpMessage.create().withBody(colour).subject(colour).build()));
            }
            AmqpReceiverOptions red = new AmqpReceiverOptions().setSelector("JMSType = 'red'");
            LinkedBlockingQueue<AmqpMessage> found = receives(done(connection.createReceiver(queue, red)));
            expect("red", "red", next("red", found).bodyAsString());
            expect("red", "red", next("red", found).bodyAsString());
            LinkedBlockingQueue<AmqpMessage> others = receives(done(connection.createReceiver(queue)));
            expect("others", "blue", next("others", others).bodyAsString());
            expect("others", "blue", next("others", others).bodyAsString());
        });
    }

    private void backPressure(String queue) throws Exception {
        connected(connection -> {
            AmqpReceiver receiver = done(connection.createReceiver(queue, new AmqpReceiverOptions().setMaxBufferedMessages(10)));
            List<String> found = new ArrayList<>();
            receiver.pause();
            receiver.handler(message -> {
                synchronized (found) {
                    found.add(message.bodyAsString());
                }
            });
            AmqpSender sender = done(connection.createSender(queue));
            for (int index = 0; index < 200; index++) {
                done(sender.sendWithAck(text("" + index)));
            }
            synchronized (found) {
                expect("nothing while it is paused", List.of(), found);
            }
            receiver.resume();
            until("all of them", () -> {
                synchronized (found) {
                    return found.size() == 200;
                }
            });
        });
    }
}
