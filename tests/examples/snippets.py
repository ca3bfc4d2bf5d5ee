"""The fenced blocks of the README and of the site, as they stand there."""

from __future__ import annotations

import re
from typing import Final

import attrs

from tests.tidy.sources import text_files

_BLOCK: Final = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@attrs.frozen
class Snippet:
    """One of them, with the document that it stands in and the language at its fence."""

    document: str
    language: str
    text: str

    @property
    def title(self) -> str:
        """What it is known by: its first line that says something of it."""
        lines = [line.strip() for line in self.text.splitlines()]
        return next(line for line in lines if line and not line.startswith(("from ", "import ")))

    def at(self, port: int) -> Snippet:
        """The same, for a broker that listens on this port."""
        return attrs.evolve(self, text=self.text.replace("5672", str(port)))


def documents() -> dict[str, str]:
    """The README and the pages of the site."""
    return {
        name: text
        for name, text in text_files().items()
        if name == "README.md" or name.startswith("docs/") and name.endswith(".md")
    }


def snippets(document: str = "", language: str = "") -> list[Snippet]:
    """Those of one document or of all, in one language or in all, in order."""
    found = [Snippet(name, *block) for name, text in documents().items() for block in _BLOCK.findall(text)]
    return [each for each in found if document in ("", each.document) and language in ("", each.language)]


def snippet(title: str) -> Snippet:
    """The one whose title begins so."""
    (found,) = [each for each in snippets() if each.title.startswith(title)]
    return found
