package main

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/Azure/go-amqp"
)

const (
	checkBodyBytes = 256 * 1024
	farDeadline    = 4 * time.Hour
)

// soon: the broker asks about a message that was put with this after so many milliseconds.
var soon = map[string]any{"half_first_check_ms": int64(100)}

// atOnce: the broker asks as soon as there is somebody to ask.
var atOnce = map[string]any{"half_first_check_ms": int64(0)}

// halfChecks are the checks of half messages: put to $half/<group>/<queue>, resolve at $half-resolve/<group>, be asked
// on $half-check/<group>, by message or by outcome. Each check has its own group, named as its queue.
func halfChecks() []check {
	list := []struct {
		name string
		run  func(*halves)
	}{
		{"nobody sees one that was put; committed, it is delivered as it was sent", halfCommit},
		{"rolled back, it is never delivered", halfRollback},
		{"put again: accepted, one message", halfPutAgain},
		{"commit and rollback again: accepted, delivered once", halfResolveAgain},
		{"the opposite of what was decided: the send fails with half:conflict, and by whom", halfContradiction},
		{"put with other content, or when it is decided: half:id-conflict, half:conflict", halfPutConflict},
		{"put without an id: half:id-required", halfWithoutID},
		{"unknown id: half:unknown-id, and the link goes on", halfUnknown},
		{"another subject, no correlation-id: amqp:invalid-field", halfInvalid},
		{"ids of every type are told apart", halfIDs},
		{"the application property half_id goes before the message-id", halfIDProperty},
		{"reserved names and other values are refused, not dropped", halfReserved},
		{"settled puts and resolutions are refused", halfSettled},
		{"the answer to the attach; bad addresses and wrong ends refused", halfAttach},
		{"asked; the check says everything; answered by message", halfAsked},
		{"accepted and rejected without by-outcome decide nothing", halfOutcomesIgnored},
		{"by outcome: accepted commits", halfAccepted},
		{"by outcome: rejected rolls back; the settlement comes after it is stored", halfRejected},
		{"by outcome: released is asked again after a second as the same attempt; modified not", halfReleased},
		{"no credit, no check; asked at once when there is some", halfCredit},
		{"resolved while a check is out: the broker settles it as released", halfTakenBack},
		{"by another connection, when the producer is gone", halfElsewhere},
		{"by outcome: a connection that is cut decides nothing; another is asked", halfCut},
		{"a large body comes whole when it is committed, and is left out of the check", halfLarge},
		{"the order of the queue is that of the commits", halfOrder},
		{"at the same time from two connections: one is accepted, the other told half:conflict", halfAtOnce},
		{"through the anonymous terminus", halfAnonymous},
	}
	checks := make([]check, 0, len(list))
	for _, item := range list {
		checks = append(checks, check{"half messages: " + item.name, func(c *client) { item.run(newHalves(c, c.queue)) }})
	}
	return checks
}

// halves are the links of one group; the queue is the client's own.
type halves struct {
	*client
	group, putTo, resolveAt, checkAt string
	putter, resolver                 *amqp.Sender
}

func newHalves(c *client, group string) *halves {
	return &halves{
		client:    c,
		group:     group,
		putTo:     "$half/" + group + "/" + c.queue,
		resolveAt: "$half-resolve/" + group,
		checkAt:   "$half-check/" + group,
	}
}

func (h *halves) senderTo(address string) *amqp.Sender {
	sender, err := h.session.NewSender(h.ctx, address, nil)
	must("attach a sender to "+address, err)
	return sender
}

func (h *halves) refusedSender(address string, options *amqp.SenderOptions) string {
	_, err := h.session.NewSender(h.ctx, address, options)
	return condition(err)
}

// condition is "accepted", or the condition of the error with which something was refused.
func condition(err error) string {
	var refused *amqp.Error
	switch {
	case err == nil:
		return "accepted"
	case errors.As(err, &refused):
		return string(refused.Condition)
	}
	return "failed otherwise: " + err.Error()
}

func (h *halves) put(message *amqp.Message) string {
	if h.putter == nil {
		h.putter = h.senderTo(h.putTo)
	}
	return condition(h.putter.Send(h.ctx, message, nil))
}

func (h *halves) prepared(id any, body string, named map[string]any) {
	expect("put", "accepted", h.put(half(id, body, named)))
}

