"""The report in files: JUnit XML, JSON with one object for each requirement, and a page made of that."""

import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import attrs

from amqp_broker.conformance.outcomes import Verdict
from amqp_broker.conformance.report_html import report_page
from amqp_broker.conformance.requirements import KINDS, load_requirements
from amqp_broker.conformance.runner import Report, Result, Row

STATUSES = ("passed", "failed", "admitted", "skipped", "not run", "unseen", "left out")
"""Of a row of the standard."""

NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 cannot carry; peers' octets may hold it."""


def _for_xml(text: str) -> str:
    return NOT_IN_XML.sub("\N{REPLACEMENT CHARACTER}", text)


def _sentences(result: Result) -> str:
    rows = load_requirements()
    return "\n".join(f'{row_id}: "{rows[row_id].sentence}"' for row_id in result.scenario.rows)


def _scenario_case(suite: ElementTree.Element, result: Result) -> None:
    case = ElementTree.SubElement(
        suite,
        "testcase",
        classname=f"scenario.{result.scenario.section}",
        name=result.scenario.id,
        time=f"{result.seconds:.3f}",
    )
    if result.verdict is Verdict.FAILED:
        failure = ElementTree.SubElement(case, "failure", message=_for_xml(result.message))
        failure.text = _for_xml("\n".join([_sentences(result), "", *result.transcript]))
    elif result.verdict is not Verdict.PASSED:
        ElementTree.SubElement(case, "skipped", message=_for_xml(result.message))


def _requirement_case(suite: ElementTree.Element, row: Row) -> None:
    requirement = row.requirement
    case = ElementTree.SubElement(
        suite,
        "testcase",
        classname=f"requirement.{requirement.section} {requirement.title}",
        name=f"{requirement.id} {requirement.level}: {requirement.sentence}",
        time="0",
    )
    if row.status == "failed":
        why = row.reason or "failed: " + ", ".join(row.scenarios)
        ElementTree.SubElement(case, "failure", message=_for_xml(why))
    elif row.status != "passed":
        meaning = KINDS.get(requirement.kind, row.status) if row.status == "unseen" else row.status
        ElementTree.SubElement(case, "skipped", message=_for_xml(f"{meaning}: {row.reason}"))


def junit_xml(report: Report) -> bytes:
    """Returns the report as JUnit XML: a suite of scenarios, and a suite with one case for each
    requirement.
    """
    root = ElementTree.Element("testsuites", name="AMQP 1.0 conformance")
    suite = ElementTree.SubElement(
        root,
        "testsuite",
        name="scenarios",
        tests=str(len(report.results) + len(report.incidents)),
        failures=str(report.count(Verdict.FAILED)),
        skipped=str(sum(report.count(one) for one in (Verdict.SKIPPED, Verdict.ADMITTED, Verdict.NOT_RUN))),
        errors=str(len(report.incidents)),
        time=f"{report.seconds:.3f}",
    )
    for number, one in enumerate(report.incidents, 1):
        case = ElementTree.SubElement(
            suite, "testcase", classname="broker", name=f"incident {number}", time="0"
        )
        error = ElementTree.SubElement(
            case, "error", message=_for_xml(f"the broker {one.trouble}: {one.detail}")
        )
        error.text = _for_xml(
            f"{'after' if one.proven else 'after one of'} {', '.join(one.scenarios)}; {one.after}"
        )
    for result in report.results:
        _scenario_case(suite, result)
    passed, failed = report.count_rows("passed"), report.count_rows("failed")
    suite = ElementTree.SubElement(
        root,
        "testsuite",
        name="requirements",
        tests=str(len(report.rows)),
        failures=str(failed),
        skipped=str(len(report.rows) - passed - failed),
        errors="0",
        time="0",
    )
    for row in report.rows:
        _requirement_case(suite, row)
    ElementTree.indent(root)
    octets: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return octets


def json_report(report: Report) -> dict[str, Any]:
    """Returns the report as plain values for JSON."""
    return {
        "broker": {
            "address": str(report.settings.address),
            "container_id": report.findings.container_id,
            "properties": {key: str(value) for key, value in report.findings.properties.items()},
            "sasl_mechanisms": list(report.findings.mechanisms),
            "bare_header": report.findings.bare_header,
        },
        "title": report.title,
        "incidents": [attrs.asdict(one) for one in report.incidents],
        "profile": report.profile,
        "seconds": round(report.seconds, 3),
        "scenarios_counts": {verdict.value: report.count(verdict) for verdict in Verdict},
        "requirements_counts": {status: report.count_rows(status) for status in STATUSES},
        "counts": {
            strength: {status: report.count_rows(status, strength) for status in STATUSES}
            for strength in ("MUST", "SHOULD", "other")
        },
        "requirements": [
            {
                **attrs.asdict(row.requirement),
                "strength": row.requirement.strength,
                "status": row.status,
                "scenarios": list(row.scenarios),
                "kind": row.requirement.kind or None,
                "reason": row.reason or None,
            }
            for row in report.rows
        ],
        "scenarios": [
            {
                "id": result.scenario.id,
                "title": result.scenario.title,
                "profile": result.scenario.profile,
                "requirements": list(result.scenario.rows),
                "status": result.verdict.value,
                "seconds": round(result.seconds, 3),
                "message": result.message or None,
                "by_the_way": [{"rule": one.rule, "text": one.text} for one in result.breaches],
                "transcript": list(result.transcript),
            }
            for result in report.results
        ],
    }


def write_junit(report: Report, path: Path) -> None:
    """Writes JUnit XML; raises OSError when it cannot."""
    path.write_bytes(junit_xml(report))


def write_html(report: Report, path: Path) -> None:
    """Writes the page; raises OSError when it cannot."""
    path.write_text(report_page(json_report(report)), encoding="utf-8")


def write_json(report: Report, path: Path) -> None:
    """Writes JSON; raises OSError when it cannot."""
    path.write_text(json.dumps(json_report(report), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
