"""The whole proof is proved: discharges are made half in a copy of a killed broker's store, and in a copy of
what its clients saw, and the check at the end says so.
"""

from __future__ import annotations

import re
import shutil
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from amqp_broker.persistence import Discharged, Post, Retire, Unit
from amqp_broker.persistence.questions import PageOf
from amqp_broker.persistence.sqlite import SqliteStore
from amqp_broker.records import record_of
from tests.crash.checks import check_history
from tests.crash.history import Event, History, Message
from tests.crash.lives import Lives
from tests.crash.messages import Load, Messages
from tests.crash.traffic import decode_body, encode_body
from tests.persistence.stores import edit
from tests.promises.fates import Fate, collect_accounts

QUEUES: Final = ("orders", "invoices", "parcels")
SEED: Final = 815


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Lives:
    """A life of controllers from whose queues nobody else receives, ended by a kill."""
    load = Load(senders=1, receivers=0, queues=QUEUES, window=20, posting=1, transforming=1)
    messages = Messages(SEED, load)
    lives = Lives(tmp_path_factory.mktemp("killed"), [messages])
    lives.live(until=lambda: _fit(messages.history.copy()))
    assert lives.complaints == []
    return lives


class Copied(Lives):
    """The lives of one workload, of which a copy goes on."""

    def __init__(self, directory: Path, messages: Messages) -> None:
        super().__init__(directory, [messages])
        self.count = 1
        self.history = messages.history


def _fit(history: History) -> bool:
    """Whether there is something to spoil in each way."""
    rolled_back = [step for step in history.steps if step.kind == "rollback_sent"]
    return bool(_posts(history) and _retirements(history) and rolled_back)


@pytest.fixture
def copied(killed: Lives, tmp_path: Path) -> Copied:
    """The same once more, to be spoilt."""
    shutil.copytree(killed.directory / "data", tmp_path / "data")
    (messages,) = killed.workloads
    assert isinstance(messages, Messages)
    return Copied(tmp_path, Messages(SEED, messages.load, messages.history.copy()))


def _posts(history: History) -> dict[str, list[Message]]:
    """What each committed transaction posted, of which nothing was received yet: two messages at least."""
    accounts, _ = collect_accounts(history.steps)
    received = {event.message for event in history.events if event.kind == "received"}
    posts: dict[str, list[Message]] = defaultdict(list)
    for event in history.events:
        if event.kind == "sent" and event.txn and accounts[event.txn].answer == "accepted":
            posts[event.txn].append(event.message)
    return {
        txn: messages
        for txn, messages in posts.items()
        if accounts[txn].fate is Fate.COMMITTED and len(messages) > 1 and not received & set(messages)
    }


def _retirements(history: History) -> list[Event]:
    """What committed transactions retired."""
    accounts, _ = collect_accounts(history.steps)
    return [
        event
        for event in history.events
        if event.kind in ("retired", "retired_settled") and accounts[event.txn].fate is Fate.COMMITTED
    ]


def _spoil(lives: Lives, unit: Callable[[SqliteStore], Unit]) -> None:
    store = SqliteStore(lives.directory / "data", ballast_bytes=0)
    try:
        store.recover()
        assert store.apply([unit(store)]) == [None]
        store.commit()
    finally:
        store.close()


def _found(complaint: str, complaints: list[str]) -> None:
    assert any(re.search(complaint, words) for words in complaints), complaints


def test_a_post_that_is_missing_in_the_store_is_found(copied: Copied) -> None:
    """A discharge of which one message was not stored is half."""
    txn, messages = next(iter(_posts(copied.history).items()))

    def without_one(store: SqliteStore) -> Unit:
        for node in store.recover().nodes:
            at = node.first_offset
            while at < node.next_offset:
                page = store.ask(PageOf(node.queue_id, at, 1_000, 1 << 24))
                for record in page.records:
                    if decode_body(record.body)[0] == messages[0]:
                        return [Retire(node.queue_id, record.offset, record.offset)]
                at = page.next_offset
        raise AssertionError(f"{messages[0]} is not in the store")

    _spoil(copied, without_one)
    _found(rf"half: of transaction {txn} .* {len(messages) - 1} of {len(messages)} posts", copied.finish())


def test_a_retirement_that_is_missing_in_the_store_is_found(copied: Copied) -> None:
    """A discharge whose posts were stored, and whose retirement was not, is half."""
    event = _retirements(copied.history)[-1]

    def back_again(store: SqliteStore) -> Unit:
        node = next(node for node in store.recover().nodes if node.name == QUEUES[0])
        payload = encode_body(event.message, 10, copied.history.sent_in[event.message])
        record = record_of(payload, 0, 0, node.queue_id, True)
        record.offset = node.next_offset
        return [Post(node.queue_id, [record])]

    _spoil(copied, back_again)
    _found(rf"(half|wholly absent): of transaction {event.txn} ", copied.finish())


def test_an_outcome_that_is_missing_in_the_store_is_found(copied: Copied) -> None:
    """A discharge whose work was stored without its outcome is there, and nobody can say so."""
    txn = next(iter(_posts(copied.history)))
    copied.history.steps = [
        step for step in copied.history.steps if (step.txn, step.kind) != (txn, "accepted")
    ]
    edit(copied.directory / "data", "DELETE FROM discharge WHERE txn_id=?", bytes.fromhex(txn))
    _found(rf"(wholly there|half): of transaction {txn} .*told not-committed", copied.finish())


def test_an_outcome_without_its_work_is_found(copied: Copied) -> None:
    """A rollback that the store has as a commit: who asks is told a lie, and nothing of it is there."""
    accounts, _ = collect_accounts(copied.history.steps)
    txn = next(account.txn for account in accounts.values() if account.rollback_sent is not None)
    _spoil(copied, lambda _: [Discharged(bytes.fromhex(txn), 1)])
    _found(rf"transaction {txn} .*\(rolled back\) was called committed", copied.finish())


def test_a_message_that_is_missing_in_the_history_is_found(copied: Copied) -> None:
    """The copy is in order by itself; the same break, planted into what the clients saw, is none the less."""
    txn, messages = next(iter(_posts(copied.history).items()))
    assert copied.finish() == []
    events = [event for event in copied.history.events if event.message != messages[0] or event.txn]
    _found(
        rf"half: of transaction {txn} .* {len(messages) - 1} of {len(messages)} posts",
        check_history(events, copied.history.steps),
    )
