"""What the sink does with an epoch, without Spark: tasks write sets, the driver decides or voids.

    write_sets    decided already: nothing      else a set at each broker that rows go to: staged and sealed
    decide_epoch  one "commit epoch" at the coordinator, repeated until it is answered or the time is over
    void_sets     after a failure; what was decided meanwhile stays decided

The first broker is the coordinator, the others are participants; a single one is a coordinator without any. A
set of a participant is enlisted at the coordinator before it is prepared where its messages are. After the
decision each participant is told it: what the coordinator says that it decided, whatever a driver named
(docs/protocols/sets.md).

The brokers never speak with each other: we carry what they say. A set is enlisted once, everything else may
be said again. A decision that a participant was not told is told by the next run of the epoch, or by whoever
answers check-backs (`check_backs`). A set has a fresh name for each attempt: the ids of attempts repeat after
a restart. Roll back goes by the set, commit by the epoch: a query that starts again runs its epoch again, so
no abort may make it unusable.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final, TypeVar

import attrs

from amqp_broker.client import BlockingConnection, BlockingSender, LinkRefused, OutgoingMessage
from amqp_broker.frames import SETTLE_MODE_UNSETTLED
from amqp_broker.pipeline.errors import BrokerUnreachable, EpochError
from amqp_broker.pipeline.messages_of_rows import Encoded
from amqp_broker.pipeline.rights import missing_to_send
from amqp_broker.pipeline.set_brokers import COORDINATOR, SetBrokers
from amqp_broker.pipeline.set_client import (
    CHECKSUM_MODULUS,
    STAGE_WINDOW,
    EpochDecided,
    EpochStatus,
    EpochUndecided,
    SealedSet,
    SetClient,
    SetDecided,
    SetUnsealed,
    Staging,
    StaleEpoch,
)

PAUSE_S: Final = 0.2  # before a request whose answer did not come is made again
PAUSE_MAX_S: Final = 2.0
PREPARED: Final = "prepared"
T = TypeVar("T")


@attrs.frozen
class Written:
    """What a task tells the driver. There are no `sets` when it had no rows, or when the epoch was `decided`
    before it ended; `rows` are those that Spark gave it.
    """

    producer: str
    epoch: int
    sets: tuple[SealedSet, ...]
    decided: bool
    rows: int


# --- a task


def write_sets(
    brokers: SetBrokers,
    producer: str,
    epoch: int,
    batches: Iterable[Encoded],
    address: str | None,
    window: int = STAGE_WINDOW,
) -> Written:
    """Stages the messages of one task, each at its broker, and seals them; nothing if the epoch is decided.

    `address` is the option; without it each batch has its own. Raises EpochError, BrokerUnreachable.
    """
    counted = _Counted(batches)
    status = brokers.status(COORDINATOR, producer, epoch)
    _check_coordinator(brokers, COORDINATOR, status, producer, status.store)
    if status.decided:
        return Written(producer, epoch, (), True, counted.drain())
    _check_epoch(status, producer, epoch)
    task = _Task(brokers, producer, epoch, window)
    try:
        for batch in counted:
            task.stage(batch, address)
        task.seal()
    except EpochDecided:
        # Another run of this epoch was decided while this one wrote.
        return Written(producer, epoch, (), True, counted.drain())
    except Exception:
        void_sets(brokers, [task.written(counted.rows)])
        raise
    return task.written(counted.rows)


class _Counted:
    """Batches of messages, and how many messages went by."""

    def __init__(self, batches: Iterable[Encoded]) -> None:
        self._batches = iter(batches)
        self.rows = 0

    def __iter__(self) -> Iterator[Encoded]:
        for batch in self._batches:
            self.rows += len(batch.rests)
            yield batch

    def drain(self) -> int:
        """All of them, those that are left included."""
        for _ in self:
            pass
        return self.rows


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
        """Stages each message at its broker."""
        for number, part in _by_broker(batch):
            stage = self._stages.get(number)
            if stage is None:
                stage = self._begin(number)
            self._brokers.guard(number, partial(stage.send, part, address))

    def _begin(self, number: int) -> SetStage:
        store = "" if number == COORDINATOR else self._brokers.store(number, self._producer, self._epoch)
        set_id = str(uuid.uuid4())
        self._sets[number] = SealedSet(set_id, 0, 0, store)
        stage = self._stages[number] = self._brokers.ask(
            number, lambda client: SetStage(client, self._producer, self._epoch, set_id, self._window)
        )
        return stage

    def seal(self) -> None:
        """Seals the coordinator's own set; each other one is enlisted there, once, and prepared."""
        for number, stage in self._stages.items():
            staged = self._brokers.guard(number, stage.close)
            if staged is None:
                del self._sets[number]
                continue
            sealed = self._sets[number] = attrs.evolve(staged, store=self._sets[number].store)
            of = (self._producer, self._epoch, sealed)
            _seal(self._brokers, COORDINATOR, *of, store=sealed.store)
            if number != COORDINATOR:
                coordinator = self._brokers.store(COORDINATOR, self._producer, self._epoch)
                _seal(self._brokers, number, *of, coordinator=coordinator)

    def written(self, rows: int) -> Written:
        """What the driver is told."""
        sets = tuple(one for _, one in sorted(self._sets.items()))
        return Written(self._producer, self._epoch, sets, False, rows)


