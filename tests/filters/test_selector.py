"""Selectors: the rules of Jakarta Messaging 3.1, 3.8.1.1, row by row; SQLite as the other who knows SQL-92;
bounds.
"""

from __future__ import annotations

import sqlite3
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_broker.filters.like import LIKE_STEPS, LikePattern
from amqp_broker.filters.selector import SELECTOR_TOKENS, SelectorError
from amqp_broker.filters.selector_grammar import parse_selector
from tests.support.examples import examples
from tests.support.fastest import fastest

FIELDS: dict[str, Any] = {
    "age": 17, "weight": 2.5, "country": "UK", "underscored": "_foo", "phone": "12993", "word": "lose",
    "yes": True, "no": False, "zero": 0, "blob": b"octets", "quote": "it's", "Order": 5,
}  # fmt: skip


def judged(text: str, fields: dict[str, Any] = FIELDS) -> Any:
    """What a selector says of these fields."""
    return parse_selector(text).matches(fields.get)


RULES = [
    # literals and names
    ("quote = 'it''s'", True), ("age = 17", True), ("age = +17", True), ("age = 0x11", True),
    ("age = 021", True),
    ("age = 17L", True), ("age = 17.", True), ("age = 1.7E1", True), ("weight = 2.5", True),
    ("weight = 25E-1", True),
    ("weight = .25e1d", True), ("yes = TRUE", True), ("yes = true", True), ("no = FALSE", True),
    ("Order = 5", True),
    ("order = 5", None), ("yes", True), ("no", False), ("nothing", None), ("country", None),
    # comparison: three values; only numbers have an order; other kinds are never equal
    ("age <> 17", False), ("age > 16 AND age < 18", True), ("age >= 17 AND age <= 17", True),
    ("weight < 3", True),
    ("age = weight", False), ("nothing = 1", None), ("nothing <> 1", None), ("1 = nothing", None),
    ("age = '17'", False), ("age <> '17'", False), ("yes = 1", False), ("yes <> 1", False),
    ("country > 1", False),
    ("country = country", True), ("country < country", False), ("blob = 'octets'", False),
    ("blob <> 'x'", False),
    ("(age > 1) = TRUE", True), ("(nothing > 1) = TRUE", None),
    # the tables of AND, OR and NOT
    ("yes AND yes", True), ("yes AND no", False), ("yes AND nothing", None), ("no AND nothing", False),
    ("nothing AND nothing", None), ("yes OR nothing", True), ("no OR nothing", None), ("no OR no", False),
    ("nothing OR yes", True), ("NOT yes", False), ("NOT no", True), ("NOT nothing", None),
    ("NOT country", None),
    ("NOT NOT yes", True), ("no OR yes AND yes", True), ("(no OR yes) AND no", False),
    ("yes AND country", None),
    # arithmetic: as Java's
    ("age + 1 = 18", True), ("age - 1 * 2 = 15", True), ("(age - 1) * 2 = 32", True), ("age / 2 = 8", True),
    ("-age / 2 = -8", True), ("age / 2.0 = 8.5", True), ("age / zero = 1", None), ("age / 0.0 > 1", True),
    ("nothing + 1 = 1", None), ("country + 1 = 1", None), ("yes + 1 = 2", None), ("- - age = 17", True),
    ("10 - 3 - 2 = 5", True), ("-9223372036854775808 < 0", True), ("age * 1e400 > 1", True),
    # BETWEEN, IN, LIKE, IS NULL
    ("age BETWEEN 15 AND 19", True), ("age NOT BETWEEN 15 AND 19", False), ("nothing BETWEEN 1 AND 2", None),
    ("age BETWEEN 19 AND 15", False), ("country BETWEEN 1 AND 2", False),
    ("country NOT BETWEEN 1 AND 2", False),
    ("age BETWEEN 1 AND 20 AND yes", True),
    ("country IN ('UK', 'US', 'France')", True), ("country NOT IN ('UK', 'US')", False),
    ("country IN ('uk')", False), ("nothing IN ('UK')", None), ("nothing NOT IN ('UK')", None),
    ("age IN ('17')", False),
    ("phone LIKE '12%3'", True), ("phone LIKE '12%4'", False), ("word LIKE 'l_se'", True),
    ("word LIKE 'l_s'", False),
    ("underscored LIKE '\\_%' ESCAPE '\\'", True), ("word LIKE '\\_%' ESCAPE '\\'", False),
    ("phone NOT LIKE '12%3'", False), ("nothing LIKE '%'", None), ("nothing NOT LIKE '%'", None),
    ("age LIKE '17'", False), ("country LIKE '%'", True), ("country LIKE ''", False),
    ("country LIKE 'uk'", False),
    ("nothing IS NULL", True), ("nothing IS NOT NULL", False), ("age IS NULL", False),
    ("age is not null", True),
    ("blob IS NULL", False), ("JMSType = 'car' AND colour = 'blue' AND weight > 2", None),
    # words in any case, and any white space between
    ("age\tbetween\n15 And 19", True), ("notes IS NULL", True),
    ("nothing is null and in_stock IS nUll", True),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), RULES)
