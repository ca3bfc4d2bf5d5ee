"""How each transaction of a history ended, from what its controller was told or learned afterwards.

discharge answered accepted                         --> COMMITTED
answered rejected, fail asked for, never discharged --> ABSENT
commit sent, no answer                              --> what the question was answered; else UNKNOWN
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tests.crash.history import Step, StepKind

TOLD_COMMITTED: Final = "committed"
TOLD_NOT_COMMITTED: Final = "not-committed"
TOLD_LIVE: Final = "live"
TOLD_PENDING: Final = "pending"
FINAL_WORDS: Final = (TOLD_COMMITTED, TOLD_NOT_COMMITTED)
PASSING_WORDS: Final = (TOLD_LIVE, TOLD_PENDING)
"""True while the connection of the controller lives, so never in a later life."""


class Fate(Enum):
    """What must be found of a transaction."""

    COMMITTED = "committed"
    ABSENT = "not committed"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Told:
    """One answer to the question how a transaction ended; `asked` is the order of the question."""

    asked: int
    life: int
    word: str


@dataclass(slots=True)
class Account:
    """The steps of one transaction; orders are places in the history, None for what did not happen."""

    txn: str
    life: int = 0
    commit_sent: int | None = None
    rollback_sent: int | None = None
    left: int | None = None
    answer: StepKind | None = None
    answered: int | None = None
    asked: int = -1
    told: list[Told] = field(default_factory=list)

    def take(self, step: Step) -> list[str]:
        """One more step; complaints about a dialogue that cannot be."""
        kind = step.kind
        complaints = []
        if kind == "declared":
            self.life = step.life
        elif kind == "commit_sent":
            self.commit_sent = step.order
        elif kind == "rollback_sent":
            self.rollback_sent = step.order
        elif kind == "left":
            self.left = step.order
        elif kind == "question":
            self.asked = step.order
        elif kind == "told":
            if self.asked < 0:
                complaints.append(f"{self} was told {step.word!r} and nobody had asked")
            self.told.append(Told(self.asked, step.life, step.word))
        else:
            if self.commit_sent is None and self.rollback_sent is None:
                complaints.append(f"{self} was answered {kind} and no discharge had been sent")
            if self.answer is not None:
                complaints.append(f"{self} was answered twice: {self.answer}, then {kind}")
            self.answer, self.answered = kind, step.order
        return complaints

    @property
    def end(self) -> int | None:
        """The place from which on its work may have an effect."""
        ends = [order for order in (self.commit_sent, self.rollback_sent, self.left) if order is not None]
        return min(ends, default=None)

    @property
    def fate(self) -> Fate:
        """COMMITTED, ABSENT or UNKNOWN."""
        if self.commit_sent is None or self.answer == "rejected":
            return Fate.ABSENT
        if self.answer == "accepted":
            return Fate.COMMITTED
        for told in self.told:
            if told.word in FINAL_WORDS:
                return Fate.COMMITTED if told.word == TOLD_COMMITTED else Fate.ABSENT
        return Fate.UNKNOWN

    @property
    def lost_its_answer(self) -> bool:
        """A commit was asked for, and the answer never came."""
        return self.commit_sent is not None and self.answer is None

    def __str__(self) -> str:
        if self.rollback_sent is not None:
            end = "rolled back"
        elif self.commit_sent is None:
            end = "never discharged"
        elif self.answer is not None:
            end = f"commit answered {self.answer}"
        else:
            words = list(dict.fromkeys(told.word for told in self.told))
            end = "commit not answered, " + (f"told {' and '.join(words)}" if words else "never told")
        return f"transaction {self.txn} of life {self.life} ({end})"


def collect_accounts(steps: Iterable[Step]) -> tuple[dict[str, Account], list[str]]:
    """The account of each transaction, and complaints about dialogues that cannot be."""
    accounts: dict[str, Account] = {}
    complaints = []
    for step in sorted(steps, key=lambda step: step.order):
        account = accounts.setdefault(step.txn, Account(step.txn))
        complaints += account.take(step)
    return accounts, complaints


def lost_fates(accounts: Iterable[Account]) -> dict[int, list[Fate]]:
    """By life, how the commits ended whose answer was lost in it."""
    fates: dict[int, list[Fate]] = defaultdict(list)
    for account in accounts:
        if account.lost_its_answer:
            fates[account.life].append(account.fate)
    return fates


def check_answers(accounts: Iterable[Account]) -> list[str]:
    """Complaints about what was said of transactions, whatever became of their work."""
    complaints = []
    for account in accounts:
        if account.rollback_sent is not None and account.answer == "rejected":
            complaints.append(f"{account}: a discharge with fail was answered rejected (4.3)")
        fate = account.fate
        if fate is Fate.UNKNOWN:
            complaints.append(f"{account}: nobody could say how it ended")
        for told in account.told:
            complaints += _check_told(account, fate, told)
    return complaints


def _check_told(account: Account, fate: Fate, told: Told) -> list[str]:
    if told.word in PASSING_WORDS:
        if told.life != account.life:
            return [f"{account} was called {told.word} in life {told.life}"]
        if account.answered is not None and account.answered < told.asked:
            return [f"{account} was called {told.word} after its discharge had been answered"]
        return []
    if told.word not in FINAL_WORDS:
        return [f"{account} was called {told.word!r}, which is no answer"]
    if fate is not Fate.UNKNOWN and (told.word == TOLD_COMMITTED) != (fate is Fate.COMMITTED):
        return [f"{account} was called {told.word}"]
    return []
