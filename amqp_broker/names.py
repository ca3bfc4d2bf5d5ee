"""From an address as a peer writes it to the name of a node: the one door for forms of other brokers, and for
aliases. What is behind it, rights, filters and answers included, sees one name.

    uri       queue://q                        the queue q
              topic://t                        the topic t, or a pattern
    rabbitmq  /queues/q                        the queue q
              /exchanges/e/k, /exchanges/e     the topic e.k, or e; in targets
              /management                      its management node, $rabbitmq
    artemis   a::q                             the queue q: a itself, or one that a binding joins to a

Segments of the form of RabbitMQ are percent-encoded UTF-8 (RFC 3986). A form that is not asked for is a name
as any other. An alias is looked up last, once, and never led to by another one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any, Final, TypeVar
from urllib.parse import unquote

from amqp_broker.addresses import RESERVED_PREFIX
from amqp_broker.configuration import ARTEMIS_FORM, RABBITMQ_FORM, URI_FORM, BrokerConfig
from amqp_broker.frames import Source, Target
from amqp_broker.nodes.refusals import NodeRefused

QUEUE: Final = "queue"
TOPIC: Final = "topic"
RABBITMQ_MANAGEMENT: Final = "/management"
RABBITMQ_NODE: Final = "$rabbitmq"
NAMELESS: Final = "amq.default"
RABBITMQ_QUEUES: Final = "/queues/"
RABBITMQ_TOPICS: Final = "/exchanges/"
JOINT: Final = "::"
_SCHEME: Final = re.compile(r"(queue|topic)://(.*)", re.DOTALL)
_BROKEN_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")

Named = tuple[str, str | None]
"""The name of a node, and the terminus capability that the form stands for."""

Terminus = TypeVar("Terminus", Source, Target)


class Names:
    """The names of one broker."""

    def __init__(self, config: BrokerConfig) -> None:
        self._aliases = {alias.name: alias.node for alias in config.aliases}
        self.joins: Callable[[str, str], bool] = lambda topic, queue: False
        """Whether a binding joins a queue to a topic; filled by who has them."""
        forms: dict[str, Callable[[str, bool], Named | None]] = {
            URI_FORM: _of_uri,
            RABBITMQ_FORM: _of_rabbitmq,
            ARTEMIS_FORM: self._of_artemis,
        }
        self._managed = RABBITMQ_FORM in config.address_forms
        self._forms = [form for name, form in forms.items() if name in config.address_forms]

    def of(self, address: str, *, receives: bool = False) -> Named:
        """What an address names for who sends there, or `receives`. Raises NodeRefused."""
        if address == RABBITMQ_MANAGEMENT:
            if self._managed:
                return RABBITMQ_NODE, None
            raise NodeRefused(
                "amqp:not-found", f"no node {address!r}: the management node of this broker is $management; "
                f'address_forms = ["{RABBITMQ_FORM}"] has that of RabbitMQ'
            )  # fmt: skip
        name, capability = address, None
        for form in self._forms:
            found = form(address, receives)
            if found is not None:
                name, capability = found
                if name.startswith(RESERVED_PREFIX):
                    reason = f"{address!r:.120} is a form for queues and topics, and {name!r:.80} is neither"
                    raise NodeRefused("amqp:not-found", reason)
                break
        return self._aliases.get(name, name), capability

    def terminus(self, asked: Terminus) -> Terminus:
        """A source or target with the name of its node as its address. Raises NodeRefused."""
        address: Any = asked.address
        if not isinstance(address, str) or asked.dynamic:
            return asked
        name, capability = self.of(address, receives=isinstance(asked, Source))
        held: Sequence[str] = asked.capabilities or ()
        if name == address and (capability is None or capability in held):
            return asked
        found = copy(asked)
        found.address = name
        if capability is not None and capability not in held:
            found.capabilities = (*held, capability)
        return found

    def _of_artemis(self, address: str, receives: bool) -> Named | None:
        at, joint, queue = address.partition(JOINT)
        if not joint:
            return None
        if not at or not queue or JOINT in queue:
            raise NodeRefused("amqp:invalid-field", f"expected address::queue, got {address!r:.120}")
        if at == queue or self.joins(at, queue):
            return queue, QUEUE
        reason = f"{address!r:.120}: no binding joins queue {queue!r:.80} to topic {at!r:.80}"
        raise NodeRefused("amqp:not-found", reason)


def _of_uri(address: str, receives: bool) -> Named | None:
    found = _SCHEME.fullmatch(address)
    return None if found is None else (found[2], found[1])


def _of_rabbitmq(address: str, receives: bool) -> Named | None:
    if address.startswith(RABBITMQ_QUEUES):
        (queue,) = _segments(address, address[len(RABBITMQ_QUEUES) :], 1)
        return queue, QUEUE
    if not address.startswith(RABBITMQ_TOPICS):
        return None
    if receives:
        reason = f"{address!r:.120}: nothing is received from an exchange; bind a queue to it"
        raise NodeRefused("amqp:not-allowed", reason)
    topic, *keys = _segments(address, address[len(RABBITMQ_TOPICS) :], 2)
    if topic == NAMELESS:
        raise NodeRefused("amqp:not-found", f"{address!r:.120}: for the default exchange write /queues/QUEUE")
    return ".".join([topic, *(key for key in keys if key)]), TOPIC


def _segments(address: str, rest: str, most: int) -> list[str]:
    """The segments, decoded. Raises NodeRefused."""
    segments = rest.split("/")
    try:
        if len(segments) > most or _BROKEN_ESCAPE.search(rest):
            raise ValueError
        decoded = [unquote(segment, errors="strict") for segment in segments]
    except ValueError:
        decoded = [""]
    if not decoded[0]:
        raise NodeRefused(
            "amqp:invalid-field",
            f"expected /queues/QUEUE or /exchanges/TOPIC/KEY, percent-encoded UTF-8, got {address!r:.120}",
        )
    return decoded