func (h *halves) resolve(id any, subject string) error {
	if h.resolver == nil {
		h.resolver = h.senderTo(h.resolveAt)
	}
	return h.resolver.Send(h.ctx, resolution(id, subject), nil)
}

func (h *halves) commit(id any) string   { return condition(h.resolve(id, "commit")) }
func (h *halves) rollBack(id any) string { return condition(h.resolve(id, "rollback")) }

func (h *halves) checker(credit uint32, way string, options *amqp.ReceiverOptions) *amqp.Receiver {
	if options == nil {
		options = &amqp.ReceiverOptions{}
	}
	options.Credit = -1
	receiver, err := h.session.NewReceiver(h.ctx, h.checkAt+way, options)
	must("attach a receiver of checks", err)
	if credit > 0 {
		must("issue credit", receiver.IssueCredit(credit))
	}
	return receiver
}

// asked is the next check, which must be about this one.
func (h *halves) asked(receiver *amqp.Receiver, id any) *amqp.Message {
	message := h.receive(receiver)
	expect("correlation-id", id, message.Properties.CorrelationID)
	expect("subject", "check", *message.Properties.Subject)
	return message
}

// askedAbout are the next checks, one for each of these; what is due in the same millisecond has no order.
func (h *halves) askedAbout(receiver *amqp.Receiver, ids ...any) []*amqp.Message {
	messages := make([]*amqp.Message, len(ids))
	for range ids {
		message := h.receive(receiver)
		n := slices.IndexFunc(ids, func(id any) bool { return reflect.DeepEqual(id, message.Properties.CorrelationID) })
		if n < 0 || messages[n] != nil {
			fail("correlation-id: expected one check of each, got %s", show(message.Properties.CorrelationID))
		}
		messages[n] = message
	}
	return messages
}

// queued is what the queue has now: everything before a message that is sent after it.
func (h *halves) queued() []any {
	h.send(text("the end"))
	receiver := h.receiver(200, nil)
	bodies := []any{}
	for {
		body := h.accept(receiver).Value
		if body == "the end" {
			h.closeReceiver(receiver)
			return bodies
		}
		bodies = append(bodies, body)
	}
}

// another connection with the same queue and group, and a container-id of its own.
func (h *halves) another() *halves {
	other := newClient(h.ctx, h.url)
	other.queue = h.queue
	return newHalves(other, h.group)
}

func half(id any, body string, named map[string]any) *amqp.Message {
	message := &amqp.Message{Value: body, ApplicationProperties: named}
	if id != nil {
		message.Properties = &amqp.MessageProperties{MessageID: id}
	}
	return message
}

func resolution(id any, subject string) *amqp.Message {
	properties := &amqp.MessageProperties{CorrelationID: id}
	if subject != "" {
		properties.Subject = &subject
	}
	return &amqp.Message{Value: "", Properties: properties}
}

func halfCommit(h *halves) {
	put := half("1", "the body", map[string]any{"color": "blue", "size": uint64(7)})
	subject := "s"
	put.Properties.Subject = &subject
	put.Properties.UserID = []byte("me")
	expect("put", "accepted", h.put(put))
	h.send(text("later"))
	browser := h.receiver(10, &amqp.ReceiverOptions{
		RequestedSenderSettleMode: amqp.SenderSettleModeSettled.Ptr(),
		SourceDistributionMode:    "copy",
	})
	expect("first that a browser sees", any("later"), h.receive(browser).Value)
	consumer := h.receiver(10, nil)
	expect("first that a consumer gets", any("later"), h.accept(consumer).Value)
	expect("commit", "accepted", h.commit("1"))
	received := h.accept(consumer)
	expect("body", any("the body"), received.Value)
	expect("application properties", put.ApplicationProperties, received.ApplicationProperties)
	expect("properties", put.Properties, received.Properties)
	expect("x-opt-half-id", any("1"), received.Annotations["x-opt-half-id"])
}

func halfRollback(h *halves) {
	h.prepared("1", "never", nil)
	expect("rollback", "accepted", h.rollBack("1"))
	expect("queue", []any{}, h.queued())
}