def _seal(
    brokers: SetBrokers, number: int, producer: str, epoch: int, sealed: SealedSet,
    *, coordinator: str = "", store: str = "",
) -> None:  # fmt: skip
    brokers.ask(
        number, lambda client: client.seal(producer, epoch, sealed, coordinator=coordinator, store=store)
    )


class SetStage:
    """The messages of one set, on their way: a link for each destination."""

    def __init__(self, client: SetClient, producer: str, epoch: int, set_id: str, window: int) -> None:
        self.set_id = set_id
        self._stage = partial(client.stage, producer, epoch, set_id, window=window)
        self._links: dict[str, Staging] = {}

    def send(self, batch: Encoded, address: str | None) -> None:
        """Stages them; all are stored when this returns. Raises EpochError, ClientError."""
        for destination, heads, rests in _by_destination(batch, address):
            link = self._links.get(destination)
            if link is None:
                link = self._links[destination] = self._stage(destination)
            link.send(heads, rests)

    def close(self) -> SealedSet | None:
        """Detaches; what was staged, to be sealed (None: nothing)."""
        links = self._links.values()
        for link in links:
            link.close()
        if not links:
            return None
        checksum = sum(link.checksum for link in links) % CHECKSUM_MODULUS
        return SealedSet(self.set_id, sum(link.count for link in links), checksum)


def send_all(
    connect: Callable[[int], BlockingConnection],
    batches: Iterable[Encoded],
    address: str | None,
    window: int = STAGE_WINDOW,
) -> int:
    """Sends at least once, each message to its broker: all are accepted when this returns; how many. Raises
    MissingRight, ClientError.
    """
    links: dict[tuple[int, str], BlockingSender] = {}
    count = 0
    try:
        for batch in batches:
            for number, part in _by_broker(batch):
                for destination, heads, rests in _by_destination(part, address):
                    link = links.get((number, destination))
                    if link is None:
                        link = links[number, destination] = _sender(connect(number), destination)
                    contents = (OutgoingMessage(head + rest) for head, rest in zip(heads, rests, strict=True))
                    count += link.send_many(contents, window=window)
    finally:
        for link in links.values():
            link.close()
    return count


def _sender(connection: BlockingConnection, destination: str) -> BlockingSender:
    try:
        return connection.open_sender(destination, snd_settle_mode=SETTLE_MODE_UNSETTLED)
    except LinkRefused as refused:
        raise missing_to_send(refused, destination) or refused from None


def _by_broker(batch: Encoded) -> Iterator[tuple[int, Encoded]]:
    """The messages of a batch for each broker, in their order."""
    shards = batch.shards
    if shards is None:
        yield COORDINATOR, batch
        return
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


def _by_destination(
    batch: Encoded, address: str | None
) -> Iterable[tuple[str, Sequence[bytes], Sequence[bytes]]]:
    """The messages of a batch for each destination, in their order."""
    if batch.addresses is None:
        assert address is not None, "the encoder wants the one or the other"
        return [(address, batch.heads, batch.rests)] if batch.rests else []
    found: dict[str, tuple[list[bytes], list[bytes]]] = {}
    for destination, head, rest in zip(batch.addresses, batch.heads, batch.rests, strict=True):
        heads, rests = found.setdefault(destination, ([], []))
        heads.append(head)
        rests.append(rest)
    return [(destination, heads, rests) for destination, (heads, rests) in found.items()]


# --- the driver


