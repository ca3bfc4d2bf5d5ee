"""The events that wait for the caller; what comes one by one and belongs together becomes one run."""

from __future__ import annotations

from amqp_broker.frames.hot_frames import Delivery
from amqp_broker.links.deliveries import OutgoingDelivery
from amqp_broker.links.events import (
    CreditReceived,
    DeliveriesReceived,
    Event,
    OutcomesReceived,
    RunsReceived,
)
from amqp_broker.links.receiver_link import ReceiverLink
from amqp_broker.links.sender_link import SenderLink


class EventQueue:
    """Events in the order in which they happened."""

    __slots__ = ("_apart", "_credit_links", "_events")

    def __init__(self) -> None:
        self._events: list[Event] = []
        # The runs of links that are apart, since anything else was told; the last event has all of them.
        self._apart: dict[ReceiverLink, DeliveriesReceived] = {}
        self._credit_links: list[SenderLink] = []

    def waiting(self) -> bool:
        """Whether there are any."""
        return bool(self._events)

    def take(self) -> list[Event]:
        """All events that wait."""
        events = self._events
        if events:
            self._events = []
            self._apart.clear()
            for link in self._credit_links:
                link.told_credit()
            self._credit_links.clear()
        return events

    def tell(self, event: Event) -> None:
        """Adds an event."""
        self._apart.clear()
        self._events.append(event)

    def tell_credit(self, link: SenderLink) -> None:
        """Adds a CreditReceived; the link calls this once until the events are taken."""
        self._credit_links.append(link)
        self._apart.clear()
        self._events.append(CreditReceived(link))

    def tell_outcomes(
        self, link: SenderLink, deliveries: list[OutgoingDelivery], state: object, settled: bool
    ) -> None:
        """Adds outcomes; those of one link with the same state that come one by one become one run, which
        names each delivery once, in ascending order.
        """
        if self._events:
            last = self._events[-1]
            if (
                isinstance(last, OutcomesReceived)
                and last.link is link
                and last.state is state
                and last.settled is settled
                and last.deliveries[-1].number < deliveries[0].number
            ):
                last.deliveries.extend(deliveries)
                return
        self._apart.clear()
        self._events.append(OutcomesReceived(link, deliveries, state, settled))

    def deliveries_of(self, link: ReceiverLink) -> list[Delivery]:
        """The list of the run that is being told; a new one when something else was told in between, which
        runs of other links are not where both are `apart`: those are one event.
        """
        known = self._apart.get(link)
        if known is not None:
            return known.deliveries
        if self._events:
            last = self._events[-1]
            if isinstance(last, DeliveriesReceived) and last.link is link:
                return last.deliveries
        event = DeliveriesReceived(link, [])
        if link.apart and self._apart:
            self._runs().append(event)
        else:
            self._events.append(event)
        if link.apart:
            self._apart[link] = event
        else:
            self._apart.clear()
        return event.deliveries

    def _runs(self) -> list[DeliveriesReceived]:
        """Those of the last event, which is about links that are apart."""
        last = self._events[-1]
        if isinstance(last, RunsReceived):
            return last.runs
        assert isinstance(last, DeliveriesReceived), "nothing else was told since a link that is apart"
        several = RunsReceived([last])
        self._events[-1] = several
        return several.runs

    def drop_empty_run(self) -> None:
        """Takes back a run that stayed empty."""
        last = self._events[-1]
        if isinstance(last, RunsReceived):
            if not last.runs[-1].deliveries:
                self._apart.pop(last.runs.pop().link)
        elif isinstance(last, DeliveriesReceived) and not last.deliveries:
            self._events.pop()
            self._apart.pop(last.link, None)