func halfPutAgain(h *halves) {
	for range 3 {
		h.prepared("1", "once", nil)
	}
	expect("commit", "accepted", h.commit("1"))
	expect("queue", []any{"once"}, h.queued())
}

func halfResolveAgain(h *halves) {
	h.prepared("1", "once", nil)
	h.prepared("2", "never", nil)
	for range 3 {
		expect("commit", "accepted", h.commit("1"))
		expect("rollback", "accepted", h.rollBack("2"))
	}
	expect("queue", []any{"once"}, h.queued())
}

func halfContradiction(h *halves) {
	h.prepared("1", "committed", nil)
	h.prepared("2", "rolled back", nil)
	expect("commit", "accepted", h.commit("1"))
	expect("rollback", "accepted", h.rollBack("2"))
	for _, item := range [][3]string{{"1", "rollback", "committed"}, {"2", "commit", "rolled back"}} {
		err := h.resolve(item[0], item[1])
		expect("outcome", "half:conflict", condition(err))
		var refused *amqp.Error
		errors.As(err, &refused)
		state, _ := refused.Info["half_state"].(string)
		expect("half_state", item[2], strings.ReplaceAll(state, "-", " "))
		expect("half_resolved_by", any("producer"), refused.Info["half_resolved_by"])
		expect("half_resolved_at is there", true, refused.Info["half_resolved_at"] != nil)
		expect("the description has the state", true, strings.Contains(refused.Description, state))
	}
	expect("queue", []any{"committed"}, h.queued())
}

func halfPutConflict(h *halves) {
	h.prepared("1", "content", nil)
	expect("other content", "half:id-conflict", h.put(half("1", "other", nil)))
	other := h.senderTo(h.putTo + "-2")
	expect("other destination", "half:id-conflict", condition(other.Send(h.ctx, half("1", "content", nil), nil)))
	expect("commit", "accepted", h.commit("1"))
	expect("put after the commit", "half:conflict", h.put(half("1", "content", nil)))
	h.prepared("2", "content", nil)
	expect("rollback", "accepted", h.rollBack("2"))
	expect("put after the rollback", "half:conflict", h.put(half("2", "content", nil)))
	expect("queue", []any{"content"}, h.queued())
}

func halfWithoutID(h *halves) {
	expect("neither", "half:id-required", h.put(half(nil, "no id", nil)))
	expect("an empty one", "half:id-required", h.put(half("", "empty", nil)))
	expect("one of 257 octets", "half:id-required", h.put(half(strings.Repeat("x", 257), "long", nil)))
	h.prepared(strings.Repeat("x", 256), "longest", nil)
}

func halfUnknown(h *halves) {
	h.prepared("1", "body", nil)
	expect("commit", "half:unknown-id", h.commit("2"))
	expect("rollback", "half:unknown-id", h.rollBack("2"))
	expect("another group", "half:unknown-id", newHalves(h.client, h.group+"-2").commit("1"))
	expect("the link goes on", "accepted", h.commit("1"))
}

func halfInvalid(h *halves) {
	h.prepared("1", "body", nil)
	expect("another subject", "amqp:invalid-field", condition(h.resolve("1", "Commit")))
	expect("no subject", "amqp:invalid-field", condition(h.resolve("1", "")))
	expect("no correlation-id", "amqp:invalid-field", h.commit(nil))
	expect("rollback", "accepted", h.rollBack("1"))
}

func halfIDs(h *halves) {
	uuid := amqp.UUID{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}
	ids := []any{uint64(7), "7", uuid, uuid[:], uuid.String(), []byte("7")}
	checker := h.checker(10, "", nil)
	for n, id := range ids {
		h.prepared(id, fmt.Sprint(n), soon)
	}
	for n, message := range h.askedAbout(checker, ids...) {
		expect("body", any(fmt.Sprint(n)), message.Value)
		if n%2 == 0 {
			expect("commit", "accepted", h.commit(message.Properties.CorrelationID))
		} else {
			expect("rollback", "accepted", h.rollBack(message.Properties.CorrelationID))
		}
	}
	expect("queue", []any{"0", "2", "4"}, h.queued())
}

