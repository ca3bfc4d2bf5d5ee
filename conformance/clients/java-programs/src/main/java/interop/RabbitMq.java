package interop;

import static interop.Interop.expect;
import static interop.Interop.next;
import static interop.Interop.until;

import com.rabbitmq.client.amqp.AmqpException;
import com.rabbitmq.client.amqp.Connection;
import com.rabbitmq.client.amqp.ConnectionBuilder;
import com.rabbitmq.client.amqp.ConnectionSettings;
import com.rabbitmq.client.amqp.Consumer;
import com.rabbitmq.client.amqp.Environment;
import com.rabbitmq.client.amqp.Management;
import com.rabbitmq.client.amqp.Message;
import com.rabbitmq.client.amqp.Publisher;
import com.rabbitmq.client.amqp.Requester;
import com.rabbitmq.client.amqp.Responder;
import com.rabbitmq.client.amqp.impl.AmqpEnvironmentBuilder;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/**
 * RabbitMQ's AMQP 1.0 client for Java. It asks for a broker of version 4 with RabbitMQ's management node, so these run
 * only where AMQP_RABBITMQ says that the broker has the settings for it. AMQP_RABBITMQ_BOUND is an exchange e whose keys
 * bound.* are bound to the queue e-bound by the configuration.
 */
final class RabbitMq {
    private final Interop interop;

    private RabbitMq(Interop interop) {
        this.interop = interop;
    }

    static void register(Interop interop) {
        if (System.getenv("AMQP_RABBITMQ") == null) {
            interop.skip("rabbitmq: RabbitMQ's client", "AMQP_RABBITMQ is not set: the broker needs settings for it");
            return;
        }
        RabbitMq rabbit = new RabbitMq(interop);
        interop.check("rabbitmq: declare, look at, purge and delete a queue", rabbit::queue);
        interop.check("rabbitmq: a queue with a name of the library's choice", rabbit::unnamed);
        interop.check("rabbitmq: publish and consume", rabbit::messages);
        interop.check("rabbitmq: accept, discard, requeue", rabbit::outcomes);
        interop.check("rabbitmq: each message names its queue", rabbit::anonymous);
        interop.check("rabbitmq: what cannot be declared is refused", rabbit::refused);
        interop.check("rabbitmq: an exchange, declared, used, deleted", rabbit::exchange);
        interop.check("rabbitmq: bindings made and deleted", rabbit::bindings);
        interop.check("rabbitmq: a fanout heeds no key", rabbit::fanout);
        interop.check("rabbitmq: an exclusive queue", rabbit::exclusive);
        interop.check("rabbitmq: a queue that goes with its last consumer", rabbit::autoDelete);
        interop.check("rabbitmq: request and reply", rabbit::requests);
        String bound = System.getenv("AMQP_RABBITMQ_BOUND");
        if (bound == null) {
            interop.skip("rabbitmq: a binding", "AMQP_RABBITMQ_BOUND is not set");
        } else {
            interop.check("rabbitmq: a binding that the configuration has", name -> rabbit.binding(bound));
        }
    }

    private interface Use {
        void with(Connection connection, Management management) throws Exception;
    }

    private void connected(Use use) throws Exception {
        URI at = URI.create(interop.url);
        try (Environment environment = new AmqpEnvironmentBuilder().build()) {
            ConnectionBuilder builder = environment.connectionBuilder().host(at.getHost()).port(at.getPort());
            if (Interop.user() == null) {
                builder.saslMechanism(ConnectionSettings.SASL_MECHANISM_ANONYMOUS);
            } else {
                builder.username(Interop.user()).password(Interop.password());
            }
            try (Connection connection = builder.build(); Management management = connection.management()) {
                use.with(connection, management);
            }
        }
    }

    private static void publish(Publisher publisher, Message... messages) throws Exception {
        LinkedBlockingQueue<Publisher.Status> statuses = new LinkedBlockingQueue<>();
        for (Message message : messages) {
            publisher.publish(message, context -> statuses.add(context.status()));
        }
        for (Publisher.Status status : next("status", statuses, messages.length)) {
            expect("status", Publisher.Status.ACCEPTED, status);
        }
    }

