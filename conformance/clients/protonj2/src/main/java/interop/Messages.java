package interop;

import static interop.Peer.expect;

import java.math.BigDecimal;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.apache.qpid.protonj2.client.AdvancedMessage;
import org.apache.qpid.protonj2.client.Message;
import org.apache.qpid.protonj2.types.Binary;
import org.apache.qpid.protonj2.types.Decimal128;
import org.apache.qpid.protonj2.types.Decimal32;
import org.apache.qpid.protonj2.types.Decimal64;
import org.apache.qpid.protonj2.types.Symbol;
import org.apache.qpid.protonj2.types.UnsignedByte;
import org.apache.qpid.protonj2.types.UnsignedInteger;
import org.apache.qpid.protonj2.types.UnsignedLong;
import org.apache.qpid.protonj2.types.UnsignedShort;
import org.apache.qpid.protonj2.types.messaging.AmqpSequence;
import org.apache.qpid.protonj2.types.messaging.AmqpValue;
import org.apache.qpid.protonj2.types.messaging.Data;
import org.apache.qpid.protonj2.types.messaging.Section;

/** The checks of what a message carries. */
final class Messages {
    private static final String LONG_STRING = "ü€😀".repeat(5_000);
    private static final long TTL_MS = 600_000;

    private Messages() {
    }

    static void register(Interop interop) {
        values().forEach((name, value) -> interop.check("amqp-value " + name, peer -> {
            AdvancedMessage<Object> message = AdvancedMessage.create();
            message.addBodySection(new AmqpValue<>(value));
            expect("value", value, peer.roundTrip(message).body());
        }));
        interop.check("data section of every octet", Messages::data);
        interop.check("several data sections, several amqp-sequence sections", Messages::sections);
        interop.check("application-properties, message-annotations", Messages::annotations);
        interop.check("properties: all fields", Messages::properties);
        interop.check("header: durable, priority, ttl, first-acquirer, delivery-count", Messages::header);
    }

    /** One of each primitive type. */
    private static Map<String, Object> values() {
        Map<String, Object> values = new LinkedHashMap<>();
        values.put("boolean", true);
        values.put("ubyte max", UnsignedByte.valueOf((byte) -1));
        values.put("ushort max", UnsignedShort.valueOf((short) -1));
        values.put("uint 0", UnsignedInteger.ZERO);
        values.put("uint max", UnsignedInteger.MAX_VALUE);
        values.put("ulong 0", UnsignedLong.ZERO);
        values.put("ulong max", UnsignedLong.valueOf(-1L));
        values.put("byte min", Byte.MIN_VALUE);
        values.put("short min", Short.MIN_VALUE);
        values.put("int min", Integer.MIN_VALUE);
        values.put("long small", -1L);
        values.put("long max", Long.MAX_VALUE);
        values.put("float infinity", Float.POSITIVE_INFINITY);
        values.put("double NaN", Double.NaN);
        values.put("decimal32", new Decimal32(new BigDecimal("1.5")));
        values.put("decimal64", new Decimal64(new BigDecimal("1.5")));
        values.put("decimal128", new Decimal128(new BigDecimal("1.5")));
        values.put("char", 'é');
        values.put("uuid", UUID.fromString("01234567-89ab-cdef-0123-456789abcdef"));
        values.put("binary", new Binary(new byte[] {0, -1, -128}));
        values.put("string", "grüße");
        values.put("string long", LONG_STRING);
        values.put("symbol", Symbol.valueOf("sym"));
        values.put("list", List.of(1L, "two", Symbol.valueOf("three"), List.of()));
        values.put("map", Map.of("a", 1L, UnsignedLong.valueOf(3), "x", true, List.of()));
        return values;
    }

    private static void data(Peer peer) throws Exception {
        byte[] every = new byte[256 * 300];
        for (int index = 0; index < every.length; index++) {
            every[index] = (byte) index;
        }
        for (byte[] body : List.of(new byte[] {0, -1, -128}, every)) {
            expect("octets", body, peer.roundTrip(Message.create(body)).body());
        }
    }

    private static void sections(Peer peer) throws Exception {
        AdvancedMessage<Object> data = AdvancedMessage.create();
        data.addBodySection(new Data(new byte[] {1, 2}));
        data.addBodySection(new Data(new byte[] {3}));
        AdvancedMessage<Object> sequences = AdvancedMessage.create();
        sequences.addBodySection(new AmqpSequence<>(List.of(1, "two")));
        sequences.addBodySection(new AmqpSequence<>(List.of(3L)));
        for (AdvancedMessage<Object> message : List.of(data, sequences)) {
            List<Section<?>> sent = new ArrayList<>(message.bodySections());
            List<Section<?>> received = new ArrayList<>(peer.roundTrip(message).toAdvancedMessage().bodySections());
            expect("number of sections", sent.size(), received.size());
            for (int index = 0; index < sent.size(); index++) {
                expect("section", sent.get(index).getValue(), received.get(index).getValue());
            }
        }
    }

    private static void annotations(Peer peer) throws Exception {
        Message<String> message = Message.create("b");
        message.property("number", 7L).property("text", "grüße").property("null", null);
        message.annotation("x-opt-number", 7).annotation("x-opt-symbol", Symbol.valueOf("sym"));
        Message<Object> received = peer.roundTrip(message);
        expect("application-property", 7L, received.property("number"));
        expect("application-property", "grüße", received.property("text"));
        expect("application-property null is there", true, received.hasProperty("null"));
        expect("message-annotation", 7, received.annotation("x-opt-number"));
        expect("message-annotation", Symbol.valueOf("sym"), received.annotation("x-opt-symbol"));
    }

    private static void properties(Peer peer) throws Exception {
        UUID correlation = UUID.fromString("01234567-89ab-cdef-0123-456789abcdef");
        Message<String> message = Message.create("b");
        message.messageId(UnsignedLong.valueOf(-1L)).correlationId(correlation).subject("subject").replyTo("replies")
            .to(peer.queue).contentType("text/plain").absoluteExpiryTime(4_000_000_000_000L)
            .creationTime(1_700_000_000_123L).groupId("group").groupSequence(-1).replyToGroupId("reply-group");
        message.contentEncoding("identity");
        Message<Object> received = peer.roundTrip(message);
        expect("message-id", UnsignedLong.valueOf(-1L), received.messageId());
        expect("correlation-id", correlation, received.correlationId());
        expect("subject", "subject", received.subject());
        expect("reply-to", "replies", received.replyTo());
        expect("to", peer.queue, received.to());
        expect("content-type", "text/plain", received.contentType());
        expect("content-encoding", "identity", received.contentEncoding());
        expect("absolute-expiry-time", 4_000_000_000_000L, received.absoluteExpiryTime());
        expect("creation-time", 1_700_000_000_123L, received.creationTime());
        expect("group-id", "group", received.groupId());
        expect("group-sequence", -1, received.groupSequence());
        expect("reply-to-group-id", "reply-group", received.replyToGroupId());
    }

    private static void header(Peer peer) throws Exception {
        Message<String> message = Message.create("b");
        Message<Object> received = peer.roundTrip(message.durable(true).priority((byte) 9).timeToLive(TTL_MS));
        expect("durable", true, received.durable());
        expect("priority", (byte) 9, received.priority());
        expect("0 < ttl <= " + TTL_MS, true, 0 < received.timeToLive() && received.timeToLive() <= TTL_MS);
        expect("first-acquirer", true, received.firstAcquirer());
        expect("delivery-count", 0L, received.deliveryCount());
    }
}