func halfIDProperty(h *halves) {
	h.prepared("message-1", "body", map[string]any{"half_id": "order-1"})
	expect("by message-id", "half:unknown-id", h.commit("message-1"))
	expect("by half_id", "accepted", h.commit("order-1"))
	received := h.accept(h.receiver(1, nil))
	expect("message-id", any("message-1"), received.Properties.MessageID)
	expect("half_id", any("order-1"), received.ApplicationProperties["half_id"])
	expect("x-opt-half-id", any("order-1"), received.Annotations["x-opt-half-id"])
}

func halfReserved(h *halves) {
	for _, item := range []struct {
		name     string
		value    any
		expected string
	}{
		{"half_other", int64(1), "amqp:not-allowed"},
		{"seq_id", int64(1), "amqp:not-allowed"},
		{"half_first_check_ms", "soon", "amqp:invalid-field"},
		{"half_first_check_ms", int64(-1), "amqp:invalid-field"},
		{"half_max_age_ms", farDeadline.Milliseconds() + 1, "amqp:invalid-field"},
		{"half_id", int64(7), "amqp:invalid-field"},
	} {
		expect(item.name, item.expected, h.put(half("1", "body", map[string]any{item.name: item.value})))
	}
	delayed := half("1", "body", nil)
	delayed.Annotations = amqp.Annotations{"x-opt-delivery-delay": uint64(1000)}
	expect("x-opt-delivery-delay", "amqp:not-allowed", h.put(delayed))
	expect("commit", "half:unknown-id", h.commit("1"))
}

// halfSettled: go-amqp learns of the detach after a settled transfer at the next send, or already in that of the
// transfer itself, if the broker's answer is the quicker one.
func halfSettled(h *halves) {
	settled := &amqp.SenderOptions{SettlementMode: amqp.SenderSettleModeSettled.Ptr()}
	for _, address := range []string{h.putTo, h.resolveAt} {
		expect("attach with snd-settle-mode settled", "amqp:not-allowed", h.refusedSender(address, settled))
		mixed := h.senderTo(address)
		message := half("1", "body", nil)
		message.Properties.CorrelationID = "1"
		if told := mixed.Send(h.ctx, message, &amqp.SendOptions{Settled: true}); told != nil {
			expect("settled transfer", "amqp:not-allowed", condition(told))
		}
		expect("the next transfer", "amqp:not-allowed", condition(mixed.Send(h.ctx, message, nil)))
	}
	expect("commit", "half:unknown-id", h.commit("1"))
}

func halfAttach(h *halves) {
	expect("half-version", "1", fmt.Sprint(h.senderTo(h.putTo).Properties()["half-version"]))
	expect("half-version", "1", fmt.Sprint(h.senderTo(h.resolveAt).Properties()["half-version"]))
	expect("half-version", "1", fmt.Sprint(h.checker(0, "", nil).Properties()["half-version"]))
	for _, address := range []string{
		"$half", "$half/g", "$half/g/", "$half/a b/q", "$half/" + strings.Repeat("g", 65) + "/q", "$half-resolve/",
		"$half-resolve/g/q",
	} {
		expect(address, "amqp:not-found", h.refusedSender(address, nil))
	}
	expect("a sender to the checks", "amqp:not-allowed", h.refusedSender(h.checkAt, nil))
	_, err := h.session.NewReceiver(h.ctx, h.resolveAt, nil)
	expect("a receiver of resolutions", "amqp:not-allowed", condition(err))
}

func halfAsked(h *halves) {
	receiver := h.checker(10, "", nil)
	h.prepared("1", "the body", map[string]any{"color": "blue", "half_first_check_ms": int64(200)})
	message := h.asked(receiver, "1")
	expect("body", any("the body"), message.Value)
	expect("reply-to", h.resolveAt, *message.Properties.ReplyTo)
	named := message.ApplicationProperties
	for name, value := range map[string]any{
		"color": "blue", "half_id": "1", "half_group": h.group, "half_destination": h.queue,
	} {
		expect(name, value, named[name])
	}
	expect("half_attempt", "1", fmt.Sprint(named["half_attempt"]))
	age, _ := named["half_age_ms"].(int64)
	expect("half_age_ms is 200 ms or a little more", true, age >= 200 && age < 20_000)
	deadline, _ := named["half_deadline"].(int64)
	left := time.Until(time.UnixMilli(deadline))
	expect("half_deadline in 4 h", true, left > farDeadline-time.Minute && left < farDeadline+time.Minute)
	replies := h.senderTo(*message.Properties.ReplyTo)
	answer := resolution(message.Properties.CorrelationID, "commit")
	answer.ApplicationProperties = map[string]any{"half_reason": "it was done"}
	expect("answer", "accepted", condition(replies.Send(h.ctx, answer, nil)))
	expect("queue", []any{"the body"}, h.queued())
	must("the check is over for us, too", receiver.AcceptMessage(h.ctx, message))
	expect("rollback", "half:conflict", h.rollBack("1"))
}

