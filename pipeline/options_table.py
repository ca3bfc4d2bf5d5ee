"""The table of options as Markdown, for SPARK.md: `python -m amqp_broker.pipeline.options_table`."""

from __future__ import annotations

from typing import Any

from amqp_broker.pipeline.options import BOTH, OPTIONS, SECTIONS


def table() -> str:
    """A row for each option."""
    lines = ["| option | of | default | expected | meaning |", "|---|---|---|---|---|"]
    for option in OPTIONS:
        side = "both" if option.sides == BOTH else option.sides[0]
        cells = (f"`{option.name}`", side, _shown(option.default), option.expected, option.meaning)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _shown(default: Any) -> str:
    if default is None:
        return ""
    if default == SECTIONS:
        return "all"
    if isinstance(default, bool):
        return str(default).lower()
    return str(default)


if __name__ == "__main__":
    print(table())
