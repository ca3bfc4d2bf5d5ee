"""The check of a history that ended with a complete drain, in one pass over it.

Every message that is promised has to be seen, with an outcome that removed it, and never again after that
was confirmed. A transaction has to be wholly there or wholly absent, as its fate says.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from tests.crash.fates import Account, Fate, check_answers, collect_accounts
from tests.crash.history import Event, Message, Step, shortened


@dataclass(slots=True)
class _Receipt:
    life: int
    link: str
    released: bool = False
    removed: bool = False
    """An outcome left that may have removed the message."""
    settled: bool = False
    """It is certain that the message was removed."""


def check_history(events: Iterable[Event], steps: Iterable[Step] = ()) -> list[str]:
    """All complaints about a history that ended with a complete drain; none when the broker kept its
    promises.
    """
    steps = list(steps)
    accounts, complaints = collect_accounts(steps)
    judge = _Judge(accounts)
    everything: list[Event | Step] = [*events, *steps]
    for happened in sorted(everything, key=lambda happened: happened.order):
        if isinstance(happened, Step):
            judge.step(happened)
        else:
            judge.event(happened)
    complaints += check_answers(accounts.values())
    for account in accounts.values():
        complaints += judge.whole(account)
    return shortened(complaints + judge.complaints + judge.losses() + judge.misplaced)


class _Judge:
    """What is known at one place of the history."""

    def __init__(self, accounts: dict[str, Account]) -> None:
        self.accounts = accounts
        self.complaints: list[str] = []
        self.misplaced: list[str] = []
        self._ends = {account.end: account for account in accounts.values() if account.end is not None}
        self._sent: dict[Message, str] = {}  # and the transaction in which
        self._posts: dict[str, list[Message]] = defaultdict(list)
        self._accepted: set[Message] = set()
        self._receipts: dict[Message, list[_Receipt]] = defaultdict(list)
        self._work: dict[str, list[tuple[Event, _Receipt]]] = defaultdict(list)
        self._returned: set[Message] = set()  # given back within a life: these may come out of order
        self._counts: dict[Message, int] = {}  # expected delivery-counts other than 0
        self._count_unknown: set[Message] = set()
        self._last: dict[tuple[int, str, str], tuple[int, int]] = {}

    def event(self, event: Event) -> None:
        """One message went one step."""
        if event.kind == "sent":
            self._sent[event.message] = event.txn
            self._posts[event.txn].append(event.message)
        elif event.kind == "accepted":
            if event.message in self._accepted:
                self.complaints.append(f"{_name(event.message)} was accepted twice")
            self._accepted.add(event.message)
        elif event.kind == "received":
            self._receive(event)
        elif event.kind == "browsed":
            self.complaints += self._check_seen(event) or self._check_browsed(event)
        else:
            self._outcome(event)

    def _receive(self, event: Event) -> None:
        before = self._receipts[event.message]
        self.complaints += self._check_receipt(event, before)
        self._check_order(event)
        receipt = _Receipt(event.life, event.link)
        before.append(receipt)
        if not event.txn:
            return
        account = self.accounts.get(event.txn)
        over = account is not None and account.end is not None and account.end < event.order
        if over and account is not None and account.fate is not Fate.COMMITTED:
            self._return(event.message, receipt)  # it was on its way to us when its transaction was ended
        else:
            self._work[event.txn].append((event, receipt))

    def _check_seen(self, event: Event) -> list[str]:
        """Whether anybody may see this message, browsers too."""
        name = f"{_name(event.message)} was {event.kind} on {event.link}"
        if event.message not in self._sent:
            return [f"{name} and had never been sent"]
        txn = self._sent[event.message]
        if not txn:
            return []
        account = self.accounts[txn]
        if account.commit_sent is None or event.order < account.commit_sent:
            return [f"{name}, and no commit of {account} had been sent"]
        return [f"{name}, posted in {account}"] if account.fate is Fate.ABSENT else []

    def _check_browsed(self, event: Event) -> list[str]:
        for receipt in self._receipts[event.message]:
            if receipt.settled and receipt.life < event.life:
                return [f"came back: {_name(event.message)} was browsed on {event.link} in a later life"]
        return []

    def _check_receipt(self, event: Event, before: list[_Receipt]) -> list[str]:
        name = _name(event.message)
        unseen = self._check_seen(event)
        if unseen:
            return unseen
        if any(receipt.settled for receipt in before):
            return [f"came back: {name} was received on {event.link} after its settlement had been confirmed"]
        if any(receipt.life == event.life and not receipt.released for receipt in before):
            return [f"twice: {name} was received on {event.link} while another link of the same life held it"]
        expected = self._counts.get(event.message, 0)
        if event.count != expected and event.message not in self._count_unknown:
            return [
                f"{name} was received on {event.link} with delivery-count {event.count}, expected {expected}"
            ]
        return []

    def _check_order(self, event: Event) -> None:
        """On one receiving link the messages of one producer link arrive as they were discharged and sent,
        those apart that were given back.
        """
        if event.message in self._returned:
            return
        producer, number = event.message
        txn = self._sent.get(event.message)
        place = ((self.accounts[txn].commit_sent or 0) if txn else 0, number)
        key = event.life, event.link, producer
        last = self._last.get(key)
        if last is not None and place <= last:
            self.misplaced.append(
                f"order: {_name(event.message)} was received on {event.link} after number {last[1]}"
            )
        self._last[key] = place

    def _outcome(self, event: Event) -> None:
        name = _name(event.message)
        receipts = self._receipts[event.message]
        own = [r for r in receipts if (r.life, r.link) == (event.life, event.link)]
        if not own:
            self.complaints.append(f"{name}: {event.kind} on {event.link}, which had not received it")
            return
        receipt = own[-1]
        if event.kind == "released":
            self._return(event.message, receipt)
        elif event.kind == "dropped":  # with its connection; of the oldest one that is a failed try
            self._return(event.message, receipt)
            self._count_unknown.add(event.message)
        elif event.kind == "accept_sent":
            receipt.removed = True
        elif event.kind == "settled":
            if not receipt.removed:
                self.complaints.append(f"{name} was confirmed on {event.link}, which had sent no outcome")
            receipt.settled = True
        else:
            self._work[event.txn].append((event, receipt))
            fate = self.accounts[event.txn].fate
            if event.kind != "modified" and fate is not Fate.ABSENT:
                receipt.removed = True
                receipt.settled = fate is Fate.COMMITTED

    def _return(self, message: Message, receipt: _Receipt) -> None:
        receipt.released = True
        self._returned.add(message)

    def step(self, step: Step) -> None:
        """At the end of a transaction, what it held may go to others."""
        account = self._ends.get(step.order)
        if account is None:
            return
        fate = account.fate
        for event, receipt in self._work[account.txn]:
            if event.kind == "modified":
                if fate is not Fate.ABSENT:
                    self._return(event.message, receipt)
                    self._counts[event.message] = self._counts.get(event.message, 0) + 1
                if fate is Fate.UNKNOWN:
                    self._count_unknown.add(event.message)
            elif event.kind != "retired" and fate is not Fate.COMMITTED:
                self._return(event.message, receipt)  # acquired in it, or its controller settled it

    def losses(self) -> list[str]:
        """Messages that are promised, and were not seen, or not removed."""
        complaints = []
        for message in sorted(self._accepted | self._committed_posts()):
            receipts = self._receipts[message]
            if not receipts or not receipts[-1].removed:
                seen = "received but never given an outcome" if receipts else "never received"
                complaints.append(f"lost: {_name(message)} was accepted by the broker and {seen}")
        for message, receipts in sorted(self._receipts.items()):
            if receipts and message not in self._accepted and not self._sent.get(message):
                if not receipts[-1].removed:
                    complaints.append(
                        f"lost: {_name(message)} was received, given no outcome, and did not come back"
                    )
        return complaints

    def _committed_posts(self) -> set[Message]:
        committed = [txn for txn, account in self.accounts.items() if account.fate is Fate.COMMITTED]
        return {message for txn in committed for message in self._posts[txn]}

    def whole(self, account: Account) -> list[str]:
        """A complaint if not everything, or not nothing, of a transaction was found, as its fate says."""
        posts = self._posts[account.txn]
        there = sum(bool(self._receipts[message]) for message in posts)
        retired = [pair for pair in self._work[account.txn] if pair[0].kind in ("retired", "retired_settled")]
        in_force = sum(self._in_force(event, receipt, account.fate) for event, receipt in retired)
        parts, found = len(posts) + len(retired), there + in_force
        if found == {Fate.COMMITTED: parts, Fate.ABSENT: 0}.get(account.fate, parts if found else 0):
            return []
        word = "half" if 0 < found < parts else "wholly there" if found else "wholly absent"
        return [
            f"{word}: of {account} {there} of {len(posts)} posts were seen, {in_force} of {len(retired)} "
            "retirements were in force"
        ]

    def _in_force(self, event: Event, receipt: _Receipt, fate: Fate) -> bool:
        """Whether the message was gone from then on, by this retirement and by no other outcome."""
        if self._receipts[event.message][-1] is not receipt:
            return False
        return not receipt.removed if fate is Fate.ABSENT else True


def _name(message: Message) -> str:
    return f"message {message[1]} of {message[0]}"
