"""What open consoles cost a broker: `python -m tests.benchmarks.console [--queues 10000] [--seconds 120]`.

processor time of a broker's process with many queues, at rest and while three browsers look (each as often as
the page says): two at the list of queues, one at the overview; all at one console, and each at its own
how long a page of the list took, sorted and filtered by the console
processor time of the broker for one page in an order and with words, as `amqp-broker top` asks for it
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from amqp_broker.client import connect
from amqp_broker.client.blocking_management import NODE_TYPE, ManagementRequests
from amqp_broker.looking.broker_view import Broker
from amqp_broker.testing.broker_process import running
from tests.support.console_browser import Reader, running_console

CONSOLES: Final = 3
TICKS: Final = os.sysconf("SC_CLK_TCK")
EVERY: Final = re.compile(r'data-every="(\d+)"')


def made(url: str, count: int) -> None:
    """So many queues, with a message in each tenth."""
    with connect(url) as client:
        asks = ManagementRequests(client, 60.0)
        for number in range(count):
            asks.ask("CREATE", "queue", name=f"queue.{number}")
        for number in range(0, count, 10):
            sender = client.open_sender(f"queue.{number}")
            sender.send(b"x")
            sender.close()


def worked_s(pid: int) -> float:
    """Processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


PAGES: Final[dict[str, dict[str, str]]] = {
    "in the order of identities": {},
    "in the order of messages": {"orderBy": "-messages"},
    "in the order of names": {"orderBy": "name"},
    "with ten words": {"contains": "q u e . 1 2 3 4 5 6"},
    "with ten words, in the order of names": {"contains": "q u e . 1 2 3 4 5 6", "orderBy": "name"},
}
ASKED: Final = 20  # times, as processor time is told in hundredths of a second


def ask_pages(url: str, pid: int) -> None:
    """What one page costs the broker."""
    wanted = {"attributeNames": ["name"]}
    with connect(url) as client:
        asks = ManagementRequests(client, 60.0)
        for name, told in PAGES.items():
            before = worked_s(pid)
            for _ in range(ASKED):
                asks.ask("QUERY", NODE_TYPE, wanted, entityType="queue", count=50, **told)
            print(f"a page {name}: {1_000 * (worked_s(pid) - before) / ASKED:.1f} ms of processor time")


def look(port: int, page: str, stop: threading.Event, took: list[float]) -> None:
    """What the script of an open page does."""
    reader = Reader(port)
    reader.log_in()  # which shows the overview: the first one there waits for the first reading
    while not stop.is_set():
        begun = time.monotonic()
        answer = reader.ask("GET", page, X_Live="1")
        took.append(time.monotonic() - begun)
        found = EVERY.search(answer.text)
        assert found is not None, answer.words
        stop.wait(int(found[1]) / 1_000)


def share(pid: int, seconds: float) -> float:
    """How much of a core a process takes."""
    before, begun = worked_s(pid), time.monotonic()
    time.sleep(seconds)
    return (worked_s(pid) - before) / (time.monotonic() - begun)


def run(queues: int, seconds: float) -> None:
    """Measure, and print it."""
    with running("--memory") as broker:
        made(broker.url, queues)
        ask_pages(broker.url, broker.pid)
        at_rest = share(broker.pid, seconds / 12)
        print(f"{queues} queues, at rest: {100 * at_rest:.2f} % of a core")
        for consoles in (1, CONSOLES):
            took: list[float] = []
            stop = threading.Event()
            with ExitStack() as opened:
                brokers = [Broker("main", broker.url)]
                ports = [opened.enter_context(running_console(brokers)) for _ in range(consoles)]
                pages = ("/main/queue?sort=-messages", "/main/queue?q=7&sort=name", "/main/")
                looking = [
                    threading.Thread(target=look, args=(ports[at % consoles], page, stop, took))
                    for at, page in enumerate(pages)
                ]
                for each in looking:
                    each.start()
                time.sleep(5)  # logins, and the first reading of all queues
                found = share(broker.pid, seconds)
                stop.set()
                for each in looking:
                    each.join()
            print(
                f"3 pages open at {consoles} console(s): {100 * (found - at_rest):.2f} % of a core more; "
                f"a look took {1_000 * statistics.median(took):.0f} ms, {1_000 * max(took):.0f} at most, of "
                f"{len(took)}"
            )


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queues", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=120.0)
    options = parser.parse_args(arguments)
    run(options.queues, options.seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