    private static Message text(Publisher publisher, String body) {
        return publisher.message(body.getBytes(StandardCharsets.UTF_8));
    }

    private static String text(Message message) {
        return new String(message.body(), StandardCharsets.UTF_8);
    }

    /** A delivery, to be settled by the check. */
    private record Came(Consumer.Context context, Message message) {
        String text() {
            return RabbitMq.text(message);
        }
    }

    private static Consumer consumer(Connection connection, String queue, LinkedBlockingQueue<Came> found) {
        return connection.consumerBuilder().queue(queue)
            .messageHandler((context, message) -> found.add(new Came(context, message))).build();
    }

    private void queue(String queue) throws Exception {
        connected((connection, management) -> {
            String name = queue + "/ü %";
            Management.QueueInfo made = management.queue(name).quorum().queue().declare();
            expect("made", List.of(name, true, false, false, 0L, 0),
                List.of(made.name(), made.durable(), made.autoDelete(), made.exclusive(), made.messageCount(), made.consumerCount()));
            management.queue(name).declare();
            try (Publisher publisher = connection.publisherBuilder().queue(name).build()) {
                publish(publisher, text(publisher, "a"), text(publisher, "b"));
            }
            expect("messages", 2L, management.queueInfo(name).messageCount());
            expect("purged", 2L, management.queuePurge(name).messageCount());
            expect("messages", 0L, management.queueInfo(name).messageCount());
            management.queueDelete(name);
            expectFailure("expected the identity of a queue", () -> management.queueInfo(name));
            management.queueDelete(name);
        });
    }

    private void unnamed(String queue) throws Exception {
        connected((connection, management) -> {
            String name = management.queue().declare().name();
            expect("it is there", name, management.queueInfo(name).name());
            management.queueDelete(name);
        });
    }

    private void messages(String queue) throws Exception {
        connected((connection, management) -> {
            management.queue(queue).declare();
            LinkedBlockingQueue<Came> found = new LinkedBlockingQueue<>();
            try (Publisher publisher = connection.publisherBuilder().queue(queue).build();
                    Consumer consumer = consumer(connection, queue, found)) {
                Message[] messages = new Message[100];
                List<String> expected = new ArrayList<>();
                for (int index = 0; index < messages.length; index++) {
                    expected.add("body " + index);
                    messages[index] = text(publisher, "body " + index).messageId((long) index).property("index", index);
                }
                publish(publisher, messages);
                List<String> bodies = new ArrayList<>();
                for (Came each : next("consumer", found, messages.length)) {
                    expect("property", bodies.size(), each.message().property("index"));
                    bodies.add(each.text());
                    each.context().accept();
                }
                expect("in order", expected, bodies);
                expect("consumers", 1, management.queueInfo(queue).consumerCount());
            }
            until("all accepted", () -> management.queueInfo(queue).messageCount() == 0);
            management.queueDelete(queue);
        });
    }

    private void outcomes(String queue) throws Exception {
        connected((connection, management) -> {
            management.queue(queue).declare();
            LinkedBlockingQueue<Came> found = new LinkedBlockingQueue<>();
            try (Publisher publisher = connection.publisherBuilder().queue(queue).build();
                    Consumer consumer = consumer(connection, queue, found)) {
                publish(publisher, text(publisher, "a"));
                next("first", found).context().requeue();
                Came again = next("requeued", found);
                expect("requeued is not failed", 0L, again.message().deliveryCount());
                again.context().requeue(java.util.Map.of("x-opt-tried", 1));
                Came annotated = next("requeued with an annotation", found);
                expect("annotation", 1, annotated.message().annotation("x-opt-tried"));
                annotated.context().discard();
                publish(publisher, text(publisher, "b"), text(publisher, "c"));
                Consumer.BatchContext batch = null;
                for (String body : List.of("b", "c")) {
                    Came next = next(body, found);
                    expect("discarded does not come again", body, next.text());
                    batch = batch == null ? next.context().batch(2) : batch;
                    batch.add(next.context());
                }
                batch.accept();
            }
            until("all gone", () -> management.queueInfo(queue).messageCount() == 0);
            management.queueDelete(queue);
        });
    }

