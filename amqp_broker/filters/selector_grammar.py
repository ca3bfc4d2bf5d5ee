"""The grammar of selectors, read by Lark: a table-driven parser, which no nesting makes recurse."""

from __future__ import annotations

import re
from functools import cache
from typing import Any, Final

from lark import Lark, Token, Transformer, UnexpectedCharacters, UnexpectedToken
from lark.exceptions import VisitError

from amqp_broker.filters import selector
from amqp_broker.filters.like import LIKE_STEPS
from amqp_broker.filters.selector import (
    LONG_MAX,
    SELECTOR_CHARACTERS,
    SELECTOR_TOKENS,
    Selector,
    SelectorError,
    Term,
)

GRAMMAR: Final = r"""
?start: disjunction
?disjunction: conjunction (_OR conjunction)*
?conjunction: denial (_AND denial)*
?denial: _NOT denial                              -> negation
    | predicate
?predicate: sum
    | sum COMPARISON sum                          -> comparison
    | sum _BETWEEN sum _AND sum                   -> between
    | sum _NOT _BETWEEN sum _AND sum              -> not_between
    | sum _IN "(" STRING ("," STRING)* ")"        -> membership
    | sum _NOT _IN "(" STRING ("," STRING)* ")"   -> no_membership
    | sum _LIKE STRING [_ESCAPE STRING]           -> likeness
    | sum _NOT _LIKE STRING [_ESCAPE STRING]      -> no_likeness
    | sum _IS _NULL                               -> null
    | sum _IS _NOT _NULL                          -> not_null
?sum: product (SIGN product)*
?product: unary (FACTOR unary)*
?unary: SIGN unary                                -> signed
    | primary
?primary: STRING                                  -> text
    | FLOAT                                       -> real
    | WHOLE                                       -> whole
    | _TRUE                                       -> true
    | _FALSE                                      -> false
    | NAME                                        -> field
    | "(" disjunction ")"

_OR.3: /OR(?![\w$])/i
_AND.3: /AND(?![\w$])/i
_NOT.3: /NOT(?![\w$])/i
_BETWEEN.3: /BETWEEN(?![\w$])/i
_IN.3: /IN(?![\w$])/i
_LIKE.3: /LIKE(?![\w$])/i
_ESCAPE.3: /ESCAPE(?![\w$])/i
_IS.3: /IS(?![\w$])/i
_NULL.3: /NULL(?![\w$])/i
_TRUE.3: /TRUE(?![\w$])/i
_FALSE.3: /FALSE(?![\w$])/i
COMPARISON: "<=" | ">=" | "<>" | "=" | "<" | ">"
SIGN: "+" | "-"
FACTOR: "*" | "/"
STRING: /'(?:[^']|'')*'/
FLOAT.2: /(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?|[0-9]+(?:[eE][+-]?[0-9]+[fFdD]?|[fFdD])/
WHOLE.1: /(?:0[xX][0-9a-fA-F]+|[0-9]+)[lL]?/
NAME: /[^\W\d][\w$]*|\$[\w$]*/
%ignore /[ \t\n\r\f]+/
"""


@cache
def _parser() -> Lark:
    return Lark(GRAMMAR, parser="lalr", lexer="basic", maybe_placeholders=False)


def parse_selector(text: str) -> Selector:
    """The selector that this text spells. Raises SelectorError."""
    if len(text) > SELECTOR_CHARACTERS:
        raise SelectorError(
            f"expected a selector of at most {SELECTOR_CHARACTERS} characters, got {len(text)}"
        )
    return selector.selector_of(_term(text))


