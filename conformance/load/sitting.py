"""One sitting: a broker and a client, and how they make one run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import attrs

from amqp_broker.bench.command_line import fresh_run
from amqp_broker.bench.report import combine, is_clean
from amqp_broker.bench.run import Client, measure
from amqp_broker.bench.settings import BenchSettings
from amqp_broker.conformance.load.processes import machine_seconds, processor_seconds

SMALLEST: Final = 200
COUNTS: Final = ("count", "transactions")
Report = dict[str, Any]


class Sitting:
    """Runs against one broker; `pid` is its process, 0 where that is not known."""

    def __init__(
        self,
        base: BenchSettings,
        client: Client,
        pid: int = 0,
        *,
        seconds: float = 3.0,
        fixed: bool = False,
        prefix: str = "",
        transactions: bool = True,
        ours: bool = False,
        tree: Path | None = None,
    ) -> None:
        """`seconds` is what a run shall last; `fixed`: every run uses the address of `base`, else each has
        one that no run before has used, after the `prefix`; `transactions`: it has a coordinator; `ours`:
        more brokers of `tree` (the installed one, where it is None) can be started.
        """
        self.base = base
        self.client = client
        self.pid = pid
        self.seconds = seconds
        self.fixed = fixed
        self.prefix = prefix
        self.transactions = transactions
        self.ours = ours
        self.tree = tree
        self.failed = False
        """A run has failed on the broker, which may be of no use any more."""
        self._queues = 0

    def settings(self, changes: dict[str, Any], address: str = "") -> BenchSettings:
        """Of the next run."""
        self._queues += 1
        address = address or (self.base.address if self.fixed else f"{self.prefix}load-{self._queues}")
        return attrs.evolve(self.base, address=address, run=fresh_run(), **changes)

    def once(self, settings: BenchSettings, client: Client | None = None, **options: Any) -> Report:
        """One run: the report, and what the broker, the client (or another one) and others took."""
        marks: list[tuple[float, float]] = []

        def mark() -> None:
            marks.append((processor_seconds(self.pid) if self.pid else 0.0, machine_seconds()))

        results = measure(settings, client or self.client, mark=mark, **options)
        report = combine(settings, results)
        broker, machine = (marks[1][place] - marks[0][place] for place in (0, 1))
        each = 1e6 / max(1, report.get("discharged") or report["received"] or report["sent"])
        report["broker_us"] = broker * each
        report["client_us"] = report["cpu_s"] * each
        report["other_cores"] = max(0.0, machine - broker - report["cpu_s"]) / report["elapsed_s"]
        report["clean"] = is_clean(settings, report)
        report["most"] = max(one.get("most", 0) for one in results.values())
        return report

    def sized(
        self,
        changes: dict[str, Any],
        rate: str,
        once: Callable[[dict[str, Any]], Report] | None = None,
        least: int = SMALLEST,
    ) -> dict[str, Any]:
        """The changes with a count of at least `least` that lasts about `seconds`, as some runs before show
        (`once` makes one). The rate of a short run may be of another order: no count is more than 20 times
        one that was tried.
        """
        name = "transactions" if rate.startswith("transactions") else "count"
        count = least
        for _ in range(4):
            tried = changes | {name: count}
            report = once(tried) if once else self.once(self.settings(tried))
            pairs = changes.get("pairs", self.base.pairs)
            count = max(least, min(int(report[rate] / pairs * self.seconds), count * 20))
            if report["elapsed_s"] > self.seconds / 4:
                break
        return changes | {name: count}
