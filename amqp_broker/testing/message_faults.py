"""What goes wrong with single messages and attaches, which are chosen by number and address.

    faults.message(2, address="orders").reject("amqp:not-allowed", "not today")
    faults.message().reset_after_commit()           # the next one is stored, and its sender never learns it
    faults.attach(address="orders").refuse("amqp:unauthorized-access")

    engine --DeliveriesReceived--> MessageFault where one is due --> sink of the link

What the client sent was received by then: windows, credit and numbers go on as if nothing had happened.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import trio

from amqp_broker.frames import Error, Modified, Released
from amqp_broker.links import AttachReceived, DeliveriesReceived, Delivery, ReceiverLink, RunsReceived

if TYPE_CHECKING:
    from amqp_broker.connection import Sink
    from amqp_broker.connection_task import ConnectionTask

SCRIPTED = "scripted"
INTERNAL_ERROR = "amqp:internal-error"

Happens = Callable[["Watched", "Sink", DeliveriesReceived], None]
"""Called with an event of the one delivery that is hit."""


class Countdown:
    """Fires from the n-th time on, `count` times."""

    def __init__(self, nth: int, count: int = 1) -> None:
        if nth < 1 or count < 1:
            raise ValueError(f"expected nth and count from 1 on, got {nth} and {count}")
        self.nth = nth
        self.fired = False
        self._before = nth - 1
        self._left = count

    def fires(self) -> bool:
        """Count one; whether it is hit."""
        if self._before:
            self._before -= 1
            return False
        if self._left:
            self._left -= 1
            self.fired = True
            return True
        return False


def expect_seconds(seconds: object) -> float:
    """A time that can be waited for. Raises ValueError."""
    if not isinstance(seconds, int | float) or not 0 <= seconds < float("inf"):
        raise ValueError(f"expected a number of seconds from 0 on, got {seconds!r:.80}")
    return seconds


def expect_error(condition: object, text: object) -> Error:
    """An error of the wire. Raises ValueError for what is no condition or no text."""
    if not isinstance(condition, str) or not condition.isascii() or " " in condition or not condition:
        raise ValueError(f"expected a condition such as amqp:not-allowed, got {condition!r:.80}")
    if not isinstance(text, str):
        raise ValueError(f"expected a text that says why, got {text!r:.80}")
    return Error(condition=condition, description=text)


class Resettable(Protocol):
    """The stream of a connection that can be cut."""

    def reset(self) -> None:
        """Cut it now."""

    def reset_at_outcome(self, channel: int, delivery_id: int) -> None:
        """Cut it when the outcome of this delivery is about to be sent."""


class Chosen:
    """The n-th of those that have this address, counted from when it was scripted."""

    def __init__(self, script: list[Any], countdown: Countdown, address: str | None) -> None:
        self._script = script
        self._countdown = countdown
        self._address = address

    @property
    def happened(self) -> bool:
        """Whether one was hit."""
        return self._countdown.fired

    def hit(self, address: object) -> bool:
        """Count one; whether it is hit."""
        return (self._address is None or self._address == address) and self._countdown.fires()

    def _described(self, kind: str) -> str:
        where = "" if self._address is None else f" to {self._address!r}"
        return f"{kind} {self._countdown.nth}{where}"


class MessageFault(Chosen):
    """What happens to the chosen messages that a client sends; one of the methods says it, and returns it, so
    that its `happened` can be waited for.
    """

    happens: Happens

    def __str__(self) -> str:
        return self._described("message")

    def _is(self, happens: Happens) -> MessageFault:
        self.happens = happens
        self._script.append(self)
        return self

    def reject(self, condition: str = INTERNAL_ERROR, text: str = SCRIPTED) -> MessageFault:
        """It is rejected with this error."""
        return self._is(partial(_reject, expect_error(condition, text)))

    def release(self) -> MessageFault:
        """It is released: its sender may send it again."""
        return self._is(partial(_settle, Released()))

    def modify(self, *, delivery_failed: bool = True, undeliverable_here: bool = False) -> MessageFault:
        """Its outcome is modified."""
        state = Modified(delivery_failed=delivery_failed, undeliverable_here=undeliverable_here)
        return self._is(partial(_settle, state))

    def drop(self) -> MessageFault:
        """It is lost: nothing of it is stored, and its sender never hears of it. When that closes its link,
        it waits for the outcome as long as `outcome_wait_ms` says.
        """
        return self._is(lambda watched, sink, event: _forget(sink, event))

    def delay(self, seconds: float) -> MessageFault:
        """It arrives so much later, by the clock of the broker; what comes behind it overtakes it."""
        return self._is(partial(_delay, expect_seconds(seconds)))

    def duplicate(self) -> MessageFault:
        """It arrives twice."""
        return self._is(_duplicate)

    def reset_before_commit(self) -> MessageFault:
        """Its connection is reset before its commit, which then happens."""
        return self._is(_reset_before)

    def reset_after_commit(self) -> MessageFault:
        """Its connection is reset after its commit, when its outcome was about to be sent; so not where its
        sender has settled it.
        """
        return self._is(_reset_after)


class AttachFault(Chosen):
    """What happens to the chosen attaches."""

    error: Error

    def __str__(self) -> str:
        return self._described("attach")

    def refuse(self, condition: str = INTERNAL_ERROR, text: str = SCRIPTED) -> AttachFault:
        """It is refused with this error."""
        self.error = expect_error(condition, text)
        self._script.append(self)
        return self


class Watched:
    """One connection on which such faults may happen."""

    def __init__(
        self, task: ConnectionTask, stream: Resettable, messages: list[MessageFault],
        attaches: list[AttachFault],
    ) -> None:  # fmt: skip
        self.stream = stream
        self.connection = task.connection
        self._log = task.log
        self._messages = messages
        self._attaches = attaches
        task.wrap_handler(DeliveriesReceived, self._receiving)
        task.wrap_handler(RunsReceived, self._receiving_runs)
        task.wrap_handler(AttachReceived, self._attaching)

    def _receiving(self, handler: Callable[[DeliveriesReceived], None]) -> Callable[[Any], None]:
        def receive(event: DeliveriesReceived) -> None:
            if not self._messages or event.link.context is None:
                handler(event)
                return
            unharmed: list[Delivery] = []
            for delivery in event.deliveries:
                # Each counts, so that two faults may be about the same message.
                hit = [each for each in self._messages if each.hit(address_of(event.link))]
                if not hit:
                    unharmed.append(delivery)
                    continue
                if unharmed:
                    handler(DeliveriesReceived(event.link, unharmed))
                    unharmed = []
                one = DeliveriesReceived(event.link, [delivery])
                sink = event.link.context
                if sink is None or sink.ended:
                    handler(one)
                else:
                    hit[0].happens(self, sink, one)
            if unharmed:
                handler(DeliveriesReceived(event.link, unharmed))

        return receive

    def _receiving_runs(self, handler: Callable[[RunsReceived], None]) -> Callable[[Any], None]:
        each = self._receiving(self.connection.on_deliveries)

        def receive(event: RunsReceived) -> None:
            if not self._messages:
                handler(event)
                return
            for at, run in enumerate(event.runs, 1):
                each(run)
                if self.connection.held_for is not None and at < len(event.runs):
                    self.connection.hold_behind(partial(receive, RunsReceived(event.runs[at:])))
                    return

        return receive

    def _attaching(self, handler: Callable[[AttachReceived], Any]) -> Callable[[Any], Any]:
        async def attach(event: AttachReceived) -> None:
            sends = isinstance(event.link, ReceiverLink)
            node = event.attach.target if sends else event.attach.source
            hit = [each for each in self._attaches if each.hit(getattr(node, "address", None))]
            if not hit or not event.link.session.writable:
                await handler(event)
                return
            error = hit[0].error
            event.link.refuse(error)
            self._log.info(
                "link.refused", name=event.link.name, condition=error.condition, reason=error.description
            )

        return attach


def address_of(link: ReceiverLink) -> object:
    """Where the messages of a link go; None for the anonymous terminus."""
    return getattr(link.target, "address", None)


def _reject(error: Error, watched: Watched, sink: Sink, event: DeliveriesReceived) -> None:
    sink.undecided += 1
    sink.refuse_each(event.deliveries, error)


def _settle(state: Any, watched: Watched, sink: Sink, event: DeliveriesReceived) -> None:
    if not event.deliveries[0].settled:
        sink.link.settle(event.deliveries, state)
    _forget(sink, event)


def _forget(sink: Sink, event: DeliveriesReceived) -> None:
    """Nothing more is done with it, and a transaction that it names can't be committed."""
    sink.lose(event.deliveries, SCRIPTED)
    sink.undecided += 1
    sink.processed(1)


def _delay(seconds: float, watched: Watched, sink: Sink, event: DeliveriesReceived) -> None:
    async def later() -> None:
        await trio.sleep(seconds)
        watched.connection.run_in_turn(watched.connection.on_deliveries, event)

    trio.lowlevel.spawn_system_task(later)


def _duplicate(watched: Watched, sink: Sink, event: DeliveriesReceived) -> None:
    watched.connection.on_deliveries(event)
    of = event.deliveries[0]
    copy = Delivery(of.delivery_id, of.delivery_tag, of.message_format, True, of.payload, of.state, 0, False)
    watched.connection.on_deliveries(DeliveriesReceived(event.link, [copy]))


def _reset_before(watched: Watched, sink: Sink, event: DeliveriesReceived) -> None:
    watched.stream.reset()
    watched.connection.on_deliveries(event)


def _reset_after(watched: Watched, sink: Sink, event: DeliveriesReceived) -> None:
    watched.stream.reset_at_outcome(event.link.session.channel, event.deliveries[0].delivery_id)
    watched.connection.on_deliveries(event)
