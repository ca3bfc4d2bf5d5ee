package interop;

import static interop.Interop.expect;
import static interop.Interop.next;
import static interop.Interop.until;

import jakarta.jms.Message;
import jakarta.jms.MessageListener;
import jakarta.jms.Session;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.LinkedBlockingQueue;
import org.apache.qpid.jms.JmsConnectionFactory;
import org.apache.qpid.jms.policy.JmsDefaultPrefetchPolicy;
import org.messaginghub.pooled.jms.JmsPoolConnectionFactory;
import org.springframework.jms.connection.CachingConnectionFactory;
import org.springframework.jms.connection.JmsTransactionManager;
import org.springframework.jms.core.JmsTemplate;
import org.springframework.jms.listener.DefaultMessageListenerContainer;
import org.springframework.jms.listener.SessionAwareMessageListener;
import org.springframework.jms.listener.SimpleMessageListenerContainer;
import org.springframework.transaction.support.TransactionTemplate;

/** Spring JMS over Qpid JMS and pooled-jms, without Boot. */
final class Spring {
    private static final long NOTHING_MS = 300;

    private final Interop interop;

    private Spring(Interop interop) {
        this.interop = interop;
    }

    static void register(Interop interop) {
        Spring spring = new Spring(interop);
        interop.check("spring: a listener container with local transactions", spring::rolledBack);
        interop.check("spring: a listener that sends in its transaction", spring::passedOn);
        interop.check("spring: concurrent consumers of a container", spring::concurrent);
        interop.check("spring: a simple container that acknowledges", spring::simple);
        interop.check("spring: selectors of two containers", spring::selectors);
        interop.check("spring: a shared durable subscription", spring::sharedDurable);
        interop.check("spring: receiveSelected for replies", spring::receiveSelected);
        interop.check("spring: sendAndReceive", spring::sendAndReceive);
        interop.check("spring: delivery delay", spring::delayed);
        interop.check("spring: priority, time to live and properties", spring::headers);
        interop.check("spring: a browser", spring::browsed);
        interop.checkWith("AMQP_GROUPED_PREFIX", "spring: message groups over concurrent consumers", spring::grouped);
        interop.checkWith("AMQP_BACKOFF_PREFIX", "spring: a listener that fails waits longer each time", spring::backedOff);
        interop.check("spring: a transaction manager", spring::transactionManager);
        interop.check("spring: a caching connection factory", spring::cached);
    }

    private interface Use {
        void with(JmsTemplate template, JmsPoolConnectionFactory pool) throws Exception;
    }

    /** A template over a pool, as applications have it. */
    private void pooled(Use use) throws Exception {
        JmsPoolConnectionFactory pool = Jms.pool(Jms.factory(interop));
        pool.start();
        try {
            JmsTemplate template = new JmsTemplate(pool);
            template.setReceiveTimeout(Interop.TIMEOUT_MS);
            use.with(template, pool);
        } finally {
            pool.stop();
        }
    }

    private DefaultMessageListenerContainer container(String queue, Object listener) {
        DefaultMessageListenerContainer container = new DefaultMessageListenerContainer();
        container.setConnectionFactory(Jms.factory(interop));
        container.setDestinationName(queue);
        container.setMessageListener(listener);
        container.setSessionTransacted(true);
        container.setReceiveTimeout(500);
        return container;
    }

    private static void started(DefaultMessageListenerContainer container, Interop.Condition ends) throws Exception {
        container.afterPropertiesSet();
        container.start();
        try {
            until("the container", ends);
        } finally {
            container.destroy();
        }
    }

    private void rolledBack(String queue) throws Exception {
        pooled((template, pool) -> {
            template.convertAndSend(queue, "a");
            template.convertAndSend(queue, "b");
            List<String> seen = Collections.synchronizedList(new ArrayList<>());
            MessageListener listener = message -> {
                try {
                    seen.add(Jms.text(message) + message.getIntProperty("JMSXDeliveryCount") + message.getJMSRedelivered());
                    if (message.getIntProperty("JMSXDeliveryCount") < 3 && Jms.text(message).equals("a")) {
                        throw new IllegalStateException("a listener that fails");
                    }
                } catch (jakarta.jms.JMSException problem) {
                    throw new IllegalStateException(problem);
                }
            };
            DefaultMessageListenerContainer container = container(queue, listener);
            container.setErrorHandler(problem -> {});
            started(container, () -> seen.contains("a3true") && seen.stream().anyMatch(text -> text.startsWith("b")));
            expect("first delivery", "a1false", seen.get(0));
            expect("after a rollback", true, seen.contains("a2true"));
            template.setReceiveTimeout(NOTHING_MS);
            expect("rest", null, template.receive(queue));
        });
    }