// halfOutcomesIgnored: had the accept committed, the rollback after it would be a conflict.
func halfOutcomesIgnored(h *halves) {
	receiver := h.checker(10, "", nil)
	h.prepared("1", "accepted", soon)
	must("accept", receiver.AcceptMessage(h.ctx, h.asked(receiver, "1")))
	expect("rollback", "accepted", h.rollBack("1"))
	h.prepared("2", "rejected", soon)
	must("reject", receiver.RejectMessage(h.ctx, h.asked(receiver, "2"), &amqp.Error{Condition: "app:no"}))
	expect("commit", "accepted", h.commit("2"))
	expect("queue", []any{"rejected"}, h.queued())
}

func halfAccepted(h *halves) {
	receiver := h.checker(10, "/by-outcome", nil)
	consumer := h.receiver(10, nil)
	h.prepared("1", "body", soon)
	must("accept", receiver.AcceptMessage(h.ctx, h.asked(receiver, "1")))
	expect("delivered", any("body"), h.accept(consumer).Value)
	expect("commit", "accepted", h.commit("1"))
	var refused *amqp.Error
	expect("rollback is refused", true, errors.As(h.resolve("1", "rollback"), &refused))
	expect("half_resolved_by", any("check"), refused.Info["half_resolved_by"])
}

// halfRejected: in the second mode go-amqp's RejectMessage waits for the broker's settlement, and hands out the error
// that comes back with it.
func halfRejected(h *halves) {
	second := &amqp.ReceiverOptions{SettlementMode: amqp.ReceiverSettleModeSecond.Ptr()}
	receiver := h.checker(10, "/by-outcome", second)
	h.prepared("1", "never", soon)
	reason := &amqp.Error{Condition: "app:failed", Description: "no money"}
	err := receiver.RejectMessage(h.ctx, h.asked(receiver, "1"), reason)
	expect("settled with our outcome", "app:failed", condition(err))
	expect("rollback", "accepted", h.rollBack("1"))
	expect("commit", "half:conflict", h.commit("1"))
	expect("queue", []any{}, h.queued())
}

func halfReleased(h *halves) {
	receiver := h.checker(10, "/by-outcome", nil)
	h.prepared("1", "released", soon)
	h.prepared("2", "modified", soon)
	messages := h.askedAbout(receiver, "1", "2")
	must("release", receiver.ReleaseMessage(h.ctx, messages[0]))
	failed := &amqp.ModifyMessageOptions{DeliveryFailed: true}
	must("modify", receiver.ModifyMessage(h.ctx, messages[1], failed))
	again := h.asked(receiver, "1")
	expect("half_attempt", "1", fmt.Sprint(again.ApplicationProperties["half_attempt"]))
	must("modify", receiver.ModifyMessage(h.ctx, again, &amqp.ModifyMessageOptions{UndeliverableHere: true}))
	expect("commit", "accepted", h.commit("1"))
	expect("rollback", "accepted", h.rollBack("2"))
	expect("queue", []any{"released"}, h.queued())
}

func halfCredit(h *halves) {
	receiver := h.checker(0, "", nil)
	h.prepared("1", "one", atOnce)
	must("issue credit", receiver.IssueCredit(1))
	first := h.asked(receiver, "1")
	expect("half_attempt", "1", fmt.Sprint(first.ApplicationProperties["half_attempt"]))
	must("accept", receiver.AcceptMessage(h.ctx, first))
	h.prepared("2", "two", atOnce)
	expect("rollback", "half:unknown-id", h.rollBack("3"))
	expect("check beyond the credit", (*amqp.Message)(nil), receiver.Prefetched())
	must("issue credit", receiver.IssueCredit(1))
	h.asked(receiver, "2")
}

