"""The law that octets of the wire stand in `frames` only: nobody else writes or reads them by hand."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator

import pytest

from tests.tidy.sources import SHIPPED, python_files

# Descriptors and format codes are written in hexadecimal; so are masks, all ones, and bounds of words.
HEXADECIMAL = re.compile(r"0x[0-9a-f]+", re.IGNORECASE)
MASK = re.compile(r"0x0*[137f]?f*|0x[1248]0{3,}", re.IGNORECASE)
# Octets spelled out, or a protocol header; text in ASCII is free.
OCTETS = re.compile(r"""[rR]?[bB][rR]?['"](?:.*\\(?:x|[0-7]{3})|AMQP)""", re.DOTALL)
# The wire is big-endian; what the store packs is not.
BIG_ENDIAN = re.compile(r"""[\w.]*([sS]truct|pack|unpack\w*)\(f?['"][>!]""")

# Whose business octets are, and why. A folder ends in "/".
ALLOWED = {
    "frames/": "the room of the wire",
    "amqp_broker/testing/store_suite/": "the store's tests: bytes are bytes to it, also odd ones",
    "conformance/octets.py": "what scenarios send on purpose: spellings that our encoder never writes",
    "conformance/scenarios/": "the same",
    "conformance/messages.py": "sections as scenarios put them together on purpose, in any order",
    "amqp_broker/bench/stencil.py": "marks where numbers will stand, which are no encoding",
    "amqp_broker/testing/frame_tap.py": "cuts what passes by into pieces, also where it is no frame",
    "conformance/clients/": "programs with foreign codecs, whose values name descriptors",
    "persistence/schema.py": "SQLite's number for an application",
    "persistence/write_ahead_log.py": "SQLite's file format",
    "pipeline/variants.py": "Spark's variant, not the wire",
    "pipeline/packed_variants.py": "Spark's variant, not the wire",
}


def octets_in(text: str) -> Iterator[str]:
    """The octets of the wire that stand in a module, as readable places."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        word = token.string
        if token.type == tokenize.NUMBER and HEXADECIMAL.fullmatch(word) and not MASK.fullmatch(word):
            yield f"{token.start[0]} {word}"
        elif token.type == tokenize.STRING and OCTETS.match(word):
            yield f"{token.start[0]} {word:.60}"
    for number, line in enumerate(text.splitlines(), 1):
        if BIG_ENDIAN.search(line):
            yield f"{number} {line.strip():.60}"


def stands_in(name: str, places: tuple[str, ...]) -> bool:
    """Whether a module is one of these, or below one of them."""
    return any(name == place or place.endswith("/") and name.startswith(place) for place in places)


def breaks() -> dict[str, list[str]]:
    """The modules with octets of the wire in them, but for those whose business it is."""
    found = {
        name: list(octets_in(text))
        for name, text in python_files(*SHIPPED).items()
        if not stands_in(name, tuple(ALLOWED))
    }
    return {name: places for name, places in found.items() if places}


def test_octets_of_the_wire_stand_in_frames_only() -> None:
    """No descriptor, constructor, offset or packed frame is known outside of the room."""
    assert breaks() == {}


def test_what_is_allowed_is_needed() -> None:
    """A place that has become clean is taken off the list."""
    broken = [name for name, text in python_files(*SHIPPED).items() if any(octets_in(text))]
    assert [place for place in ALLOWED if not any(stands_in(name, (place,)) for name in broken)] == []


@pytest.mark.parametrize(
    "line",
    [
        r'HEAD = b"\x00\x53\x14\xc0"', "if data[at] == 0x40: pass", "code = 0x005315C0",
        'pack = Struct(">IBBH")', r"NULL = b'\100'", 'HEADER = b"AMQP" + version', r"state = rb'\x45'",
        'octets = struct.pack("!I", 7)', 'layout = struct.Struct(f">{size}s")',
    ],
)  # fmt: skip
def test_octets_are_found(line: str) -> None:
    """However they are written."""
    assert list(octets_in(line + "\n"))


@pytest.mark.parametrize(
    "line",
    [
        "number & 0xFFFFFFFF", "number & 0x7F", "half = 0x80000000", 'Struct("<BBHIq")', 'b"s" + value',
        r'b"a\0b"', r'"\x1b[0m"', '">"', 'f"{a} > {b}"', 'b"x-opt-seq-"', "limit = 0xFF",
    ],
)  # fmt: skip
def test_other_bytes_and_numbers_are_none(line: str) -> None:
    """Masks, the store's own columns, text."""
    assert not list(octets_in(line + "\n"))
