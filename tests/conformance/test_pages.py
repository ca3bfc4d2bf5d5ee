"""The pages: of a run, and of several; whatever a broker says, and without anything from elsewhere."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import attrs
import pytest

from amqp_broker.conformance.broker import Findings
from amqp_broker.conformance.command_line import main
from amqp_broker.conformance.report_files import json_report, junit_xml
from amqp_broker.conformance.report_html import comparison_page, load_run, name_of, report_page
from amqp_broker.conformance.runner import Incident
from tests.conformance.test_reports import example_report

EVIL = '<script>alert(1)</script>\u202e"'
VOID = {"meta", "br", "input"}


class Page(HTMLParser):
    """What a page is made of."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)
        assert self.open == [], "a tag is not closed"

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Notes it."""
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """It closes the last one."""
        assert self.open.pop() == tag

    @property
    def ids(self) -> list[str]:
        """What can be linked to."""
        return [str(given["id"]) for _, given in self.tags if "id" in given]


def _run(**changes: Any) -> dict[str, Any]:
    report = attrs.evolve(example_report(), **changes)
    run: dict[str, Any] = json.loads(json.dumps(json_report(report)))
    return run


def test_a_page_has_each_scenario_and_the_frames_of_failures() -> None:
    """It is found by its id; failures are open, with the sentence, what was expected, and every frame."""
    text = report_page(_run())
    page = Page(text)
    assert {"2.2/supported-version", "2.2/higher-major", "5.3.2/plain", "2.2", "5.3"} <= set(page.ids)
    assert len(set(page.ids)) == len(page.ids)
    opened = [given["id"] for tag, given in page.tags if tag == "details" and "open" in given]
    assert opened == ["2.2/higher-major"]
    assert "-&gt; header AMQP 0 2.0.0" in text and "the server MUST send a protocol header" in text
    assert "not applicable" in text and "no user is given" in text


def test_a_page_tells_what_was_broken_by_the_way() -> None:
    """Once with its sentence at the top, and in the scenario that is about something else."""
    top, _, scenarios = report_page(_run()).partition('<details id="2.2/')
    assert "Broken by the way" in top and "MUST be the last thing ever written" in top
    assert '<a href="#5.3.2/plain">' in top
    for text in (top, scenarios.partition('<details id="5.3.2/plain"')[2]):
        assert "2.4.3-02" in text and "flow after close &lt;" in text
    run = _run()
    for one in run["scenarios"]:
        del one["by_the_way"]  # as an earlier version wrote it
    assert "by the way" not in report_page(run).lower()


def test_must_and_should_are_counted_apart() -> None:
    """They add up to the rows of the standard; what is said without such a word is counted apart, too."""
    run = _run()
    for strength in ("MUST", "SHOULD", "other"):
        of_it = [row for row in run["requirements"] if row["strength"] == strength]
        assert sum(run["counts"][strength].values()) == len(of_it) > 20
    assert {row["level"] for row in run["requirements"] if row["strength"] == "SHOULD"} == {
        "SHOULD",
        "SHOULD NOT",
    }
    counts = run["counts"]["MUST"]
    assert (counts["passed"], counts["failed"]) == (3, 3)
    assert re.search(r"MUST<br><b>3</b> of 6 judged passed", report_page(run))


def test_what_a_broker_says_is_only_text() -> None:
    """Names, messages and frames cannot become markup, nor turn the text around them."""
    report = example_report()
    results = [attrs.evolve(one, message=EVIL, transcript=(EVIL,)) for one in report.results]
    findings = Findings(("PLAIN",), False, EVIL, {"product": EVIL, "version": EVIL})
    incident = Incident("died", EVIL, ("2.2/higher-major",), True, EVIL)
    run = _run(results=tuple(results), findings=findings, incidents=(incident,), title="")
    for text in (report_page(run), comparison_page([run, run])):
        page = Page(text)
        assert "script" not in {tag for tag, _ in page.tags} and "<script" not in text
        named = text.split("<body>")[1].split(name_of(run)[:3])
        assert all(re.search(r"(<bdi>|<pre dir=\"ltr\">)[^<]*\u202e", text) for _ in named)


def test_pages_need_nothing_from_elsewhere() -> None:
    """No address of another server, no script, no image: what is linked to is in the page."""
    run = _run(incidents=(Incident("hangs", "silent", ("2.2/higher-major",), False, "the rest was not run"),))
    for text in (report_page(run), comparison_page([run, run])):
        page = Page(text)
        assert not {"script", "link", "img", "iframe"} & {tag for tag, _ in page.tags}
        assert "http" not in text and "url(" not in text and "@import" not in text
        links = [str(given["href"]) for tag, given in page.tags if tag == "a"]
        assert links and {link.removeprefix("#") for link in links} <= set(page.ids)
        assert ("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}) in page.tags
        assert "prefers-color-scheme: dark" in text


def test_a_comparison_says_where_they_differ() -> None:
    """A row for each scenario of any of them; the rows that are the same can be left out."""
    one, other = _run(), _run()
    other["scenarios"] = [
        {**scenario, "status": "passed", "message": None}
        for scenario in other["scenarios"]
        if scenario["id"] != "5.3.2/plain"
    ]
    page = Page(comparison_page([one, other]))
    rows = {given["id"]: given.get("class") for tag, given in page.tags if tag == "tr" and "id" in given}
    assert rows == {
        "2.2": "section", "5.3": "section",
        "2.2/supported-version": "same", "2.2/higher-major": None, "5.3.2/plain": None,
    }  # fmt: skip


def test_the_command_writes_both_pages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Several runs' JSON become one page; what is no run is refused by its name."""
    path, other, page = tmp_path / "run.json", tmp_path / "other.json", tmp_path / "page.html"
    path.write_text(json.dumps(_run()))
    assert main(["compare", str(path), str(path), "--html", str(page)]) == 0
    assert "compared" in page.read_text() and load_run(path)["title"] == ""
    other.write_text('{"scenarios": []}')
    assert main(["compare", str(path), str(other), "--html", str(page)]) == 2
    assert "other.json is not the JSON of a run" in capsys.readouterr().err


def test_an_incident_is_an_error_for_machines() -> None:
    """JUnit counts it beside the failures, with the scenario that did it."""
    incident = Incident("died", "nobody listens", ("2.2/higher-major",), True, "it was started again")
    text = junit_xml(attrs.evolve(example_report(), incidents=(incident,))).decode()
    assert 'errors="1"' in text and 'message="the broker died: nobody listens"' in text
    assert "after 2.2/higher-major; it was started again" in text
