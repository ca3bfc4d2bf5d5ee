"""Write the ratchet again: `python -m tests.tidy.ratchet` lists the modules above 150 lines with their
bounds.

Run it when a module has shrunk, or when it has good reasons to be long; the change then shows in review.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

from tests.tidy.sources import SHIPPED, python_files

RATCHET = Path(__file__).with_name("module_sizes.toml")
HEAD = "# Modules above 150 lines and what they may come to; written by `python -m tests.tidy.ratchet`."
FREE_LINES = 150
MOST_LINES = 500
# A bound is rounded up to this, so that a fix of three lines does not need a new one.
STEP_LINES = 25


def sizes() -> dict[str, int]:
    """Lines of each shipped module."""
    return {name: text.count("\n") for name, text in python_files(*SHIPPED).items()}


def bounds() -> dict[str, int]:
    """The allowed sizes of the modules above 150 lines."""
    loaded: dict[str, int] = tomllib.loads(RATCHET.read_text())["lines"]
    return loaded


def bound_for(lines: int) -> int:
    """The smallest bound that fits."""
    return min(MOST_LINES, -(-lines // STEP_LINES) * STEP_LINES)


def main() -> None:
    """Write the file."""
    long = {name: lines for name, lines in sizes().items() if lines > FREE_LINES}
    lines = [HEAD, "[lines]"]
    lines += [f'"{name}" = {bound_for(size)}' for name, size in sorted(long.items())]
    RATCHET.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