    private void passedOn(String queue) throws Exception {
        pooled((template, pool) -> {
            template.convertAndSend(queue, "a");
            List<Integer> tries = Collections.synchronizedList(new ArrayList<>());
            SessionAwareMessageListener<Message> listener = (message, session) -> {
                tries.add(message.getIntProperty("JMSXDeliveryCount"));
                try (var producer = session.createProducer(session.createQueue(queue + "-next"))) {
                    producer.send(session.createTextMessage(Jms.text(message) + tries.size()));
                }
                if (tries.size() == 1) {
                    throw new IllegalStateException("after the send");
                }
            };
            DefaultMessageListenerContainer container = container(queue, listener);
            container.setErrorHandler(problem -> {});
            started(container, () -> tries.size() == 2);
            expect("sent by the try that was committed", "a2", template.receiveAndConvert(queue + "-next"));
            template.setReceiveTimeout(NOTHING_MS);
            expect("sent by the one that was not", null, template.receive(queue + "-next"));
        });
    }

    private void concurrent(String queue) throws Exception {
        pooled((template, pool) -> {
            List<String> seen = Collections.synchronizedList(new ArrayList<>());
            DefaultMessageListenerContainer container = container(queue, (MessageListener) message -> {
                try {
                    seen.add(Jms.text(message));
                } catch (jakarta.jms.JMSException problem) {
                    throw new IllegalStateException(problem);
                }
            });
            container.setConcurrency("3-5");
            container.setCacheLevel(DefaultMessageListenerContainer.CACHE_CONSUMER);
            List<String> sent = new ArrayList<>();
            for (int index = 0; index < 60; index++) {
                sent.add(String.format("%02d", index));
                template.convertAndSend(queue, sent.get(index));
            }
            started(container, () -> seen.size() >= 60);
            Collections.sort(seen);
            expect("each once", sent, seen);
        });
    }

    private void simple(String queue) throws Exception {
        pooled((template, pool) -> {
            LinkedBlockingQueue<String> seen = new LinkedBlockingQueue<>();
            SimpleMessageListenerContainer container = new SimpleMessageListenerContainer();
            container.setConnectionFactory(Jms.factory(interop));
            container.setDestinationName(queue);
            container.setSessionAcknowledgeMode(Session.CLIENT_ACKNOWLEDGE);
            container.setMessageListener((MessageListener) message -> {
                try {
                    seen.add(Jms.text(message));
                } catch (jakarta.jms.JMSException problem) {
                    throw new IllegalStateException(problem);
                }
            });
            container.afterPropertiesSet();
            container.start();
            try {
                template.convertAndSend(queue, "a");
                template.convertAndSend(queue, "b");
                expect("in their order", List.of("a", "b"), next("listener", seen, 2));
            } finally {
                container.destroy();
            }
            template.setReceiveTimeout(NOTHING_MS);
            expect("rest", null, template.receive(queue));
        });
    }

    private void selectors(String queue) throws Exception {
        pooled((template, pool) -> {
            LinkedBlockingQueue<String> red = new LinkedBlockingQueue<>();
            LinkedBlockingQueue<String> other = new LinkedBlockingQueue<>();
            DefaultMessageListenerContainer one = container(queue, adding(red));
            one.setMessageSelector("colour = 'red'");
            DefaultMessageListenerContainer two = container(queue, adding(other));
            two.setMessageSelector("colour <> 'red' OR colour IS NULL");
            one.afterPropertiesSet();
            two.afterPropertiesSet();
            one.start();
            two.start();
            try {
                for (String colour : List.of("red", "blue", "red")) {
                    template.convertAndSend(queue, colour, message -> {
                        message.setStringProperty("colour", colour);
                        return message;
                    });
                }
                template.convertAndSend(queue, "none");
                expect("red", List.of("red", "red"), next("red", red, 2));
                expect("others", List.of("blue", "none"), next("others", other, 2));
            } finally {
                one.destroy();
                two.destroy();
            }
        });
    }

    private static MessageListener adding(LinkedBlockingQueue<String> found) {
        return message -> {
            try {
                found.add(Jms.text(message));
            } catch (jakarta.jms.JMSException problem) {
                throw new IllegalStateException(problem);
            }
        };
    }

    private DefaultMessageListenerContainer subscriber(String topic, LinkedBlockingQueue<String> found) {
        DefaultMessageListenerContainer container = container(topic, adding(found));
        container.setPubSubDomain(true);
        container.setSubscriptionShared(true);
        container.setSubscriptionDurable(true);
        container.setSubscriptionName("subscription-" + topic);
        return container;
    }

