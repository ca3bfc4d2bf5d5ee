"""The fenced blocks of the README, as they stand there."""

from __future__ import annotations

import re
from typing import Final

import attrs

from tests.tidy.sources import text_files

_BLOCK: Final = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@attrs.frozen
class Snippet:
    """One of them, with the language that stands at its fence."""

    language: str
    text: str

    @property
    def title(self) -> str:
        """What it is known by: its first line that says something of it."""
        lines = [line.strip() for line in self.text.splitlines()]
        return next(line for line in lines if line and not line.startswith(("from ", "import ")))

    def at(self, port: int) -> str:
        """The text, for a broker that listens on this port."""
        return self.text.replace("5672", str(port))


def readme_snippets() -> list[Snippet]:
    """All of them, in order."""
    return [Snippet(*found) for found in _BLOCK.findall(text_files()["README.md"])]


def snippet(title: str) -> Snippet:
    """The one whose title begins so."""
    (found,) = [each for each in readme_snippets() if each.title.startswith(title)]
    return found
