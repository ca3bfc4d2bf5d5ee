"""The report of the pipeline's audits as Chromium draws it: on a desktop and a phone, light and dark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from amqp_broker.pipeline.report import page as report_of
from tests.browser.chromium import DESKTOP, PHONE, Page, chromium
from tests.pipeline.test_report import kind, result, step

NAMES: Final = ("orders." + "long-" * 30 + "name", "طلبات.المطبخ", "short", "<b>bold</b>")
MINUTES: Final = 12
BEHIND: Final = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
OUTSIDE: Final = """[...document.querySelectorAll("td bdi, figcaption bdi, .legend bdi")].filter(name => {
  const box = name.closest("td, figcaption, .legend").getBoundingClientRect();
  const mine = name.getBoundingClientRect();
  return mine.left < box.left - 1 || mine.right > box.right + 1; }).length"""


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    """A browser that shows a report with faults, with names that nobody would wish for."""
    steps = [
        step(name, 60 * at, came=number + at, went=number, backlog=number * at)
        for at in range(MINUTES)
        for number, name in enumerate(NAMES)
    ]
    client = dict.fromkeys(("sent", "bytes", "delivered", "accepted", "rejected", "given_back"), 0)
    clients = tuple(  # fmt: skip
        {**client, "address": name, "container": f"till-{name}", "sent": 7 * number % 4 + 1,
         "first": "1", "last": "2"}
        for number, name in enumerate(NAMES)
    )
    made = report_of(result(kind("fault", 1_200), kind("warning"), steps=tuple(steps), clients=clients))
    file = tmp_path / "report.html"
    file.write_text(made, encoding="utf-8")
    with chromium(tmp_path) as found:
        found.go(file.as_uri())
        yield found
        assert found.faults == []


@pytest.mark.parametrize("size", [DESKTOP, PHONE])
@pytest.mark.parametrize("dark", [False, True])
def test_it_fits_and_names_stay_in_their_cells(
    page: Page, size: tuple[int, int], dark: bool, tmp_path: Path
) -> None:
    """Nothing is wider than the window, no name leaves its place, and the colours are those asked for."""
    page.size(size, dark=dark)
    page.js("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    assert page.words.lstrip().startswith("FAIL")
    assert page.js(BEHIND) == 0
    assert page.js("document.querySelectorAll('td bdi').length") > len(NAMES)
    assert page.js(OUTSIDE) == 0
    red, green, blue = page.js(
        "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3).map(Number)"
    )
    assert (red + green + blue < 3 * 128) == dark
    page.picture(tmp_path / "report.png")
    assert (tmp_path / "report.png").stat().st_size > 10_000


def test_tables_are_sorted_by_a_click(page: Page) -> None:
    """Numbers by what they are: the most first, then the least."""
    producers = "[...document.querySelectorAll('section')].find(s => /Producers/.test(s.innerText))"
    head = f"[...{producers}.querySelectorAll('th')].find(each => each.textContent === 'messages')"
    column = f"""[...{head}.closest('table').tBodies[0].rows].map(
      row => Number(row.cells[{head}.cellIndex].dataset.v ?? row.cells[{head}.cellIndex].textContent))"""
    page.js(f"{head}.querySelector('button').click()")
    falling = page.js(column)
    assert falling == sorted(falling, reverse=True) and len(set(falling)) > 1
    page.js(f"{head}.querySelector('button').click()")
    assert page.js(column) == falling[::-1]
