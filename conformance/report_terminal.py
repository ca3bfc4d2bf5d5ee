"""The report for people: progress while it runs, then failures with their dialogue and sentence, then the
counts.
"""

import os
import textwrap
from typing import TextIO

from amqp_broker.conformance.broker import Findings, Settings
from amqp_broker.conformance.outcomes import Verdict
from amqp_broker.conformance.requirements import KINDS, load_requirements
from amqp_broker.conformance.runner import Report, Result

COLOURS = {
    Verdict.PASSED: "32",
    Verdict.FAILED: "31",
    Verdict.SKIPPED: "33",
    Verdict.ADMITTED: "35",
    Verdict.NOT_RUN: "90",
}

WIDTH = 110


class TerminalReport:
    """Writes to a terminal, or plain lines elsewhere."""

    def __init__(self, out: TextIO, total: int, *, transcripts: bool = False) -> None:
        self._out = out
        self._total = total
        self._transcripts = transcripts
        self._done: set[str] = set()
        self._person = out.isatty()
        self._colour = self._person and not os.environ.get("NO_COLOR")

    def _line(self, text: str = "") -> None:
        self._out.write(text + "\n")

    def _paint(self, text: str, verdict: Verdict) -> str:
        return f"\x1b[{COLOURS[verdict]}m{text}\x1b[0m" if self._colour else text

    def begin(self, settings: Settings, findings: Findings, profile: str) -> None:
        """Writes what is tested."""
        product = " ".join(
            str(findings.properties[key]) for key in ("product", "version") if key in findings.properties
        )
        offered = ", ".join(findings.mechanisms) or "none"
        bare = "accepted" if findings.bare_header else "not accepted"
        self._line(f"broker   {settings.address}  {product or findings.container_id}")
        self._line(f"logins   SASL {offered}; AMQP without SASL {bare}")
        self._line(
            f"run      {self._total} scenarios, profile {profile}, queues {settings.address_prefix}"
            f"conformance-{settings.run_id}-..."
        )
        self._line()
        self._out.flush()

    def progress(self, result: Result) -> None:
        """Writes one line as a scenario ends."""
        self._done.add(result.scenario.id)
        word = self._paint(f"{result.verdict.value:8}", result.verdict)
        counter = f"[{len(self._done):{len(str(self._total))}}/{self._total}]"
        self._line(f"{counter} {word} {result.scenario.id:42} {result.scenario.title}")
        if self._transcripts:
            for line in result.transcript:
                self._line("      " + line)
        self._out.flush()

    def finish(self, report: Report) -> None:
        """Writes skips, admitted gaps, failures and counts."""
        self._grouped(report, Verdict.SKIPPED, "Skipped, and why")
        self._grouped(report, Verdict.ADMITTED, "Admitted gaps, and why")
        self._grouped(report, Verdict.NOT_RUN, "Not run, and why")
        self._failures(report)
        self._by_the_way(report)
        self._incidents(report)
        self._rows(report)
        counts = ", ".join(f"{report.count(verdict)} {verdict.value}" for verdict in Verdict)
        overall = Verdict.FAILED if report.count(Verdict.FAILED) else Verdict.PASSED
        self._line(self._paint(f"scenarios: {counts} in {report.seconds:.1f} s", overall))
        self._out.flush()

    def _grouped(self, report: Report, verdict: Verdict, title: str) -> None:
        reasons: dict[str, list[str]] = {}
        for result in report.results:
            if result.verdict is verdict:
                reasons.setdefault(result.message, []).append(result.scenario.id)
        if not reasons:
            return
        self._line("\n" + title)
        for reason, ids in reasons.items():
            lines = textwrap.wrap(reason, WIDTH - 7)
            self._line(f"  {len(ids):3}  {lines[0]}")
            for line in lines[1:] + textwrap.wrap(", ".join(ids), WIDTH - 7):
                self._line("       " + line)

    def _failures(self, report: Report) -> None:
        requirements = load_requirements()
        for result in report.results:
            if result.verdict is not Verdict.FAILED:
                continue
            self._line(
                "\n"
                + self._paint(f"FAILED {result.scenario.id}", Verdict.FAILED)
                + f"  {result.scenario.title}"
            )
            self._line(f"  {result.message}")
            for row_id in result.scenario.rows:
                row = requirements[row_id]
                quoted = textwrap.wrap(f'{row.id} {row.title}: "{row.sentence}"', WIDTH - 4)
                for line in quoted:
                    self._line("    " + line)
            for line in result.transcript:
                self._line("      " + line)

    def _by_the_way(self, report: Report) -> None:
        """Rules that the broker broke in scenarios about others: each once, with the first place."""
        found: dict[str, list[tuple[str, str]]] = {}
        for result in report.results:
            for breach in result.breaches:
                found.setdefault(breach.rule, []).append((result.scenario.id, breach.text))
        requirements = load_requirements()
        for rule, places in found.items():
            row = requirements[rule]
            scenario, text = places[0]
            others = len({name for name, _ in places}) - 1
            more = f", and in {others} more" if others else ""
            self._line("\n" + self._paint(f"BROKEN BY THE WAY {rule}", Verdict.FAILED))
            self._line(f"  in {scenario}{more}: {text}")
            for line in textwrap.wrap(f'{row.title}: "{row.sentence}"', WIDTH - 4):
                self._line("    " + line)

    def _incidents(self, report: Report) -> None:
        for one in report.incidents:
            self._line("\n" + self._paint(f"THE BROKER {one.trouble.upper()}", Verdict.FAILED))
            self._line(f"  {one.detail}; {one.after}")
            which = "after" if one.proven else "while these ran, of which one may have done it:"
            names = ", ".join(one.scenarios) or "none that failed"
            for line in textwrap.wrap(f"{which} {names}", WIDTH - 4):
                self._line("    " + line)

    def _rows(self, report: Report) -> None:
        self._line("\nRequirements")
        self._line("  MUST  SHOULD  other")
        for status in ("passed", "failed", "admitted", "skipped", "not run", "left out"):
            if report.count_rows(status):
                must, should, other = (
                    report.count_rows(status, strength) for strength in ("MUST", "SHOULD", "other")
                )
                self._line(f"  {must:4}  {should:6}  {other:5}  {status}")
        for kind, meaning in KINDS.items():
            count = sum(row.status == "unseen" and row.requirement.kind == kind for row in report.rows)
            if count:
                self._line(f"  {count:19}  no scenario: {meaning}")
        self._line()
