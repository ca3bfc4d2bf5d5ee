package interop;

import static interop.Client.expect;

import jakarta.jms.BytesMessage;
import jakarta.jms.DeliveryMode;
import jakarta.jms.MapMessage;
import jakarta.jms.Message;
import jakarta.jms.MessageProducer;
import jakarta.jms.ObjectMessage;
import jakarta.jms.Session;
import jakarta.jms.StreamMessage;
import jakarta.jms.TextMessage;
import java.io.Serializable;
import java.math.BigDecimal;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.Date;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.apache.qpid.proton.amqp.Decimal128;
import org.apache.qpid.proton.amqp.Decimal32;
import org.apache.qpid.proton.amqp.Decimal64;
import org.apache.qpid.proton.amqp.Symbol;
import org.apache.qpid.proton.amqp.UnsignedByte;
import org.apache.qpid.proton.amqp.UnsignedInteger;
import org.apache.qpid.proton.amqp.UnsignedLong;
import org.apache.qpid.proton.amqp.UnsignedShort;

/** The checks of what a message carries. */
final class Messages {
    /** Lets an ObjectMessage travel as an amqp-value section of the object's AMQP type, not as serialized Java. */
    private static final String TYPED_ENCODING = "JMS_AMQP_TYPED_ENCODING";
    private static final String LONG_STRING = "ü€😀".repeat(5_000);
    private static final long TTL_MS = 600_000;

    private Messages() {
    }

    static void register(Interop interop) {
        typedValues().forEach((name, value) -> interop.check("amqp-value list and map of " + name, client -> {
            typed(client, new ArrayList<>(Arrays.asList(value, null, value)));
            typed(client, new HashMap<>(Map.of("key", value)));
        }));
        interop.check("TextMessage: amqp-value string, empty, null and long", Messages::texts);
        interop.check("BytesMessage: data section of every octet", Messages::bytes);
        interop.check("MapMessage: amqp-value map", Messages::maps);
        interop.check("StreamMessage: amqp-value list", Messages::streams);
        interop.check("ObjectMessage: serialized Java in a data section", Messages::serialized);
        interop.check("Message without body", client ->
            expect("property", 7, client.roundTrip(session -> withProperty(session.createMessage())).getIntProperty("p")));
        interop.check("application-properties of every JMS type", Messages::applicationProperties);
        interop.check("properties: all fields that JMS has", Messages::properties);
        interop.check("header: durable, priority, ttl", Messages::header);
    }

    private static Message withProperty(Message message) throws Exception {
        message.setIntProperty("p", 7);
        return message;
    }

    /** Qpid JMS writes lists and maps in the AMQP type system, and in them every type that its codec has. */
    private static Map<String, Serializable> typedValues() {
        Map<String, Serializable> values = new LinkedHashMap<>();
        values.put("boolean", true);
        values.put("ubyte max", UnsignedByte.valueOf((byte) -1));
        values.put("ushort max", UnsignedShort.valueOf((short) -1));
        values.put("uint 0", UnsignedInteger.ZERO);
        values.put("uint max", UnsignedInteger.MAX_VALUE);
        values.put("ulong 0", UnsignedLong.ZERO);
        values.put("ulong max", UnsignedLong.valueOf(-1L));
        values.put("byte min", Byte.MIN_VALUE);
        values.put("short min", Short.MIN_VALUE);
        values.put("int small", -1);
        values.put("int min", Integer.MIN_VALUE);
        values.put("long small", -1L);
        values.put("long max", Long.MAX_VALUE);
        values.put("float infinity", Float.POSITIVE_INFINITY);
        values.put("double smallest", Double.MIN_VALUE);
        values.put("double NaN", Double.NaN);
        values.put("decimal32", new Decimal32(new BigDecimal("1.5")));
        values.put("decimal64", new Decimal64(new BigDecimal("1.5")));
        values.put("decimal128", new Decimal128(new BigDecimal("1.5")));
        values.put("char", 'é');
        values.put("timestamp", new Date(1_700_000_000_123L));
        values.put("timestamp before 1970", new Date(-1_000_000_000_000L));
        values.put("uuid", UUID.fromString("01234567-89ab-cdef-0123-456789abcdef"));
        values.put("string", "grüße");
        values.put("list", new ArrayList<>(Arrays.asList(1L, "two", null, Symbol.valueOf("sym"), new ArrayList<>())));
        values.put("map", new HashMap<>(Map.of("a", 1L, UnsignedLong.valueOf(3), "x", true, new ArrayList<>())));
        return values;
    }

    private static void typed(Client client, Serializable value) throws Exception {
        Message received = client.roundTrip(session -> {
            ObjectMessage message = session.createObjectMessage();
            message.setBooleanProperty(TYPED_ENCODING, true);
            message.setObject(value);
            return message;
        });
        if (!(received instanceof ObjectMessage)) {
            throw new Client.Failure("message", "ObjectMessage", received.getClass().getName());
        }
        expect("value", value, ((ObjectMessage) received).getObject());
    }

    private static void texts(Client client) throws Exception {
        for (String body : Arrays.asList("", "grüße", LONG_STRING, null)) {
            Message received = client.roundTrip(session -> session.createTextMessage(body));
            expect("TextMessage", true, received instanceof TextMessage);
            expect("text", body, ((TextMessage) received).getText());
        }
    }

    private static void bytes(Client client) throws Exception {
        byte[] every = new byte[256 * 300];
        for (int index = 0; index < every.length; index++) {
            every[index] = (byte) index;
        }
        for (byte[] body : List.of(new byte[] {0, -1, -128}, every)) {
            expect("octets", body, Client.octets(client.roundTrip(session -> bytesMessage(session, body))));
        }
    }

