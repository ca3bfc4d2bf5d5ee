"""The filters of a source as one: which messages its link is given (3.5.8).

    apache.org:selector-filter:string                  a selector of JMS
    apache.org:legacy-amqp-direct-binding:string       the subject is this one
    apache.org:legacy-amqp-topic-binding:string        the subject fits: dotted words, * is one, # any number
    amqp:properties-filter                             fields of properties
    amqp:application-properties-filter                 application-properties

Each is a described value; its descriptor, symbol or code, says what it is, and its key in the map does not
matter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import attrs

from amqp_broker.filters.fields import MessageFields
from amqp_broker.filters.property_filters import application_properties_test, properties_test
from amqp_broker.frames import Described, Symbol, Ulong
from amqp_broker.word_patterns import WordPattern

INVALID: Final = "amqp:invalid-field"
NO_LOCAL: Final = "apache.org:no-local-filter:list"
"""Of subscriptions to topics only: `amqp_broker/topics/subscriptions.py`."""
SELECTOR: Final = "apache.org:selector-filter:string"
FILTERS: Final = 16
"""On one link."""
TOPIC_CHARACTERS: Final = 1_024
"""Of a pattern that subjects have to fit."""

Test = Callable[[MessageFields], bool]


class FilterRefused(Exception):
    """A filter that is not honoured: `condition` is what its asker is told, the text names it and says
    why.
    """

    def __init__(self, condition: str, description: str) -> None:
        super().__init__(description)
        self.condition = condition


@attrs.frozen
class SourceFilter:
    """All filters of one link: a message is given if it passes each of them. Equal ones pass the same."""

    key: tuple[Any, ...]
    equality: tuple[str, Any] | None = attrs.field(eq=False)
    """(name, value) of a field by JMS's name that each message has to have; None: there is no such field."""
    matches: Test = attrs.field(eq=False, repr=False)


def source_filter(asked: dict[Any, Any] | None) -> tuple[SourceFilter | None, dict[Any, Any] | None]:
    """What the filters of a source ask for, and those that are in effect, to be echoed. Raises
    FilterRefused.
    """
    entries = {key: value for key, value in (asked or {}).items() if value is not None}
    if not entries:
        return None, None
    if len(entries) > FILTERS:
        raise FilterRefused(INVALID, f"expected at most {FILTERS} filters, got {len(entries)}")
    read = [_read(key, value) for key, value in entries.items()]
    tests = [test for _, _, test in read]
    equality = next((each for _, each, _ in read if each), None)
    key = tuple(sorted((key for key, _, _ in read), key=repr))
    if len(tests) == 1:
        return SourceFilter(key, equality, tests[0]), entries
    return SourceFilter(key, equality, lambda fields: all(test(fields) for test in tests)), entries


def selector_filter(selector: str) -> SourceFilter:
    """What a selector of JMS asks for. Raises FilterRefused."""
    found, _ = source_filter({"selector": Described(Symbol(SELECTOR), selector)})
    assert found is not None, "one was asked for"
    return found


_Read = tuple[tuple[Any, ...], tuple[str, Any] | None, Test]


def _read(key: Any, value: Any) -> _Read:
    name = filter_name(key, value)
    reader = _READERS.get(name)
    if reader is None:
        known = ", ".join(sorted(_READERS))
        raise FilterRefused(
            "amqp:not-implemented", f"filter {str(key)!r:.80} ({name!r:.80}): this node knows {known}"
        )
    try:
        return reader(value.value if isinstance(value, Described) else value)
    except ValueError as error:
        raise FilterRefused(INVALID, f"filter {str(key)!r:.80} ({name}): {error}") from None


def filter_name(key: Any, value: Any) -> str:
    """What a filter is: its descriptor says, or its key where there is none."""
    descriptor = value.descriptor if isinstance(value, Described) else key
    if isinstance(descriptor, Ulong):
        return CODES.get(descriptor.value, f"0x{descriptor.value:016x}")
    return str(descriptor.value if isinstance(descriptor, Symbol) else descriptor)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"expected a string, got {value!r:.80}")
    return str(value)


def _selector(value: Any) -> _Read:
    from amqp_broker.filters.selector_grammar import parse_selector  # loaded for the first selector

    selector = parse_selector(_text(value))
    matches = selector.matches
    return ("selector", selector.key), selector.equality, lambda fields: matches(fields.jms) is True


def _subject(value: Any) -> _Read:
    text = _text(value)
    return ("subject", text), ("JMSType", text), lambda fields: fields.properties.subject == text


def _topic(value: Any) -> _Read:
    text = _text(value)
    if len(text) > TOPIC_CHARACTERS:
        raise ValueError(f"expected a pattern of at most {TOPIC_CHARACTERS} characters, got {len(text)}")
    matches = WordPattern(text.split(".")).matches

    def fits(fields: MessageFields) -> bool:
        subject = fields.properties.subject
        return subject is not None and matches(subject)

    return ("topic", text), None, fits


def _properties(value: Any) -> _Read:
    return ("properties", repr(value)), None, properties_test(value)


def _application_properties(value: Any) -> _Read:
    return ("application-properties", repr(value)), None, application_properties_test(value)


_READERS: Final[dict[str, Callable[[Any], _Read]]] = {
    SELECTOR: _selector,
    "apache.org:legacy-amqp-direct-binding:string": _subject,
    "apache.org:legacy-amqp-topic-binding:string": _topic,
    "amqp:properties-filter": _properties,
    "amqp:application-properties-filter": _application_properties,
}
CODES: Final = {
    0x0000_468C_0000_0000: "apache.org:legacy-amqp-direct-binding:string",
    0x0000_468C_0000_0001: "apache.org:legacy-amqp-topic-binding:string",
    0x0000_468C_0000_0003: NO_LOCAL,
    0x0000_468C_0000_0004: "apache.org:selector-filter:string",
    0x0000_0000_0000_0173: "amqp:properties-filter",
    0x0000_0000_0000_0174: "amqp:application-properties-filter",
}
"""Descriptors of filters by their codes."""
