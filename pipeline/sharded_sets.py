"""What the sink does with an epoch whose rows go to several brokers (docs/protocols/sets.md).

    write    a set at each broker that rows go to: staged there, enlisted at home, then prepared there
    decide   "commit epoch" at home; then, at each shard, what home says that it decided
    void     the vote: home gives its word that a set never wins, then its shard drops it

The brokers never speak with each other: we carry their words. An enlisting is told once, every other word
may be told again. What is decided and not carried out is carried out by the next run of the epoch, or by the
checker.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final, TypeVar

import attrs

from amqp_broker.client import BlockingConnection, BlockingSender, OutgoingMessage
from amqp_broker.frames import SETTLE_MODE_UNSETTLED
from amqp_broker.pipeline.errors import BrokerUnreachable, EpochError
from amqp_broker.pipeline.messages_of_rows import Encoded
from amqp_broker.pipeline.set_brokers import HOME, SetBrokers
from amqp_broker.pipeline.set_client import (
    STAGE_WINDOW,
    EpochDecided,
    EpochStatus,
    EpochUndecided,
    SealedSet,
    SetDecided,
    SetUnsealed,
    StaleEpoch,
)
from amqp_broker.pipeline.set_writer import (
    PAUSE_MAX_S,
    PAUSE_S,
    Counted,
    SetStage,
    Written,
    by_destination,
    check_decided,
    check_epoch,
    one_epoch,
)

PREPARED: Final = "prepared"
T = TypeVar("T")


def write_sharded(
    brokers: SetBrokers,
    producer: str,
    epoch: int,
    batches: Iterable[Encoded],
    address: str | None,
    window: int = STAGE_WINDOW,
) -> Written:
    """Stages the messages of one task, each at its broker, and seals them; nothing if the epoch is decided.
    Raises EpochError, BrokerUnreachable.
    """
    counted = Counted(batches)
    status = brokers.status(HOME, producer, epoch)
    check_home(brokers, HOME, status, producer, status.log)
    if status.decided:
        return Written(producer, epoch, None, True, counted.drain())
    check_epoch(status, producer, epoch)
    task = _Task(brokers, producer, epoch, window)
    try:
        for batch in counted:
            task.stage(batch, address)
        task.seal()
    except EpochDecided:
        # Another run of this epoch was decided while this one wrote.
        return Written(producer, epoch, None, True, counted.drain())
    except Exception:
        void_sharded(brokers, [task.written(counted.rows)])
        raise
    return task.written(counted.rows)


class _Task:
    """The sets of one task, one at each broker that it has rows for."""

    def __init__(self, brokers: SetBrokers, producer: str, epoch: int, window: int) -> None:
        self._brokers = brokers
        self._producer = producer
        self._epoch = epoch
        self._window = window
        self._stages: dict[int, SetStage] = {}
        self._sets: dict[int, SealedSet] = {}

    def stage(self, batch: Encoded, address: str | None) -> None:
        """Each message at its broker."""
        for number, part in by_shard(batch):
            stage = self._stages.get(number)
            if stage is None:
                stage = self._begin(number)
            self._brokers.guard(number, partial(stage.send, part, address))

    def _begin(self, number: int) -> SetStage:
        store = "" if number == HOME else self._brokers.log(number, self._producer, self._epoch)
        set_id = str(uuid.uuid4())
        self._sets[number] = SealedSet(set_id, 0, 0, store)
        stage = self._stages[number] = self._brokers.ask(
            number, lambda client: SetStage(client, self._producer, self._epoch, set_id, self._window)
        )
        return stage

    def seal(self) -> None:
        """Home's own set is sealed; each of the others enlisted at home, once, and prepared."""
        home = self._brokers.log(HOME, self._producer, self._epoch)
        for number, stage in self._stages.items():
            staged = self._brokers.guard(number, stage.close)
            if staged is None:
                del self._sets[number]
                continue
            sealed = self._sets[number] = attrs.evolve(staged, store=self._sets[number].store)
            self._seal(HOME, sealed, store=sealed.store)
            if number != HOME:
                self._seal(number, sealed, home=home)

    def _seal(self, number: int, sealed: SealedSet, home: str = "", store: str = "") -> None:
        self._brokers.ask(
            number, lambda client: client.seal(self._producer, self._epoch, sealed, home=home, store=store)
        )

    def written(self, rows: int) -> Written:
        """For the driver."""
        elsewhere = tuple(one for number, one in sorted(self._sets.items()) if number != HOME)
        return Written(self._producer, self._epoch, self._sets.get(HOME), False, rows, elsewhere)


