"""The table of docs/how-to/securing.md, beside what the programs of `client_logins` show."""

from __future__ import annotations

import pytest

from amqp_broker.sasl_mechanisms import PLUS
from amqp_broker.verifiers import HASHES
from tests.examples.client_logins import (
    HERE,
    PAGE,
    TRANSPORTS,
    Row,
    claimed,
    clients,
    shown_by,
    table,
)
from tests.tidy.sources import ROOT, text_files

MECHANISMS = ("ANONYMOUS", "PLAIN", "EXTERNAL", "OAUTHBEARER", "XOAUTH2")
IN_A_PAGE = "tests/browser/test_amqp_in_a_page.py"
FEWER_THAN_TWO = {", ".join(name + PLUS for name in ("SCRAM-SHA-256", "SCRAM-SHA-512", "SCRAM-SHA-1")): 0,
                  "TLS inside the AMQP port": 1}  # fmt: skip


@pytest.fixture
def rows() -> list[Row]:
    """As the page has them."""
    return table(PAGE.read_text(encoding="utf-8"))


def test_the_table_says_what_the_programs_are_told_to_show(rows: list[Row]) -> None:
    """Nothing more and nothing less; `client_logins` then fails where one of them does not log in."""
    logins = [login for client in clients() for login in client.cases()]
    assert claimed(rows) == shown_by(logins)


def test_each_mechanism_and_transport_has_its_row(rows: list[Row]) -> None:
    """All that this broker offers, and at least two clients; where there are fewer, the row says why."""
    subjects = {subject for row in rows for subject in row.subject.split(", ")}
    scram = {name + suffix for name in HASHES for suffix in ("", PLUS)}
    assert subjects == {*MECHANISMS, *scram, *TRANSPORTS}
    for row in rows:
        assert len(row.shown) == FEWER_THAN_TWO.get(row.subject, len(row.shown)), row
        assert len(row.shown) > 1 or row.remark, row
        assert len(row.shown) > 1 or row.subject in FEWER_THAN_TWO, row


def test_what_the_table_points_at_runs_in_the_checks(rows: list[Row]) -> None:
    """A mark is a test in a browser; the rest is of `client_logins`."""
    marks = {mark for row in rows for mark in row.shown.values()}
    assert marks == {HERE, "page"}
    page = text_files()["docs/how-to/securing.md"]
    assert f"[page]: `{IN_A_PAGE}`" in page and f"python -m {HERE}`" in page
    assert (ROOT / IN_A_PAGE).exists()
    steps = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert f"-m {HERE} " in steps.split("step_clients()")[1].split("\n}\n")[0]
    assert " tests/browser" in steps.split("step_browser()")[1].split("\n}\n")[0]
