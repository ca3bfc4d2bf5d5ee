package interop;

import java.lang.reflect.Proxy;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import javax.naming.Context;
import javax.naming.NameNotFoundException;
import org.apache.qpid.jms.JmsConnectionFactory;
import org.apache.qpid.jms.JmsQueue;
import org.apache.qpid.jms.JmsTopic;
import org.objectweb.jtests.jms.admin.Admin;

/**
 * What the suite has an administrator do: connection factories, and queues and topics by name. The broker makes queues
 * and topics on first use, so each test gets ones that nobody used before, and nothing has to be deleted.
 */
public final class Administration implements Admin {
    static String url;

    private final Map<String, Object> things = new ConcurrentHashMap<>();

    @Override
    public String getName() {
        return "AMQP 1.0";
    }

    /** A context that finds what was made; the suite asks it for nothing else. */
    @Override
    public Context createContext() {
        Class<?>[] kind = {Context.class};
        return (Context) Proxy.newProxyInstance(Administration.class.getClassLoader(), kind, (self, method, named) -> {
            if (!method.getName().equals("lookup")) {
                return null;
            }
            Object found = things.get(named[0].toString());
            if (found == null) {
                throw new NameNotFoundException("expected one of " + things.keySet() + ", got " + named[0]);
            }
            return found;
        });
    }

    private static String fresh(String name) {
        return "clients-joram-" + name + "-" + UUID.randomUUID().toString().substring(0, 13);
    }

    private void makeFactory(String name) {
        JmsConnectionFactory factory = new JmsConnectionFactory(url);
        factory.setUsername(System.getenv("AMQP_USER"));
        factory.setPassword(System.getenv("AMQP_PASSWORD"));
        things.put(name, factory);
    }

    @Override
    public void createConnectionFactory(String name) {
        makeFactory(name);
    }

    @Override
    public void createQueueConnectionFactory(String name) {
        makeFactory(name);
    }

    @Override
    public void createTopicConnectionFactory(String name) {
        makeFactory(name);
    }

    @Override
    public void createQueue(String name) {
        things.put(name, new JmsQueue(fresh(name)));
    }

    @Override
    public void createTopic(String name) {
        things.put(name, new JmsTopic(fresh(name)));
    }

    @Override
    public void deleteQueue(String name) {
        things.remove(name);
    }

    @Override
    public void deleteTopic(String name) {
        things.remove(name);
    }

    @Override
    public void deleteConnectionFactory(String name) {
        things.remove(name);
    }

    @Override
    public void deleteQueueConnectionFactory(String name) {
        things.remove(name);
    }

    @Override
    public void deleteTopicConnectionFactory(String name) {
        things.remove(name);
    }

    @Override
    public void startServer() {
        // It runs already, and so for the other three.
    }

    @Override
    public void stopServer() {}

    @Override
    public void start() {}

    @Override
    public void stop() {}
}
