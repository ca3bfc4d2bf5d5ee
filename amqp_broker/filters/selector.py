"""The JMS selector language (Jakarta Messaging 3.1, 3.8.1.1): the conditions of SQL-92 over fields of a
message.

    selector = parse_selector("colour = 'red' AND weight BETWEEN 2 AND 7")      (selector_grammar.py)
    selector.matches(fields)        True, False, or None: unknown, which is no match

`fields(name)` gives the value of a header or property: a string, a whole number, a float, a boolean, or
None where the message has none. Values of other types equal nothing.

What has to be bounded is bounded when a selector is read (`SELECTOR_CHARACTERS`, `SELECTOR_TOKENS`,
`SELECTOR_DEPTH`), so that judging a message takes microseconds whatever a peer asks for.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any, Final

import attrs

from amqp_broker.filters.like import LikePattern

SELECTOR_CHARACTERS: Final = 4_096
SELECTOR_TOKENS: Final = 200
SELECTOR_DEPTH: Final = 32

LONG_MAX: Final = 2**63 - 1

Value = str | int | float | bool | None
Fields = Callable[[str], Any]
Judge = Callable[[Fields], Any]


class SelectorError(ValueError):
    """A selector that is none, or that is too large. The text says what was expected, and where."""


@attrs.frozen
class Term:
    """A part of a selector: what it gives for a message, of which kind that is, and how deep it is nested.

    `kind` is str, bool, or float (a number); None where only a message can tell. `key` is equal for equal
    terms. `equality` is (name, value) of a field that has to have just this value, or else the term is not
    true.
    """

    judge: Judge = attrs.field(eq=False, repr=False)
    kind: type | None
    depth: int
    key: tuple[Any, ...]
    equality: tuple[str, Value] | None = None


@attrs.frozen
class Selector:
    """A selector that was read. Two are equal where they say the same in the same order."""

    key: tuple[Any, ...]
    equality: tuple[str, Value] | None = attrs.field(eq=False)
    """(name, value): no message matches whose field of this name has another value. None: it says no such
    thing.
    """
    matches: Judge = attrs.field(eq=False, repr=False)
    """True, False or None (unknown) for the fields of a message."""


def selector_of(term: Term) -> Selector:
    """The selector that a whole text says. Raises SelectorError for one that is no condition."""
    boolean(term, "the selector")
    judge = term.judge
    if term.kind is None:  # a field alone: only a message can tell whether it is a condition
        judge = conjunction([term]).judge
    return Selector(term.key, term.equality, judge)


# --- what terms are made of; `_of` gives the value of a term, never of another type than its kind


def constant(value: Value) -> Term:
    """A literal."""
    kind = bool if isinstance(value, bool) else str if isinstance(value, str) else float
    return Term(lambda _fields: value, kind, 1, ("literal", type(value).__name__, value))


def field(name: str) -> Term:
    """The value of a header or property by its name."""
    return Term(lambda fields: fields(name), None, 1, ("field", name))


def boolean(term: Term, what: str) -> Term:
    """The term, if it can be true or false. Raises SelectorError."""
    if term.kind not in (bool, None):
        raise SelectorError(f"expected a condition as {what}, got a {_KIND_NAMES[term.kind]}")
    return term


def _nested(*terms: Term) -> int:
    depth = 1 + max(term.depth for term in terms)
    if depth > SELECTOR_DEPTH:
        raise SelectorError(f"expected a selector of at most {SELECTOR_DEPTH} levels")
    return depth


def conjunction(terms: list[Term]) -> Term:
    """AND of several: false if one is false, else unknown if one is unknown."""
    equality = next((term.equality for term in terms if term.equality), None)
    return Term(_decided_by(False, terms, "AND"), bool, _nested(*terms), _key("and", terms), equality)


def disjunction(terms: list[Term]) -> Term:
    """OR of several: true if one is true, else unknown if one is unknown."""
    return Term(_decided_by(True, terms, "OR"), bool, _nested(*terms), _key("or", terms))


def _decided_by(decisive: bool, terms: list[Term], word: str) -> Judge:
    """What several conditions come to, of which one with the value `decisive` decides."""
    judges = [boolean(term, f"an operand of {word}").judge for term in terms]

    def judge(fields: Fields) -> bool | None:
        result: bool | None = not decisive
        for each in judges:
            value = each(fields)
            if value is decisive:
                return bool(value)
            if value is not (not decisive):
                result = None
        return result

    return judge


def _key(word: str, terms: list[Term]) -> tuple[Any, ...]:
    return (word, *(term.key for term in terms))


def negation(term: Term) -> Term:
    """NOT: unknown stays unknown."""
    inner = boolean(term, "the operand of NOT").judge

    def judge(fields: Fields) -> bool | None:
        value = inner(fields)
        return not value if value is True or value is False else None

    return Term(judge, bool, _nested(term), ("not", term.key))


_COMPARISONS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq, "<>": operator.ne,
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_KIND_NAMES: Final[dict[type | None, str]] = {
    str: "string", float: "number", bool: "condition", None: "value",
}  # fmt: skip


def _kind_of(value: object) -> type | None:
    """The kind of a value; None for one that can be compared with nothing."""
    if value is True or value is False:
        return bool
    return str if isinstance(value, str) else float if isinstance(value, (int, float)) else None


def comparison(left: Term, sign: str, right: Term) -> Term:
    """Of two values: unknown where one is missing, false where they are not of one kind (3.8.1.1).

    Strings and booleans are equal or not; only numbers have an order. Raises SelectorError where that can
    be seen at once.
    """
    ordered = sign not in ("=", "<>")
    for term in (left, right):
        if ordered and term.kind in (str, bool):
            raise SelectorError(f"expected numbers beside {sign}, got a {_KIND_NAMES[term.kind]}")
    if left.kind and right.kind and left.kind is not right.kind:
        raise SelectorError(
            f"expected values of one kind beside {sign}, got a {_KIND_NAMES[left.kind]} and a "
            f"{_KIND_NAMES[right.kind]}"
        )
    first, second, holds = left.judge, right.judge, _COMPARISONS[sign]

    def judge(fields: Fields) -> bool | None:
        one, other = first(fields), second(fields)
        if one is None or other is None:
            return None
        kind = _kind_of(one)
        if kind is None or kind is not _kind_of(other) or (ordered and kind is not float):
            return False
        return holds(one, other)

    equality = None
    if sign == "=":
        for named, given in ((left, right), (right, left)):
            if named.key[0] == "field" and given.key[0] == "literal":
                equality = (named.key[1], given.key[2])
    return Term(judge, bool, _nested(left, right), (sign, left.key, right.key), equality)


def between(term: Term, low: Term, high: Term, negated: bool) -> Term:
    """`term >= low AND term <= high`; negated `term < low OR term > high`, as the specification has it."""
    if negated:
        return disjunction([comparison(term, "<", low), comparison(term, ">", high)])
    return conjunction([comparison(term, ">=", low), comparison(term, "<=", high)])


def membership(term: Term, values: list[str], negated: bool) -> Term:
    """IN: whether a field is one of these strings."""
    name, allowed = _named(term, "IN"), frozenset(values)

    def judge(fields: Fields) -> bool | None:
        value = fields(name)
        return None if value is None else (isinstance(value, str) and value in allowed) is not negated

    return Term(judge, bool, _nested(term), ("in", negated, name, *sorted(allowed)))


def null_test(term: Term, negated: bool) -> Term:
    """IS NULL: whether a message has no such field."""
    name = _named(term, "IS NULL")
    key = ("null", negated, name)
    return Term(lambda fields: (fields(name) is None) is not negated, bool, _nested(term), key)


def likeness(term: Term, pattern: str, escape: str | None, negated: bool, steps: int) -> Term:
    """LIKE: `_` stands for one character and `%` for any number, `escape` takes that meaning from the next
    one. It takes at most so many steps for a text (`LikePattern`).
    """
    name = _named(term, "LIKE")
    try:
        like = LikePattern(pattern, escape, steps).fits
    except ValueError as error:
        raise SelectorError(str(error)) from None

    def judge(fields: Fields) -> bool | None:
        value = fields(name)
        if value is None:
            return None
        fits = like(value) if isinstance(value, str) else False
        return None if fits is None else fits is not negated

    return Term(judge, bool, _nested(term), ("like", negated, name, pattern, escape))


def _named(term: Term, word: str) -> str:
    if term.key[0] != "field":
        raise SelectorError(f"expected the name of a field before {word}, got a {_KIND_NAMES[term.kind]}")
    return str(term.key[1])


def _divide(one: Any, other: Any) -> Any:
    """As Java does: whole numbers towards zero; nothing where the divisor is a whole zero."""
    if isinstance(one, float) or isinstance(other, float):
        if other == 0:
            return one * float("inf") if one else float("nan")
        return one / other
    if other == 0:
        return None
    quotient = abs(one) // abs(other)
    return quotient if (one < 0) is (other < 0) else -quotient


_ARITHMETIC: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": _divide,
}  # fmt: skip


def _number(term: Term, sign: str) -> Term:
    if term.kind not in (float, None):
        raise SelectorError(f"expected a number beside {sign}, got a {_KIND_NAMES[term.kind]}")
    return term


def arithmetic(first: Term, rest: Iterable[tuple[str, Term]]) -> Term:
    """Numbers with `+ - * /` between them, from left to right: unknown where one is missing or none."""
    steps = [(sign, _number(term, sign)) for sign, term in rest]
    start = _number(first, steps[0][0]).judge
    work = [(_ARITHMETIC[sign], term.judge) for sign, term in steps]

    def judge(fields: Fields) -> Any:
        value = start(fields)
        for combine, operand in work:
            other = operand(fields)
            if _kind_of(value) is not float or _kind_of(other) is not float:
                return None
            try:
                value = combine(value, other)
            except OverflowError:  # a whole number beyond what a float holds
                return None
        return value

    key = ("arithmetic", first.key, *((sign, term.key) for sign, term in steps))
    return Term(judge, float, _nested(first, *(term for _, term in steps)), key)


def signed(sign: str, term: Term) -> Term:
    """`+` or `-` before a number."""
    return arithmetic(_ZERO, [(sign, term)])


_ZERO: Final = constant(0)

