package main

import (
	"time"

	"github.com/Azure/go-amqp"
)

const annotationPrefix = "x-opt-"

// valueChecks are the checks of what a message carries.
func valueChecks() []check {
	checks := []check{{"amqp-value null", func(c *client) {
		expect("body", any(nil), c.roundTrip(&amqp.Message{Value: amqp.Null{}}).Value)
	}}}
	for _, item := range append(append([]named{}, simpleValues...), compoundValues...) {
		checks = append(checks, check{"amqp-value " + item.name, func(c *client) {
			expect("body", normal(item.value), normal(c.roundTrip(text(item.value)).Value))
		}})
	}
	return append(checks,
		check{"application-properties of every simple type", applicationProperties},
		check{"message-annotations of every type", messageAnnotations},
		check{"delivery-annotations and footer", deliveryAnnotationsAndFooter},
		check{"body data, one section and several", dataBodies},
		check{"body amqp-sequence, one section and several", sequenceBodies},
		check{"properties: all fields", allProperties},
		check{"properties: message-id and correlation-id of every type", messageIDs},
		check{"header: durable, priority, ttl", header},
	)
}

// normal gives a value the form in which go-amqp hands it out: it decodes symbols as strings, an empty binary as nil,
// and maps with any keys.
func normal(value any) any {
	switch typed := value.(type) {
	case amqp.Symbol:
		return string(typed)
	case [][]byte:
		binaries := make([]string, len(typed))
		for n, binary := range typed {
			binaries[n] = string(binary)
		}
		return binaries
	case time.Time:
		return typed.UTC()
	case []time.Time:
		times := make([]time.Time, len(typed))
		for n, moment := range typed {
			times[n] = moment.UTC()
		}
		return times
	case map[string]any:
		return anyKeys(typed)
	case map[any]any:
		return anyKeys(typed)
	case []any:
		list := make([]any, len(typed))
		for n, element := range typed {
			list[n] = normal(element)
		}
		return list
	}
	return value
}

func anyKeys[K comparable](source map[K]any) map[any]any {
	result := make(map[any]any, len(source))
	for key, value := range source {
		result[key] = normal(value)
	}
	return result
}

func applicationProperties(c *client) {
	sent := map[string]any{"null": nil}
	for _, item := range simpleValues {
		sent[item.name] = item.value
	}
	received := c.roundTrip(&amqp.Message{Value: "b", ApplicationProperties: sent})
	expect("application-properties", normal(sent), normal(received.ApplicationProperties))
}

func messageAnnotations(c *client) {
	sent := amqp.Annotations{}
	for _, item := range append(append([]named{}, simpleValues...), compoundValues...) {
		sent[annotationPrefix+item.name] = item.value
	}
	received := c.roundTrip(&amqp.Message{Value: "b", Annotations: sent})
	for key, value := range sent {
		expect(key.(string), normal(value), normal(received.Annotations[key]))
	}
}

func deliveryAnnotationsAndFooter(c *client) {
	received := c.roundTrip(&amqp.Message{
		DeliveryAnnotations: amqp.Annotations{"x-opt-hop": "only to the next node"},
		Value:               "b",
		Footer:              amqp.Annotations{"x-opt-sum": uint64(77)},
	})
	expect("body", any("b"), received.Value)
	expect("footer", amqp.Annotations{"x-opt-sum": uint64(77)}, received.Footer)
}

func dataBodies(c *client) {
	for _, sections := range [][][]byte{{[]byte("one")}, {{}}, {[]byte("one"), {}, longBinary}} {
		expect("data", sections, c.roundTrip(&amqp.Message{Data: sections}).Data)
	}
}

func sequenceBodies(c *client) {
	for _, sections := range [][][]any{{{int64(1), "two", nil}}, {{"a"}, {}, {[]any{uint8(3)}}}} {
		received := c.roundTrip(&amqp.Message{Sequence: sections}).Sequence
		expect("number of amqp-sequence sections", len(sections), len(received))
		for n := range sections {
			expect("amqp-sequence", normal(sections[n]), normal(received[n]))
		}
	}
}

func pointer[T any](value T) *T { return &value }

func allProperties(c *client) {
	sent := amqp.MessageProperties{
		MessageID: "message-1", UserID: []byte("user\x00id"), To: pointer("somewhere"), Subject: pointer("subject"),
		ReplyTo: pointer("replies"), CorrelationID: "correlation-1", ContentType: pointer("text/plain"),
		ContentEncoding: pointer("gzip"), AbsoluteExpiryTime: pointer(time.UnixMilli(4_000_000_000_125).UTC()),
		CreationTime: pointer(time.UnixMilli(1_700_000_000_250).UTC()), GroupID: pointer("group"),
		GroupSequence: pointer(uint32(4_294_967_295)), ReplyToGroupID: pointer("reply-group"),
	}
	received := c.roundTrip(&amqp.Message{Properties: &sent, Value: "b"}).Properties
	if received == nil {
		fail("properties: expected all fields, got no section")
	}
	received.AbsoluteExpiryTime = inUTC(received.AbsoluteExpiryTime)
	received.CreationTime = inUTC(received.CreationTime)
	expect("properties", sent, *received)
}

func inUTC(moment *time.Time) *time.Time {
	if moment == nil {
		return nil
	}
	return pointer(moment.UTC())
}

func messageIDs(c *client) {
	for _, id := range []any{uint64(0), uint64(1<<64 - 1), someUUID, []byte("\x00binary"), "", "string"} {
		sent := &amqp.Message{Properties: &amqp.MessageProperties{MessageID: id, CorrelationID: id}, Value: "b"}
		received := c.roundTrip(sent).Properties
		if received == nil {
			fail("properties: expected message-id %v, got no section", id)
		}
		expect("message-id", id, received.MessageID)
		expect("correlation-id", id, received.CorrelationID)
	}
}

func header(c *client) {
	sent := &amqp.MessageHeader{Durable: true, Priority: 9, TTL: 10 * time.Minute}
	received := c.roundTrip(&amqp.Message{Header: sent, Value: "b"}).Header
	if received == nil {
		fail("header: expected durable and priority 9, got no header")
	}
	expect("durable", true, received.Durable)
	expect("priority", uint8(9), received.Priority)
	expect("0 < ttl <= 10 min", true, received.TTL > 0 && received.TTL <= 10*time.Minute)
	received = c.roundTrip(&amqp.Message{Header: &amqp.MessageHeader{Priority: 0}, Value: "b"}).Header
	if received == nil {
		fail("header: expected priority 0, got no header")
	}
	expect("durable", false, received.Durable)
	expect("priority", uint8(0), received.Priority)
	expect("ttl", time.Duration(0), received.TTL)
}