def by_shard(batch: Encoded) -> Iterator[tuple[int, Encoded]]:
    """The messages of a batch for each broker, in their order."""
    shards = batch.shards or []
    for number in sorted(set(shards)):
        rows = [row for row, shard in enumerate(shards) if shard == number]
        if len(rows) == len(shards):
            yield number, batch
            continue
        yield (
            number,
            Encoded(
                None if batch.addresses is None else [batch.addresses[row] for row in rows],
                [batch.heads[row] for row in rows],
                [batch.rests[row] for row in rows],
            ),
        )


def decide_sharded(
    brokers: SetBrokers,
    written: Sequence[Written],
    timeout_ms: int,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Has home decide the epoch that these tasks wrote, in their order, and carries out at each shard what it
    decided, before or now. Asks again for `timeout_ms` where an answer is lost.

    Raises EpochError: if home had decided by then, the next run of the epoch goes on with it.
    """
    if not written:
        return
    producer, epoch = one_epoch(written)
    patience = _Patience(f"producer {producer}, epoch {epoch}", timeout_ms, pause)
    winners = [each for one in written for each in one.sets]
    _check_brokers(brokers, producer, epoch, winners, patience)
    if not any(one.decided for one in written):
        patience.until(
            "it may be decided or not",
            lambda: brokers.ask(HOME, lambda client: client.commit_epoch(producer, epoch, winners)),
        )
    decided = patience.until("it may be decided or not", lambda: brokers.status(HOME, producer, epoch))
    check_decided(decided, producer, epoch, sum(one.rows for one in written))
    _check_stores(brokers, producer, epoch, decided.winners)
    for number in range(1, len(brokers)):
        patience.until(
            f"it is decided, and not carried out at {brokers.names[number]}",
            partial(carry_out, brokers, number, producer, epoch, decided),
        )


class _Patience:
    """Tells a word again while its broker does not answer, until the time is over."""

    def __init__(self, what: str, timeout_ms: int, pause: Callable[[float], None]) -> None:
        self._what = what
        self._timeout_ms = timeout_ms
        self._pause = pause
        self._deadline = time.monotonic() + timeout_ms / 1_000

    def until(self, otherwise: str, do: Callable[[], T]) -> T:
        """What it returns. Raises EpochError, which says what holds `otherwise`."""
        wait_s = PAUSE_S
        while True:
            try:
                return do()
            except BrokerUnreachable as error:
                if time.monotonic() + wait_s > self._deadline:
                    raise EpochError(
                        f"{self._what}: no answer to its commit within {self._timeout_ms} ms (option "
                        f"commitTimeoutMs), last: {error}. Now {otherwise}; the query goes on with it "
                        "when it is "
                        "started again"
                    ) from error
                self._pause(wait_s)
                wait_s = min(2 * wait_s, PAUSE_MAX_S)


def _check_brokers(
    brokers: SetBrokers, producer: str, epoch: int, winners: Sequence[SealedSet], patience: _Patience
) -> None:
    """All of them answer, each is another one, and they are in the order that earlier epochs were written
    in.
    """
    found = [
        patience.until("nothing is decided by this run", partial(brokers.status, number, producer, epoch))
        for number in range(len(brokers))
    ]
    logs = [status.log for status in found]
    for number, log in enumerate(logs):
        if log in logs[:number]:
            raise EpochError(
                f"option amqp.url: {brokers.names[logs.index(log)]} and {brokers.names[number]} are the "
                "same broker "
                f"(store {log}): URLs of one broker stand with commas, semicolons are between brokers"
            )
    for number, status in enumerate(found):
        check_home(brokers, number, status, producer, logs[HOME])
    _check_stores(brokers, producer, epoch, winners)


def check_home(brokers: SetBrokers, number: int, status: EpochStatus, producer: str, home: str) -> None:
    """Raises EpochError where another broker than the first one decided for this producer."""
    for decided, by in ((status.decided, status.home), (status.latest is not None, status.latest_home)):
        if decided and (by or status.log) != home:
            right = brokers.number_of(by or status.log)
            first = "another one" if right is None else brokers.names[right]
            raise EpochError(
                f"producer {producer}: its epochs were decided by the store {by or status.log} until now, "
                "as the "
                f"broker at {brokers.names[number]} has it, but the first broker of the option amqp.url, "
                f"{brokers.names[HOME]}, has the store {home}. The order of the brokers stays: name "
                f"{first} first, "
                "and new ones at the end"
            )


def _check_stores(brokers: SetBrokers, producer: str, epoch: int, sets: Sequence[SealedSet]) -> None:
    """Raises EpochError for a set at a broker that is none of these."""
    for one in sets:
        if one.store and brokers.number_of(one.store) is None:
            raise EpochError(
                f"producer {producer}, epoch {epoch}: {one.count} of its rows are in the store "
                f"{one.store}, which "
                f"none of {', '.join(brokers.names)} has: the data directory of one was wiped or "
                "replaced, or the "
                "option amqp.url left it out. Without it the epoch is not whole"
            )


def carry_out(brokers: SetBrokers, number: int, producer: str, epoch: int, decided: EpochStatus) -> None:
    """Has a shard do what home `decided`, after the epochs below that it has sets of. Harmless when it is
    done.
    """
    log = brokers.log(number, producer, epoch)
    mine = [one for one in decided.winners if one.store == log]
    prepared_again = False
    while True:
        try:
            brokers.ask(number, lambda client: client.commit_epoch(producer, epoch, mine, home=decided.log))
            return
        except EpochUndecided as refused:
            for lower in refused.epochs:
                settle(brokers, number, producer, lower)
        except SetUnsealed:
            # Prepared it was, or home would not have it: what said so was damaged on the shard's disk. Count
            # and checksum are compared, so nothing is believed that is not there.
            if prepared_again:
                raise
            prepared_again = True
            for one in mine:
                _prepare(brokers, number, producer, epoch, one, decided.log)
        except StaleEpoch:
            if mine:
                raise
            return  # it had nothing of this epoch, and is beyond it


def _prepare(
    brokers: SetBrokers, number: int, producer: str, epoch: int, sealed: SealedSet, home: str
) -> None:
    brokers.ask(number, lambda client: client.seal(producer, epoch, sealed, home=home))


def settle(
    brokers: SetBrokers, number: int, producer: str, epoch: int, set_ids: Sequence[str] | None = None
) -> None:
    """Ends an epoch that a shard has prepared sets of: as home decided it, else by the vote, about all of
    them or these.
    """
    decided = brokers.status(brokers.home, producer, epoch)
    if not decided.decided:
        there = brokers.status(number, producer, epoch)
        left = [one["set"] for one in there.sets if one["epoch"] == epoch and one["state"] == PREPARED]
        try:
            vote(brokers, number, producer, epoch, left if set_ids is None else set_ids)
            return
        except SetDecided:
            decided = brokers.status(brokers.home, producer, epoch)
    carry_out(brokers, number, producer, epoch, decided)


def vote(brokers: SetBrokers, number: int, producer: str, epoch: int, set_ids: Sequence[str]) -> None:
    """Home gives its word that these sets of a shard never win, and the shard drops them. Raises SetDecided
    where one of them has won.
    """
    store = brokers.log(number, producer, epoch)
    home = brokers.log(brokers.home, producer, epoch)
    brokers.ask(brokers.home, lambda client: client.void(producer, epoch, set_ids, store=store))
    brokers.ask(number, lambda client: client.void(producer, epoch, set_ids, home=home))


def void_sharded(brokers: SetBrokers, written: Sequence[Written | None]) -> str | None:
    """Voids the sets of tasks whose epoch failed; never raises. In words, what was not done: what is decided
    stays, and the rest is for the next commit, the checker, or the end of its time.
    """
    named = [one for one in written if one is not None and one.sets]
    try:
        for producer, epoch in dict.fromkeys((one.producer, one.epoch) for one in named):
            sets = [
                each for one in named if (one.producer, one.epoch) == (producer, epoch) for each in one.sets
            ]
            _void(brokers, producer, epoch, sets)
    except Exception as error:
        return f"sets of an epoch that failed were not voided: {error}"
    return None


def _void(brokers: SetBrokers, producer: str, epoch: int, sets: Sequence[SealedSet]) -> None:
    own = [one.set_id for one in sets if not one.store]
    if own:
        brokers.ask(HOME, lambda client: client.void(producer, epoch, own))
    for number in range(1, len(brokers)):
        log = brokers.log(number, producer, epoch)
        theirs = [one.set_id for one in sets if one.store == log]
        if theirs:
            vote(brokers, number, producer, epoch, theirs)


def send_to_all(
    connect: Callable[[int], BlockingConnection],
    batches: Iterable[Encoded],
    address: str | None,
    window: int = STAGE_WINDOW,
) -> int:
    """Sends at least once, each message to its broker: all are accepted when this returns; how many."""
    links: dict[tuple[int, str], BlockingSender] = {}
    count = 0
    try:
        for batch in batches:
            for number, part in by_shard(batch):
                for destination, heads, rests in by_destination(part, address):
                    link = links.get((number, destination))
                    if link is None:
                        link = links[number, destination] = connect(number).open_sender(
                            destination, snd_settle_mode=SETTLE_MODE_UNSETTLED
                        )
                    contents = (OutgoingMessage(head + rest) for head, rest in zip(heads, rests, strict=True))
                    count += link.send_many(contents, window=window)
    finally:
        for link in links.values():
            link.close()
    return count