def _term(text: str) -> Term:
    parser = _parser()
    try:
        likes = 0
        for number, token in enumerate(parser.lex(text)):
            if number == SELECTOR_TOKENS:
                raise SelectorError(f"expected a selector of at most {SELECTOR_TOKENS} words and signs")
            likes += token.type == "_LIKE"
        term: Term = _Terms(likes).transform(parser.parse(text))
    except UnexpectedCharacters as error:
        place = error.pos_in_stream or 0
        raise SelectorError(f"{_unexpected(text[place])} at character {place + 1}") from None
    except UnexpectedToken as error:
        place = error.token.start_pos
        if not error.token.value or place is None:
            raise SelectorError("expected more behind the end of the selector") from None
        found = f"{error.token.value!r:.40} at character {place + 1}"
        raise SelectorError(f"expected something else than {found}") from None
    except VisitError as error:
        if isinstance(error.orig_exc, SelectorError):
            raise error.orig_exc from None
        raise
    return term


def _unexpected(character: str) -> str:
    if character == "'":
        return "expected a ' at the end of the string that begins"
    return f"expected a name, a literal or a sign of the selector language, got {character!r}"


def _string(token: Token) -> str:
    return str(token)[1:-1].replace("''", "'")


class _Terms(Transformer[Token, Any]):
    """From the parts of a text, which has so many LIKE, to terms, from the inside to the outside."""

    def __init__(self, likes: int) -> None:
        super().__init__()
        self._steps = LIKE_STEPS // max(1, likes)

    def text(self, found: list[Token]) -> Term:
        return selector.constant(_string(found[0]))

    def real(self, found: list[Token]) -> Term:
        return selector.constant(float(found[0].rstrip("fFdD")))

    def whole(self, found: list[Token]) -> Term:
        digits = found[0].rstrip("lL")
        octal = re.fullmatch("0[0-7]+", digits)  # as Java writes them
        if not octal and digits.startswith("0") and digits.isdigit() and len(digits) > 1:
            raise SelectorError(f"expected a whole number, octal where it begins with 0, got {digits:.40}")
        value = int(digits, 8) if octal else int(digits, 0)
        if value > LONG_MAX + 1:  # -(2**63) is spelled with a sign of its own
            raise SelectorError(f"expected a whole number of at most 64 bits, got {digits:.40}")
        return selector.constant(value)

    def true(self, _found: list[Token]) -> Term:
        return selector.constant(True)

    def false(self, _found: list[Token]) -> Term:
        return selector.constant(False)

    def field(self, found: list[Token]) -> Term:
        return selector.field(str(found[0]))

    def signed(self, found: list[Any]) -> Term:
        return selector.signed(str(found[0]), found[1])

    def sum(self, found: list[Any]) -> Term:
        return selector.arithmetic(found[0], zip(map(str, found[1::2]), found[2::2], strict=True))

    product = sum

    def comparison(self, found: list[Any]) -> Term:
        return selector.comparison(found[0], str(found[1]), found[2])

    def between(self, found: list[Term]) -> Term:
        return selector.between(found[0], found[1], found[2], negated=False)

    def not_between(self, found: list[Term]) -> Term:
        return selector.between(found[0], found[1], found[2], negated=True)

    def membership(self, found: list[Any], negated: bool = False) -> Term:
        return selector.membership(found[0], [_string(each) for each in found[1:]], negated)

    def no_membership(self, found: list[Any]) -> Term:
        return self.membership(found, negated=True)

    def likeness(self, found: list[Any], negated: bool = False) -> Term:
        escape = _string(found[2]) if len(found) > 2 else None
        return selector.likeness(found[0], _string(found[1]), escape, negated, self._steps)

    def no_likeness(self, found: list[Any]) -> Term:
        return self.likeness(found, negated=True)

    def null(self, found: list[Term]) -> Term:
        return selector.null_test(found[0], negated=False)

    def not_null(self, found: list[Term]) -> Term:
        return selector.null_test(found[0], negated=True)

    def negation(self, found: list[Term]) -> Term:
        return selector.negation(found[0])

    def conjunction(self, found: list[Term]) -> Term:
        return selector.conjunction(found)

    def disjunction(self, found: list[Term]) -> Term:
        return selector.disjunction(found)