    static BytesMessage bytesMessage(Session session, byte[] body) throws Exception {
        BytesMessage message = session.createBytesMessage();
        message.writeBytes(body);
        return message;
    }

    private static Map<String, Object> jmsValues() {
        Map<String, Object> values = new LinkedHashMap<>();
        values.put("boolean", true);
        values.put("byte", Byte.MIN_VALUE);
        values.put("short", Short.MAX_VALUE);
        values.put("int", Integer.MIN_VALUE);
        values.put("long", Long.MAX_VALUE);
        values.put("float", 1.5f);
        values.put("double", 0.1);
        values.put("string", "grüße");
        values.put("empty_string", "");
        values.put("long_string", LONG_STRING);
        return values;
    }

    private static Map<String, Object> bodyValues() {
        Map<String, Object> values = jmsValues();
        values.put("char", 'é');
        values.put("bytes", new byte[] {0, -1});
        values.put("null", null);
        return values;
    }

    private static void maps(Client client) throws Exception {
        Map<String, Object> sent = bodyValues();
        Message received = client.roundTrip(session -> {
            MapMessage message = session.createMapMessage();
            for (Map.Entry<String, Object> entry : sent.entrySet()) {
                message.setObject(entry.getKey(), entry.getValue());
            }
            return message;
        });
        expect("MapMessage", true, received instanceof MapMessage);
        MapMessage map = (MapMessage) received;
        expect("number of names", sent.size(), Collections.list(map.getMapNames()).size());
        for (Map.Entry<String, Object> entry : sent.entrySet()) {
            expect(entry.getKey(), entry.getValue(), map.getObject(entry.getKey()));
        }
    }

    private static void streams(Client client) throws Exception {
        List<Object> sent = new ArrayList<>(bodyValues().values());
        Message received = client.roundTrip(session -> {
            StreamMessage message = session.createStreamMessage();
            for (Object value : sent) {
                message.writeObject(value);
            }
            return message;
        });
        expect("StreamMessage", true, received instanceof StreamMessage);
        for (Object value : sent) {
            expect("next in the stream", value, ((StreamMessage) received).readObject());
        }
    }

    private static void serialized(Client client) throws Exception {
        BigDecimal value = new BigDecimal("3.14159265358979323846");
        Message received = client.roundTrip(session -> session.createObjectMessage(value));
        expect("object", value, received.getBody(BigDecimal.class));
    }

    private static void applicationProperties(Client client) throws Exception {
        Map<String, Object> sent = jmsValues();
        Message received = client.roundTrip(session -> {
            Message message = session.createTextMessage("b");
            for (Map.Entry<String, Object> entry : sent.entrySet()) {
                message.setObjectProperty("p_" + entry.getKey(), entry.getValue());
            }
            return message;
        });
        for (Map.Entry<String, Object> entry : sent.entrySet()) {
            expect(entry.getKey(), entry.getValue(), received.getObjectProperty("p_" + entry.getKey()));
        }
    }

    private static void properties(Client client) throws Exception {
        long before = System.currentTimeMillis();
        String[] sentId = new String[1];
        try (Session session = client.session(); MessageProducer producer = session.createProducer(client.queue(session))) {
            Message message = session.createTextMessage("b");
            message.setJMSCorrelationID("correlation-1");
            message.setJMSReplyTo(session.createQueue("replies"));
            message.setJMSType("subject");
            message.setStringProperty("JMSXGroupID", "group");
            message.setIntProperty("JMSXGroupSeq", Integer.MAX_VALUE);
            message.setStringProperty("JMS_AMQP_REPLY_TO_GROUP_ID", "reply-group");
            producer.send(message);
            sentId[0] = message.getJMSMessageID();
        }
        Message received = client.next();
        expect("message-id", sentId[0], received.getJMSMessageID());
        expect("correlation-id", "correlation-1", received.getJMSCorrelationID());
        expect("reply-to", "replies", String.valueOf(received.getJMSReplyTo()));
        expect("to", client.queueName, String.valueOf(received.getJMSDestination()));
        expect("subject", "subject", received.getJMSType());
        expect("group-id", "group", received.getStringProperty("JMSXGroupID"));
        expect("group-sequence", Integer.MAX_VALUE, received.getIntProperty("JMSXGroupSeq"));
        expect("reply-to-group-id", "reply-group", received.getStringProperty("JMS_AMQP_REPLY_TO_GROUP_ID"));
        boolean created = before <= received.getJMSTimestamp() && received.getJMSTimestamp() <= System.currentTimeMillis();
        expect("creation-time lies between sending and now", true, created);
    }

    private static void header(Client client) throws Exception {
        sendWith(client, DeliveryMode.PERSISTENT, 9, TTL_MS);
        Message received = client.next();
        expect("delivery mode", DeliveryMode.PERSISTENT, received.getJMSDeliveryMode());
        expect("priority", 9, received.getJMSPriority());
        long left = received.getJMSExpiration() - System.currentTimeMillis();
        expect("0 < time to live <= " + TTL_MS, true, 0 < left && left <= TTL_MS);
        sendWith(client, DeliveryMode.NON_PERSISTENT, 0, 0);
        received = client.next();
        expect("delivery mode", DeliveryMode.NON_PERSISTENT, received.getJMSDeliveryMode());
        expect("priority", 0, received.getJMSPriority());
        expect("expiration", 0L, received.getJMSExpiration());
    }

    private static void sendWith(Client client, int deliveryMode, int priority, long ttlMs) throws Exception {
        try (Session session = client.session(); MessageProducer producer = session.createProducer(client.queue(session))) {
            producer.send(session.createTextMessage("b"), deliveryMode, priority, ttlMs);
        }
    }
}
