"""What the programs here share: options, times, and messages of the load tool beside what they measure."""

from __future__ import annotations

import argparse
import inspect
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import attrs

from amqp_broker.bench.command_line import fresh_run
from amqp_broker.bench.report import combine, is_clean
from amqp_broker.bench.run import measure
from amqp_broker.bench.settings import BenchSettings

T = TypeVar("T")


def options(told: str | None, **defaults: Any) -> argparse.Namespace:
    """The options of the command line: each has the type of its default; False is a flag."""
    words = inspect.cleandoc(told or "")
    parser = argparse.ArgumentParser(
        description=words, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in defaults.items():
        option = "--" + name.replace("_", "-")
        if default is False:
            parser.add_argument(option, action="store_true")
        else:
            parser.add_argument(option, type=type(default), default=default, help="default %(default)s")
    return parser.parse_args()


@attrs.define
class Spent:
    """Seconds by the clock, and of the processor by this process."""

    wall: float = 0.0
    cpu: float = 0.0

    def each_us(self, count: int) -> float:
        """Microseconds of the processor for each of `count`."""
        return self.cpu / count * 1e6


@contextmanager
def spent(*added: Spent) -> Iterator[Spent]:
    """What the block takes; also added to these."""
    found = Spent()
    wall, cpu = time.perf_counter(), time.process_time()
    yield found
    found.wall, found.cpu = time.perf_counter() - wall, time.process_time() - cpu
    for total in added:
        total.wall += found.wall
        total.cpu += found.cpu


def told(name: str, rows: int, work: Callable[[], T]) -> T:
    """Does it, and prints rows a second by the clock and by the processor time of this process."""
    with spent() as used:
        result = work()
    of_cpu = rows / used.cpu if used.cpu > 0.05 else 0
    rates = f"{rows / used.wall:12,.0f} rows/s {of_cpu:12,.0f} rows/s of CPU"
    print(f"{name:10} {rates} ({used.wall:.2f} s)", flush=True)
    return result


def sent(
    port: int, address: str, count: int, *, roles: tuple[str, ...] = (), **changes: Any
) -> dict[str, Any]:
    """The report of the load tool on `count` messages; every one must come and be accepted."""
    where: dict[str, Any] = {"host": "127.0.0.1", "port": port, "address": address}
    settings = BenchSettings(**where, count=count, run=fresh_run(), **changes)
    report = combine(settings, measure(settings, roles=roles))
    assert is_clean(settings, report), report
    return report
