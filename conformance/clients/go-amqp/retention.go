package main

import (
	"os"
	"time"

	"github.com/Azure/go-amqp"
)

const (
	retainedCount = 20
	offsetSpec    = "rabbitmq:stream-offset-spec"
	untilFilter   = "amqp-broker:until"
	cursorFilter  = "amqp-broker:cursor"
)

// retentionChecks are the checks of reading by offset. Queues that retain are those whose names begin with
// AMQP_RETAINED_PREFIX; without it there are none.
func retentionChecks() []check {
	prefix := os.Getenv("AMQP_RETAINED_PREFIX")
	if prefix == "" {
		return nil
	}
	list := []check{
		{"from the first, an offset, the last and the next message, settled or not", retainedStarts},
		{"from a time", retainedTime},
		{"exactly a range, pre-settled", retainedRange},
		{"accepted moves a cursor, the next link begins there", retainedCursor},
	}
	for index, item := range list {
		list[index] = check{"retained: " + item.name, func(c *client) {
			c.queue = prefix + c.queue
			values := make([]any, retainedCount)
			for number := range values {
				values[number] = int64(number)
			}
			c.send(texts(values...)...)
			item.run(c)
		}}
	}
	return list
}

func from(start any) amqp.LinkFilter {
	return amqp.NewLinkFilter(offsetSpec, 0, start)
}

func (c *client) reader(credit uint32, settled bool, filters ...amqp.LinkFilter) *amqp.Receiver {
	options := &amqp.ReceiverOptions{Filters: filters}
	if settled {
		options.RequestedSenderSettleMode = amqp.SenderSettleModeSettled.Ptr()
	}
	return c.receiver(credit, options)
}

func (c *client) expectOffsets(what string, receiver *amqp.Receiver, first, until int) {
	for number := first; number < until; number++ {
		message := c.receive(receiver)
		expect(what+": x-stream-offset", uint64(number), message.Annotations["x-stream-offset"])
		_, isTime := message.Annotations["x-opt-enqueued-time"].(time.Time)
		expect(what+": x-opt-enqueued-time is a time", true, isTime)
	}
}

func retainedStarts(c *client) {
	consumer := c.receiver(5, nil)
	c.acceptValues(consumer, 5)
	c.closeReceiver(consumer)
	c.expectOffsets("first", c.reader(100, false, from("first")), 0, retainedCount)
	c.expectOffsets("offset 7", c.reader(100, false, from(uint64(7))), 7, retainedCount)
	c.expectOffsets("last", c.reader(100, false, from("last")), retainedCount-1, retainedCount)
	next := c.reader(100, false, from("next"))
	c.send(text("new"))
	c.expectOffsets("next", next, retainedCount, retainedCount+1)
}

func retainedTime(c *client) {
	c.expectOffsets("time", c.reader(100, false, from(time.UnixMilli(1))), 0, retainedCount)
}

func retainedRange(c *client) {
	until := amqp.NewLinkFilter(untilFilter, 0, uint64(9))
	receiver := c.reader(100, true, from(uint64(3)), until)
	c.expectOffsets("range", receiver, 3, 9)
	c.send(text("later"))
	expect("more than the range", (*amqp.Message)(nil), receiver.Prefetched())
}

func retainedCursor(c *client) {
	cursor := amqp.NewLinkFilter(cursorFilter, 0, c.queue+"-cursor")
	receiver := c.reader(8, false, from("first"), cursor)
	for range 8 {
		c.accept(receiver)
	}
	c.closeReceiver(receiver)
	c.expectOffsets("the next link", c.reader(100, false, from("first"), cursor), 8, retainedCount)
}
