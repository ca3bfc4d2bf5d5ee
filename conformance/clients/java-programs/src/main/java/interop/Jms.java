package interop;

import jakarta.jms.ConnectionFactory;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.TextMessage;
import org.apache.qpid.jms.JmsConnectionFactory;
import org.messaginghub.pooled.jms.JmsPoolConnectionFactory;

/** What the programs over JMS have in common. */
final class Jms {
    private Jms() {}

    static JmsConnectionFactory factory(Interop interop) {
        String mechanism = Interop.user() == null ? "ANONYMOUS" : "PLAIN";
        JmsConnectionFactory factory = new JmsConnectionFactory(interop.url + "?amqp.saslMechanisms=" + mechanism);
        factory.setUsername(Interop.user());
        factory.setPassword(Interop.password());
        return factory;
    }

    static JmsPoolConnectionFactory pool(ConnectionFactory factory) {
        JmsPoolConnectionFactory pool = new JmsPoolConnectionFactory();
        pool.setConnectionFactory(factory);
        pool.setMaxConnections(1);
        return pool;
    }

    static String text(Message message) throws JMSException {
        return message == null ? null : ((TextMessage) message).getText();
    }
}
