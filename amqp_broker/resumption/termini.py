"""All termini that outlive their links: who gets one, which one a link resumes, and when they end.

    attach: `wished`, then `sink` or `source`
        take_up --the link is still attached elsewhere--> that one is stolen, and waited for
                --what it left is under way to the store--> waited for
        the maps of both sides are compared --> our attach has what is unsettled in both
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import trio

from amqp_broker.frames import Error
from amqp_broker.links import ReceiverLink
from amqp_broker.log_setup import logger
from amqp_broker.nodes.node import Attachment
from amqp_broker.nodes.queue_sink import PostRule
from amqp_broker.nodes.queues import SETTLED_MODE, Lasting
from amqp_broker.nodes.termini import COPY, LASTING_EXPIRIES
from amqp_broker.queue import Queue
from amqp_broker.queues import NodeRefused
from amqp_broker.resumption.sinks import LastingSink
from amqp_broker.resumption.sources import LastingSource
from amqp_broker.resumption.terminus import Key, Terminus

if TYPE_CHECKING:
    from amqp_broker.broker_nodes import BrokerNodes

NEVER: Final = "never"
CONNECTION_CLOSE: Final = "connection-close"


class LastingTermini(Lasting):
    """Those of one broker."""

    def __init__(self, nodes: BrokerNodes) -> None:
        self._nodes = nodes
        self._termini: dict[Key, Terminus] = {}
        self._log = logger("resumption")

    def __len__(self) -> int:
        return len(self._termini)

    def wished(self, attachment: Attachment) -> tuple[str, int] | None:
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
        most_s = limits.lasting_terminus_s
        if asked.expiry_policy == NEVER:
            return CONNECTION_CLOSE, most_s
        return asked.expiry_policy, min(asked.timeout, most_s)

    async def sink(self, attachment: Attachment, queue: Queue, rule: PostRule | None) -> LastingSink:
        """The sink that remembers the outcomes of what it takes. Raises NodeRefused."""
        terminus = await self._free(attachment)
        sink = LastingSink(attachment, queue, self._nodes, rule, terminus, self.link_gone)
        with self._taking_up(terminus, sink, attachment):
            await self._stored()
            sink.compare(attachment)
        return sink

    async def source(self, attachment: Attachment, queue: Queue) -> LastingSource:
        """The source that goes on with what its former link left. Raises NodeRefused."""
        terminus = await self._free(attachment)
        if terminus.queue not in (None, queue):
            terminus.give_up()  # another source now: what is of the former one returns
        source = LastingSource(attachment, queue, self._nodes, terminus, self.link_gone)
        with self._taking_up(terminus, source, attachment):
            await self._stored()
            if source.compare(attachment):
                await self._stored()
        return source

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
                terminus = self._termini[key] = Terminus(key, self.timed_out)
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

    async def _stored(self) -> None:
        """Wait until all is decided that is under way to the store: what we say of it is a promise."""
        await self._nodes.store_step([])

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

    def superseded(self, attachment: Attachment) -> None:
        """Its peer attaches a link that is not to be resumed: what waits under this name has ended."""
        terminus = self._termini.get(attachment.connection.key_of(attachment.link))
        if terminus is not None and terminus.user is None:
            self._end(terminus)

    def timed_out(self, terminus: Terminus) -> None:
        """No link has come for it in time: what it held goes back, what it remembered is forgotten."""
        self._log.info(
            "terminus.expired", container_id=terminus.key[1], name=terminus.key[3],
            held=len(terminus.held), outcomes=len(terminus.outcomes),
        )  # fmt: skip
        self._end(terminus)

    def _end(self, terminus: Terminus) -> None:
        self._termini.pop(terminus.key, None)
        self._nodes.timers.forget(terminus)
        terminus.wait_no_more()
        terminus.forget_live()
        terminus.give_up()
