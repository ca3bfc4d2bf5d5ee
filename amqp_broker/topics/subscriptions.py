"""What a subscription is: whose, to which topics, which of their messages, and how long it lasts.

    non-durable               it has no name, and goes with its link
    shared                    links `name|...` take turns; it goes with the last of them
    durable, shared durable   it is kept until it is closed, or its timeout is over (3.5.6, 3.5.7)

One that has a name is that of its user, in a container or (`global`) in all of them.
"""

from __future__ import annotations

import base64
from typing import Any, Final
from urllib.parse import quote

import attrs

from amqp_broker.addresses import TopicPattern, parse_topic_pattern
from amqp_broker.filters.source_filter import NO_LOCAL, SourceFilter, filter_name, source_filter
from amqp_broker.frames import decode_value, encode_value
from amqp_broker.nodes.node import Attachment
from amqp_broker.nodes.refusals import NodeRefused
from amqp_broker.queue import Queue
from amqp_broker.topics.topic import Member

SUBSCRIPTION_KIND: Final = "subscription"  # of nodes of the store
SUBSCRIPTION_PREFIX: Final = "$subscription/"
SHARED: Final = "shared"
GLOBAL: Final = "global"
NEVER: Final = "never"
DETACH: Final = "link-detach"
CONNECTION_CLOSE: Final = "connection-close"
NAME_END: Final = "|"  # what follows tells the links of a shared subscription apart


@attrs.frozen
class Identity:
    """What a named subscription is found by. `container` is None for a global one."""

    user: str
    container: str | None
    name: str
    durable: bool

    @property
    def node_name(self) -> str:
        """The name of its node: no two have the same, and none is an address."""
        scope = "" if self.container is None else "=" + quote(self.container, safe="")
        kind = "durable" if self.durable else "shared"
        return f"{SUBSCRIPTION_PREFIX}{kind}/{quote(self.user, safe='')}/{scope}/{quote(self.name, safe='')}"


@attrs.frozen
class Wish:
    """What is subscribed to. `filters` are those of the source, as they are answered; `timeout_s` is how long
    a durable subscription waits for a link, None for ever. What the container `not_from` posts is not for it.
    """

    pattern: TopicPattern
    filters: dict[Any, Any] | None = attrs.field(eq=False)
    filter: SourceFilter | None
    shared: bool
    timeout_s: int | None = attrs.field(default=None, eq=False)
    not_from: str = ""

    def settings(self, identity: Identity) -> dict[str, object]:
        """What the store keeps of a durable subscription."""
        return {
            "user": identity.user,
            "container": identity.container,
            "name": identity.name,
            "topic": self.pattern.text,
            "filter": base64.b64encode(encode_value(self.filters)).decode() if self.filters else "",
            "shared": self.shared,
            "timeout_s": self.timeout_s,
        }


def stored_wish(settings: dict[str, Any]) -> tuple[Identity, Wish]:
    """What `Wish.settings` has made."""
    identity = Identity(settings["user"], settings["container"], settings["name"], durable=True)
    filters: Any = None
    if settings["filter"]:
        filters, _ = decode_value(base64.b64decode(settings["filter"]))
    no_local, others = split_no_local(filters or {})
    found, _ = source_filter(others)
    pattern = parse_topic_pattern(settings["topic"])
    not_from = identity.container or "" if no_local else ""
    return identity, Wish(pattern, filters, found, bool(settings["shared"]), settings["timeout_s"], not_from)


def split_no_local(entries: dict[Any, Any]) -> tuple[bool, dict[Any, Any]]:
    """Whether the no-local filter of the JMS mapping is among these, and the other filters."""
    others = {key: value for key, value in entries.items() if filter_name(key, value) != NO_LOCAL}
    return len(others) < len(entries), others


class Subscription:
    """One that exists. `links` are those that receive from it now; `member` is what topics copy to."""

    __slots__ = ("identity", "links", "member", "wish")

    def __init__(self, identity: Identity | None, wish: Wish, queue: Queue) -> None:
        self.identity = identity
        self.wish = wish
        self.member = Member(queue, wish.filter, wish.not_from)
        self.links: list[Any] = []

    @property
    def queue(self) -> Queue:
        """What it holds."""
        return self.member.queue

    @property
    def durable(self) -> bool:
        """Whether it outlives its links."""
        return self.identity is not None and self.identity.durable


def identity_of(attachment: Attachment, name_bytes: int) -> Identity | None:
    """By what a link finds its subscription; None: it has one of its own. Raises NodeRefused."""
    source = attachment.source
    capabilities = source.capabilities or ()
    durable = is_durable(attachment)
    if not durable and SHARED not in capabilities:
        return None
    name = attachment.link.name
    if SHARED in capabilities:
        name = name.partition(NAME_END)[0]
    return _identity(attachment, name, GLOBAL in capabilities, durable, name_bytes)


def former_identity(attachment: Attachment, name_bytes: int) -> Identity:
    """By what a link without a source finds the durable subscription that it had. Raises NodeRefused."""
    name = attachment.link.name
    wished = attachment.attach.desired_capabilities or ()
    is_global = GLOBAL in wished
    if is_global or SHARED in wished:
        name = name.partition(NAME_END)[0]
    return _identity(attachment, name, is_global, True, name_bytes)


def _identity(
    attachment: Attachment, name: str, is_global: bool, durable: bool, name_bytes: int
) -> Identity:
    if not 0 < len(name.encode()) <= name_bytes:
        raise NodeRefused(
            "amqp:invalid-field",
            f"expected the name of a subscription of 1 to {name_bytes} bytes "
            f"(limits.subscription_name_bytes) as that of its link, got {len(name.encode())}",
        )
    container = None if is_global else attachment.connection.container_id
    return Identity(attachment.principal.rule_name, container, name, durable)


def is_durable(attachment: Attachment) -> bool:
    """Whether a link asks for a subscription that is there when it comes back. Raises NodeRefused for a life
    that this broker does not have.
    """
    source = attachment.source
    if not source.durable:
        return False
    if source.expiry_policy == CONNECTION_CLOSE:
        raise NodeRefused(
            "amqp:not-implemented",
            f"source with durable {source.durable} and expiry-policy connection-close: a subscription lasts "
            f"for ever (never), or for a timeout from the end of its link (link-detach)",
        )
    return source.expiry_policy == NEVER or bool(source.timeout)


def timeout_of(attachment: Attachment) -> int | None:
    """How many seconds a durable subscription waits for its link; None is for ever."""
    return None if attachment.source.expiry_policy == NEVER else attachment.source.timeout or 0