def decide_epoch(
    brokers: SetBrokers,
    written: Sequence[Written],
    timeout_ms: int,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Has the coordinator decide the epoch that these tasks wrote, in their order, and tells each participant
    what it decided, before or now. Asks again for `timeout_ms` where an answer is lost.

    Raises EpochError, also when the time is over without an answer; then the decision may be there or not,
    and the next run of the epoch goes on with it.
    """
    if not written:
        return
    producer, epoch = _one_epoch(written)
    patience = _Patience(f"producer {producer}, epoch {epoch}", timeout_ms, pause)
    winners = [each for one in written for each in one.sets]
    participants = range(1, len(brokers))
    skipped = any(one.decided for one in written)
    if participants:
        _check_brokers(brokers, producer, epoch, patience)
    _check_stores(brokers, producer, epoch, winners)
    if not skipped:
        patience.until(
            "it may be decided or not",
            lambda: brokers.ask(COORDINATOR, lambda client: client.commit_epoch(producer, epoch, winners)),
        )
        if not participants:
            return
    decided = patience.until("it may be decided or not", lambda: brokers.status(COORDINATOR, producer, epoch))
    _check_decided(decided, producer, epoch, sum(one.rows for one in written))
    _check_stores(brokers, producer, epoch, decided.winners)
    for number in participants:
        patience.until(
            f"it is decided, and {brokers.names[number]} was not told",
            partial(apply_decision, brokers, number, producer, epoch, decided),
        )


class _Patience:
    """Asks again while a broker does not answer, until the time is over."""

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
                        f"commitTimeoutMs), last: {error}. Now {otherwise}; the query goes on with it when "
                        "it is started again"
                    ) from error
                self._pause(wait_s)
                wait_s = min(2 * wait_s, PAUSE_MAX_S)


def apply_decision(
    brokers: SetBrokers, number: int, producer: str, epoch: int, decided: EpochStatus
) -> None:
    """Has a participant do what the coordinator `decided`, after the epochs below that it has prepared sets
    of. Harmless when it is done.
    """
    store = brokers.store(number, producer, epoch)
    own = [one for one in decided.winners if one.store == store]
    prepared_again = False
    while True:
        try:
            brokers.ask(
                number,
                lambda client: client.commit_epoch(producer, epoch, own, coordinator=decided.store),
            )
            return
        except EpochUndecided as refused:
            for lower in refused.epochs:
                end_prepared(brokers, number, producer, lower)
        except SetUnsealed:
            # Prepared it was, or the coordinator would not have it: what said so was damaged on the
            # participant's disk. Count and checksum are compared, so nothing is believed that is not there.
            if prepared_again:
                raise
            prepared_again = True
            for one in own:
                _seal(brokers, number, producer, epoch, one, coordinator=decided.store)
        except StaleEpoch:
            if own:
                raise
            return  # it had nothing of this epoch, and is beyond it


def end_prepared(
    brokers: SetBrokers, number: int, producer: str, epoch: int, set_ids: Sequence[str] | None = None
) -> None:
    """Ends an epoch that a participant has prepared sets of: as the coordinator decided it, else all of them
    or these are ruled out.
    """
    decided = brokers.status(brokers.coordinator, producer, epoch)
    if not decided.decided:
        there = brokers.status(number, producer, epoch)
        left = [one["set"] for one in there.sets if one["epoch"] == epoch and one["state"] == PREPARED]
        try:
            rule_out(brokers, number, producer, epoch, left if set_ids is None else set_ids)
            return
        except SetDecided:
            decided = brokers.status(brokers.coordinator, producer, epoch)
    apply_decision(brokers, number, producer, epoch, decided)


def rule_out(brokers: SetBrokers, number: int, producer: str, epoch: int, set_ids: Sequence[str]) -> None:
    """Has the coordinator decide that these sets of a participant never win, and the participant void them.
    Raises SetDecided where one of them has won.
    """
    store = brokers.store(number, producer, epoch)
    coordinator = brokers.store(brokers.coordinator, producer, epoch)
    brokers.ask(brokers.coordinator, lambda client: client.void(producer, epoch, set_ids, store=store))
    brokers.ask(number, lambda client: client.void(producer, epoch, set_ids, coordinator=coordinator))


def void_sets(brokers: SetBrokers, written: Sequence[Written | None]) -> str | None:
    """Voids the sets of tasks whose epoch failed; never raises. In words, what was not done.

    A broker refuses where the epoch was decided: after a commit whose reply was lost that is what is wanted.
    A set that stays is voided with the next decision, by whoever answers check-backs, or at the end of its
    time.
    """
    named = [one for one in written if one is not None and one.sets]
    refused = None
    for producer, epoch in dict.fromkeys((one.producer, one.epoch) for one in named):
        sets = [each for one in named if (one.producer, one.epoch) == (producer, epoch) for each in one.sets]
        try:
            _void(brokers, producer, epoch, sets)
        except Exception as error:
            refused = f"sets of producer {producer}, epoch {epoch} were not voided: {error}"
    return refused


def _void(brokers: SetBrokers, producer: str, epoch: int, sets: Sequence[SealedSet]) -> None:
    own = [one.set_id for one in sets if not one.store]
    if own:
        brokers.ask(COORDINATOR, lambda client: client.void(producer, epoch, own))
    for number in range(1, len(brokers)):
        store = brokers.store(number, producer, epoch)
        theirs = [one.set_id for one in sets if one.store == store]
        if theirs:
            rule_out(brokers, number, producer, epoch, theirs)


# --- what is checked


def _one_epoch(written: Sequence[Written]) -> tuple[str, int]:
    """The one that all tasks wrote. Raises EpochError."""
    found = {(one.producer, one.epoch) for one in written}
    if len(found) != 1:
        raise EpochError(f"expected one producer and epoch of all tasks of a batch, found {sorted(found)}")
    return found.pop()


def _check_epoch(status: EpochStatus, producer: str, epoch: int) -> None:
    """Raises EpochError for an epoch that came after others of its producer and was left out."""
    if status.latest is not None and epoch < status.latest:
        raise EpochError(
            f"producer {producer}: expected an epoch above {status.latest}, the latest one decided, found "
            f"{epoch}. An older or a new checkpoint writes with the name of a query that went on without it: "
            "give the sink another producerId (txnAppId), or go back to the newest checkpoint"
        )


def _check_decided(status: EpochStatus, producer: str, epoch: int, rows: int) -> None:
    """Raises EpochError unless the epoch is decided, with so many rows. A batch that runs again has the
    rows that it had; one of an older checkpoint may have others.
    """
    if not status.decided:
        raise EpochError(
            f"producer {producer}, epoch {epoch}: tasks of this run found it decided, and now it is not. The "
            "broker's store was restored or changed in between; start the query again"
        )
    count = sum(winner.count for winner in status.winners)
    if count != rows:
        raise EpochError(
            f"producer {producer}, epoch {epoch}: it was committed before with {count} rows, and now it has "
            f"{rows}. Nothing is written, for it is not the batch that it was: a checkpoint that was "
            "restored from a copy, or a txnVersion that was used before for other rows. Give the query a "
            "new checkpoint, or the batch a txnVersion of its own"
        )


def _check_brokers(brokers: SetBrokers, producer: str, epoch: int, patience: _Patience) -> None:
    """Raises EpochError unless all of them answer, each is another one, and they are in the order that
    earlier epochs were written in.
    """
    found = [
        patience.until("nothing is decided by this run", partial(brokers.status, number, producer, epoch))
        for number in range(len(brokers))
    ]
    stores = [status.store for status in found]
    for number, store in enumerate(stores):
        if store in stores[:number]:
            raise EpochError(
                f"option amqp.url: {brokers.names[stores.index(store)]} and {brokers.names[number]} are the "
                f"same broker (store {store}): URLs of one broker stand with commas, semicolons are between "
                "brokers"
            )
    for number, status in enumerate(found):
        _check_coordinator(brokers, number, status, producer, stores[COORDINATOR])


def _check_coordinator(
    brokers: SetBrokers, number: int, status: EpochStatus, producer: str, coordinator: str
) -> None:
    """Raises EpochError where another broker than the first one decided for this producer."""
    for decided, by in (
        (status.decided, status.coordinator),
        (status.latest is not None, status.latest_coordinator),
    ):
        if decided and (by or status.store) != coordinator:
            right = brokers.number_of(by or status.store)
            first = "another one" if right is None else brokers.names[right]
            raise EpochError(
                f"producer {producer}: its epochs were decided by the store {by or status.store} until now, "
                f"as the broker at {brokers.names[number]} has it, but the first broker of the option "
                f"amqp.url, {brokers.names[COORDINATOR]}, has the store {coordinator}. The order of the "
                f"brokers stays: name {first} first, and new ones at the end"
            )


def _check_stores(brokers: SetBrokers, producer: str, epoch: int, sets: Sequence[SealedSet]) -> None:
    """Raises EpochError for a set at a broker that is none of these."""
    for one in sets:
        if one.store and brokers.number_of(one.store) is None:
            raise EpochError(
                f"producer {producer}, epoch {epoch}: {one.count} of its rows are in the store {one.store}, "
                f"which none of {', '.join(brokers.names)} has: the data directory of one was wiped or "
                "replaced, or the option amqp.url left it out. Without it the epoch is not whole"
            )
