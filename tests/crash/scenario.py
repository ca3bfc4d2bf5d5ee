"""One data directory, many lives of the broker on it, clients under load in each, and a drain with a check at
the end.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from amqp_broker.persistence.fault_points import POINTS
from amqp_broker.persistence.sqlite import check_directory
from amqp_broker.testing.blocking_peer import PATIENCE_S
from tests.crash.broker_process import BrokerProcess, NotListening
from tests.crash.checks import check_history
from tests.crash.deaths import DISCHARGE_POINTS, Death, check_deaths, count_deaths, died_at_a_point
from tests.crash.evidence import DATA, LOG, Evidence, Record
from tests.crash.fates import Account, Fate, collect_accounts
from tests.crash.history import History
from tests.crash.questions import AskingClient, LastAskingClient, Questions
from tests.crash.traffic import WINDOW, Client, DrainingClient, ReceivingClient, SendingClient
from tests.crash.transactional_traffic import (
    AcquiringController,
    BrowsingClient,
    PostingController,
    TransformingController,
)
from tests.crash.workload import Workload

SECONDS_TO_FIRST_EVENT: Final = 20.0


@dataclass(slots=True)
class Load:
    """How many clients of each kind there are, spread over the queues, and how many messages a plain sender
    keeps on their way.
    """

    senders: int = 3
    receivers: int = 3
    queues: tuple[str, ...] = ("orders", "invoices")
    window: int = WINDOW
    posting: int = 0
    transforming: int = 0
    acquiring: int = 0

    @property
    def transactional(self) -> bool:
        """Whether there is anything to ask for."""
        return self.posting + self.transforming + self.acquiring > 0


TRANSACTIONS: Final = Load(
    senders=2,
    receivers=2,
    queues=("orders", "invoices", "parcels", "letters"),
    window=20,
    posting=2,
    transforming=2,
    acquiring=4,
)
"""Controllers beside plain clients, on the same queues."""


@dataclass(slots=True)
class Scenario:
    """The lives so far: their history, and complaints that are not in the history."""

    directory: Path
    seed: int
    load: Load = field(default_factory=Load)
    history: History = field(default_factory=History)
    complaints: list[str] = field(default_factory=list)
    lives: int = 0
    deaths: list[Death] = field(default_factory=list)
    config: Path | None = None
    others: Sequence[Workload] = ()
    """Clients of other kinds, who work beside these in each life."""
    questions: Questions = field(init=False)

    def __post_init__(self) -> None:
        self.questions = Questions(self.history, self.seed)

    def start(self, environment: Mapping[str, str] | None = None) -> BrokerProcess:
        """The next life of the broker."""
        self.lives += 1
        data, log = self.directory / DATA, self.directory / LOG
        return BrokerProcess(data, log, environment=environment, config=self.config)

    @property
    def points(self) -> tuple[str, ...]:
        """The fault points on the way of what the clients do, besides those that plain messages pass."""
        points = [*DISCHARGE_POINTS] if self.load.transactional else []
        for other in self.others:
            points += [point for point in other.points if point in POINTS]
        return tuple(dict.fromkeys(points))

    def missed_discharges(self) -> list[str]:
        """The points of a discharge at which no broker died, if there are discharges."""
        missed = set(DISCHARGE_POINTS) - {death.point for death in self.deaths}
        return sorted(missed) if self.load.transactional else []

    def evidence(self, **facts: object) -> Evidence:
        """What is kept of this scenario if it ends with complaints."""
        return Evidence(self.directory, {**facts, "seed": self.seed}, self.records)

    def records(self) -> Iterator[Record]:
        """What each client of each kind did and was told."""
        yield from self.history.records()
        for other in self.others:
            yield from ({"kind of clients": other.name, **record} for record in other.records())

    def clients(self, port: int) -> list[Client]:
        """Started clients of this life, spread over the queues."""
        life, history, load = self.lives, self.history, self.load
        clients: list[Client] = []

        def named(letter: str, count: int) -> Iterator[tuple[str, random.Random, str, tuple[str, ...]]]:
            for number in range(count):
                name = f"{letter}{number}.{life}"
                turned = [load.queues[(number + at) % len(load.queues)] for at in range(len(load.queues))]
                yield name, random.Random(f"{self.seed} {name}"), turned[0], tuple(turned[1:])

        for name, chance, queue, _ in named("s", load.senders):
            clients.append(SendingClient(name, port, life, queue, history, chance, load.window))
        for name, chance, queue, others in named("r", load.receivers):
            if load.transactional:
                queue = others[-1]  # the last queue first: controllers receive from the first ones
            clients.append(ReceivingClient(name, port, life, queue, history, chance))
        for name, chance, queue, others in named("p", load.posting):
            clients.append(PostingController(name, port, life, queue, history, chance, others))
        for name, chance, queue, others in named("t", load.transforming):
            clients.append(TransformingController(name, port, life, queue, history, chance, others[:2]))
        for name, chance, queue, others in named("a", load.acquiring):
            clients.append(AcquiringController(name, port, life, queue, history, chance, others))
        if load.transactional:
            queue = load.queues[life % len(load.queues)]
            clients.append(BrowsingClient(f"b.{life}", port, life, queue, history))
            clients.append(AskingClient(f"q.{life}", port, life, history, self.questions))
        for client in clients:
            client.start()
        for other in self.others:
            other.start(port, life, "")
        return clients

    def wait_for_traffic(self, events_before: int) -> None:
        """Until a client has recorded something in this life."""
        self.wait_until(lambda: len(self.history.events) > events_before)

    def wait_until(self, reached: Callable[[], bool]) -> None:
        """Until something is in the history, or too much time has passed."""
        deadline = time.monotonic() + SECONDS_TO_FIRST_EVENT
        while not reached() and time.monotonic() < deadline:
            time.sleep(0.000_2)

    def wait_for_commit(self) -> None:
        """Until a controller sends a commit, from now on."""
        steps = self.history.steps
        at = len(steps)
        self.wait_until(lambda: any(step.kind == "commit_sent" for step in steps[at:]))

    def wait_for_death(self, broker: BrokerProcess, point: str, seconds: float) -> bool:
        """Until the broker dies at the point for which it was armed; False if it does not."""
        deadline = time.monotonic() + seconds
        while broker.process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.002)
        if died_at_a_point(broker):
            self.deaths.append(Death(self.lives, point))
            return True
        return False

    def check_alive(self, clients: list[Client]) -> None:
        """While the broker lives, no client may have lost its connection."""
        for client in clients:
            if not client.is_alive() and client.problem is None:
                self.complaints.append(f"client {client.name} lost its connection while the broker lived")

    def join(self, clients: list[Client]) -> None:
        """Wait for clients whose broker is gone; what they met besides that is a complaint."""
        for client in clients:
            client.join(PATIENCE_S)
            if client.is_alive():
                self.complaints.append(f"client {client.name} did not end with its broker")
            elif client.problem is not None:
                self.complaints.append(
                    f"client {client.name}: {type(client.problem).__name__}: {client.problem}"
                )
        for other in self.others:
            other.join()

    def count_transactions(self) -> str:
        """How many transactions ended in which way, in words."""
        accounts = collect_accounts(self.history.steps)[0].values()
        lost = [account for account in accounts if account.lost_its_answer]
        counts = {
            "transactions": len(accounts),
            "commits accepted": sum(a.fate is Fate.COMMITTED for a in accounts) - _committed(lost),
            "rejected": sum(a.answer == "rejected" for a in accounts),
            "rolled back": sum(a.rollback_sent is not None for a in accounts),
            "never discharged": sum(a.commit_sent is None and a.rollback_sent is None for a in accounts),
            "commits without an answer": len(lost),
            "of these committed": _committed(lost),
            "answers of $transactions": sum(len(a.told) for a in accounts),
        }
        work = [event for event in self.history.events if event.txn]
        for kind, words in (("sent", "posted"), ("received", "acquired")):
            counts[words] = sum(event.kind == kind for event in work)
        counts["given outcomes"] = len(work) - counts["posted"] - counts["acquired"]
        counts["browsed"] = sum(event.kind == "browsed" for event in self.history.events)
        told = ", ".join(f"{count:,} {words}" for words, count in counts.items())
        return f"{told}; deaths: {count_deaths(self.deaths) or 'none'}"

    def finish(self) -> list[str]:
        """Drain all queues and ask all questions in a last life, stop it, check the store and the history:
        all complaints.
        """
        broker = self.start()
        try:
            port = broker.wait_until_listening()
            last: list[Client] = [
                DrainingClient(f"d{number}.{self.lives}", port, self.lives, queue, self.history)
                for number, queue in enumerate(self.load.queues)
            ]
            if self.load.transactional:
                last.append(
                    LastAskingClient(f"q.{self.lives}", port, self.lives, self.history, self.questions)
                )
            for client in last:
                client.start()
            for client in last:
                client.join()
                if client.problem is not None:
                    self.complaints.append(
                        f"last client of {client.queue}: {type(client.problem).__name__}: {client.problem}"
                    )
            for other in self.others:
                other.settle(port)
            status = broker.stop()
            if status != 0:
                self.complaints.append(f"a clean stop ended with {status}; {broker.log_tail()}")
        except NotListening as error:
            return [*self.complaints, f"the last life: {error}"]
        finally:
            broker.kill()
        complaints = [*self.complaints]
        complaints += [f"checker: {words}" for words in check_directory(self.directory / DATA)]
        if self.others:  # a discharge that died may have been one of theirs
            for other in self.others:
                complaints += [f"{other.name}: {words}" for words in other.check(self.deaths)]
        else:
            complaints += check_deaths(self.deaths, collect_accounts(self.history.steps)[0].values())
        return complaints + check_history(self.history.events, self.history.steps)


def _committed(accounts: Iterable[Account]) -> int:
    return sum(account.fate is Fate.COMMITTED for account in accounts)
