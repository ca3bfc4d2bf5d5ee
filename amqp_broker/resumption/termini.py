"""All termini that outlive their links: who gets one, which one a link resumes, and when they end. Those
that are durable outlive the broker, too.

    attach: `wished`, then `sink` or `source`
        take_up --the link is still attached elsewhere--> that one is stolen, and waited for
                --what it left is under way to the store--> waited for
        what was withheld since a restart is read
        the maps of both sides are compared, and stored where the terminus is durable
            --> our attach has what is unsettled in both
    start: `recover`; they wait for their links, with what is left of their time, and the queues withhold what
        they hold
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import trio

from amqp_broker.broker_nodes import WITHHELD_AT_ONCE, BrokerNodes
from amqp_broker.frames import DecodeError, Error, decode_state
from amqp_broker.links import ReceiverLink, TaggedDelivery
from amqp_broker.log_setup import logger
from amqp_broker.nodes.node import Attachment
from amqp_broker.nodes.queue_sink import PostRule
from amqp_broker.nodes.queues import SETTLED_MODE, Lasting
from amqp_broker.nodes.refusals import NodeRefused
from amqp_broker.nodes.termini import CONFIGURATION, COPY, LASTING_EXPIRIES, UNSETTLED_STATE
from amqp_broker.operations.posting import Step
from amqp_broker.persistence import ForgetTerminus, Record, RowDamaged, Store, StoredTerminus, StoreFull, Unit
from amqp_broker.persistence.questions import HeldBy, Termini, UnsettledOf
from amqp_broker.queue import Queue
from amqp_broker.resumption.sinks import LastingSink
from amqp_broker.resumption.sources import DurableSource, LastingSource
from amqp_broker.resumption.terminus import SECOND, Key, Terminus

NEVER: Final = "never"
CONNECTION_CLOSE: Final = "connection-close"


class LastingTermini(Lasting):
    """Those of one broker."""

    def __init__(self, nodes: BrokerNodes) -> None:
        self._nodes = nodes
        self._termini: dict[Key, Terminus] = {}
        self._last_number = 0  # of one in the store
        self._log = logger("resumption")

    def __len__(self) -> int:
        return len(self._termini)

    def recover(self, store: Store) -> None:
        """Take up the termini that the store has; nothing else runs yet. Raises StoreFailed."""
        try:
            found = [
                (stored, store.ask(UnsettledOf(stored.number)), store.ask(HeldBy(stored.number)))
                for stored in store.ask(Termini())
            ]
        except RowDamaged as error:
            self._log.error("terminus.damaged", reason=str(error))
            return
        now_ms = self._nodes.clock.now_ms()
        queues = {queue.queue_id: queue for queue in self._nodes.queues.queues()}
        for stored, states, held in found:
            self._last_number = stored.number
            key = (stored.user, stored.container, bool(stored.sends), stored.name)
            terminus = self._termini[key] = Terminus(key, self.timed_out, self._nodes.writer)
            terminus.number = stored.number
            terminus.expiry_policy, terminus.timeout_s = stored.expiry_policy, stored.timeout_s
            terminus.attachments = stored.attachments
            terminus.outcomes = dict(self._decoded(stored, states))
            self._withhold(terminus, held, queues, store)
            terminus.ends_at_ms = stored.ends_at_ms
            if stored.ends_at_ms:
                left_s = max(0, stored.ends_at_ms - now_ms) / 1_000
                self._nodes.timers.set(trio.current_time() + left_s, terminus)
            else:
                self._arm(terminus)  # the end of the broker was that of its link

    def _withhold(
        self, terminus: Terminus, held: dict[bytes, tuple[int, int]], queues: dict[int, Queue], store: Store
    ) -> None:
        """What the store says that it holds nobody else gets."""
        for delivery_tag, (queue_id, offset) in held.items():
            queue = queues.get(queue_id)
            if queue is not None:
                terminus.queue = queue
                terminus.withheld[delivery_tag] = offset
        if terminus.withheld:
            self._nodes.withhold(terminus.queue, store, sorted(terminus.withheld.values()))

    def _decoded(
        self, stored: StoredTerminus, states: dict[bytes, bytes]
    ) -> Iterator[tuple[bytes, object]]:
        for delivery_tag, state in states.items():
            try:
                yield delivery_tag, decode_state(state)
            except DecodeError as error:
                self._log.error("terminus.damaged", name=stored.name, reason=str(error))

    def wished(self, attachment: Attachment, *, persistent: bool = False) -> tuple[str, int, int] | None:
        """What the peer asks for by expiry-policy or timeout, as far as limits go. `session-end` without a
        timeout is what a peer says that says nothing (3.5.3): it asks for nothing.
        """
        attach = attachment.attach
        receives = isinstance(attachment.link, ReceiverLink)
        asked: Any = attach.target if receives else attach.source
        if asked.dynamic or attach.snd_settle_mode == SETTLED_MODE:
            return None
        if not asked.timeout and asked.expiry_policy not in LASTING_EXPIRIES:
            return None
        if not receives and asked.distribution_mode == COPY:
            return None
        limits = self._nodes.config.limits
        key = attachment.connection.key_of(attachment.link)
        if key not in self._termini and len(self._termini) >= limits.max_lasting_termini:
            raise NodeRefused(
                "amqp:resource-limit-exceeded",
                f"the broker has {limits.max_lasting_termini} termini that outlive their links, as many as "
                f"limits.max_lasting_termini allows",
            )
        durable = 0
        if asked.durable and persistent and not self._nodes.config.memory:
            # Where the peer sends in mode first nothing is unsettled once it is told (2.8.3).
            first = receives and attach.rcv_settle_mode != SECOND
            most = CONFIGURATION if first else UNSETTLED_STATE
            durable = min(asked.durable, most)
            self._check_name(key)
        most_s = limits.lasting_terminus_s
        if asked.expiry_policy == NEVER:
            return CONNECTION_CLOSE, most_s, durable
        return asked.expiry_policy, min(asked.timeout, most_s), durable

    def _check_name(self, key: Key) -> None:
        _, container, _, name = key
        size = len(container.encode()) + len(name.encode())
        most = self._nodes.config.limits.terminus_name_bytes
        if size > most:
            raise NodeRefused(
                "amqp:resource-limit-exceeded",
                f"expected a container-id and a link name of at most {most} octets together "
                f"(limits.terminus_name_bytes) for a durable terminus, got {size}",
            )

    async def sink(self, attachment: Attachment, queue: Queue, rule: PostRule | None) -> LastingSink:
        """The sink that remembers the outcomes of what it takes. Raises NodeRefused."""
        terminus = await self._free(attachment)
        sink = LastingSink(attachment, queue, self._nodes, rule, terminus, self.link_gone)
        with self._taking_up(terminus, sink, attachment):
            await self._stored([])
            sink.compare(attachment)
            await self._make_durable(terminus, attachment.answer.durable, {})
        return sink

    async def _make_durable(self, terminus: Terminus, durable: int, held: dict[bytes, Record]) -> None:
        """Have the store keep it as it is now, with what it has `held`, before our attach tells of it. Raises
        NodeRefused.
        """
        terminus.durable = durable
        if durable and not terminus.number:
            self._last_number += 1
            terminus.number = self._last_number
        if not terminus.number:
            return
        unit: Unit = [ForgetTerminus(terminus.number)]  # whatever was under this number
        if durable:
            unit += terminus.itself()
            unit += [*terminus.remembered([*terminus.outcomes]), *terminus.holding(held)]
        await self._stored(unit)
        if not durable:
            terminus.number = 0

    async def source(self, attachment: Attachment, queue: Queue) -> LastingSource:
        """The source that goes on with what its former link left. Raises NodeRefused."""
        terminus = await self._free(attachment)
        if terminus.queue not in (None, queue):
            self._give_up(terminus)  # another source now: what is of the former one returns
        durable = attachment.answer.durable
        kind = DurableSource if durable == UNSETTLED_STATE else LastingSource
        source = kind(attachment, queue, self._nodes, terminus, self.link_gone)
        with self._taking_up(terminus, source, attachment):
            await self._stored([])
            await self._take_withheld(terminus, source)
            applied = source.compare(attachment)
            try:
                if durable or terminus.number:
                    await self._make_durable(terminus, durable, source.unsettled())
                elif applied:
                    await self._stored([])
            except BaseException:
                source.restore()
                raise
        return source

    async def _take_withheld(self, terminus: Terminus, source: LastingSource) -> None:
        """Read what was withheld for the terminus since the broker was started: it holds that as before."""
        tags = {offset: tag for tag, offset in terminus.withheld.items()}
        offsets = sorted(tags)
        if offsets:
            terminus.owner = source
        for at in range(0, len(offsets), WITHHELD_AT_ONCE):
            part = offsets[at : at + WITHHELD_AT_ONCE]
            found = await self._nodes.writer.ask(partial(self._read_withheld, source.queue, part))
            for record in found:
                tag = tags[record.offset]
                terminus.held[tag] = TaggedDelivery(-1, source.link, record, tag)
            for offset in part:
                del terminus.withheld[tags[offset]]

    def _read_withheld(self, queue: Queue, offsets: list[int], store: Store) -> list[Record]:
        return self._nodes.take_withheld(queue, store, offsets)

    def _give_up(self, terminus: Terminus) -> None:
        """What it holds returns; also what was withheld for it since the broker was started."""
        terminus.give_up()
        offsets = sorted(terminus.withheld.values())
        terminus.withheld = {}
        queue = terminus.queue
        for at in range(0, len(offsets), WITHHELD_AT_ONCE):
            part = offsets[at : at + WITHHELD_AT_ONCE]
            self._nodes.writer.read(partial(self._return_withheld, queue, part))

    def _return_withheld(self, queue: Queue, offsets: list[int], store: Store) -> None:
        found = self._nodes.take_withheld(queue, store, offsets)
        queue.give_back(found)
        self._nodes.pump(queue)

    async def _free(self, attachment: Attachment) -> Terminus:
        """The terminus of the link, which nobody else uses. One that a connection still has which the peer
        does not use any more is stolen (2.6.1). Raises NodeRefused.
        """
        key = attachment.connection.key_of(attachment.link)
        terminus = self._termini.get(key)
        limits = self._nodes.config.limits
        with trio.move_on_after(limits.outcome_wait_ms / 1_000):
            while terminus is not None and terminus.user is not None:
                description = f"container {key[1]!r} attached {key[3]!r} on another connection"
                terminus.user.end(Error(condition="amqp:link:stolen", description=description))
                await terminus.left.wait()
                terminus = self._termini.get(key)
            if terminus is None:
                terminus = self._termini[key] = Terminus(key, self.timed_out, self._nodes.writer)
            return terminus
        raise NodeRefused(
            "amqp:resource-locked",
            f"link {key[3][:64]!r} is attached elsewhere, and did not end within {limits.outcome_wait_ms} ms "
            f"(limits.outcome_wait_ms)",
        )

    @contextmanager
    def _taking_up(self, terminus: Terminus, user: Any, attachment: Attachment) -> Iterator[None]:
        """It is `user`'s from now on; not if a fault comes between."""
        self._nodes.timers.forget(terminus)
        answer = attachment.answer
        terminus.begin(user, (answer.expiry_policy, answer.timeout))
        try:
            yield
        except BaseException:
            self.link_gone(terminus, user, False)
            raise

    async def _stored(self, verbs: Unit) -> None:
        """Wait until all is decided that is under way to the store, and these verbs: what we say of it is a
        promise. Raises NodeRefused.
        """
        try:
            await self._nodes.store_step(verbs)
        except StoreFull as full:
            raise NodeRefused("amqp:resource-limit-exceeded", str(full)) from None

    # The end

    def link_gone(self, terminus: Terminus, user: Any, ends: bool) -> None:
        """The link of `user` is gone; `ends`: so is the terminus."""
        if terminus.user is not user:
            return
        if ends:
            terminus.user = None
            terminus.left.set()
            self._end(terminus)
        else:
            terminus.link_gone(user.link, user.connection, partial(self._arm, terminus))

    def _arm(self, terminus: Terminus) -> None:
        """Its timer starts."""
        terminus.connection = None
        self._nodes.timers.set(trio.current_time() + terminus.timeout_s, terminus)
        if terminus.number:
            terminus.ends_at_ms = self._nodes.clock.now_ms() + 1_000 * terminus.timeout_s
            terminus.follow([])

    def superseded(self, attachment: Attachment) -> None:
        """Its peer attaches a link that is not to be resumed: what waits under this name has ended."""
        terminus = self._termini.get(attachment.connection.key_of(attachment.link))
        if terminus is not None and terminus.user is None:
            self._end(terminus)

    def timed_out(self, terminus: Terminus) -> None:
        """No link has come for it in time: what it held goes back, what it remembered is forgotten."""
        self._log.info(
            "terminus.expired", container_id=terminus.key[1], name=terminus.key[3],
            held=len(terminus.held) + len(terminus.withheld), outcomes=len(terminus.outcomes),
        )  # fmt: skip
        self._end(terminus)

    def _end(self, terminus: Terminus) -> None:
        self._termini.pop(terminus.key, None)
        self._nodes.timers.forget(terminus)
        terminus.wait_no_more()
        terminus.forget_live()
        self._give_up(terminus)
        if terminus.number:
            self._nodes.writer.defer(Step([ForgetTerminus(terminus.number)]))
            terminus.number = 0  # what is still under way for it keeps nothing
