"""A soak from its start to its verdict."""

from __future__ import annotations

import random
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import attrs

from amqp_broker.conformance.load.processes import processor_seconds
from amqp_broker.management.command import Asker
from tests.soak.acts import ACTS, User, made
from tests.soak.ground import WORKERS, Ground
from tests.soak.samples import Probe, Sampler, live
from tests.soak.verdict import RULES, Finding, judge

SAMPLES: Final = 200
SAMPLES_BY_ACTS: Final = 50
SOONEST_S: Final = 1.5
"""Between two samples."""
GONE_WITHIN_S: Final = 60.0
"""After the last client: transactions, half messages and termini that nobody ends have their times."""
COMPLAINTS: Final = 20
"""Of acts, so many are kept."""
ENDS_WITHIN_S: Final = 10.0
"""A process whose connections have broken."""


@attrs.define
class Soak:
    """One run: what was done, and what is wrong. Its end: after so many minutes, or `acts` where set."""

    ground: Ground
    minutes: float
    seed: int
    rate: float
    say: Callable[[str], None] = print
    acts: int = 0
    gone_within_s: float = GONE_WITHIN_S
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
        """All of it. What fails is a complaint."""
        try:
            with Asker(self.ground.url) as asker:
                self._run(asker, beside_others)
        except Exception as error:
            self.complain(f"who asks: {type(error).__name__}: {error}")
            with suppress(subprocess.TimeoutExpired):
                self.ground.process.wait(ENDS_WITHIN_S)
        if self.ground.process.poll() is not None:
            self.complain(f"the broker ended with {self.ground.process.returncode}")
        for line in _errors_of(self.ground.directory / "log"):
            self.complain(f"the broker logged {line}")

    def _run(self, asker: Asker, beside_others: bool) -> None:
        made(asker)
        before = live(asker)
        probe = Probe(self.ground.url)
        self.sampler = sampler = Sampler(self.ground, asker, probe)
        files = sampler.now()["descriptors"]
        workers = [threading.Thread(target=self._work, args=(n,), daemon=True) for n in range(WORKERS)]
        for thread in (probe, *workers):
            thread.start()
        try:
            self._watch(sampler)
        finally:
            self._stop.set()
            for worker in workers:
                worker.join()
            probe.end()
            self.ground.cut_what_is_left()
        if probe.problem is not None:
            self.complain(f"the probe: {probe.problem!r}")
        self.processor_s = processor_seconds(self.ground.process.pid)
        try:
            self.findings = judge(sampler.times, sampler.figures, beside_others)
        except ValueError as error:
            self.complain(f"no verdict: {error}")
        self._look_for_what_is_left(asker, before)
        most = {found.rule.figure: found.usual + found.allowed for found in self.findings}
        most["descriptors"] = files + next(rule.floor for rule in RULES if rule.figure == "descriptors")
        for name, count in sampler.now().items():
            if name in most and count > most[name]:
                self.complain(f"{name}: {count:g} when all clients are gone, {most[name]:g} at most")

    def told(self) -> str:
        """What ran, in words."""
        times = self.sampler.times if self.sampler is not None else []
        span = times[-1] - times[0] if len(times) > 1 else float("nan")
        acts = ", ".join(f"{name} {count}" for name, count in self.done.most_common())
        return (
            f"{span / 60:.1f} minutes, seed {self.seed}, {sum(self.done.values()):,} acts, "
            f"{sum(self.done.values()) / span:.1f} a second; "
            f"the broker used {self.processor_s / span:.2f} of a core: {acts}"
        )

    def complain(self, what: str) -> None:
        """Something is wrong, which is said, and kept."""
        self.say(f"WRONG {what}")
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
                if len(self.complaints) < COMPLAINTS:
                    self.complain(f"{act.__name__}: {type(error).__name__}: {error}")
            self.done[act.__name__] += 1
            due = max(due + pause * chance.uniform(0.5, 1.5), time.monotonic() - pause)

    def _watch(self, sampler: Sampler) -> None:
        end = time.monotonic() + 60 * self.minutes
        every, told = max(SOONEST_S, 60 * self.minutes / SAMPLES), 0
        while time.monotonic() < end and (not self.acts or self._acts_done() < self.acts):
            sampler.sample()
            if not self.acts and len(sampler.times) * 10 * every >= told * 60 * max(1.0, self.minutes / 4):
                told += 10
                row = ", ".join(f"{name} {value:,.0f}" for name, value in sampler.last().items() if value)
                so_far = (sampler.times[-1] - sampler.times[0]) / 60
                self.say(f"{so_far:5.1f} min  {self._acts_done()} acts; {row}")
            if self.acts:
                self._wait_for(len(sampler.times) * self.acts / SAMPLES_BY_ACTS, end)
            else:
                due = sampler.times[0] + len(sampler.times) * every
                self._stop.wait(max(0.0, min(due, end) - time.monotonic()))

    def _wait_for(self, acts: float, end: float) -> None:
        while self._acts_done() < acts and time.monotonic() < end:
            self._stop.wait(0.02)

    def _acts_done(self) -> int:
        return sum(list(self.done.values()))

    def _look_for_what_is_left(self, asker: Asker, before: dict[str, int]) -> None:
        """Everybody is gone but who asks: so is all that they had."""
        end = time.monotonic() + self.gone_within_s
        while (now := live(asker)) != before and time.monotonic() < end:
            self._stop.clear()
            self._stop.wait(0.5)
        for kind, count in now.items():
            if count != before[kind]:
                self.complain(f"{kind}: {count} are left when all clients are gone, {before[kind]} at first")


def _errors_of(log: Path) -> list[str]:
    lines = log.read_text(errors="replace").splitlines()
    errors = [line for line in lines if '"level": "error"' in line or "Traceback" in line]
    return [line[:500] for line in errors if "dead_letters.dropped" not in line]  # its bound is met here