def test_a_rule_of_the_language(text: str, expected: object) -> None:
    """Each gives just this of the three values."""
    assert judged(text) is expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "behind the end"), ("age =", "behind the end"), ("age == 1", "'=' at character 6"),
        ("1", "a number"),
        ("'x'", "a string"), ("age + 1", "a number"), ("age > 'x'", "numbers beside >"),
        ("TRUE > 1", "beside >"),
        ("1 = 'x'", "one kind"), ("'x' + 1 = 2", "a number beside +"), ("-'x' = 1", "a number beside -"),
        ("age = 'x", "end of the string"), ("age ! 1", "'!'"), ("NOT 1", "a condition"),
        ("yes AND 1", "operand of AND"),
        ("1 OR yes", "operand of OR"), ("age BETWEEN 'a' AND 'b'", "numbers"),
        ("1 IN ('a')", "name of a field"),
        ("age + 1 LIKE 'a'", "name of a field"), ("age IN ()", "character 9"), ("age IN (1)", "'1'"),
        ("a LIKE 'x' ESCAPE ''", "one character"), ("a LIKE '!x' ESCAPE '!'", "behind !"),
        ("age = 09", "octal"),
        ("a LIKE 'x!' ESCAPE '!'", "behind !"), ("age = 9223372036854775809", "64 bits"),
        ("age = 1 age = 2", "'age'"),
        ("(age = 1", "behind the end"), ("age = 1)", "')'"), ("AND", "'AND'"), ("null = 1", "'null'"),
        ("x.y = 1", ""),
        ("a" * 5_000, "4096 characters"), ("yes OR " * 150 + "yes", "200 words"),
        ("NOT " * 40 + "yes", "32 levels"),
        ("(NOT " * 32 + "yes" + ")" * 32, "32 levels"), ("- " * 40 + "1 = 1", "32 levels"),
    ],
)  # fmt: skip
def test_what_is_no_selector_is_refused(text: str, said: str) -> None:
    """With what was expected, and where."""
    with pytest.raises(SelectorError) as raised:
        parse_selector(text)
    assert said in str(raised.value)


def test_equal_selectors_are_equal() -> None:
    """Consumers that ask the same share the work; what is asked first of a message is known."""
    one, other = parse_selector("a = 'x' AND b > 1"), parse_selector("(a='x') and (b>1)")
    assert one == other and hash(one) == hash(other)
    assert len({parse_selector(text) for text in ("a = 1", "a = 1.0", "a = TRUE", "1 = a", "b = 1")}) == 5
    assert one.equality == ("a", "x")
    assert parse_selector("a > 1 AND 'y' = b").equality == ("b", "y")
    for text in ("a = 'x' OR b = 1", "NOT a = 'x'", "a <> 'x'", "a = b", "a"):
        assert parse_selector(text).equality is None


# --- SQLite says the same of conditions in which kinds agree

NAMES = {
    "i": st.integers(-5, 5),
    "f": st.sampled_from([-2.5, -1.0, 0.0, 0.5, 3.0]),
    "s": st.sampled_from(["", "a", "ab", "%", "a_b"]),
}
VALUES = st.fixed_dictionaries({name: st.none() | values for name, values in NAMES.items()})


def _numbers(depth: int) -> st.SearchStrategy[str]:
    leaf = st.sampled_from(["i", "f", "0", "1", "2", "7", "1.5", "2e0"])
    if depth == 0:
        return leaf
    inner = _numbers(depth - 1)
    return leaf | st.tuples(inner, st.sampled_from("+-*"), inner).map(lambda each: f"({' '.join(each)})")


def _strings() -> st.SearchStrategy[str]:
    return st.sampled_from(["s", "'a'", "'ab'", "'%'", "''"])


def _conditions(depth: int) -> st.SearchStrategy[str]:
    signs = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
    leaf = st.one_of(
        st.tuples(_numbers(2), signs, _numbers(1)).map(" ".join),
        st.tuples(_strings(), st.sampled_from(["=", "<>"]), _strings()).map(" ".join),
        st.tuples(_numbers(1), st.sampled_from(["BETWEEN", "NOT BETWEEN"]), _numbers(1), _numbers(1)).map(
            lambda each: f"{each[0]} {each[1]} {each[2]} AND {each[3]}"
        ),
        st.sampled_from(["IN", "NOT IN"]).map(lambda word: f"s {word} ('a', 'b', '%')"),
        st.tuples(st.sampled_from(["LIKE", "NOT LIKE"]), st.text("ab%_!", max_size=5)).map(
            lambda each: f"s {each[0]} '{each[1].replace('!', '!!')}' ESCAPE '!'"
        ),
        st.sampled_from(["i IS NULL", "f IS NOT NULL", "s IS NULL", "TRUE", "FALSE"]),
    )
    if depth == 0:
        return leaf
    inner = _conditions(depth - 1)
    return leaf | st.one_of(
        inner.map(lambda each: f"NOT ({each})"),
        st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(
            lambda each: f"({each[0]}) {each[1]} ({each[2]})"
        ),
        st.tuples(inner, inner, inner).map(lambda each: f"NOT {each[0]} AND {each[1]} OR {each[2]}"),
    )


