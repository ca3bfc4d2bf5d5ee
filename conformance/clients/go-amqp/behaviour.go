package main

import (
	"bytes"
	"context"
	"errors"
	"math/rand"
	"slices"
	"time"

	"github.com/Azure/go-amqp"
)

const (
	largeBodyBytes    = 8 * 1024 * 1024
	orderedMessages   = 1000
	competingMessages = 200
)

// behaviourChecks are the checks of settling, credit, links and connections.
var behaviourChecks = []check{
	{"large message of 8 MiB", largeMessage},
	{"send unsettled: the outcome is accepted", func(c *client) {
		c.send(text("unsettled"))
		expect("body", any("unsettled"), c.accept(c.receiver(1, nil)).Value)
	}},
	{"send pre-settled", func(c *client) {
		c.sendSettled(texts("0", "1", "2", "3")...)
		expect("bodies", []any{"0", "1", "2", "3"}, c.acceptValues(c.receiver(4, nil), 4))
	}},
	{"send settled and unsettled on one link", sendMixed},
	{"receive pre-settled: gone without a disposition", receiveSettled},
	{"outcome accepted: gone", func(c *client) {
		expect("next", any("second"), nextAfter(c, acceptOutcome).Value)
	}},
	{"outcome rejected: not delivered again", func(c *client) {
		reason := &amqp.Error{Condition: amqp.ErrCondInternalError, Description: "rejected by the check"}
		reject := func(receiver *amqp.Receiver, message *amqp.Message) error {
			return receiver.RejectMessage(c.ctx, message, reason)
		}
		expect("next", any("second"), nextAfter(c, reject).Value)
	}},
	{"outcome released: comes again, delivery-count unchanged", func(c *client) {
		redelivered(c, 0, func(receiver *amqp.Receiver, message *amqp.Message) error {
			return receiver.ReleaseMessage(c.ctx, message)
		})
	}},
	{"outcome modified, delivery-failed: delivery-count + 1", func(c *client) {
		redelivered(c, 1, modify(c, amqp.ModifyMessageOptions{DeliveryFailed: true}))
	}},
	{"outcome modified without delivery-failed: delivery-count unchanged", func(c *client) {
		redelivered(c, 0, modify(c, amqp.ModifyMessageOptions{}))
	}},
	{"outcome modified with message-annotations: merged", modifiedAnnotations},
	{"outcome modified, undeliverable-here: not to this link, but to another", undeliverableHere},
	{"receiver-settle-mode second: settled by the broker after our outcome", receiveSecond},
	{"receiver-settle-mode second on a sending link", sendSecond},
	{"drain: 3 messages for 10 credits, then the drain is answered and no credit is left", drain},
	{"reconnect: what was not settled comes again", reconnect},
	{"browse: distribution-mode copy takes nothing away", browse},
	{"order of 1,000 messages", order},
	{"two competing consumers: each message exactly once", competing},
}

type outcome func(*amqp.Receiver, *amqp.Message) error

func acceptOutcome(receiver *amqp.Receiver, message *amqp.Message) error {
	return receiver.AcceptMessage(context.Background(), message)
}

func modify(c *client, options amqp.ModifyMessageOptions) outcome {
	return func(receiver *amqp.Receiver, message *amqp.Message) error {
		return receiver.ModifyMessage(c.ctx, message, &options)
	}
}

func largeMessage(c *client) {
	body := make([]byte, largeBodyBytes)
	rand.New(rand.NewSource(1)).Read(body)
	received := c.roundTrip(amqp.NewMessage(body)).GetData()
	expect("length", len(body), len(received))
	expect("same octets", true, bytes.Equal(body, received))
}

func sendMixed(c *client) {
	sender := c.sender(&amqp.SenderOptions{SettlementMode: amqp.SenderSettleModeMixed.Ptr()})
	for n := range 10 {
		must("send", sender.Send(c.ctx, text(int64(n)), &amqp.SendOptions{Settled: n%2 == 0}))
	}
	receiver := c.receiver(10, nil)
	for n := range 10 {
		expect("body", any(int64(n)), c.accept(receiver).Value)
	}
}

func receiveSettled(c *client) {
	c.send(texts("first", "second")...)
	receiver := c.receiver(1, &amqp.ReceiverOptions{RequestedSenderSettleMode: amqp.SenderSettleModeSettled.Ptr()})
	expect("body", any("first"), c.receive(receiver).Value)
	c.closeReceiver(receiver)
	expect("next", any("second"), c.accept(c.receiver(1, nil)).Value)
}

// nextAfter gives "first" an outcome, closes the link, and returns what the queue delivers first afterwards.
func nextAfter(c *client, give outcome) *amqp.Message {
	first := text("first")
	first.Annotations = amqp.Annotations{"x-opt-kept": "kept", "x-opt-old": "old"}
	c.send(first, text("second"))
	receiver := c.receiver(1, nil)
	message := c.receive(receiver)
	expect("body", any("first"), message.Value)
	expect("delivery-count on first delivery", uint32(0), deliveryCount(message))
	must("outcome", give(receiver, message))
	c.closeReceiver(receiver)
	return c.accept(c.receiver(1, nil))
}

// redelivered checks the header that the message has when it comes to another link.
func redelivered(c *client, count uint32, give outcome) *amqp.Message {
	message := nextAfter(c, give)
	expect("body", any("first"), message.Value)
	expect("delivery-count", count, deliveryCount(message))
	expect("first-acquirer on redelivery to another link", false, firstAcquirer(message))
	return message
}

