"""Plain messages, with controllers beside them or without: their clients, and what must be true of it all."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.crash.checks import check_history
from tests.crash.deaths import Death, check_deaths, points_of
from tests.crash.evidence import Record
from tests.crash.history import History, count_events
from tests.crash.questions import AskingClient, LastAskingClient, Questions
from tests.crash.traffic import CONFIGURATION, WINDOW, DrainingClient, ReceivingClient, SendingClient
from tests.crash.transactional_traffic import (
    AcquiringController,
    BrowsingClient,
    PostingController,
    TransformingController,
)
from tests.crash.workload import LivingClient, Workload
from tests.promises.fates import Account, Fate, collect_accounts, lost_fates

WAY: Final = "discharge"


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


class Messages(Workload):
    """Clients on a few queues; the last life drains them and asks all questions."""

    configuration = CONFIGURATION

    def __init__(self, seed: int, load: Load | None = None, history: History | None = None) -> None:
        super().__init__()
        self.seed = seed
        self.load = load or Load()
        self.history = history or History()
        self.questions = Questions(self.history, seed)
        self.name = "messages and transactions" if self.load.transactional else "messages"
        self.points = points_of(WAY) if self.load.transactional else ()

    def made_clients(self, port: int, life: int, end: str) -> list[LivingClient]:
        """Spread over the queues."""
        history, load = self.history, self.load
        clients: list[LivingClient] = []

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
        return clients

    def recorded(self) -> int:
        """Events and steps."""
        return len(self.history.events) + len(self.history.steps)

    def awaited_commit(self) -> Callable[[], bool] | None:
        """A controller sends one."""
        steps = self.history.steps
        at = len(steps)
        if not self.load.transactional:
            return None
        return lambda: any(step.kind == "commit_sent" for step in steps[at:])

    def settle(self, port: int, life: int) -> None:
        """Drain all queues and ask all questions."""
        last: list[LivingClient] = [
            DrainingClient(f"d{number}.{life}", port, life, queue, self.history)
            for number, queue in enumerate(self.load.queues)
        ]
        if self.load.transactional:
            last.append(LastAskingClient(f"q.{life}", port, life, self.history, self.questions))
        self.run(last)
        for client in last:
            client.join()  # however long a backlog takes
        self.join()

    def check(self, deaths: Sequence[Death], data: Path) -> list[str]:
        """Each message once, each transaction wholly or not at all, as its controller was told."""
        accounts = collect_accounts(self.history.steps)[0].values()
        complaints = check_deaths(deaths, (WAY,), lost_fates(accounts))
        return complaints + check_history(self.history.events, self.history.steps)

    def records(self) -> Iterable[Record]:
        """What happened to messages and transactions."""
        return self.history.records()

    def summary(self) -> str:
        """Messages, and how many transactions ended in which way."""
        counts = count_events(self.history.events)
        told = ", ".join(f"{count:,} {kind}" for kind, count in counts.items())
        return f"{told}; {self._count_transactions()}" if self.load.transactional else told

    def _count_transactions(self) -> str:
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
        return ", ".join(f"{count:,} {words}" for words, count in counts.items())


def _committed(accounts: Iterable[Account]) -> int:
    return sum(account.fate is Fate.COMMITTED for account in accounts)
