"""What all readers of retained nodes share: the logs by address, the cursors, the turns, and who waits for
more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from amqp_broker.addresses import Address, AddressError, parse_address
from amqp_broker.authorisation import BROWSE, MANAGE_READ, Principal
from amqp_broker.configuration_limits import BrokerLimits
from amqp_broker.nodes.refusals import NodeRefused
from amqp_broker.page_turns import PageReader
from amqp_broker.persistence import JOURNAL_ID, Retain, Retained, Store, Unit
from amqp_broker.persistence.questions import RetainedBy
from amqp_broker.retained.cursors import Cursors
from amqp_broker.retained.filters import NOT_ALLOWED
from amqp_broker.retained.logs import EVENTS, JournalLog, QueueLog, RetainedLog

if TYPE_CHECKING:
    from amqp_broker.broker_nodes import BrokerNodes
    from amqp_broker.queue import Queue
    from amqp_broker.queues import Site


class Waiter(Protocol):
    """Something that waits until a log has grown."""

    def grown(self) -> None:
        """The log has grown; called once."""


def check_retains(name: str, retains: bool) -> None:
    """Raises NodeRefused for a queue that cannot be read by offset."""
    if not retains:
        raise NodeRefused(
            NOT_ALLOWED,
            f"queue {name!r} retains nothing: the [[queue]] of the configuration whose pattern fits it has "
            "to say retention_ms or retention_bytes",
        )


class RetainedNodes:
    """The nodes of one broker that can be read by offset, and their readers."""

    def __init__(self, nodes: BrokerNodes) -> None:
        self.nodes = nodes
        self.turns = nodes.turns
        self.cursors = Cursors(nodes, self.turns)
        self.events = JournalLog(nodes.clock)
        self._logs: dict[Queue, QueueLog] = {}
        self._waiting: dict[RetainedLog, dict[Waiter, int]] = {}
        self._readers = 0

    @property
    def limits(self) -> BrokerLimits:
        """Those that hold now."""
        return self.nodes.config.limits

    # At the start

    def recover(self, store: Store) -> Unit:
        """Take up what the store has; returns the verbs that tell it the configuration. Before the writer
        runs.
        """
        self.events.bounds(store)
        self.cursors.recover(store)
        unit: Unit = []
        for queue in self.nodes.queues.queues():
            verb = self.changed(queue, store.ask(RetainedBy(queue.queue_id)))
            if verb is not None:
                unit.append(verb)
        return unit

    def changed(self, queue: Queue, stored: Retained | None) -> Retain | None:
        """The verbs that tell the store how `queue` is retained, where it knows otherwise."""
        policy = self.nodes.queues.policy_of(queue)
        before = (0, 0) if stored is None else (stored.keep_ms, stored.keep_bytes)
        if before == (policy.retention_ms, policy.retention_bytes):
            return None
        return Retain(queue.queue_id, policy.retention_ms, policy.retention_bytes)

    # Logs

    def log_of(self, queue: Queue) -> QueueLog:
        """The log of a queue that retains. Raises NodeRefused."""
        found = self._logs.get(queue)
        if found is None:
            check_retains(queue.name, queue.retains)
            found = self._logs[queue] = QueueLog(queue, self.nodes.clock)
        return found

    def log_at(self, principal: Principal, address: object) -> RetainedLog:
        """The log that is read at an address that exists. Raises NodeRefused."""
        try:
            parsed = parse_address(address, self.limits.address_bytes)
        except AddressError as error:
            raise NodeRefused("amqp:invalid-field", str(error)) from None
        if not self.may_read(principal, parsed.name):
            raise NodeRefused(
                "amqp:unauthorized-access", f"{principal.rule_name!r} may not read {parsed.name!r} by offset"
            )
        if parsed.name == EVENTS:
            return self.events
        queue = self.nodes.queues.find(parsed.name)
        if queue is None:
            raise NodeRefused("amqp:not-found", f"no queue {parsed.name!r}")
        return self.log_of(queue)

    def site(self, principal: Principal, address: str) -> Site | None:
        """Where a queue stands, or would be made on first use, that a link reads by offset; None: it reads
        the journal. Raises NodeRefused.
        """
        if address != EVENTS:
            site = self.nodes.site(principal, address, BROWSE)
            check_retains(site.name, site.retains)
            return site
        if not self.may_read(principal, address):
            raise NodeRefused(
                "amqp:unauthorized-access", f"{principal.rule_name!r} may not read the journal"
            )
        return None

    def is_log(self, address: str) -> bool:
        """Whether the queue of this name is a log, or would be one."""
        return self.nodes.queues.site_by_name(address).archives

    def may_read(self, principal: Principal, address: str) -> bool:
        """Whether `principal` may read there by offset."""
        authorise = self.nodes.authoriser.authorise
        if address == EVENTS:
            return authorise(principal, MANAGE_READ)
        return authorise(principal, BROWSE, Address(address))

    def logs(self, principal: Principal | None = None) -> list[RetainedLog]:
        """Everything that can be read by offset, by that principal or at all, in the order of addresses."""
        queues = sorted(
            [queue for queue in self.nodes.queues.queues() if queue.retains], key=lambda queue: queue.name
        )
        found: list[RetainedLog] = [self.events, *[self.log_of(queue) for queue in queues]]
        if principal is None:
            return found
        return [log for log in found if self.may_read(principal, log.address)]

    def addresses(self) -> dict[int, str]:
        """The addresses of all logs by their ids."""
        found = {queue.queue_id: queue.name for queue in self.nodes.queues.queues()}
        found[JOURNAL_ID] = EVENTS
        return found

    # Readers

    def admit_reader(self) -> None:
        """One more link reads. Raises NodeRefused at the bound."""
        most = self.limits.max_retained_readers
        if self._readers >= most:
            raise NodeRefused(
                "amqp:resource-limit-exceeded",
                f"{most} links read by offset, as many as max_retained_readers allows",
            )
        self._readers += 1

    def reader_gone(self) -> None:
        """One link less reads."""
        self._readers -= 1

    def forget_reader(self, reader: PageReader) -> None:
        """The link of `reader` is gone."""
        self.turns.forget(reader)
        self.reader_gone()

    # Who waits for more

    def wait(self, log: RetainedLog, waiter: Waiter, known: int) -> None:
        """Have `waiter.grown()` called once when `log` has more than `known`, perhaps at once."""
        self._waiting.setdefault(log, {})[waiter] = known
        self.nodes.writer.after_commit = self._after_commit
        if log.end > known:
            self._tell(log)
        elif log is self.events:
            self.nodes.writer.read(self._look_at_events)  # it may have grown since the last look

    def wait_no_more(self, log: RetainedLog, waiter: Waiter) -> None:
        """`waiter` is gone; harmless when it does not wait."""
        waiting = self._waiting.get(log)
        if waiting is not None:
            waiting.pop(waiter, None)
            if not waiting:
                del self._waiting[log]

    def _look_at_events(self, store: Store) -> None:
        self.events.bounds(store)
        self._tell(self.events)

    def _after_commit(self, store: Store) -> None:
        """Wake who waits for a log that grew: a group was stored, and its operations have been told."""
        if self.events in self._waiting:
            self.events.bounds(store)
        for log in list(self._waiting):
            self._tell(log)
        if not self._waiting:
            self.nodes.writer.after_commit = None

    def _tell(self, log: RetainedLog) -> None:
        waiting = self._waiting.get(log)
        if not waiting:
            return
        end = log.end
        woken = [waiter for waiter, known in waiting.items() if end > known]
        for waiter in woken:
            del waiting[waiter]
        if not waiting:
            del self._waiting[log]
        for waiter in woken:
            waiter.grown()
