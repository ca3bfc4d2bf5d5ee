"""The configuration is read again while the broker runs.

    read and check the file, and the files that it names     in a worker thread; what is wrong changes nothing
    --> Plan --> all of it at once, between two commits, in one turn of the loop
    --> queues that are wanted from the start are made, as at a start

Connections end whose users may not do any more what they may have done (`logins`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

import attrs
import trio

from amqp_broker.addresses import RESERVED_PREFIX
from amqp_broker.authentication import Authenticator
from amqp_broker.configuration import DEAD_LETTERS, BrokerConfig, ConfigurationError
from amqp_broker.listener import field_of, tls_of
from amqp_broker.listener_tls import ListenError, ListenerTls
from amqp_broker.log_setup import logger, reconfigure_logging
from amqp_broker.machine_memory import memory_bytes
from amqp_broker.nodes.refusals import NodeRefused
from amqp_broker.persistence import Store, StoreError
from amqp_broker.reloading.logins import CONDITION, LoginChanges
from amqp_broker.reloading.plan import Plan, Standing, for_standing, planned

if TYPE_CHECKING:
    from amqp_broker.broker_nodes import BrokerNodes
    from amqp_broker.connection_task import ConnectionTask
    from amqp_broker.features import Features
    from amqp_broker.listener import OpenListener
    from amqp_broker.operations.writer import Writer

TOLD_MAX: Final = 100
"""So many changes are told one by one, in an answer and in the log: 50,000 new users are a number."""

Read = Callable[[], BrokerConfig]
"""Reads the configuration. Raises ConfigurationError."""


class Reloadable(Protocol):
    """The broker, as far as a reload knows it."""

    nodes: BrokerNodes
    features: Features
    writer: Writer
    configured_listeners: list[OpenListener]
    authenticator: Authenticator

    @property
    def config(self) -> BrokerConfig:
        """What holds now."""

    def connections(self) -> list[ConnectionTask]:
        """Those that there are."""

    def take_up(self, authenticator: Authenticator, memory_bytes: int) -> None:
        """What is made of the configuration for connections is made again."""


class ReloadRefused(Exception):
    """Nothing was changed, and why."""


@attrs.frozen
class Reloaded:
    """What a reload did: what differs from before, what waits for the next start, how many connections were
    closed, and which queues that the file wants could not be made, and why.
    """

    changed: tuple[str, ...]
    waits: tuple[str, ...]
    closed_connections: int
    not_made: tuple[str, ...]


@attrs.frozen
class _Prepared:
    """Everything that can go wrong has not."""

    before: BrokerConfig
    standing: Mapping[str, Standing]
    plan: Plan
    authenticator: Authenticator
    tls: tuple[ListenerTls | None, ...]
    other_files: tuple[str, ...]
    memory_bytes: int
    logins: LoginChanges


async def reload(broker: Reloadable, read: Read) -> Reloaded:
    """Have what `read` gives hold from now on, as far as it can. Raises ReloadRefused."""
    log = logger("broker")
    try:
        done = await _reload(broker, read)
    except (ConfigurationError, ListenError) as error:
        log.error("configuration.refused", reason=str(error))
        raise ReloadRefused(str(error)) from None
    except StoreError as error:
        log.error("configuration.refused", reason=str(error))
        raise ReloadRefused(f"the broker ends: {error}") from None
    log.info(
        "configuration.reloaded", changed=len(done.changed), waits=len(done.waits),
        closed_connections=done.closed_connections,
    )  # fmt: skip
    for what in told(done.changed):
        log.info("configuration.changed", what=what)
    for what in told(done.waits):
        log.warning("configuration.waits_for_start", what=what)
    for what in told(done.not_made):
        log.error("configuration.queue_not_made", what=what)
    return done


def told(lines: tuple[str, ...]) -> list[str]:
    """These lines, or the first ones and how many more there are."""
    more = len(lines) - TOLD_MAX
    return [*lines[:TOLD_MAX], *([f"and {more} more"] if more > 0 else [])]


async def _reload(broker: Reloadable, read: Read) -> Reloaded:
    while True:
        before, standing = broker.config, _standing(broker)
        prepared = await trio.to_thread.run_sync(_prepared, broker, before, read, standing)
        async with broker.nodes.queues.creating:  # what is being made is as the former policy says
            done = await broker.writer.ask(partial(_apply, broker, prepared))
        if done is not None:
            return attrs.evolve(done, not_made=tuple(await _make_queues(broker)))
        # management changed a key in the meantime, or the broker has just begun to listen


def _standing(broker: Reloadable) -> list[Standing]:
    """The queues that there are, but those that belong to features."""
    queues, subscriptions = broker.nodes.queues, broker.features.topics.subscriptions()
    found = []
    for queue in queues.queues():
        name, configured = queue.name, queues.configured(queue)
        subscription = subscriptions.get(name)
        if subscription is not None:
            found.append(Standing(name, subscription.wish.pattern.text, True, configured))
        elif not name.startswith(RESERVED_PREFIX):
            found.append(Standing(name, name, False, configured))
    return found


def _prepared(broker: Reloadable, before: BrokerConfig, read: Read, standing: list[Standing]) -> _Prepared:
    """Read and check everything. Changes nothing; runs in a thread of its own."""
    plan = planned(before, read(), standing)
    config = plan.config
    authenticator = Authenticator(config, broker.authenticator)
    tls, other_files = [], []
    authorities: dict[str | None, str | None] = {}
    for listener in broker.configured_listeners:
        place = listener.place
        found = tls_of(config.listeners[place], place, config.certificates)
        if found is not None and listener.tls is not None:
            if found.versions != listener.tls.versions:
                other_files.append(f"{field_of(place)}: its certificates, by name or by content")
            if found.is_as(listener.tls):
                found = listener.tls  # who shakes hands with it just now goes on
        tls.append(found)
        if found is not None:
            authorities[config.listeners[place].client_ca_file] = found.client_ca
    return _Prepared(
        before, {one.name: one for one in standing}, plan, authenticator, tuple(tls),
        tuple(dict.fromkeys(other_files)), memory_bytes(config),
        LoginChanges(before, config, authenticator, authorities),
    )  # fmt: skip


def _apply(broker: Reloadable, prepared: _Prepared, _store: Store) -> Reloaded | None:
    """Everything at once, and what was done. None where it was prepared for another configuration than the
    one that holds by now, or for other listeners; then nothing has changed.
    """
    if broker.config is not prepared.before or len(broker.configured_listeners) != len(prepared.tls):
        return None
    nodes, plan = broker.nodes, prepared.plan
    config, waits = plan.config, [*plan.waits]
    new = [one for one in _standing(broker) if prepared.standing.get(one.name) != one]  # made meanwhile
    policies = {**plan.policies, **for_standing(config, new, waits)}
    # From here on nothing is refused.
    nodes.config = nodes.config_at_start = config
    nodes.authoriser = prepared.logins.authoriser
    broker.take_up(prepared.authenticator, prepared.memory_bytes)
    _take_up_listeners(broker, prepared)
    reconfigure_logging(config)
    changed = nodes.queues.reconfigure(config, policies)
    dead_letters = nodes.queues.find(DEAD_LETTERS)
    if dead_letters is not None:  # the limits bound it, where its policy has no bounds
        nodes.queues.change(dead_letters, nodes.queues.policy_of(dead_letters))
    for queue in changed:
        nodes.drained(queue)
    closed = _end_connections(broker, prepared.logins)
    return Reloaded((*plan.changed, *prepared.other_files), tuple(dict.fromkeys(waits)), closed, ())


def _take_up_listeners(broker: Reloadable, prepared: _Prepared) -> None:
    listeners = prepared.plan.config.listeners
    now = dict(zip(prepared.before.listeners, listeners, strict=True))
    for listener, tls in zip(broker.configured_listeners, prepared.tls, strict=True):
        listener.config, listener.tls = listeners[listener.place], tls
    for task in broker.connections():
        task.peer.listener = now.get(task.peer.listener, task.peer.listener)


def _end_connections(broker: Reloadable, logins: LoginChanges) -> int:
    """Those whose users may not do any more what they did, and those that are logging in. The others have
    their new roles.
    """
    ended = 0
    for task in broker.connections():
        principal = task.connection.principal
        if task.opened:
            why = logins.why_ended(principal, task.peer)
        else:
            why = logins.why_not_logged_in(task.peer)
        if why:
            ended += 1
            task.stop("the configuration was reloaded", why, CONDITION)
        else:
            task.connection.principal = logins.renewed(principal)
    return ended


async def _make_queues(broker: Reloadable) -> list[str]:
    """Make what the file wants from the start and is not there; what could not be made, and why."""
    queues, problems = broker.nodes.queues, []
    for name in broker.config.queues_at_start():
        try:
            if queues.is_topic(name):
                problems.append(f"queue {name!r}: there is a topic of this name")
            else:
                await queues.create(name)
        except (NodeRefused, StoreError) as error:
            problems.append(f"queue {name!r}: {error}")
    return problems
