package interop;

import static interop.Interop.expect;
import static interop.Interop.next;
import static interop.Interop.until;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.IntStream;
import org.apache.camel.CamelContext;
import org.apache.camel.ProducerTemplate;
import org.apache.camel.builder.RouteBuilder;
import org.apache.camel.component.amqp.AMQPComponent;
import org.apache.camel.impl.DefaultCamelContext;
import org.messaginghub.pooled.jms.JmsPoolConnectionFactory;

/** Routes of Camel over camel-amqp. */
final class Camel {
    private static final int REQUESTS = 12;

    private final Interop interop;

    private Camel(Interop interop) {
        this.interop = interop;
    }

    static void register(Interop interop) {
        Camel camel = new Camel(interop);
        interop.check("camel: request and reply over a shared queue", name -> camel.requests(name, "Shared"));
        interop.check("camel: request and reply over an exclusive queue", name -> camel.requests(name, "Exclusive"));
        interop.check("camel: request and reply over temporary queues", name -> camel.requests(name, null));
        interop.check("camel: a transacted route that fails", camel::transacted);
        interop.check("camel: from a topic to a queue", camel::topic);
    }

    private interface Use {
        void with(CamelContext context, ProducerTemplate template) throws Exception;
    }

    private void routes(RouteBuilder routes, Use use) throws Exception {
        JmsPoolConnectionFactory pool = Jms.pool(Jms.factory(interop));
        pool.setMaxSessionsPerConnection(50);
        CamelContext context = new DefaultCamelContext();
        AMQPComponent component = new AMQPComponent(pool);
        component.setReceiveTimeout(500);
        context.addComponent("amqp", component);
        context.getShutdownStrategy().setTimeout(5);
        try {
            context.addRoutes(routes);
            context.start();
            try (ProducerTemplate template = context.createProducerTemplate()) {
                use.with(context, template);
            }
        } finally {
            context.stop();
            pool.stop();
        }
    }

    private void requests(String queue, String replyType) throws Exception {
        String replies = replyType == null
            ? "" : "&replyTo=" + queue + "-replies&replyToType=" + replyType + "&replyToConcurrentConsumers=1";
        RouteBuilder routes = new RouteBuilder() {
            @Override
            public void configure() {
                from("amqp:queue:" + queue + "?concurrentConsumers=2").transform(body().append("!"));
            }
        };
        routes(routes, (context, template) -> {
            String asked = "amqp:queue:" + queue + "?exchangePattern=InOut&requestTimeout=" + Interop.TIMEOUT_MS + replies;
            List<String> found = IntStream.range(0, REQUESTS).parallel()
                .mapToObj(index -> template.requestBody(asked, "request " + index, String.class)).toList();
            List<String> expected = IntStream.range(0, REQUESTS).mapToObj(index -> "request " + index + "!").toList();
            expect("each its own reply", expected, found);
        });
    }

    private void transacted(String queue) throws Exception {
        AtomicInteger tries = new AtomicInteger();
        List<Object> redelivered = Collections.synchronizedList(new ArrayList<>());
        RouteBuilder routes = new RouteBuilder() {
            @Override
            public void configure() {
                from("amqp:queue:" + queue + "?transacted=true&lazyCreateTransactionManager=false")
                    .process(exchange -> redelivered.add(exchange.getIn().getHeader("JMSRedelivered")))
                    .to("amqp:queue:" + queue + "-done?transacted=true&lazyCreateTransactionManager=false")
                    .process(exchange -> {
                        if (tries.incrementAndGet() < 3) {
                            throw new IllegalStateException("a route that fails");
                        }
                    });
            }
        };
        routes(routes, (context, template) -> {
            template.sendBody("amqp:queue:" + queue, "order");
            until("the third try", () -> tries.get() == 3);
            expect("told so", List.of(false, true, true), List.copyOf(redelivered));
        });
    }

    private void topic(String name) throws Exception {
        LinkedBlockingQueue<String> found = new LinkedBlockingQueue<>();
        RouteBuilder routes = new RouteBuilder() {
            @Override
            public void configure() {
                from("amqp:topic:" + name + "?subscriptionShared=true&subscriptionDurable=true&subscriptionName=" + name)
                    .to("amqp:queue:" + name + "-copies");
                from("amqp:queue:" + name + "-copies?selector=" + "kind%3D'new'")
                    .process(exchange -> found.add(exchange.getIn().getBody(String.class)));
            }
        };
        routes(routes, (context, template) -> {
            template.sendBodyAndHeader("amqp:topic:" + name, "old one", "kind", "old");
            until("a subscriber", () -> {
                template.sendBodyAndHeader("amqp:topic:" + name, "new one", "kind", "new");
                Thread.sleep(100);
                return !found.isEmpty();
            });
            expect("only what the selector wants", "new one", next("copies", found));
        });
    }
}
