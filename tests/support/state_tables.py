"""Tables of states, written out."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any


def moves(
    table: Mapping[Any, Mapping[Any, Any]], states: type[Enum], inputs: type[Enum]
) -> dict[str, str]:
    """For each state what may happen and where it leads; the table has an entry for each pair."""
    assert set(table) == set(states) and all(set(row) == set(inputs) for row in table.values())
    return {
        state.value: ", ".join(f"{what.value} > {row[what].value}" for what in inputs if row[what])
        for state, row in table.items()
    }
