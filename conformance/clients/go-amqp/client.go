package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"reflect"
	"time"

	"github.com/Azure/go-amqp"
)

const checkTimeout = 30 * time.Second

// client is one connection with one session, and the queue of one check.
//
// Its methods panic with a failure, which the runner of the checks turns into a FAIL line.
type client struct {
	url     string
	queue   string
	ctx     context.Context
	conn    *amqp.Conn
	session *amqp.Session
}

type failure string

func fail(format string, arguments ...any) {
	panic(failure(fmt.Sprintf(format, arguments...)))
}

func must(what string, err error) {
	if err != nil {
		fail("%s: expected no error, got %v", what, err)
	}
}

func expect(what string, expected, got any) {
	if !reflect.DeepEqual(expected, got) {
		fail("%s: expected %s, got %s", what, show(expected), show(got))
	}
}

func show(value any) string {
	text := fmt.Sprintf("%T %#v", value, value)
	if len(text) > 300 {
		return text[:300] + "..."
	}
	return text
}

func newClient(ctx context.Context, url string) *client {
	var random [6]byte
	_, err := rand.Read(random[:])
	must("random queue name", err)
	c := &client{url: url, queue: "clients-go-amqp-" + hex.EncodeToString(random[:]), ctx: ctx}
	c.connect()
	return c
}

func (c *client) connect() {
	options := &amqp.ConnOptions{SASLType: amqp.SASLTypeAnonymous()}
	if user := os.Getenv("AMQP_USER"); user != "" {
		options.SASLType = amqp.SASLTypePlain(user, os.Getenv("AMQP_PASSWORD"))
	}
	var err error
	c.conn, err = amqp.Dial(c.ctx, c.url, options)
	must("connect", err)
	c.session, err = c.conn.NewSession(c.ctx, nil)
	must("begin", err)
}

func (c *client) close() {
	if c.conn != nil {
		_ = c.conn.Close() // the check has its result; a broker that drops the connection has shown it before
	}
}

func (c *client) sender(options *amqp.SenderOptions) *amqp.Sender {
	sender, err := c.session.NewSender(c.ctx, c.queue, options)
	must("attach a sender", err)
	return sender
}

// receiver issues credit only when it is told to (Credit -1 in this library) unless the options say otherwise.
func (c *client) receiver(credit uint32, options *amqp.ReceiverOptions) *amqp.Receiver {
	if options == nil {
		options = &amqp.ReceiverOptions{}
	}
	options.Credit = -1
	receiver, err := c.session.NewReceiver(c.ctx, c.queue, options)
	must("attach a receiver", err)
	if credit > 0 {
		must("issue credit", receiver.IssueCredit(credit))
	}
	return receiver
}

func (c *client) receive(receiver *amqp.Receiver) *amqp.Message {
	message, err := receiver.Receive(c.ctx, nil)
	must("receive", err)
	return message
}

func (c *client) accept(receiver *amqp.Receiver) *amqp.Message {
	message := c.receive(receiver)
	must("accept", receiver.AcceptMessage(c.ctx, message))
	return message
}

func (c *client) acceptValues(receiver *amqp.Receiver, count int) []any {
	values := make([]any, 0, count)
	for len(values) < count {
		values = append(values, c.accept(receiver).Value)
	}
	return values
}

// send sends each message unsettled and waits for its outcome, which must be accepted.
func (c *client) send(messages ...*amqp.Message) {
	sender := c.sender(&amqp.SenderOptions{SettlementMode: amqp.SenderSettleModeUnsettled.Ptr()})
	receipts := make([]amqp.SendReceipt, 0, len(messages))
	for _, message := range messages {
		receipt, err := sender.SendWithReceipt(c.ctx, message, nil)
		must("send", err)
		receipts = append(receipts, receipt)
	}
	for _, receipt := range receipts {
		state, err := receipt.Wait(c.ctx)
		must("outcome", err)
		expect("outcome", &amqp.StateAccepted{}, state)
	}
	must("close the sender", sender.Close(c.ctx))
}

func (c *client) sendSettled(messages ...*amqp.Message) {
	sender := c.sender(&amqp.SenderOptions{SettlementMode: amqp.SenderSettleModeSettled.Ptr()})
	for _, message := range messages {
		must("send", sender.Send(c.ctx, message, nil))
	}
	must("close the sender", sender.Close(c.ctx))
}

func (c *client) roundTrip(message *amqp.Message) *amqp.Message {
	c.send(message)
	receiver := c.receiver(1, nil)
	received := c.accept(receiver)
	c.closeReceiver(receiver)
	return received
}

func (c *client) closeReceiver(receiver *amqp.Receiver) {
	must("close the receiver", receiver.Close(c.ctx))
}

// deliveryCount reads an absent header as the standard does: every field has its default.
func deliveryCount(message *amqp.Message) uint32 {
	if message.Header == nil {
		return 0
	}
	return message.Header.DeliveryCount
}

func firstAcquirer(message *amqp.Message) bool {
	return message.Header != nil && message.Header.FirstAcquirer
}

func text(value any) *amqp.Message {
	return &amqp.Message{Value: value}
}

func texts(values ...any) []*amqp.Message {
	messages := make([]*amqp.Message, 0, len(values))
	for _, value := range values {
		messages = append(messages, text(value))
	}
	return messages
}