@examples(600)
@given(_conditions(2), st.lists(VALUES, min_size=1, max_size=5))
def test_it_agrees_with_sqlite(text: str, messages: list[dict[str, Any]]) -> None:
    """SQL-92 as somebody else reads it."""
    try:
        selector = parse_selector(text)
    except SelectorError as error:
        assert "words and signs" in str(error) or "levels" in str(error), text
        return
    database = sqlite3.connect(":memory:")
    database.execute("PRAGMA case_sensitive_like = 1")
    for fields in messages:
        row = database.execute(
            f"SELECT {text} FROM (SELECT ? AS i, ? AS f, ? AS s)", [fields["i"], fields["f"], fields["s"]]
        ).fetchone()
        expected = None if row[0] is None else bool(row[0])
        assert selector.matches(fields.get) is expected, (text, fields)


@examples(500)
@given(st.text("ab%_", max_size=8), st.text("ab\n", max_size=10))
def test_like_by_definition(pattern: str, text: str) -> None:
    """By trying everything, as the definition has it."""

    def fits(pattern: str, text: str) -> bool:
        if not pattern:
            return not text
        if pattern[0] == "%":
            return any(fits(pattern[1:], text[at:]) for at in range(len(text) + 1))
        return bool(text) and pattern[0] in ("_", text[0]) and fits(pattern[1:], text[1:])

    assert LikePattern(pattern).fits(text) is fits(pattern, text)


def test_the_likes_of_a_selector_share_their_steps() -> None:
    """What is too large for its share of LIKE_STEPS is unknown; an anchored text is compared at once."""
    for count in (1, 2, 5):
        share = LIKE_STEPS // count
        condition = " AND ".join(["a LIKE '%x%'"] * count)
        for length, found in ((share, True), (share + 1, None)):
            text = "a" * (length - 1) + "x"
            assert parse_selector(condition).matches(partial(_always, text)) is found
    assert parse_selector("a LIKE 'x%x'").matches(partial(_always, "x" * 10 * LIKE_STEPS)) is True


def _always(value: object, _name: str) -> object:
    return value


WORDS = "a 'x' 1 ( ) AND OR NOT = < + - * / IN LIKE ESCAPE BETWEEN IS NULL TRUE , 0x 1e9 '".split()


@examples(400)
@given(st.text(max_size=60) | st.lists(st.sampled_from(WORDS), max_size=20).map(" ".join))
def test_any_text_is_a_selector_or_refused(text: str) -> None:
    """Nothing else comes of what a peer sends; and what is one judges any message."""
    try:
        selector = parse_selector(text)
    except SelectorError:
        return
    for value in (None, 0, 1.5, "x", True, b"x"):
        assert selector.matches(partial(_always, value)) in (True, False, None)


HOSTILE = {
    "many wildcards": ("a LIKE '" + "%a" * 1_900 + "b'", "a" * 100),
    "wildcards of one": ("a LIKE '%" + "_" * 200 + "b%'", "a" * 100_000),
    "many likes": (" OR ".join(["a LIKE '%a%a%a%a%a%a%b'"] * (SELECTOR_TOKENS // 4)), "a" * 100),
    "many comparisons": (" OR ".join(["a = 'b'"] * (SELECTOR_TOKENS // 4)), "a" * 100),
    "large texts": (" OR ".join([f"a LIKE '%ab{each}%'" for each in range(50)]), "a" * 1_000_000),
    "texts as large as may be": (
        " OR ".join([f"a LIKE '%ab{each}%'" for each in range(40)]), "a" * (LIKE_STEPS // 40)
    ),
    "one text as large as may be": ("a LIKE '%" + "a" * 4_000 + "b%'", "a" * LIKE_STEPS),
    "ones that begin late": (
        " OR ".join(["a LIKE '%_a_b_c%'"] * 40), "a" * (LIKE_STEPS // 40 // 6)
    ),
    "large numbers": (" * ".join(["9223372036854775807"] * 99) + " = 1", "a"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_selector_is_bounded(kind: str) -> None:
    """Whatever is asked, a message is judged in 100 microseconds; twice as many, where a machine is slow."""
    text, value = HOSTILE[kind]
    selector = parse_selector(text)
    assert selector.matches(lambda _name: value) in (False, None)
    assert fastest(lambda: selector.matches(lambda _name: value), 200) < 200e-6
