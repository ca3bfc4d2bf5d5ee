"""A soak from its start to its verdict."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

import attrs

from amqp_broker.conformance.load.processes import processor_seconds
from amqp_broker.management.command import Asker
from tests.soak.acts import ACTS, User, made
from tests.soak.ground import WORKERS, Ground
from tests.soak.samples import Probe, Sampler, live
from tests.soak.verdict import Finding, judge

SAMPLES: Final = 200
SOONEST_S: Final = 1.5
"""Between two samples."""
GONE_WITHIN_S: Final = 60.0
"""After the last client: transactions, half messages and termini that nobody ends have their times."""
COMPLAINTS: Final = 20


@attrs.define
class Soak:
    """One run: what was done, and what is wrong."""

    ground: Ground
    minutes: float
    seed: int
    rate: float
    say: Callable[[str], None] = print
    done: Counter[str] = attrs.field(factory=Counter)
    complaints: list[str] = attrs.field(factory=list)
    findings: list[Finding] = attrs.field(factory=list)
    sampler: Sampler | None = None
    processor_s: float = 0.0
    _stop: threading.Event = attrs.field(factory=threading.Event)

    @property
    def good(self) -> bool:
        """Nothing grew, nothing is left, nobody complains."""
        return not self.complaints and all(finding.flat for finding in self.findings)

    def run(self, beside_others: bool = False) -> None:
        """All of it."""
        with Asker(self.ground.url) as asker:
            made(asker)
            before = live(asker)
            probe = Probe(self.ground.url)
            self.sampler = Sampler(self.ground, asker, probe)
            workers = [threading.Thread(target=self._work, args=(n,), daemon=True) for n in range(WORKERS)]
            for thread in (probe, *workers):
                thread.start()
            try:
                self._watch(self.sampler)
            finally:
                self._stop.set()
            for worker in workers:
                worker.join()
            probe.end()
            if probe.problem is not None:
                self.complain(f"the probe: {probe.problem!r}")
            self.ground.cut_what_is_left()
            self.processor_s = processor_seconds(self.ground.process.pid)
            self.findings = judge(self.sampler.times, self.sampler.figures, beside_others)
            self._look_for_what_is_left(asker, before)

    def told(self) -> str:
        """What ran, in words."""
        assert self.sampler is not None
        span = self.sampler.times[-1] - self.sampler.times[0]
        acts = ", ".join(f"{name} {count}" for name, count in self.done.most_common())
        return (
            f"{span / 60:.1f} minutes, seed {self.seed}, {sum(self.done.values()):,} acts, "
            f"{sum(self.done.values()) / span:.1f} a second; "
            f"the broker used {self.processor_s / span:.2f} of a core: {acts}"
        )

    def complain(self, what: str) -> None:
        """Something is wrong, which is said, and kept unless there is much of it."""
        self.say(f"WRONG {what}")
        if len(self.complaints) < COMPLAINTS:
            self.complaints.append(what)

    def _work(self, number: int) -> None:
        chance = random.Random(f"{self.seed} {number}")
        user = User(self.ground, number, chance)
        acts, weights = [act for act, _ in ACTS], [weight for _, weight in ACTS]
        pause = WORKERS / self.rate
        due = time.monotonic() + chance.random() * pause
        while not self._stop.wait(max(0.0, due - time.monotonic())):
            act = chance.choices(acts, weights)[0]
            try:
                act(user)
            except Exception as error:
                self.complain(f"{act.__name__}: {type(error).__name__}: {error}")
            self.done[act.__name__] += 1
            due = max(due + pause * chance.uniform(0.5, 1.5), time.monotonic() - pause)

    def _watch(self, sampler: Sampler) -> None:
        end, due = time.monotonic() + 60 * self.minutes, time.monotonic()
        every, told = max(SOONEST_S, 60 * self.minutes / SAMPLES), 0
        while time.monotonic() < end:
            sampler.sample()
            if len(sampler.times) * 10 * every >= told * 60 * max(1.0, self.minutes / 4):
                told += 10
                row = ", ".join(f"{name} {value:,.0f}" for name, value in sampler.last().items() if value)
                so_far = (sampler.times[-1] - sampler.times[0]) / 60
                self.say(f"{so_far:5.1f} min  {sum(self.done.values())} acts; {row}")
            due += every
            self._stop.wait(max(0.0, min(due, end) - time.monotonic()))

    def _look_for_what_is_left(self, asker: Asker, before: dict[str, int]) -> None:
        """Everybody is gone but who asks: so is all that they had."""
        end = time.monotonic() + GONE_WITHIN_S
        while (now := live(asker)) != before and time.monotonic() < end:
            self._stop.clear()
            self._stop.wait(0.5)
        for kind, count in now.items():
            if count != before[kind]:
                self.complain(f"{kind}: {count} are left when all clients are gone, {before[kind]} at first")
        if self.ground.process.poll() is not None:
            self.complain(f"the broker ended with {self.ground.process.returncode}")
        for line in _errors_of(self.ground.directory / "log"):
            self.complain(f"the broker logged {line}")


def _errors_of(log: Path) -> list[str]:
    lines = log.read_text(errors="replace").splitlines()
    errors = [line for line in lines if '"level": "error"' in line or "Traceback" in line]
    return [line[:500] for line in errors if "dead_letters.dropped" not in line]  # its bound is met here
