"""The pictures of the documentation: `python -m tests.browser.pictures docs/how-to`, with Chromium."""

from __future__ import annotations

import itertools
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from amqp_broker.client import connect
from amqp_broker.embedding import RunningBroker
from amqp_broker.looking.broker_view import Broker
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
SAMPLES: Final = 11
"""So many the plots have before a picture is taken: some 20 seconds."""
KEPT: Final = ("overview", "overview-dark", "queues", "message", "half", "phone-queues")
"""Of these the documentation has a picture."""


@contextmanager
def busy(shop: RunningBroker) -> Iterator[None]:
    """Customers who come and go, so that the plots have something to show."""
    over = threading.Event()

    def buy() -> None:
        with connect(shop.url, user="till", password="till", container_id="till-hamburg") as client:
            sender, receiver = client.open_sender("clicks"), client.open_receiver("clicks")
            for turn in itertools.count():
                if over.wait(0.1):
                    return
                sender.send_many([b"click"] * (12 + turn * 7 % 5))
                for _ in range(11 + turn * 3 % 6):
                    if (received := receiver.receive_now()) is not None:
                        receiver.accept(received)

    customers = threading.Thread(target=buy)
    customers.start()
    try:
        yield
    finally:
        over.set()
        customers.join()


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
            with busy(shop):
                depth = "document.querySelectorAll('.plots figure')[1]"
                page.wait_for(f"{depth}.querySelectorAll('circle').length > {SAMPLES}")
            for name, path, size, dark in PICTURES:
                if everything or name in KEPT:
                    page.size(size, dark=dark, scale=1.0 if size == DESKTOP else 1.5)
                    page.go(f"{console}/shop/{path}")
                    page.picture(folder / f"console-{name}.png")
            print("\n".join(page.faults))


if __name__ == "__main__":
    main(Path(sys.argv[1]), everything="--all" in sys.argv)
