"""Who may do what: one function for the protocol and for management.

Without configured users a broker is open: its listeners decide who gets in (anonymous access is for loopback
only unless a setting says otherwise).  As soon as users are configured, everything that no `[[access]]` rule
allows is denied.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

import attrs

from amqp_broker.addresses import Address, NodePattern, parse_pattern

CONNECT: Final = "connect"
CREATE: Final = "create"
DELETE: Final = "delete"
SEND: Final = "send"
RECEIVE: Final = "receive"
BROWSE: Final = "browse"
PURGE: Final = "purge"
TRANSACT: Final = "transact"
HALF_PUT: Final = "half-put"
HALF_RESOLVE: Final = "half-resolve"
HALF_CHECK: Final = "half-check"
SEQUENCE: Final = "sequence"
MANAGE_READ: Final = "manage-read"
MANAGE_WRITE: Final = "manage-write"
RELOAD: Final = "reload"

ACTIONS: Final = (
    CONNECT,
    CREATE,
    DELETE,
    SEND,
    RECEIVE,
    BROWSE,
    PURGE,
    TRANSACT,
    HALF_PUT,
    HALF_RESOLVE,
    HALF_CHECK,
    SEQUENCE,
    MANAGE_READ,
    MANAGE_WRITE,
    RELOAD,
)
ACTIONS_WITHOUT_NODE: Final = frozenset((CONNECT, TRANSACT, MANAGE_READ))
"""Actions on the broker as a whole; they are asked with `node=None`, and a rule's nodes don't matter for
them.
"""

ANY_USER: Final = "*"
"""In a rule: every principal, the anonymous one too."""

ANONYMOUS_NAME: Final = "anonymous"
_ROLE: Final = "\n"  # stands before a role where users and roles are in one table; no user's name has one


@attrs.frozen
class Principal:
    """Who is at the other end: the name and the roles that rules speak of, and the SASL mechanism that proved
    it.
    """

    name: str
    mechanism: str = "ANONYMOUS"
    roles: tuple[str, ...] = ()

    def __attrs_post_init__(self) -> None:
        assert self.anonymous or self.name not in (ANONYMOUS_NAME, ANY_USER), "users have other names"

    @property
    def anonymous(self) -> bool:
        """Whether nothing was proved."""
        return self.mechanism == "ANONYMOUS"

    @property
    def rule_name(self) -> str:
        """The name as it stands in rules; that of a user is never the anonymous one."""
        return ANONYMOUS_NAME if self.anonymous else self.name

    @property
    def subjects(self) -> tuple[str, ...]:
        """What of rules speaks of it: its name, everybody, its roles."""
        return self.rule_name, ANY_USER, *(_ROLE + role for role in self.roles)


ANONYMOUS: Final = Principal(ANONYMOUS_NAME)
OWNER: Final = Principal("owner", "EMBEDDING")
"""The program that embeds the broker, and no peer: only this very object may do everything."""


class Rules(Protocol):
    """The configuration, as far as it says who may do what."""

    @property
    def access_rules(self) -> Iterable[Rule]:
        """The rules."""

    @property
    def open_access(self) -> bool:
        """Whether everybody may do everything."""


class Rule(Protocol):
    """Who may do what where: an `[[access]]` of the configuration."""

    @property
    def users(self) -> Iterable[str]:
        """Names, ANONYMOUS_NAME or ANY_USER."""

    @property
    def roles(self) -> Iterable[str]:
        """Names of roles: whoever has one of them."""

    @property
    def actions(self) -> Iterable[str]:
        """Some of ACTIONS."""

    @property
    def nodes(self) -> Iterable[str]:
        """Patterns of addresses."""


class Authoriser:
    """The access rules, prepared for asking: `authorise(principal, action, node)`."""

    __slots__ = ("_open", "_patterns")

    def __init__(self, rules: Iterable[Rule] = (), *, users_configured: bool = False) -> None:
        self._patterns: dict[tuple[str, str], tuple[NodePattern, ...]] = {}
        rules = tuple(rules)
        self._open = not rules and not users_configured
        for rule in rules:
            patterns = tuple(parse_pattern(node) for node in rule.nodes)
            for user in (*rule.users, *(_ROLE + role for role in rule.roles)):
                for action in rule.actions:
                    key = (user, action)
                    self._patterns[key] = self._patterns.get(key, ()) + patterns

    def authorise(self, principal: Principal, action: str, node: Address | None = None) -> bool:
        """Whether `principal` may do `action` on the parsed `node` (None for what concerns the broker as a
        whole).
        """
        assert action in ACTIONS, f"unknown action {action!r}"
        assert node is not None or action in ACTIONS_WITHOUT_NODE, f"action {action!r} needs a node"
        return self._open or principal is OWNER or self.grants(principal, action, node)

    def authorise_all(self, principal: Principal, action: str, words: Sequence[str]) -> bool:
        """Whether `principal` may do `action` on every topic that a pattern of these words means. What is
        behind `#` is none, or one word and what is behind another `#`.
        """
        if self._open or self._covers(principal, action, words):
            return True
        if "#" not in words:
            return False
        at = list(words).index("#")
        one_or_more = [*words[:at], "*", *words[at:]]
        none = [*words[:at], *words[at + 1 :]]
        return bool(none) and self._covers(principal, action, one_or_more) and (
            self.authorise_all(principal, action, none)
        )

    def _covers(self, principal: Principal, action: str, words: Sequence[str]) -> bool:
        return any(
            pattern.covers(words)
            for user in principal.subjects
            for pattern in self._patterns.get((user, action), ())
        )

    def takes_from(self, before: Authoriser, was: Principal, now: Principal) -> bool:
        """Whether `now` may do less than `before` allowed to the same one, who `was` that; True also where
        that is not sure, as where two patterns are needed for what one was.
        """
        if self._open or before._open:
            return not self._open
        for action in ACTIONS:
            granted, left = before._granted(was, action), self._granted(now, action)
            if action in ACTIONS_WITHOUT_NODE:
                if granted and not left:
                    return True
                continue
            gone = {*granted} - {*left}  # the same patterns allow the same, without a look at each pair
            if not all(any(each.includes(pattern) for each in left) for pattern in gone):
                return True
        return False

    def _granted(self, principal: Principal, action: str) -> list[NodePattern]:
        found = [self._patterns.get((user, action), ()) for user in principal.subjects]
        return [pattern for patterns in found for pattern in patterns]

    def grants(self, principal: Principal, action: str, node: Address | None = None) -> bool:
        """Whether a rule allows it, also in a broker that is open to everybody."""
        for user in principal.subjects:
            patterns = self._patterns.get((user, action))
            if patterns is None:
                continue
            if node is None or any(pattern.matches(node.name) for pattern in patterns):
                return True
        return False


def authoriser_of(config: Rules) -> Authoriser:
    """The rules of a configuration."""
    return Authoriser(config.access_rules, users_configured=not config.open_access)