    private void anonymous(String queue) throws Exception {
        connected((connection, management) -> {
            management.queue(queue).declare();
            LinkedBlockingQueue<Came> found = new LinkedBlockingQueue<>();
            try (Publisher publisher = connection.publisherBuilder().build();
                    Consumer consumer = consumer(connection, queue, found)) {
                publish(publisher, text(publisher, "a").toAddress().queue(queue).message());
                Came came = next("consumer", found);
                expect("body", "a", came.text());
                came.context().accept();
            }
            management.queueDelete(queue);
        });
    }

    private interface Failing {
        void run() throws Exception;
    }

    private static void expectFailure(String status, Failing failing) throws Exception {
        try {
            failing.run();
        } catch (AmqpException told) {
            String text = told.getMessage() + (told.getCause() == null ? "" : " " + told.getCause().getMessage());
            expect("status in " + text, true, text.contains(status));
            return;
        }
        throw new Interop.Failure("expected an AmqpException with " + status + ", got none");
    }

    private void refused(String queue) throws Exception {
        connected((connection, management) -> {
            expectFailure("409", () -> management.queue(queue).maxLength(7).declare());
            expectFailure("501", () -> management.queue(queue).messageTtl(Duration.ofSeconds(1)).declare());
            expectFailure("501", () -> management.exchange(queue).type(Management.ExchangeType.HEADERS).declare());
            expectFailure("expected the identity of a topic", () -> management.binding().sourceExchange(queue + "-none").key("k").destinationQueue(queue).bind());
            expectFailure("expected the identity of a queue", () -> management.queueInfo(queue));
        });
    }

    private void exchange(String name) throws Exception {
        connected((connection, management) -> {
            management.exchange(name).type(Management.ExchangeType.TOPIC).declare();
            management.exchange(name).type(Management.ExchangeType.TOPIC).declare();
            try (Publisher publisher = connection.publisherBuilder().exchange(name).build()) {
                publish(publisher, text(publisher, "nobody gets it"));
                expectFailure("409", () -> management.exchangeDelete(name));
            }
            management.exchangeDelete(name);
            management.exchangeDelete(name);
        });
    }

    private void bindings(String name) throws Exception {
        String exchange = name + "-e";
        connected((connection, management) -> {
            management.exchange(exchange).type(Management.ExchangeType.TOPIC).declare();
            management.queue(name).declare();
            management.binding().sourceExchange(exchange).key("*.red").destinationQueue(name).bind();
            management.binding().sourceExchange(exchange).key("big.#").destinationQueue(name).bind();
            management.binding().sourceExchange(exchange).key("big.#").destinationQueue(name).bind();
            try (Publisher publisher = connection.publisherBuilder().build()) {
                for (String key : List.of("small.red", "small.blue", "big.red", "big")) {
                    publish(publisher, text(publisher, key).toAddress().exchange(exchange).key(key).message());
                }
                expect("small.red, big.red once, big", 3L, management.queueInfo(name).messageCount());
                management.unbind().sourceExchange(exchange).key("*.red").destinationQueue(name).unbind();
                publish(publisher, text(publisher, "after").toAddress().exchange(exchange).key("small.red").message());
                expect("not after it was unbound", 3L, management.queueInfo(name).messageCount());
            }
            LinkedBlockingQueue<Came> found = new LinkedBlockingQueue<>();
            try (Consumer consumer = consumer(connection, name, found)) {
                for (String body : List.of("small.red", "big.red", "big")) {
                    Came came = next(body, found);
                    expect("body", body, came.text());
                    came.context().accept();
                }
            }
            expectFailure("409", () -> management.exchange(exchange).type(Management.ExchangeType.FANOUT).declare());
            management.exchangeDelete(exchange);
            management.queueDelete(name);
        });
    }

