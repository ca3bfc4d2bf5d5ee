"""Addresses of nodes, and patterns over them: one grammar for links, reply-to, management and configuration.

    address   = reserved / name            at most 255 bytes of UTF-8
    reserved  = "$" *character             nodes of the broker itself ($management)
    dynamic   = "temporary." *character    nodes that were made for one link, and of no others (3.5.3, 3.5.4)
    name      = first *character           segments are separated by "."
    character = any printable character except "*"

A name neither begins nor ends with a space.  `*` is for patterns:

    orders.new     exactly this node
    orders.*       one segment below orders: orders.new, but neither orders nor orders.new.eu
    orders.**      everything below orders, at any depth
    *  and  **     every name of one segment, every name

Subscriptions to topics have patterns of their own, whose wildcards are whole words at any place
(`word_patterns`).

Reserved addresses are matched by exact patterns and by `$name.*` only: `**` does not open the broker's own
nodes. The parsed address is what is authorised and looked up, never the string of the peer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import attrs

from amqp_broker.word_patterns import WILDCARDS, WordPattern

ADDRESS_BYTES_MAX = 255
SHOWN_CHARACTERS = 64
RESERVED_PREFIX = "$"
MANAGEMENT = "$management"
TEMPORARY_PREFIX: Final = "temporary."
"""Of the addresses of dynamic nodes: what comes late for one that is gone is known by it."""

_GROUP: Final = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)


class AddressError(ValueError):
    """An address or pattern breaks the grammar; the message says where, the text itself is shown escaped and
    cut.
    """


@attrs.frozen
class Address:
    """The address of a node that keeps the grammar.  `reserved`: one of the broker's own (`$management`)."""

    name: str
    reserved: bool = False

    def __str__(self) -> str:
        return self.name


def parse_address(text: object, max_bytes: int = ADDRESS_BYTES_MAX) -> Address:
    """The address that `text` names; raises AddressError, which says what is wrong."""
    name = _checked(text, "address", max_bytes)
    if "*" in name:
        raise AddressError(f"address {_shown(name)} contains '*', which is kept for patterns")
    return Address(name, name.startswith(RESERVED_PREFIX))


def is_group_name(name: str) -> bool:
    """Whether this can be the name of a group of producers, a segment of addresses of the broker's own."""
    return _GROUP.fullmatch(name) is not None


@attrs.frozen
class NodePattern:
    """A pattern over the names of nodes; make it with `parse_pattern`.

    `stem` is what stands before the wildcard (with its dot), `depth` is 0 for exact, 1 for `*` and 2 for
    `**`.
    """

    text: str
    stem: str
    depth: int

    def matches(self, name: str) -> bool:
        """Whether the node of this name is meant."""
        if self.depth == 0:
            return name == self.stem
        if len(name) <= len(self.stem) or not name.startswith(self.stem):
            return False
        if not self.stem and name.startswith(RESERVED_PREFIX):
            return False
        return self.depth == 2 or "." not in name[len(self.stem) :]

    def covers(self, words: Sequence[str]) -> bool:
        """Whether every name that a pattern of topics means is meant; False if that is not sure."""
        if not any(word in WILDCARDS for word in words):
            return self.matches(".".join(words))
        stem = self.stem[:-1].split(".") if self.stem else []
        rest = words[len(stem) :]
        if self.depth == 0 or list(words[: len(stem)]) != stem or not rest:
            return False
        if rest[0] == "#":
            return self.depth == 2 and not stem
        return self.depth == 2 or len(rest) == 1

    def includes(self, other: NodePattern) -> bool:
        """Whether every node that `other` means is meant."""
        if other.depth == 0:
            return self.matches(other.stem)
        if self.depth < other.depth or (not self.stem and other.stem.startswith(RESERVED_PREFIX)):
            return False
        return self.stem == other.stem or (self.depth == 2 and other.stem.startswith(self.stem))

    @property
    def exact(self) -> bool:
        """Whether one node only is meant."""
        return self.depth == 0

    @property
    def rank(self) -> tuple[int, int]:
        """The smaller, the more specific: exact first, then the longer stem, then `*` before `**`."""
        return (-1, 0) if self.depth == 0 else (-len(self.stem) + ADDRESS_BYTES_MAX, self.depth)


@attrs.frozen
class TopicPattern:
    """Which topics a subscription is for; make it with `parse_topic_pattern`."""

    text: str
    words: tuple[str, ...]
    _pattern: WordPattern = attrs.field(init=False, repr=False, eq=False)

    @_pattern.default
    def _compiled(self) -> WordPattern:
        return WordPattern(self.words)

    @property
    def exact(self) -> bool:
        """Whether one topic only is meant."""
        return not any(word in WILDCARDS for word in self.words)

    def matches(self, name: str) -> bool:
        """Whether the topic of this name is meant."""
        return self._pattern.matches(name)


def parse_topic_pattern(text: object, max_bytes: int = ADDRESS_BYTES_MAX) -> TopicPattern:
    """The pattern that `text` spells: the name of a topic whose words may be `*`, any one word, and `#`, any
    number of words; raises AddressError.
    """
    words = tuple(_checked(text, "pattern", max_bytes).split("."))
    parse_address(".".join("-" if word == "*" else word for word in words), max_bytes)
    return TopicPattern(".".join(words), words)


def parse_pattern(text: object) -> NodePattern:
    """The pattern that `text` spells: `name`, `prefix.*` or `prefix.**`; raises AddressError."""
    pattern = _checked(text, "pattern", ADDRESS_BYTES_MAX)
    depth = 2 if pattern.endswith("**") else 1 if pattern.endswith("*") else 0
    stem = pattern[: len(pattern) - depth]
    if "*" in stem or (depth and stem and not stem.endswith(".")):
        raise AddressError(
            f"pattern {_shown(pattern)} has '*' before its last segment: name, prefix.* or prefix.**"
        )
    return NodePattern(pattern, stem, depth)


def _checked(text: object, what: str, max_bytes: int) -> str:
    """What addresses and patterns have in common."""
    if not isinstance(text, str):
        raise AddressError(f"{what} must be a string, but is {type(text).__name__}")
    if not text:
        raise AddressError(f"{what} is empty")
    if len(text) > max_bytes:
        raise AddressError(f"{what} {_shown(text)} has more than {max_bytes} bytes")
    for position, character in enumerate(text):
        if not character.isprintable():
            code = f"U+{ord(character):04X}"
            raise AddressError(
                f"{what} {_shown(text)} has the unprintable character {code} at position {position}"
            )
    size = len(text.encode("utf-8"))
    if size > max_bytes:
        raise AddressError(f"{what} {_shown(text)} has {size} bytes of UTF-8, more than {max_bytes}")
    if text[0] == " " or text[-1] == " ":
        raise AddressError(f"{what} {_shown(text)} begins or ends with a space")
    if text == RESERVED_PREFIX:
        raise AddressError(f"{what} '$' names nothing: '$' is followed by the name of a node of the broker")
    return text


def _shown(text: str) -> str:
    """A peer's text in a message of ours: escaped and cut."""
    cut = text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "..."
    return "'" + cut.encode("unicode_escape").decode("ascii").replace("'", "\\'") + "'"
