"""The reference says what the program says."""

from __future__ import annotations

import ast
import re

from amqp_broker.authorisation import ACTIONS
from docs.generate import PAGES, PARTS, generated, parts_of
from tests.tidy.sources import python_files, tree

CONDITION = re.compile(r"(?:amqp|half|retained|seq):[a-z:-]+")
DESCRIPTOR = re.compile(r".*(:(list|map|binary)|-filter)")
CAPABILITIES = {"amqp:local-transactions", "amqp:multi-ssns-per-txn", "amqp:multi-txns-per-ssn"}
OWN_NODE = re.compile(r"\$[a-z-]+")
BROKER = ("amqp_broker", "coordinator", "frames", "links")
FOR_USERS = ("amqp_broker/bench/", "amqp_broker/client/", "amqp_broker/testing/")


def page(name: str) -> str:
    """One page of the site."""
    return (PAGES / name).read_text(encoding="utf-8")


def first_cells(text: str) -> list[str]:
    """What stands in code in the first column of the tables."""
    return re.findall(r"^\| (`.+?) \|", text, re.MULTILINE)


def said(pattern: re.Pattern[str]) -> set[str]:
    """The strings of the broker's code that are of this form."""
    names = [name for name in python_files(*BROKER) if not name.startswith(FOR_USERS)]
    nodes = [node for name in names for node in ast.walk(tree(name)) if isinstance(node, ast.Constant)]
    return {node.value for node in nodes if isinstance(node.value, str) and pattern.fullmatch(node.value)}


def test_the_generated_parts_are_those_of_today() -> None:
    """`python -m docs.generate` would change nothing, and each part has one place."""
    pages = {path: path.read_text(encoding="utf-8") for path in PAGES.rglob("*.md")}
    assert sorted(part for text in pages.values() for part in parts_of(text)) == sorted(PARTS)
    assert [path.name for path, text in pages.items() if generated(text) != text] == []


def test_every_condition_is_explained_and_no_other() -> None:
    """Those that stand in the code of the broker, in their order."""
    found = {condition for condition in said(CONDITION) if not DESCRIPTOR.fullmatch(condition)}
    explained = first_cells(page("reference/addresses.md").split("## Conditions")[1])
    assert explained == [f"`{condition}`" for condition in sorted(found - CAPABILITIES)]


def test_every_node_of_the_broker_is_explained_and_no_other() -> None:
    """Those whose names begin with `$`."""
    explained = first_cells(page("reference/addresses.md").split("## Conditions")[0])
    assert {found[0] for cell in explained if (found := OWN_NODE.search(cell))} == said(OWN_NODE)


def test_every_right_is_explained_and_no_other() -> None:
    """The actions of an access rule."""
    explained = first_cells(page("how-to/securing.md").split("| action |")[1])
    assert sorted(re.findall(r"`([\w-]+)`", " ".join(explained))) == sorted(ACTIONS)
