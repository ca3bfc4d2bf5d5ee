"""Reports: terminal, JUnit XML, JSON, and the statement's table."""

import io
import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from amqp_broker.client.settings import Endpoint
from amqp_broker.conformance.broker import Findings, Settings
from amqp_broker.conformance.dialogue_rules import Breach
from amqp_broker.conformance.dialogue_state import SERVER
from amqp_broker.conformance.outcomes import Verdict
from amqp_broker.conformance.report_files import json_report, junit_xml
from amqp_broker.conformance.report_terminal import TerminalReport
from amqp_broker.conformance.runner import Report, Result, judge_rows
from amqp_broker.conformance.scenario import load_scenarios
from amqp_broker.conformance.statement import (
    BEGIN,
    END,
    counts_table,
    standard_rows,
    statuses_of,
    unseen_list,
    update_document,
)

BY_THE_WAY = Breach("2.4.3-02", SERVER, 7, "flow after close <\x07>", "MUST")

TRANSCRIPT = ("      0 ms  -> header AMQP 0 2.0.0", "      1 ms  <- bell \x07")


def example_report() -> Report:
    """A run of three scenarios: one passed, one failed, one was skipped."""
    by_id = {one.id: one for one in load_scenarios()}
    results = (
        Result(by_id["2.2/supported-version"], Verdict.PASSED, 0.01),
        Result(by_id["2.2/higher-major"], Verdict.FAILED, 0.02, "expected this, got \x07", TRANSCRIPT),
        Result(by_id["5.3.2/plain"], Verdict.SKIPPED, 0.0, "no user is given", breaches=(BY_THE_WAY,)),
    )
    findings = Findings(("PLAIN",), False, "broker", {"product": "testing", "version": "1"})
    settings = Settings(Endpoint("localhost", 5672, False, "user", "secret"), run_id="abc", findings=findings)
    return Report(settings, findings, "core", results, tuple(judge_rows(list(results))), 1.5)


def test_junit_has_a_case_for_each_scenario_and_requirement() -> None:
    """JUnit XML is well-formed whatever a peer sent, and counts what it holds."""
    report = example_report()
    scenarios, requirements = ElementTree.fromstring(junit_xml(report))
    assert [scenarios.get(key) for key in ("tests", "failures", "skipped")] == ["3", "1", "1"]
    assert len(scenarios.findall("testcase")) == 3
    failure = scenarios.find("testcase/failure")
    assert failure is not None and failure.text is not None
    assert (
        "-> header AMQP 0 2.0.0" in failure.text and "the server MUST send a protocol header" in failure.text
    )
    cases = requirements.findall("testcase")
    assert len(cases) == len(standard_rows()) == int(requirements.get("tests", "0"))
    assert len([case for case in cases if case.find("failure") is not None]) == int(
        requirements.get("failures", "0")
    )
    skipped = [case for case in cases if case.find("skipped") is not None]
    assert len(skipped) == int(requirements.get("skipped", "0"))
    assert all((case.find("skipped") or ElementTree.Element("x")).get("message") != ": " for case in skipped)


def test_json_has_a_row_for_each_requirement() -> None:
    """JSON carries each row with section, sentence, status and scenarios; the password is nowhere."""
    text = json.dumps(json_report(example_report()))
    report = json.loads(text)
    rows = {row["id"]: row for row in report["requirements"]}
    assert list(rows) == [row.id for row in standard_rows()]
    assert rows["2.2-07"]["status"] == "failed" and rows["2.2-06"]["status"] == "passed"
    assert rows["2.2-07"]["section"] == "2.2" and rows["2.2-07"]["sentence"].startswith("If the requested")
    assert rows["2.2-04"]["status"] == "unseen" and rows["2.2-04"]["reason"]
    assert report["scenarios_counts"] == {"passed": 1, "failed": 1, "skipped": 1, "admitted": 0, "not run": 0}
    by_the_way = {one["id"]: one["by_the_way"] for one in report["scenarios"] if one["by_the_way"]}
    assert by_the_way == {"5.3.2/plain": [{"rule": "2.4.3-02", "text": BY_THE_WAY.text}]}
    assert "secret" not in text


def test_the_terminal_shows_failures_with_sentence_and_dialogue() -> None:
    """The terminal report has progress, skips with their reason, failures in full, and the counts."""
    out = io.StringIO()
    report = example_report()
    terminal = TerminalReport(out, 3)
    terminal.begin(report.settings, report.findings, "core")
    for result in report.results:
        terminal.progress(result)
    terminal.finish(report)
    text = out.getvalue()
    assert "[2/3] failed   2.2/higher-major" in text
    assert "BROKEN BY THE WAY 2.4.3-02\n  in 5.3.2/plain: flow after close" in text
    assert '"This frame MUST be the last thing ever written onto a Connection."' in text
    assert "no user is given" in text and "-> header AMQP 0 2.0.0" in text
    assert '2.2-07 Version Negotiation: "If the requested protocol version is not supported' in text
    assert text.endswith("scenarios: 1 passed, 1 failed, 1 skipped, 0 admitted, 0 not run in 1.5 s\n")
    assert "secret" not in text and "\x1b" not in text


def test_the_statement_counts_every_row() -> None:
    """The table's last line is the sum of the others, and counts all rows of the standard."""
    lines = counts_table({}).splitlines()
    numbers = [[int(cell) for cell in line.split("|")[2:-1]] for line in lines[2:] if line.startswith("|")]
    assert numbers[-1] == [sum(column) for column in zip(*numbers[:-1], strict=True)]
    assert numbers[-1][0] == len(standard_rows()) == sum(numbers[-1][1:])


def test_the_statement_takes_a_runs_results(tmp_path: Path) -> None:
    """With the JSON of a run the table says what passed and failed."""
    path = tmp_path / "run.json"
    path.write_text(json.dumps(json_report(example_report())))
    statuses = statuses_of(path)
    assert statuses["2.2-07"] == "failed"
    assert "| passed | failed | admitted | skipped |" in counts_table(statuses)


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    """JSON of something else is refused with its name."""
    path = tmp_path / "other.json"
    path.write_text("{}")
    with pytest.raises(ValueError, match=r"other\.json is not the JSON of a run"):
        statuses_of(path)


def test_rows_without_a_scenario_are_listed() -> None:
    """The list of what is not shown has every such row with its reason."""
    text = unseen_list()
    assert "`2.2-04` (client)" in text
    assert text.count("\n") + 1 == sum(bool(row.reason) for row in standard_rows())


def test_a_document_keeps_what_stands_around_the_table(tmp_path: Path) -> None:
    """Only the generated part is replaced; a document without one is refused."""
    path = tmp_path / "DOC.md"
    path.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    update_document(path, "new")
    assert path.read_text() == f"before\n{BEGIN}\n\nnew\n\n{END}\nafter\n"
    path.write_text("nothing")
    with pytest.raises(ValueError, match="has no part between"):
        update_document(path, "new")
