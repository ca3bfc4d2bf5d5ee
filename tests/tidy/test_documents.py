"""What the documents name is there."""

from __future__ import annotations

import re

import pytest

from amqp_broker.conformance.scenario import load_scenarios
from tests.tidy.sources import ROOMS, ROOT, text_files

LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")
PATH = re.compile(r"`((?:[a-z_.]+/)[\w./]*)`")
DOCUMENTS = sorted(
    name for name in text_files() if name.endswith(".md") and ("/" not in name or name.startswith("docs/"))
)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_what_a_document_links_to_is_there(name: str) -> None:
    """Relative links name files of the project; the headings they name are for the build of the site."""
    folder = (ROOT / name).parent
    missing = [link for link in LINK.findall(text_files()[name]) if not (folder / link).exists()]
    assert not missing


@pytest.mark.parametrize("name", ["ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md"])
def test_the_paths_that_a_document_names_are_there(name: str) -> None:
    """Files and folders, so that nobody looks for a module that was renamed."""
    paths = PATH.findall(text_files()[name])
    assert [path for path in paths if not (ROOT / path).exists()] == []
    assert name == "CONTRIBUTING.md" or len(paths) > 20


def test_the_architecture_names_whole_paths() -> None:
    """Where a change goes: nobody has to know in which folder a row is."""
    rows = [line for line in text_files()["ARCHITECTURE.md"].splitlines() if line.startswith("| ")]
    named = [name for row in rows for name in re.findall(r"`([\w./-]+\.(?:py|toml|md))`", row)]
    assert [name for name in named if "/" not in name or not (ROOT / name).exists()] == []
    assert len(named) > 200


def test_the_architecture_names_every_room() -> None:
    """Each top-level package, and each package below `amqp_broker`."""
    text = text_files()["ARCHITECTURE.md"]
    inner = [path.parent.name for path in (ROOT / "amqp_broker").glob("*/__init__.py")]
    core = [name for name in inner if name not in {"bench", "client", "testing", *ROOMS}]
    assert [name for name in (*ROOMS, *core) if f"{name}/" not in text] == []


def test_what_shows_each_section_of_the_behaviour_paper_is_there() -> None:
    """The last cell of each row names scenarios, and tests by their file or one by one; no row is without."""
    texts = text_files()
    scenarios = {scenario.id for scenario in load_scenarios()}
    page = texts["docs/explanation/broker-behaviour.md"]
    rows = [line for line in page.splitlines() if line.startswith("| 2.")]
    assert len(rows) > 20
    for row in rows:
        named = re.findall(r"`([^`]+/[^`]+)`", row.rsplit("|", 2)[1])
        assert named, row
        for name in named:
            path, _, function = name.partition("::")
            wanted = f"def {function}(" if function else "def test_"
            assert name in scenarios or wanted in texts.get(path, ""), name
