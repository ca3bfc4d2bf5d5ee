"""The check of a history that ended with a complete drain, in one pass over it.

Every message that is promised has to be seen, with an outcome that removed it, and never again after that
was confirmed. A transaction has to be wholly there or wholly absent, as its fate says.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from tests.crash.history import Event, Message, Step
from tests.promises.delivered import shortened
from tests.promises.fates import Account, Fate, check_answers, collect_accounts
from tests.promises.messages import Place, Whereabouts


class _Link(NamedTuple):
    """Of one life."""

    life: int
    name: str

    def __str__(self) -> str:
        return f"{self.name} of life {self.life}"


_Work = tuple[Event, int]
"""What was done in a transaction with a message that had been received so often."""


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
        self._messages: dict[Message, Whereabouts] = {}
        self._work: dict[str, list[_Work]] = defaultdict(list)
        self._returned: set[Message] = set()  # given back within a life: these may come out of order
        self._last: dict[tuple[_Link, str], tuple[int, int]] = {}

    def _where(self, message: Message) -> Whereabouts:
        return self._messages.setdefault(message, Whereabouts(_name(message)))

    def event(self, event: Event) -> None:
        """One message went one step."""
        message = self._where(event.message)
        if event.kind == "sent":
            self._sent[event.message] = event.txn
            self._posts[event.txn].append(event.message)
            account = self.accounts.get(event.txn)
            message.post(sure=account is not None and account.fate is Fate.COMMITTED)
        elif event.kind == "accepted":
            if event.message in self._accepted:
                self.complaints.append(f"{message.name} was accepted twice")
            self._accepted.add(event.message)
            message.post()
        elif event.kind == "received":
            self._receive(event, message)
        elif event.kind == "browsed":
            self.complaints += self._check_seen(event) or self._check_browsed(event, message)
        else:
            self._outcome(event, message)

    def _receive(self, event: Event, message: Whereabouts) -> None:
        if message.holder is not None and message.holder.life != event.life:
            message.give_back()  # its link ended with its broker
        unseen = self._check_seen(event)
        wrong = message.received(_Link(event.life, event.link)) or message.wrong_count(event.count)
        self.complaints += unseen or ([wrong] if wrong else [])
        self._check_order(event)
        if not event.txn:
            return
        account = self.accounts.get(event.txn)
        over = account is not None and account.end is not None and account.end < event.order
        if over and account is not None and account.fate is not Fate.COMMITTED:
            self._return(event.message)  # it was on its way to us when its transaction was ended
        else:
            self._work[event.txn].append((event, message.receipts))

    def _check_seen(self, event: Event) -> list[str]:
        """Whether anybody may see this message, browsers too."""
        name = f"{_name(event.message)} was {event.kind} on {event.link}"
        if event.message not in self._sent:
            return [f"{name} and {Place.NOWHERE.value}"]
        txn = self._sent[event.message]
        if not txn:
            return []
        account = self.accounts[txn]
        if account.commit_sent is None or event.order < account.commit_sent:
            return [f"{name}, and no commit of {account} had been sent"]
        return [f"{name}, posted in {account}"] if account.fate is Fate.ABSENT else []

    def _check_browsed(self, event: Event, message: Whereabouts) -> list[str]:
        if message.is_only(Place.GONE) and message.holder.life < event.life:
            return [f"came back: {message.name} was browsed on {event.link} in a later life"]
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
        key = _Link(event.life, event.link), producer
        last = self._last.get(key)
        if last is not None and place <= last:
            self.misplaced.append(
                f"order: {_name(event.message)} was received on {event.link} after number {last[1]}"
            )
        self._last[key] = place

    def _outcome(self, event: Event, message: Whereabouts) -> None:
        link = _Link(event.life, event.link)
        if link not in message.receivers:
            self.complaints.append(
                f"{message.name}: {event.kind} on {event.link}, which had not received it"
            )
        elif message.holder != link:
            self._late_outcome(event, message)
        elif event.kind == "released":
            self._return(event.message)
        elif event.kind == "dropped":  # with its connection; of the oldest one that is a failed try
            self._return(event.message)
            message.tried(0, 1)
        elif event.kind == "accept_sent":
            message.remove(sure=False)
        elif event.kind == "settled":
            if not message.may_be_gone:
                self.complaints.append(
                    f"{message.name} was confirmed on {event.link}, which had sent no outcome"
                )
            message.remove()
        else:
            self._work[event.txn].append((event, message.receipts))
            fate = self.accounts[event.txn].fate
            if event.kind != "modified" and fate is not Fate.ABSENT:
                message.remove(sure=fate is Fate.COMMITTED)

    def _late_outcome(self, event: Event, message: Whereabouts) -> None:
        """It went on to another link, when its transaction ended or its connection was lost."""
        if event.kind == "dropped":
            message.tried(0, 1)
        elif event.kind == "settled":
            message.remove()
        elif event.txn:
            self._work[event.txn].append((event, 0))
            if event.kind != "modified" and self.accounts[event.txn].fate is Fate.COMMITTED:
                message.remove()

    def _return(self, message: Message) -> None:
        self._messages[message].give_back()
        self._returned.add(message)

    def step(self, step: Step) -> None:
        """At the end of a transaction, what it held may go to others."""
        account = self._ends.get(step.order)
        if account is None:
            return
        fate = account.fate
        for event, receipts in self._work[account.txn]:
            message = self._messages[event.message]
            if message.receipts != receipts:
                continue  # somebody else has it, and that is a complaint
            if event.kind == "modified":
                if fate is not Fate.ABSENT:
                    self._return(event.message)
                    message.tried(*((0, 1) if fate is Fate.UNKNOWN else (1,)))
            elif event.kind != "retired" and fate is not Fate.COMMITTED:
                self._return(event.message)  # acquired in it, or its controller settled it

    def losses(self) -> list[str]:
        """Messages that are promised, and were not seen, or not removed."""
        complaints = []
        for message, where in sorted(self._messages.items()):
            txn = self._sent.get(message)
            promised = message in self._accepted or (txn and self.accounts[txn].fate is Fate.COMMITTED)
            if not where.has_to_come:
                continue
            if promised:
                seen = "received but never given an outcome" if where.receipts else "never received"
                complaints.append(f"lost: {where.name} was accepted by the broker and {seen}")
            else:
                complaints.append(
                    f"lost: {where.name} was received, given no outcome, and did not come back"
                )
        return complaints

    def whole(self, account: Account) -> list[str]:
        """A complaint if not everything, or not nothing, of a transaction was found, as its fate says."""
        posts = self._posts[account.txn]
        there = sum(bool(self._messages[message].receipts) for message in posts)
        retired = [pair for pair in self._work[account.txn] if pair[0].kind in ("retired", "retired_settled")]
        in_force = sum(self._in_force(work, account.fate) for work in retired)
        parts, found = len(posts) + len(retired), there + in_force
        if found == {Fate.COMMITTED: parts, Fate.ABSENT: 0}.get(account.fate, parts if found else 0):
            return []
        word = "half" if 0 < found < parts else "wholly there" if found else "wholly absent"
        return [
            f"{word}: of {account} {there} of {len(posts)} posts were seen, {in_force} of {len(retired)} "
            "retirements were in force"
        ]

    def _in_force(self, work: _Work, fate: Fate) -> bool:
        """Whether the message was gone from then on, by this retirement and by no other outcome."""
        event, receipts = work
        message = self._messages[event.message]
        return message.receipts == receipts and (fate is not Fate.ABSENT or not message.may_be_gone)


def _name(message: Message) -> str:
    return f"message {message[1]} of {message[0]}"
