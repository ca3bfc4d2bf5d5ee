"""The report for people: progress while it runs, then failures with their dialogue and sentence, then the
counts.
"""

import textwrap
from typing import TextIO

from amqp_broker.conformance.broker import Findings, Settings
from amqp_broker.conformance.outcomes import Verdict
from amqp_broker.conformance.requirements import KINDS, load_requirements
from amqp_broker.conformance.runner import Report, Result

COLOURS = {Verdict.PASSED: "32", Verdict.FAILED: "31", Verdict.SKIPPED: "33"}

WIDTH = 110


class TerminalReport:
    """Writes to a terminal, or plain lines elsewhere."""

    def __init__(self, out: TextIO, total: int, *, transcripts: bool = False) -> None:
        self._out = out
        self._total = total
        self._transcripts = transcripts
        self._done = 0
        self._colour = out.isatty()

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
        self._done += 1
        word = self._paint(f"{result.verdict.value:7}", result.verdict)
        counter = f"[{self._done:{len(str(self._total))}}/{self._total}]"
        self._line(f"{counter} {word} {result.scenario.id:42} {result.scenario.title}")
        if self._transcripts:
            for line in result.transcript:
                self._line("      " + line)
        self._out.flush()

    def finish(self, report: Report) -> None:
        """Writes skips, failures and counts."""
        self._skips(report)
        self._failures(report)
        self._rows(report)
        passed, failed, skipped = (
            report.count(verdict) for verdict in (Verdict.PASSED, Verdict.FAILED, Verdict.SKIPPED)
        )
        verdict = Verdict.FAILED if failed else Verdict.PASSED
        self._line(
            self._paint(
                f"scenarios: {passed} passed, {failed} failed, {skipped} skipped in {report.seconds:.1f} s",
                verdict,
            )
        )
        self._out.flush()

    def _skips(self, report: Report) -> None:
        skips: dict[str, list[str]] = {}
        for result in report.results:
            if result.verdict is Verdict.SKIPPED:
                skips.setdefault(result.message, []).append(result.scenario.id)
        if not skips:
            return
        self._line("\nSkipped, and why")
        for reason, ids in skips.items():
            self._line(f"  {len(ids):3}  {reason}")
            for line in textwrap.wrap(", ".join(ids), WIDTH - 7):
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

    def _rows(self, report: Report) -> None:
        self._line("\nRequirements of the standard (parts 1, 2, 3, 5)")
        for status in ("passed", "failed", "skipped", "left out"):
            if report.count_rows(status):
                self._line(f"  {report.count_rows(status):4}  {status}")
        for kind, meaning in KINDS.items():
            count = sum(row.status == "unseen" and row.requirement.kind == kind for row in report.rows)
            if count:
                self._line(f"  {count:4}  no scenario: {meaning}")
        self._line()