    private void fanout(String name) throws Exception {
        String exchange = name + "-e";
        connected((connection, management) -> {
            management.exchange(exchange).type(Management.ExchangeType.FANOUT).declare();
            for (String queue : List.of(name, name + "-2")) {
                management.queue(queue).declare();
                management.binding().sourceExchange(exchange).key("heeded by nobody").destinationQueue(queue).bind();
            }
            try (Publisher publisher = connection.publisherBuilder().exchange(exchange).key("any").build()) {
                publish(publisher, text(publisher, "a"));
            }
            try (Publisher publisher = connection.publisherBuilder().exchange(exchange).build()) {
                publish(publisher, text(publisher, "b"));
            }
            for (String queue : List.of(name, name + "-2")) {
                expect("both in " + queue, 2L, management.queueInfo(queue).messageCount());
                management.queueDelete(queue);
            }
            management.exchangeDelete(exchange);
        });
    }

    private void exclusive(String queue) throws Exception {
        connected((owner, management) -> {
            Management.QueueInfo made = management.queue(queue).exclusive(true).declare();
            expect("exclusive", true, made.exclusive());
            LinkedBlockingQueue<Came> found = new LinkedBlockingQueue<>();
            try (Consumer consumer = consumer(owner, queue, found)) {
                connected((other, others) -> {
                    expectFailure("409", () -> others.queue(queue).exclusive(true).declare());
                    expectFailure("409", () -> others.queueDelete(queue));
                    expectFailure("exclusive", () -> consumer(other, queue, new LinkedBlockingQueue<>()));
                    try (Publisher publisher = other.publisherBuilder().queue(queue).build()) {
                        publish(publisher, text(publisher, "a"));
                    }
                });
                Came came = next("consumer", found);
                expect("body", "a", came.text());
                came.context().accept();
            }
            expect("still there", queue, management.queueInfo(queue).name());
        });
        connected((connection, management) -> untilGone(management, queue));
    }

    private void autoDelete(String queue) throws Exception {
        connected((connection, management) -> {
            Management.QueueInfo made = management.queue(queue).autoDelete(true).declare();
            expect("auto-delete", List.of(true, false, true), List.of(made.autoDelete(), made.exclusive(), made.durable()));
        });
        connected((connection, management) -> {
            expect("it stays before anybody consumed", queue, management.queueInfo(queue).name());
            consumer(connection, queue, new LinkedBlockingQueue<>()).close();
            untilGone(management, queue);
        });
    }

    private static void untilGone(Management management, String queue) throws Exception {
        until("gone", () -> {
            try {
                management.queueInfo(queue);
                return false;
            } catch (AmqpException told) {
                return told.getMessage().contains("expected the identity of a queue");
            }
        });
    }

    private void requests(String queue) throws Exception {
        connected((connection, management) -> {
            management.queue(queue).declare();
            try (Responder responder = connection.responderBuilder().requestQueue(queue)
                    .handler((context, request) -> context.message((text(request) + "!").getBytes(StandardCharsets.UTF_8))).build();
                    Requester requester = connection.requesterBuilder().requestAddress().queue(queue).requester().build()) {
                for (String body : List.of("a", "b")) {
                    Message request = requester.message(body.getBytes(StandardCharsets.UTF_8));
                    Message reply = requester.publish(request).get(Interop.TIMEOUT_MS, TimeUnit.MILLISECONDS);
                    expect("reply", body + "!", text(reply));
                }
            }
            management.queueDelete(queue);
        });
    }

    private void binding(String exchange) throws Exception {
        String bound = exchange + "-bound";
        connected((connection, management) -> {
            management.exchange(exchange).type(Management.ExchangeType.TOPIC).declare();
            management.queue(bound).declare();
            management.binding().sourceExchange(exchange).key("bound.*").destinationQueue(bound).bind();
            LinkedBlockingQueue<Came> found = new LinkedBlockingQueue<>();
            try (Publisher publisher = connection.publisherBuilder().exchange(exchange).key("bound.a").build();
                    Consumer consumer = consumer(connection, bound, found)) {
                publish(publisher, text(publisher, "a"));
                Came came = next("consumer", found);
                expect("body", "a", came.text());
                came.context().accept();
            }
            expectFailure("409", () -> management.unbind().sourceExchange(exchange).key("bound.*").destinationQueue(bound).unbind());
            management.unbind().sourceExchange(exchange).key("another").destinationQueue(bound).unbind();
        });
    }
}
