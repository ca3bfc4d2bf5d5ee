"""Idle time-outs, both ways (2.4.5)."""

import time

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.outcomes import NotApplicable, Unexpected
from amqp_broker.conformance.scenario import scenario
from amqp_broker.conformance.wire import ANY_ERROR, Peer
from amqp_broker.frames import Begin, Close, Frame, Open

LONGEST_WAIT_MS = 5_000
"""An announced idle-time-out above this is not waited for: the suite ends within a minute."""

SCHEDULING_S = 0.25
"""What a busy machine may be late."""


@scenario("2.4.5/zero", "2.7.1-zero", "2.7.1-10")
def zero(broker: Broker) -> None:
    """An idle-time-out of zero is the same as none: the connection opens and works."""
    peer, _ = broker.opened(idle_time_out=0)
    peer.put(Begin(next_outgoing_id=0, incoming_window=9, outgoing_window=9))
    peer.expect(Begin)


@scenario("2.4.5/keeps-us-content", "2.7.1-idle", "2.4.5-desired", "2.4.5-empty", "2.4.5-05", waits=True)
def keeps_us_content(broker: Broker) -> None:
    """A broker with nothing to say sends something within our idle-time-out of 2 s, again and again."""
    peer, opened = broker.opened(idle_time_out=2_000)
    for _ in range(3):
        frame = _next_frame_while_alive(peer, opened, 2.0 + SCHEDULING_S)
        if isinstance(frame.performative, Close):
            raise Unexpected("expected traffic, got close")
        if frame.performative is None and frame.channel != 0:
            raise Unexpected(f"2.4.5-05: an empty frame came on channel {frame.channel}, not 0")


def _next_frame_while_alive(peer: Peer, opened: Open, timeout_s: float) -> Frame:
    """Returns the next frame, and meanwhile keeps the broker content with empty frames of ours."""
    slice_s = min((opened.idle_time_out or 10_000) / 1000 / 2, timeout_s)
    deadline = time.monotonic() + timeout_s
    while time.monotonic() + slice_s < deadline:
        peer.send_empty_frame()
        if peer.has_more(within_s=slice_s):
            break
    return peer.expect_any_frame(timeout_s=max(deadline - time.monotonic(), 0.0))


@scenario("2.4.5/too-short", "2.4.5-03", "2.7.1-09")
def too_short(broker: Broker) -> None:
    """An idle-time-out of 10 ms is kept, or refused by a close that says why."""
    peer = broker.connect()
    broker.log_in(peer)
    peer.put(broker.own_open(idle_time_out=10))
    frame = peer.expect_frame(Open, Close)
    deadline = time.monotonic() + 1
    heard = 0
    while isinstance(frame.performative, Open) or frame.performative is None:
        if time.monotonic() > deadline:
            break
        frame = peer.expect_any_frame(timeout_s=1)
        heard += 1
    if isinstance(frame.performative, Close):
        if frame.performative.error is None:
            raise Unexpected("the broker closed without an error that explains why")
        return
    if heard < 10:
        raise Unexpected(f"expected a close, or traffic every 10 ms, got {heard} frames in a second")
    peer.close()


def _announced(opened: Open) -> int:
    milliseconds = opened.idle_time_out or 0
    if milliseconds == 0:
        raise NotApplicable("the broker announces no idle-time-out")
    if milliseconds > LONGEST_WAIT_MS:
        raise NotApplicable(
            f"the broker announces an idle-time-out of {milliseconds} ms, too long to wait for"
        )
    return milliseconds


@scenario("2.4.5/we-are-silent", "2.4.5-triggered", "2.4.5-01", "2.4.5-07", waits=True)
def we_are_silent(broker: Broker) -> None:
    """A client that says nothing for longer than the broker's threshold gets close with an error."""
    peer, opened = broker.opened()
    milliseconds = _announced(opened)
    peer.expect_close(ANY_ERROR, timeout_s=milliseconds / 1000 * 4)


@scenario("2.4.5/threshold-is-twice", "2.4.5-02", waits=True)
def threshold_is_twice(broker: Broker) -> None:
    """What is announced is half the threshold: silence of one and a quarter of it does no harm."""
    peer, opened = broker.opened()
    milliseconds = _announced(opened)
    peer.expect_nothing(Close, within_s=milliseconds / 1000 * 1.25)


@scenario("2.4.5/empty-frames-suffice", "2.4.5-empty", "2.4.5-triggered", waits=True)
def empty_frames_suffice(broker: Broker) -> None:
    """Empty frames within the broker's idle-time-out keep the connection."""
    peer, opened = broker.opened()
    milliseconds = _announced(opened)
    for _ in range(6):
        peer.expect_nothing(Close, within_s=milliseconds / 1000 * 0.6)
        peer.send_empty_frame()
