"""What a configuration that was read again changes, as values: nothing is done here.

    what runs, what the file says, the queues that there are --planned--> Plan
        config      what holds from now on
        changed     what differs from what ran before, for people
        waits       what the file says, and only a start can do
        policies    what the file says of queues that are there, as far as it holds

A limit of a connection holds for those that begin from now on, what decides what a queue is for queues that
are made from now on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import attrs

from amqp_broker.configuration import BrokerConfig, ListenerConfig, QueuePolicy
from amqp_broker.configuration_fields import (
    SECRET,
    ConfigurationError,
    Problem,
    key_of,
    shown,
)
from amqp_broker.management.changing import BOUNDS, TRIES

AT_START: Final = (
    "container_id", "data_dir", "memory", "allow_unsafe_sqlite", "bindings", "aliases", "address_forms",
    "product", "product_version", "half_groups", "half_groups_on_first_use", "http",
    "tracing",
)  # fmt: skip
"""Of the top of the file: the store and the names that peers know, what is made of nodes at the start, and
the listener of HTTP, and the exporter of spans.
"""
LIMITS_AT_START: Final = (
    "event_keep_bytes", "event_keep_ms", "half_keep_bytes", "large_body_bytes", "half_asks_per_s",
    "max_streams", "max_temporary_streams", "retained_read_share_percent", "http_connections",
    "http_request_bytes", "http_timeout_ms", "max_backups_listed",
)  # fmt: skip
LIVE_OF_A_QUEUE: Final = (*BOUNDS, *TRIES, "dead_letter_address", "expiry_address")
"""Of a `[[queue]]`, looked at whenever something comes, fails or ends; all else decides what a queue is."""
_NOT_OF_A_QUEUE: Final = ("pattern", "create")  # they say which queues are meant, and are made


@attrs.frozen
class Standing:
    """A queue that is there: `address` is whose policy holds for it, which is a topic's (`copies`) for a
    subscription; `configured` is what the configuration said of it.
    """

    name: str
    address: str
    copies: bool
    configured: QueuePolicy


@attrs.frozen
class Plan:
    """What is to be done."""

    config: BrokerConfig
    changed: tuple[str, ...]
    waits: tuple[str, ...]
    policies: Mapping[str, QueuePolicy]


def planned(now: BrokerConfig, wanted: BrokerConfig, standing: Iterable[Standing] = ()) -> Plan:
    """From the configuration that runs to the one that is wanted. Raises ConfigurationError where what can be
    changed contradicts what only a start can.
    """
    waits: list[str] = []
    taken: dict[str, Any] = {
        "limits": _limits(now, wanted, waits),
        "listeners": _listeners(now, wanted, waits),
        "queue_policies": _queue_policies(now, wanted, waits),
    }
    for field in attrs.fields(BrokerConfig):
        name, before, after = field.name, getattr(now, field.name), getattr(wanted, field.name)
        if name in AT_START:
            waits += _differences(key_of(field), field, before, after)
        elif name not in taken:
            taken[name] = after
    try:
        config = attrs.evolve(now, **taken)
    except ConfigurationError as error:
        problems = [
            Problem(one.field, one.value, f"{one.allowed}; what only a start can change is as it was")
            for one in error.problems
        ]
        raise ConfigurationError(*problems) from None
    _check_it_opens_nothing(now, config)
    policies = for_standing(config, standing, waits)
    return Plan(config, tuple(_changes(now, config)), tuple(waits), policies)


def _check_it_opens_nothing(now: BrokerConfig, config: BrokerConfig) -> None:
    """A file that is empty or cut off, as while an editor writes it, is one without users and rules: that is
    believed at a start only. Raises ConfigurationError.
    """
    if config.open_access and not now.open_access:
        allowed = "must not all be gone: only a start can open the broker to everybody"
        raise ConfigurationError(Problem("user", None, f"users, rules and token issuers {allowed}"))
    for before, after in zip(now.listeners, config.listeners, strict=True):
        opens = config.anonymous_allowed(after) and not now.anonymous_allowed(before)
        if opens and after.anonymous is None:
            allowed = f"{after.url} must say anonymous = true: only a start believes that it needs no login"
            raise ConfigurationError(Problem("listener", None, allowed))


# What is taken of the file


def _limits(now: BrokerConfig, wanted: BrokerConfig, waits: list[str]) -> Any:
    held = {name: getattr(now.limits, name) for name in LIMITS_AT_START}
    for name, before in held.items():
        after = getattr(wanted.limits, name)
        if after != before:
            waits.append(_said(f"limits.{name}", after, before))
    try:
        return attrs.evolve(wanted.limits, **held)
    except ConfigurationError as error:
        raise error.within("limits") from None


def _listeners(now: BrokerConfig, wanted: BrokerConfig, waits: list[str]) -> tuple[ListenerConfig, ...]:
    """Those that are open, with what the file says of the same URL."""
    left = [*wanted.listeners]
    found = []
    for index, before in enumerate(now.listeners):
        after = next((each for each in left if each.url == before.url), None)
        if after is None:
            waits.append(f"listener {before.url}: gone")
            found.append(before)
            continue
        left.remove(after)
        if after.backlog_sockets != before.backlog_sockets:
            key = f"listener[{index}].backlog_sockets"
            waits.append(_said(key, after.backlog_sockets, before.backlog_sockets))
        found.append(attrs.evolve(after, backlog_sockets=before.backlog_sockets))
    waits += [f"listener {each.url}: new" for each in left]
    return tuple(found)


def _queue_policies(now: BrokerConfig, wanted: BrokerConfig, waits: list[str]) -> tuple[QueuePolicy, ...]:
    """Those of the file. A queue that gets dead letters is made for that, at the start: what sends them to
    another one waits, and what ran for its pattern goes on.
    """
    known = now.dead_letter_addresses()
    before = {policy.pattern: policy for policy in now.queue_policies}
    found = []
    for policy in wanted.queue_policies:
        new = {policy.dead_letter_address, policy.expiry_address or policy.dead_letter_address} - known
        if new:
            names = ", ".join(sorted(new))
            why = f"its dead letters go to a queue that gets none yet: {names}"
            waits.append(f'queue "{policy.pattern}": {why}')
            if policy.pattern in before:
                found.append(before[policy.pattern])
        else:
            found.append(policy)
    return tuple(found)


def for_standing(
    config: BrokerConfig, standing: Iterable[Standing], waits: list[str]
) -> dict[str, QueuePolicy]:
    """What is configured of queues that are there from now on, where that is something else; `waits` is
    added to.
    """
    found: dict[str, QueuePolicy] = {}
    held: Counter[str] = Counter()
    for one in standing:
        policy = config.policy_of(one.address)
        if one.copies and not policy.copies:
            policy = QueuePolicy(pattern="**")
        if policy == one.configured:
            continue
        for field in attrs.fields(QueuePolicy):
            after = getattr(policy, field.name)
            is_held = field.name not in (*LIVE_OF_A_QUEUE, *_NOT_OF_A_QUEUE)
            if is_held and after != getattr(one.configured, field.name):
                held[f'queue "{policy.pattern}": {key_of(field)} = {shown(after)}'] += 1
        try:
            new = attrs.evolve(
                one.configured, **{name: getattr(policy, name) for name in LIVE_OF_A_QUEUE}
            )
        except ConfigurationError as error:
            held[f'queue "{policy.pattern}": {error.problems[0]}'] += 1
            continue
        if new != one.configured:
            found[one.name] = new
    waits += [f"{what}, of queues that are there ({count})" for what, count in held.items()]
    return found


# What is said of it


def _changes(now: BrokerConfig, after: BrokerConfig) -> Iterator[str]:
    for field in attrs.fields(BrokerConfig):
        key, before, then = key_of(field), getattr(now, field.name), getattr(after, field.name)
        if field.name == "users":
            yield from _of_tables("user", "name", before, then)
        elif field.name == "queue_policies":
            yield from _of_tables("queue", "pattern", before, then)
        elif field.name == "token_issuers":
            yield from _of_tables("token_issuer", "issuer", before, then)
        elif field.name == "certificates":
            yield from _of_tables("certificate", "server_names", before, then)
        elif field.name == "listeners":
            for index, (one, other) in enumerate(zip(before, then, strict=True)):
                yield from _of_table(f"listener[{index}].", one, other)
        elif field.name == "access_rules":
            new, gone = Counter(then) - Counter(before), Counter(before) - Counter(then)
            if new or gone:
                yield f"access: {new.total()} new, {gone.total()} gone"
        else:
            yield from _differences(key, field, before, then)


def _of_tables(kind: str, named_by: str, before: Iterable[Any], after: Iterable[Any]) -> Iterator[str]:
    """Of tables that have a name."""
    was, now = ({getattr(each, named_by): each for each in tables} for tables in (before, after))
    for name, each in now.items():
        if name not in was:
            yield f"{kind} {shown(name)}: new"
        else:
            yield from _of_table(f"{kind} {shown(name)}: ", was[name], each)
    yield from (f"{kind} {shown(name)}: gone" for name in was if name not in now)


def _of_table(before_key: str, was: Any, now: Any) -> Iterator[str]:
    for field in attrs.fields(type(now)):
        one, other = getattr(was, field.name), getattr(now, field.name)
        if field.metadata.get(SECRET):
            if one != other:
                yield f"{before_key}{key_of(field)} is another one"
        else:
            yield from _differences(before_key + key_of(field), field, one, other)


def _differences(key: str, field: Any, before: Any, after: Any) -> Iterator[str]:
    """Of one key: a table's by its keys, of an array of tables only that it differs."""
    if before == after:
        return
    if attrs.has(type(after)):
        yield from _of_table(f"{key}.", before, after)
    elif _has_tables(before) or _has_tables(after):
        yield f"{key}: other tables"
    else:
        yield _said(key, after, before)


def _has_tables(value: object) -> bool:
    return isinstance(value, tuple) and any(attrs.has(type(each)) for each in value)


def _said(key: str, after: object, before: object) -> str:
    return f"{key} = {shown(after)}, was {shown(before)}"