func modifiedAnnotations(c *client) {
	changes := amqp.Annotations{"x-opt-new": uint64(7), "x-opt-old": "replaced"}
	message := redelivered(c, 1, modify(c, amqp.ModifyMessageOptions{DeliveryFailed: true, Annotations: changes}))
	got := []any{message.Annotations["x-opt-kept"], message.Annotations["x-opt-new"], message.Annotations["x-opt-old"]}
	expect("annotations", []any{"kept", uint64(7), "replaced"}, got)
}

func undeliverableHere(c *client) {
	c.send(text("first"))
	here := c.receiver(1, nil)
	message := c.receive(here)
	expect("body", any("first"), message.Value)
	must("modify", here.ModifyMessage(c.ctx, message, &amqp.ModifyMessageOptions{UndeliverableHere: true}))
	c.send(text("second"))
	must("issue credit", here.IssueCredit(1))
	expect("next at this link", any("second"), c.accept(here).Value)
	expect("at another link", any("first"), c.accept(c.receiver(1, nil)).Value)
}

// receiveSecond: AcceptMessage returns in this mode only when the broker has settled.
func receiveSecond(c *client) {
	c.send(texts("first", "second")...)
	receiver := c.receiver(1, &amqp.ReceiverOptions{SettlementMode: amqp.ReceiverSettleModeSecond.Ptr()})
	expect("body", any("first"), c.accept(receiver).Value)
	c.closeReceiver(receiver)
	expect("next", any("second"), c.accept(c.receiver(1, nil)).Value)
}

func sendSecond(c *client) {
	sender := c.sender(&amqp.SenderOptions{
		SettlementMode:              amqp.SenderSettleModeUnsettled.Ptr(),
		RequestedReceiverSettleMode: amqp.ReceiverSettleModeSecond.Ptr(),
	})
	receipt, err := sender.SendWithReceipt(c.ctx, text("second mode"), nil)
	must("send", err)
	state, err := receipt.Wait(c.ctx)
	must("outcome", err)
	expect("outcome", &amqp.StateAccepted{}, state)
	must("close the sender", sender.Close(c.ctx))
	expect("body", any("second mode"), c.accept(c.receiver(1, nil)).Value)
}

// drain: go-amqp asks for it with link-credit 0, which takes back the credit left and still wants the answer of part
// 2.6.7, "send the flow state to the receiver". So the messages are received before.
func drain(c *client) {
	c.send(texts("0", "1", "2")...)
	receiver := c.receiver(10, nil)
	expect("bodies", []any{"0", "1", "2"}, c.acceptValues(receiver, 3))
	must("drain", receiver.DrainCredit(c.ctx, nil))
	expect("nothing more came", (*amqp.Message)(nil), receiver.Prefetched())
	c.send(text("later"))
	brief, cancel := context.WithTimeout(c.ctx, 300*time.Millisecond)
	defer cancel()
	_, err := receiver.Receive(brief, nil)
	expect("nothing comes without credit", true, errors.Is(err, context.DeadlineExceeded))
	must("issue credit", receiver.IssueCredit(1))
	expect("after the drain", any("later"), c.accept(receiver).Value)
}

func reconnect(c *client) {
	messages := texts("first", "second")
	for _, message := range messages {
		message.Header = &amqp.MessageHeader{Durable: true, Priority: 4}
	}
	c.send(messages...)
	expect("body", any("first"), c.receive(c.receiver(1, nil)).Value)
	must("close", c.conn.Close())
	c.connect()
	expect("after reconnect", []any{"first", "second"}, c.acceptValues(c.receiver(2, nil), 2))
}

func browse(c *client) {
	c.send(texts("0", "1", "2")...)
	browser := c.receiver(3, &amqp.ReceiverOptions{
		SourceDistributionMode:    amqp.SourceDistributionModeCopy,
		RequestedSenderSettleMode: amqp.SenderSettleModeSettled.Ptr(),
	})
	for _, body := range []any{"0", "1", "2"} {
		expect("browsed", body, c.receive(browser).Value)
	}
	c.closeReceiver(browser)
	expect("consumed", []any{"0", "1", "2"}, c.acceptValues(c.receiver(3, nil), 3))
}

func numbers(count int) ([]*amqp.Message, []int64) {
	messages, values := make([]*amqp.Message, count), make([]int64, count)
	for n := range count {
		messages[n], values[n] = text(int64(n)), int64(n)
	}
	return messages, values
}

func order(c *client) {
	messages, values := numbers(orderedMessages)
	c.send(messages...)
	receiver := c.receiver(orderedMessages, nil)
	for _, value := range values {
		expect("order", any(value), c.accept(receiver).Value)
	}
}

// competing: two consumers take one message at a time until both have seen nothing more for a while.
func competing(c *client) {
	receivers := []*amqp.Receiver{c.receiver(1, nil), c.receiver(1, nil)}
	messages, expected := numbers(competingMessages)
	c.send(messages...)
	got := make([][]int64, len(receivers))
	var all []int64
	for idle := 0; len(all) < competingMessages || idle < 2; {
		idle = 0
		for n, receiver := range receivers {
			brief, cancel := context.WithTimeout(c.ctx, 300*time.Millisecond)
			message, err := receiver.Receive(brief, nil)
			cancel()
			if errors.Is(err, context.DeadlineExceeded) && c.ctx.Err() == nil {
				idle++
				continue
			}
			must("receive", err)
			must("accept", receiver.AcceptMessage(c.ctx, message))
			got[n] = append(got[n], message.Value.(int64))
			all = append(all, message.Value.(int64))
			must("issue credit", receiver.IssueCredit(1))
		}
	}
	slices.Sort(all)
	expect("union", expected, all)
	expect("both took part", []bool{true, true}, []bool{len(got[0]) > 0, len(got[1]) > 0})
}
