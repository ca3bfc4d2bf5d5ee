"""Known gaps of one broker: scenarios that fail there, each with the reason in prose.

    [[gap]]
    scenario = "3.2.10/unknown-annotation"
    reason = "Annotations that nobody knows are kept, not refused: what existing clients rely on."

A gap is admitted, not hidden: the report shows the scenario with its reason, and a scenario of the list
that passes is a failure of the list.
"""

import tomllib
from pathlib import Path

from amqp_broker.conformance.scenario import load_scenarios


def load_gaps(path: Path) -> dict[str, str]:
    """Returns scenario id to reason; raises OSError, or ValueError that says what is wrong with the file."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: {error}") from error
    known = {one.id for one in load_scenarios()}
    gaps: dict[str, str] = {}
    for gap in table.get("gap", []):
        if set(gap) != {"scenario", "reason"} or not all(isinstance(value, str) for value in gap.values()):
            raise ValueError(f"{path}: a gap has exactly the keys scenario and reason, not {sorted(gap)}")
        if gap["scenario"] not in known:
            raise ValueError(f"{path}: no scenario is called {gap['scenario']!r}")
        gaps[gap["scenario"]] = gap["reason"]
    return gaps
