"""The style guide as a test: sizes, words, left-overs, and how tests are written."""

from __future__ import annotations

import ast
import io
import keyword
import re
import tokenize

from tests.tidy.sources import SHIPPED, functions, python_files, text_files, tree

MOST_FUNCTION_LINES = 60
# The first word is split, so that this file does not find itself.
LEFT_OVER = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|NotImplemented" r"Error)\b")
HOLLOW = re.compile(
    r"assert Tr" r"ue\b|pytest\.sk" r"ip\(|mark\.(sk" r"ip|xf" r"ail)|except Exception:\s*pa" r"ss\b"
)
MACHINE = re.compile(r"(?<![\w.:/])/(?:ho" r"me|ro" r"ot|Us" r"ers|wo" r"rk)/\w")
PRIVATE = re.compile(r"(?<![\d.])(?:10\.\d+|192\.168|172\.(?:1[6-9]|2\d|3[01]))\.\d+\.\d+(?![\d.])")
# "publish" and "exchange" are other protocols' words; "ack" is what a disposition is not (style.md, "Words").
BANNED_WORDS = set(
    "ack acks acked acking nack nacks nacked prefetch prefetched publish published publisher publishers "
    "exchange exchanges".split()
)
# trio.sleep is not among them: the clock of a trio test is virtual.
SLEEPS = {"time.sleep", "asyncio.sleep", "sleep"}
WORDED_ROOMS = ("amqp_broker", "frames", "links", "persistence", "coordinator")


def matches(pattern: re.Pattern[str]) -> list[str]:
    """Where a pattern stands in the project's Python, as readable places."""
    return [
        f"{name}: {match[0]}" for name, text in python_files().items() for match in pattern.finditer(text)
    ]


def words_of(identifier: str) -> set[str]:
    """The words that a snake_case or CamelCase name is made of."""
    return {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", identifier)}


def test_no_function_is_above_60_lines() -> None:
    """A function that does not fit on a screen is two functions."""
    long = []
    for name in python_files():
        for function in functions(name):
            lines = (function.end_lineno or 0) - function.lineno + 1
            if lines > MOST_FUNCTION_LINES:
                long.append(f"{name}:{function.lineno} {function.name}: {lines} lines")
    assert long == []


def test_nothing_is_left_over() -> None:
    """What is unfinished is an issue, not a comment."""
    assert matches(LEFT_OVER) == []


def test_no_hollow_tests_and_no_swallowed_errors() -> None:
    """A test that cannot fail is a defect, and so is an error that nobody sees."""
    assert matches(HOLLOW) == []


def test_nothing_names_the_machine_it_was_written_on() -> None:
    """No home directories, no working trees, no private addresses."""
    found = []
    for name, text in text_files().items():
        found += [f"{name}: {match[0]}" for match in (*MACHINE.finditer(text), *PRIVATE.finditer(text))]
    assert found == []


def test_names_use_the_words_of_the_standard() -> None:
    """Identifiers avoid other protocols' words; strings and comments are free."""
    found = []
    for name, text in python_files(*WORDED_ROOMS).items():
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.NAME and not keyword.iskeyword(token.string):
                if words_of(token.string) & BANNED_WORDS:
                    found.append(f"{name}:{token.start[0]} {token.string}")
    assert found == []


def test_every_test_says_in_a_sentence_what_it_shows() -> None:
    """A test's docstring is one sentence."""
    bare = []
    for name in python_files("tests"):
        if not name.rsplit("/", 1)[-1].startswith("test_"):
            continue
        for function in functions(name):
            if function.name.startswith("test_") and not ast.get_docstring(function):
                bare.append(f"{name}:{function.lineno} {function.name}")
    assert bare == []


def test_every_public_function_of_the_package_has_a_docstring() -> None:
    """What others call says what it means, its units and what it raises."""
    bare = []
    for name in python_files(*SHIPPED):
        if name.startswith("conformance/clients/"):
            continue
        for node in tree_definitions(name):
            if not node.name.startswith("_") and not ast.get_docstring(node):
                bare.append(f"{name}:{node.lineno} {node.name}")
    assert bare == []


def tree_definitions(name: str) -> list[ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    """The classes and functions at the top of a module."""
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return [node for node in tree(name).body if isinstance(node, kinds)]


def test_no_test_sleeps() -> None:
    """A test waits for what it waits for, or moves a virtual clock."""
    found = []
    for name in python_files("tests"):
        for function in functions(name):
            if not function.name.startswith("test_"):
                continue
            for node in ast.walk(function):
                if isinstance(node, ast.Call) and ast.unparse(node.func) in SLEEPS:
                    found.append(f"{name}:{node.lineno}")
    assert found == []
