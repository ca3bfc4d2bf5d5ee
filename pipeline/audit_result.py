"""What an audit came to, as values: the verdict, the findings with counter-examples, and the tables."""

from __future__ import annotations

import json
from typing import Any, Final

import attrs

FAULT: Final = "fault"
PASS: Final = "PASS"
FAIL: Final = "FAIL"


@attrs.frozen
class Finding:
    """One counter-example."""

    key: str
    detail: str
    example: str


@attrs.frozen
class Kind:
    """All findings of one kind: how many, and the first few."""

    audit: str
    kind: str
    severity: str
    count: int
    findings: tuple[Finding, ...]


@attrs.frozen
class AuditResult:
    """One run of the audits. `log` tells from where to where the log goes, and of how
    many seconds the `steps` of the traffic are, `audits` how long each took."""

    archive: str
    log: dict[str, Any]
    messages: int
    audits: dict[str, float]
    kinds: tuple[Kind, ...] = ()
    steps: tuple[dict[str, Any], ...] = ()
    resolvers: tuple[dict[str, Any], ...] = ()
    deaths: tuple[dict[str, Any], ...] = ()
    clients: tuple[dict[str, Any], ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def faults(self) -> int:
        """How many findings must not be."""
        return sum(kind.count for kind in self.kinds if kind.severity == FAULT)

    @property
    def warnings(self) -> int:
        """How many somebody should look at."""
        return sum(kind.count for kind in self.kinds if kind.severity != FAULT)

    @property
    def verdict(self) -> str:
        """PASS, or FAIL if there is a fault."""
        return FAIL if self.faults else PASS

    def to_json(self) -> str:
        """Everything, for other programs."""
        judged = {"verdict": self.verdict, "faults": self.faults, "warnings": self.warnings}
        return json.dumps({**judged, **attrs.asdict(self)}, indent=1, default=str)


def text_of(result: AuditResult) -> str:
    """The result for a terminal: the verdict first, then each kind with its first counter-examples."""
    lines = [
        f"{result.verdict}: {result.faults:,} faults and {result.warnings:,} warnings in "
        f"{result.log['events']:,} events of {result.messages:,} messages"
    ]
    lines += [f"note: {note}" for note in result.notes]
    for kind in result.kinds:
        lines.append(f"{kind.severity} {kind.audit}: {kind.kind}, {kind.count:,} times")
        lines += [f"    {each.key}: {each.detail} ({each.example})" for each in kind.findings[:3]]
    return "\n".join(lines)