func halfTakenBack(h *halves) {
	states := make(chan amqp.DeliveryState, 1)
	options := &amqp.ReceiverOptions{OnDeliveryStateChanged: func(_ *amqp.Message, state amqp.DeliveryState) {
		states <- state
	}}
	receiver := h.checker(10, "/by-outcome", options)
	h.prepared("1", "body", soon)
	message := h.asked(receiver, "1")
	expect("rollback", "accepted", h.rollBack("1"))
	select {
	case state := <-states:
		expect("state of the check", any(&amqp.StateReleased{}), any(state))
	case <-h.ctx.Done():
		fail("state of the check: expected released, got none")
	}
	must("accept, too late", receiver.AcceptMessage(h.ctx, message))
	expect("rollback again", "accepted", h.rollBack("1"))
	expect("queue", []any{}, h.queued())
}

func halfElsewhere(h *halves) {
	h.prepared("1", "body", nil)
	must("close", h.conn.Close())
	other := h.another()
	defer other.close()
	expect("commit", "accepted", other.commit("1"))
	expect("queue", []any{"body"}, other.queued())
}

func halfCut(h *halves) {
	other := h.another()
	defer other.close()
	there := other.checker(10, "/by-outcome", nil)
	h.prepared("1", "never", atOnce)
	other.asked(there, "1")
	here := h.checker(10, "", nil)
	must("close", other.conn.Close())
	again := h.asked(here, "1")
	expect("half_attempt", "1", fmt.Sprint(again.ApplicationProperties["half_attempt"]))
	expect("rollback", "accepted", h.rollBack("1"))
	expect("queue", []any{}, h.queued())
}

func halfLarge(h *halves) {
	receiver := h.checker(10, "", nil)
	fitting, large := strings.Repeat("x", checkBodyBytes-1024), strings.Repeat("half", largeBodyBytes/8)
	h.prepared("fitting", fitting, soon)
	h.prepared("large", large, soon)
	messages := h.askedAbout(receiver, "fitting", "large")
	expect("body that fits", true, messages[0].Value == any(fitting))
	expect("half_body_omitted", any(nil), messages[0].ApplicationProperties["half_body_omitted"])
	expect("half_body_omitted", any(true), messages[1].ApplicationProperties["half_body_omitted"])
	expect("commit", "accepted", h.commit("large"))
	expect("same body", true, h.accept(h.receiver(1, nil)).Value == any(large))
}

func halfOrder(h *halves) {
	expected := make([]any, 0, 100)
	for n := range 100 {
		h.prepared(uint64(n), fmt.Sprint(n), nil)
	}
	for n := range 100 {
		expect("commit", "accepted", h.commit(uint64(n*37%100)))
		expected = append(expected, fmt.Sprint(n*37%100))
	}
	expect("queue", expected, h.queued())
}

func halfAtOnce(h *halves) {
	other := h.another()
	defer other.close()
	expected := []any{}
	h.prepared("first", "never", nil) // and with it the links are there
	expect("rollback", "accepted", h.rollBack("first"))
	expect("rollback", "accepted", other.rollBack("first"))
	for n := range 50 {
		h.prepared(uint64(n), fmt.Sprint(n), nil)
		theirs := make(chan string)
		go func() { theirs <- condition(other.resolve(uint64(n), "rollback")) }()
		mine := h.commit(uint64(n))
		if mine == "accepted" {
			expected = append(expected, fmt.Sprint(n))
			expect("rollback after the commit", "half:conflict", <-theirs)
		} else {
			expect("commit after the rollback", "half:conflict", mine)
			expect("rollback", "accepted", <-theirs)
		}
	}
	expect("queue", expected, h.queued())
}

func halfAnonymous(h *halves) {
	h.send(text("the queue is there"))
	anonymous := h.senderTo("")
	put := half("1", "body", nil)
	put.Properties.To = &h.putTo
	expect("put", "accepted", condition(anonymous.Send(h.ctx, put, nil)))
	for _, item := range [][2]string{{"commit", "accepted"}, {"rollback", "half:conflict"}} {
		answer := resolution("1", item[0])
		answer.Properties.To = &h.resolveAt
		expect(item[0], item[1], condition(anonymous.Send(h.ctx, answer, nil)))
	}
	expect("queue", []any{"the queue is there", "body"}, h.queued())
}