    private void sharedDurable(String topic) throws Exception {
        pooled((template, pool) -> {
            template.setPubSubDomain(true);
            LinkedBlockingQueue<String> found = new LinkedBlockingQueue<>();
            DefaultMessageListenerContainer first = subscriber(topic, found);
            first.setConcurrency("2-2");
            first.afterPropertiesSet();
            first.start();
            until("two consumers", () -> first.getActiveConsumerCount() == 2);
            template.convertAndSend(topic, "a");
            // A container says that it is active before its consumers are attached.
            expect("while it is there", "a", waiting(template, topic, found));
            first.destroy();
            template.convertAndSend(topic, "while nobody was there");
            DefaultMessageListenerContainer second = subscriber(topic, found);
            second.afterPropertiesSet();
            second.start();
            expect("and after", "while nobody was there", next("subscriber", found));
            second.destroy();
            JmsConnectionFactory factory = Jms.factory(interop);
            try (var context = factory.createContext()) {
                context.unsubscribe("subscription-" + topic);
            }
        });
    }

    private static String waiting(JmsTemplate template, String topic, LinkedBlockingQueue<String> found) throws Exception {
        until("a subscriber", () -> {
            if (!found.isEmpty()) {
                return true;
            }
            Thread.sleep(100);
            if (found.isEmpty()) {
                template.convertAndSend(topic, "a");
            }
            return false;
        });
        String first = next("subscriber", found);
        Thread.sleep(200);
        found.clear();
        return first;
    }

    private void receiveSelected(String queue) throws Exception {
        pooled((template, pool) -> {
            for (int index = 0; index < 20; index++) {
                String id = "request-" + index;
                template.send(queue, session -> {
                    Message reply = session.createTextMessage("reply to " + id);
                    reply.setJMSCorrelationID(id);
                    return reply;
                });
            }
            for (int index = 19; index >= 0; index--) {
                String id = "request-" + index;
                Object found = template.receiveSelectedAndConvert(queue, "JMSCorrelationID = '" + id + "'");
                expect("the one", "reply to " + id, found);
            }
            template.setReceiveTimeout(JmsTemplate.RECEIVE_TIMEOUT_NO_WAIT);
            expect("rest", null, template.receiveSelected(queue, "JMSCorrelationID = 'request-1'"));
        });
    }

    private void sendAndReceive(String queue) throws Exception {
        pooled((template, pool) -> {
            SessionAwareMessageListener<Message> answers = (message, session) -> {
                try (var producer = session.createProducer(message.getJMSReplyTo())) {
                    Message reply = session.createTextMessage(Jms.text(message) + "!");
                    reply.setJMSCorrelationID(message.getJMSMessageID());
                    producer.send(reply);
                }
            };
            DefaultMessageListenerContainer container = container(queue, answers);
            container.afterPropertiesSet();
            container.start();
            try {
                for (String asked : List.of("a", "b", "c")) {
                    Message reply = template.sendAndReceive(queue, session -> session.createTextMessage(asked));
                    expect("reply", asked + "!", Jms.text(reply));
                }
            } finally {
                container.destroy();
            }
        });
    }

    private void delayed(String queue) throws Exception {
        pooled((template, pool) -> {
            template.setDeliveryDelay(700);
            long before = System.nanoTime();
            template.convertAndSend(queue, "later");
            template.setDeliveryDelay(-1);
            template.convertAndSend(queue, "now");
            expect("first", "now", template.receiveAndConvert(queue));
            expect("second", "later", template.receiveAndConvert(queue));
            long waited = (System.nanoTime() - before) / 1_000_000;
            expect("after its delay, not " + waited + " ms", true, waited >= 690);
        });
    }

    private void headers(String queue) throws Exception {
        pooled((template, pool) -> {
            template.setExplicitQosEnabled(true);
            template.setPriority(8);
            template.setTimeToLive(60_000);
            template.convertAndSend(queue, "urgent", message -> {
                message.setIntProperty("number", 7);
                message.setJMSType("order");
                return message;
            });
            Message found = template.receiveSelected(queue, "JMSPriority > 7 AND JMSType = 'order' AND number = 7");
            expect("body", "urgent", Jms.text(found));
            expect("priority", 8, found.getJMSPriority());
            expect("it expires", true, found.getJMSExpiration() > System.currentTimeMillis());
            template.setTimeToLive(100);
            template.convertAndSend(queue, "short");
            Thread.sleep(300);
            template.setReceiveTimeout(NOTHING_MS);
            expect("expired", null, template.receive(queue));
        });
    }

    private void browsed(String queue) throws Exception {
        pooled((template, pool) -> {
            for (String body : List.of("a", "b", "c")) {
                template.convertAndSend(queue, body);
            }
            List<String> seen = template.browse(queue, (session, browser) -> {
                List<String> bodies = new ArrayList<>();
                for (Object each : Collections.list(browser.getEnumeration())) {
                    bodies.add(Jms.text((Message) each));
                }
                return bodies;
            });
            expect("browsed", List.of("a", "b", "c"), seen);
            expect("still there", "a", template.receiveAndConvert(queue));
        });
    }

