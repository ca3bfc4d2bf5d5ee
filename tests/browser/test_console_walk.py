"""A walk through the console in Chromium, from the login to a dead letter that is back where it came from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from amqp_broker.embedding import RunningBroker
from amqp_broker.looking.broker_view import Broker
from tests.browser.chromium import PHONE, Page, chromium
from tests.browser.shop import running_shop
from tests.support.console_browser import running_console


@pytest.fixture(scope="module")
def shop() -> Iterator[RunningBroker]:
    """A broker with something in it."""
    with running_shop() as running:
        yield running


@pytest.fixture(scope="module")
def console(shop: RunningBroker) -> Iterator[str]:
    """The address of a console for it."""
    with running_console([Broker("shop", shop.url)]) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    """A browser; nothing that it shows may have been at fault."""
    with chromium(tmp_path) as found:
        yield found
        assert found.faults == []


def log_in(page: Page, console: str) -> None:
    """As somebody does who types."""
    page.go(console)
    assert page.path.startswith("/login")
    page.press("ada")
    page.key("Tab")
    page.fill("[name=password]", "ada")
    page.keys_that_load("Enter")
    assert page.path == "/shop/"


def test_from_the_login_to_a_dead_letter_that_is_back(shop: RunningBroker, console: str, page: Page) -> None:
    """By links, filter, keys, and the question before it is done."""
    log_in(page, console)
    assert "Overview" in page.words and "transactions" in page.words
    page.keys_that_load("g", "q")
    assert page.path == "/shop/queue"
    page.key("/", text="/")
    page.press("dead")
    page.wait_for("location.search == '?q=dead' && document.querySelectorAll('tbody tr').length == 1")
    page.key("Escape")
    page.key("j", text="j")
    page.keys_that_load("Enter")
    assert page.path == "/shop/queue/one?name=dead-letters"
    page.click("a[href*='/messages']")
    page.key("j", text="j")
    page.keys_that_load("Enter")
    assert "size 41 is not made" in page.words and '"item": "a pair of shoes"' in page.words
    page.click("a[rel=up]")
    before = shop.depth("orders.eu")
    page.click("a[href*='op=REDRIVE']")
    assert "Move these dead letters back" in page.words
    page.fill("[name=count]", "2")
    page.click("main button")
    assert "2 messages moved back" in page.words
    assert shop.depth("dead-letters") == 3 and shop.depth("orders.eu") == before + 2


def test_a_page_changes_by_itself(shop: RunningBroker, console: str, page: Page) -> None:
    """Without losing the row that was chosen, nor what somebody writes into the filter."""
    log_in(page, console)
    page.go(f"{console}/shop/queue?sort=name")
    page.key("j", text="j")
    chosen = page.js("document.querySelector('tr.chosen a').textContent")
    page.fill("[data-filter]", "e")
    page.js("document.querySelector('[data-filter]').blur()")
    page.wait_for("location.search.includes('q=e')")
    page.js("document.querySelector('#live').before_it = true")
    shop.declare("a-new-one")
    page.wait_for("document.querySelector('#live').innerText.includes('a-new-one')")
    assert page.js("document.querySelector('[data-filter]').value") == "e"
    assert chosen


def test_no_script_of_a_message_runs(shop: RunningBroker, console: str, page: Page) -> None:
    """Nor one that came into a page: the policy of content does not let it."""
    log_in(page, console)
    shop.declare('<img src=x onerror="document.title=1">')
    for path in ("queue?q=img", "queue/one?name=%3Cimg+src%3Dx+onerror%3D%22document.title%3D1%22%3E"):
        page.go(f"{console}/shop/{path}")
        page.wait_for("document.body.innerText.includes('<img src=x')")
        assert page.js("document.title") != "1"
        assert page.js("document.querySelector('main img')") is None
    assert page.faults == []
    page.js("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"document.title=1\">'), 1")
    page.js("new Promise(done => setTimeout(done, 100))")
    assert page.js("document.title") != "1"
    assert any("Content Security Policy" in fault for fault in page.faults)
    page.faults.clear()


def test_no_page_is_wider_than_a_phone(shop: RunningBroker, console: str, page: Page) -> None:
    """Tables scroll by themselves, and the menu opens by its button."""
    log_in(page, console)
    page.size(PHONE)
    for path in ("", "queue", "queue/one?name=orders.eu", "queue/messages?name=orders.eu", "half", "journal",
                 "queue/message?name=orders.eu&offset=9", "connection", "configuration", "users", "send",
                 "ask?kind=queue&op=UPDATE&name=orders.eu", "cursor", "subscription"):  # fmt: skip
        page.go(f"{console}/shop/{path}")
        assert page.js("document.documentElement.scrollWidth") <= PHONE[0], path
    page.js("document.querySelector('[data-menu]').click()")
    assert page.js("getComputedStyle(document.querySelector('.side')).display") == "block"
