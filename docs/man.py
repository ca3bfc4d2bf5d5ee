"""The pages of the manual, written from the declarations of the commands: `python -m docs.man DIRECTORY`.

It needs `pip install 'amqp-broker[man]'`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

from argparse_manpage.manpage import Manpage

from amqp_broker import command_line
from amqp_broker.bench.command_line import make_parser as bench_parser
from amqp_broker.conformance.command_line import make_parser as conformance_parser
from amqp_broker.pipeline.command_line import parser as pipeline_parser
from amqp_broker.version import VERSION

SECTION: Final = "1"


def pages() -> dict[str, str]:
    """Each page by the name of its file."""
    parsers = (command_line.make_parser(), bench_parser(), pipeline_parser(), conformance_parser())
    return {f"{parser.prog.replace(' ', '-')}.{SECTION}": page(parser) for parser in parsers}


def page(parser: argparse.ArgumentParser) -> str:
    """The page of one command and of those below it."""
    name = parser.prog.replace(" ", "-")
    told = {
        "prog": name, "project_name": "amqp-broker", "version": VERSION, "manual_section": SECTION,
        "manual_title": "AMQP 1.0 broker", "description": (parser.description or "").rstrip("."),
    }  # fmt: skip
    return str(Manpage(parser, _data=told))


def main(directory: str) -> None:
    """Write all pages there."""
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