    /** Three accounts, three consumers: what is of one account is handled in order, and never by two at once. */
    private void grouped(String queue) throws Exception {
        pooled((template, pool) -> {
            Map<String, List<String>> seen = new ConcurrentHashMap<>();
            Map<String, Thread> busy = new ConcurrentHashMap<>();
            List<String> faults = Collections.synchronizedList(new ArrayList<>());
            MessageListener listener = message -> {
                try {
                    String account = message.getStringProperty("JMSXGroupID");
                    if (busy.putIfAbsent(account, Thread.currentThread()) != null) {
                        faults.add(account + " is handled by two at once");
                    }
                    Thread.sleep(20);
                    seen.computeIfAbsent(account, name -> new CopyOnWriteArrayList<>()).add(Jms.text(message));
                    busy.remove(account);
                } catch (jakarta.jms.JMSException | InterruptedException problem) {
                    throw new IllegalStateException(problem);
                }
            };
            DefaultMessageListenerContainer container = container(queue, listener);
            JmsConnectionFactory oneByOne = Jms.factory(interop);
            ((JmsDefaultPrefetchPolicy) oneByOne.getPrefetchPolicy()).setAll(1);
            container.setConnectionFactory(oneByOne);
            container.setConcurrency("3-3");
            container.setCacheLevel(DefaultMessageListenerContainer.CACHE_CONSUMER);
            List<String> sent = new ArrayList<>();
            for (int index = 0; index < 20; index++) {
                sent.add("booking " + index);
                for (String account : List.of("a", "b", "c")) {
                    template.convertAndSend(queue, sent.get(index), message -> {
                        message.setStringProperty("JMSXGroupID", account);
                        return message;
                    });
                }
            }
            started(container, () -> seen.values().stream().mapToInt(List::size).sum() >= 60);
            expect("at once", List.of(), faults);
            expect("in order", Map.of("a", sent, "b", sent, "c", sent), seen);
        });
    }

    private void backedOff(String queue) throws Exception {
        pooled((template, pool) -> {
            List<Long> tries = Collections.synchronizedList(new ArrayList<>());
            LinkedBlockingQueue<String> others = new LinkedBlockingQueue<>();
            DefaultMessageListenerContainer container = container(queue, (MessageListener) message -> {
                try {
                    if (!Jms.text(message).equals("fails")) {
                        others.add(Jms.text(message));
                        return;
                    }
                    tries.add(System.nanoTime() / 1_000_000);
                    if (message.getIntProperty("JMSXDeliveryCount") < 3) {
                        throw new IllegalStateException("a listener that fails");
                    }
                } catch (jakarta.jms.JMSException problem) {
                    throw new IllegalStateException(problem);
                }
            });
            container.setErrorHandler(problem -> {});
            template.convertAndSend(queue, "fails");
            template.convertAndSend(queue, "overtakes");
            started(container, () -> tries.size() == 3);
            expect("meanwhile", "overtakes", next("others", others));
            long first = tries.get(1) - tries.get(0);
            long second = tries.get(2) - tries.get(1);
            expect("200 ms or more, not " + first, true, first >= 190);
            expect("400 ms or more, not " + second, true, second >= 390);
        });
    }

    private void transactionManager(String queue) throws Exception {
        pooled((template, pool) -> {
            template.setSessionTransacted(true);
            TransactionTemplate transaction = new TransactionTemplate(new JmsTransactionManager(pool));
            transaction.executeWithoutResult(status -> {
                template.convertAndSend(queue, "rolled back");
                status.setRollbackOnly();
            });
            transaction.executeWithoutResult(status -> template.convertAndSend(queue, "committed"));
            transaction.executeWithoutResult(status -> {
                expect("received", "committed", template.receiveAndConvert(queue));
                status.setRollbackOnly();
            });
            Message again = transaction.execute(status -> template.receive(queue));
            expect("again", "committed", Jms.text(again));
            expect("told so", true, again.getJMSRedelivered());
            template.setReceiveTimeout(NOTHING_MS);
            expect("rest", null, transaction.execute(status -> template.receive(queue)));
        });
    }

    private void cached(String queue) throws Exception {
        CachingConnectionFactory cache = new CachingConnectionFactory(Jms.factory(interop));
        cache.setSessionCacheSize(4);
        try {
            JmsTemplate template = new JmsTemplate(cache);
            template.setReceiveTimeout(Interop.TIMEOUT_MS);
            for (int index = 0; index < 20; index++) {
                template.convertAndSend(queue, "body " + index);
                expect("next", "body " + index, template.receiveAndConvert(queue));
            }
        } finally {
            cache.destroy();
        }
    }
}
