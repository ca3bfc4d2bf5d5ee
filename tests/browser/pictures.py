"""The pictures of the documentation: `python -m tests.browser.pictures docs/how-to`, with Chromium."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Final

from amqp_broker.console.broker_view import Broker
from tests.browser.chromium import DESKTOP, PHONE, chromium
from tests.browser.shop import running_shop
from tests.support.console_browser import running_console

MESSAGE: Final = "queue/message?name=dead-letters&offset=0"
PICTURES: Final = (
    ("overview", "", DESKTOP, False),
    ("overview-dark", "", DESKTOP, True),
    ("queues", "queue", DESKTOP, False),
    ("queue", "queue/one?name=orders.eu", DESKTOP, False),
    ("message", MESSAGE, DESKTOP, False),
    ("message-dark", MESSAGE, DESKTOP, True),
    ("half", "half", DESKTOP, False),
    ("half-dark", "half", DESKTOP, True),
    ("journal", "journal", DESKTOP, False),
    ("connections", "connection", DESKTOP, False),
    ("connection", "connection/one?name=1", DESKTOP, False),
    ("question", "ask?kind=queue&op=PURGE&name=mails", DESKTOP, False),
    ("change", "ask?kind=queue&op=UPDATE&name=mails", DESKTOP, False),
    ("send", "send?address=orders.eu", DESKTOP, False),
    ("users", "users", DESKTOP, False),
    ("configuration", "configuration?q=memory", DESKTOP, True),
    ("messages", "queue/messages?name=orders.eu", DESKTOP, False),
    ("refused", "queue/one?name=nowhere", DESKTOP, False),
    ("phone-overview", "", PHONE, False),
    ("phone-queues", "queue", PHONE, True),
    ("phone-message", MESSAGE, PHONE, False),
    ("phone-half", "half", PHONE, False),
    ("phone-journal", "journal", PHONE, False),
)
KEPT: Final = ("overview", "overview-dark", "queues", "message", "half", "phone-queues")
"""Of these the documentation has a picture."""


def main(folder: Path, *, everything: bool) -> None:
    """Take them."""
    with running_shop() as shop, running_console([Broker("shop", shop.url)]) as port:
        with tempfile.TemporaryDirectory() as profile, chromium(Path(profile)) as page:
            console = f"http://127.0.0.1:{port}"
            page.go(console)
            page.picture(folder / "console-login.png") if everything else None
            page.fill("[name=user]", "ada")
            page.fill("[name=password]", "ada")
            page.click("button")
            # Some minutes of a shop, as the plots need them.
            page.wait_for("document.querySelectorAll('.plots path').length > 3")
            for name, path, size, dark in PICTURES:
                if everything or name in KEPT:
                    page.size(size, dark=dark, scale=1.0 if size == DESKTOP else 1.5)
                    page.go(f"{console}/shop/{path}")
                    page.picture(folder / f"console-{name}.png")
            print("\n".join(page.faults))


if __name__ == "__main__":
    main(Path(sys.argv[1]), everything="--all" in sys.argv)
