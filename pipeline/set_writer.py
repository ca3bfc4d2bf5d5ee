"""What the sink does with an epoch, without Spark: a task writes a set, the driver decides or voids.

    write_set   decided already: nothing    else a fresh set: stage, seal, tell the driver its name
    decide      one "commit epoch", repeated until its answer is known or the time is over
    void_sets   after a failure; what was decided meanwhile stays decided

A set has a fresh name for each attempt: the ids of attempts repeat after a restart. Roll back goes by the
set, commit by the epoch: a query that starts again runs its epoch again, so no abort may make it unusable.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final

import attrs

from amqp_broker.client import (
    BlockingConnection,
    BlockingSender,
    ConnectFailed,
    Gone,
    OutgoingMessage,
    WaitTimeout,
)
from amqp_broker.frames import SETTLE_MODE_UNSETTLED
from amqp_broker.pipeline.errors import BrokerUnreachable, EpochError
from amqp_broker.pipeline.messages_of_rows import Encoded
from amqp_broker.pipeline.set_client import (
    CHECKSUM_MODULUS,
    STAGE_WINDOW,
    EpochDecided,
    EpochStatus,
    SealedSet,
    SetClient,
    Staging,
)

PAUSE_S: Final = 0.2  # before a commit whose answer did not come is told again
PAUSE_MAX_S: Final = 2.0


@attrs.frozen
class Written:
    """What a task tells the driver. `sealed` is None when it had no rows, or when the epoch was `decided`
    before it ended; `rows` are those that Spark gave it. `elsewhere` are the sets that other brokers have.
    """

    producer: str
    epoch: int
    sealed: SealedSet | None
    decided: bool
    rows: int
    elsewhere: tuple[SealedSet, ...] = ()

    @property
    def sets(self) -> tuple[SealedSet, ...]:
        """All of them."""
        return self.elsewhere if self.sealed is None else (self.sealed, *self.elsewhere)


def write_set(
    client: SetClient,
    producer: str,
    epoch: int,
    batches: Iterable[Encoded],
    address: str | None,
    window: int = STAGE_WINDOW,
) -> Written:
    """Stages the messages of one task as a fresh set, and seals it; nothing if the epoch is decided.

    `address` is the option; without it each batch has its own. Raises EpochError, ClientError.
    """
    counted = Counted(batches)
    status = client.status(producer, epoch)
    if status.decided:
        return Written(producer, epoch, None, True, counted.drain())
    check_epoch(status, producer, epoch)
    set_id = str(uuid.uuid4())
    try:
        sealed = _staged(client, producer, epoch, set_id, counted, address, window)
        if sealed is not None:
            client.seal(producer, epoch, sealed)
    except EpochDecided:
        # Another run of this epoch was decided while this one wrote.
        return Written(producer, epoch, None, True, counted.drain())
    except Exception:
        void_sets(client, [Written(producer, epoch, SealedSet(set_id, 0, 0), False, 0)])
        raise
    return Written(producer, epoch, sealed, False, counted.rows)


class Counted:
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


def check_epoch(status: EpochStatus, producer: str, epoch: int) -> None:
    """Raises EpochError for an epoch that came after others of its producer and was left out."""
    if status.latest is not None and epoch < status.latest:
        raise EpochError(
            f"producer {producer}: expected an epoch above {status.latest}, the latest one decided, found "
            f"{epoch}. An older or a new checkpoint writes with the name of a query that went on without it: "
            "give the sink another producerId (txnAppId), or go back to the newest checkpoint"
        )


def _staged(
    client: SetClient,
    producer: str,
    epoch: int,
    set_id: str,
    batches: Iterable[Encoded],
    address: str | None,
    window: int,
) -> SealedSet | None:
    stage = SetStage(client, producer, epoch, set_id, window)
    for batch in batches:
        stage.send(batch, address)
    return stage.close()


class SetStage:
    """The messages of one set, on their way: a link for each destination."""

    def __init__(self, client: SetClient, producer: str, epoch: int, set_id: str, window: int) -> None:
        self.set_id = set_id
        self._stage = partial(client.stage, producer, epoch, set_id, window=window)
        self._links: dict[str, Staging] = {}

    def send(self, batch: Encoded, address: str | None) -> None:
        """Stages them; all are stored when this returns. Raises EpochError, ClientError."""
        for destination, heads, rests in by_destination(batch, address):
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


def by_destination(
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


def send_through(
    connection: BlockingConnection,
    batches: Iterable[Encoded],
    address: str | None,
    window: int = STAGE_WINDOW,
) -> int:
    """Sends at least once: every message is accepted when this returns; how many. Raises ClientError."""
    links: dict[str, BlockingSender] = {}
    count = 0
    try:
        for batch in batches:
            for destination, heads, rests in by_destination(batch, address):
                if destination not in links:
                    links[destination] = connection.open_sender(
                        destination, snd_settle_mode=SETTLE_MODE_UNSETTLED
                    )
                contents = (OutgoingMessage(head + rest) for head, rest in zip(heads, rests, strict=True))
                count += links[destination].send_many(contents, window=window)
    finally:
        for link in links.values():
            link.close()
    return count


def decide(
    open_client: Callable[[bool], SetClient],
    written: Sequence[Written],
    timeout_ms: int,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Commits the epoch that these tasks wrote, in their order; what was decided before stays so.

    Asks again after a lost connection or answer for `timeout_ms`: the broker repeats its decision.
    `open_client(again)` gives a client, over a new connection if the last one was of no use. Raises
    EpochError, also when the time is over without an answer; then the decision may be there or not.
    """
    if not written:
        return
    producer, epoch = one_epoch(written)
    winners = [one.sealed for one in written if one.sealed is not None]
    skipped = any(one.decided for one in written)
    deadline = time.monotonic() + timeout_ms / 1_000
    wait_s = PAUSE_S
    again = False
    while True:
        try:
            client = open_client(again)
            try:
                if skipped:
                    _expect_decided(client, producer, epoch, sum(one.rows for one in written))
                else:
                    client.commit_epoch(producer, epoch, winners)
            finally:
                # The process and its connection live on, for hundreds of batches: links must not pile up.
                client.close()
            return
        except (Gone, WaitTimeout, ConnectFailed, BrokerUnreachable) as error:
            if time.monotonic() + wait_s > deadline:
                raise EpochError(
                    f"producer {producer}, epoch {epoch}: no answer to its commit within {timeout_ms} ms "
                    f"(option commitTimeoutMs), last: {error}. It may be decided or not; the query asks "
                    "again when it is started again"
                ) from error
            again = True
            pause(wait_s)
            wait_s = min(2 * wait_s, PAUSE_MAX_S)


def void_sets(client: SetClient, written: Sequence[Written | None]) -> str | None:
    """Voids the sets of tasks whose epoch failed; never raises. In words, what the broker did not do.

    It refuses where the epoch was decided: after a commit whose reply was lost that is what is wanted. A set
    that stays is voided with the next decision, or at the end of its time.
    """
    named = [one for one in written if one is not None and one.sealed is not None]
    refused = None
    for producer, epoch in dict.fromkeys((one.producer, one.epoch) for one in named):
        sets = [
            one.sealed.set_id
            for one in named
            if one.sealed and (one.producer, one.epoch) == (producer, epoch)
        ]
        try:
            client.void(producer, epoch, sets)
        except Exception as error:
            refused = f"sets of producer {producer}, epoch {epoch} were not voided: {error}"
    return refused


def one_epoch(written: Sequence[Written]) -> tuple[str, int]:
    """The one that all tasks wrote. Raises EpochError."""
    found = {(one.producer, one.epoch) for one in written}
    if len(found) != 1:
        raise EpochError(f"expected one producer and epoch of all tasks of a batch, found {sorted(found)}")
    return found.pop()


def _expect_decided(client: SetClient, producer: str, epoch: int, rows: int) -> None:
    """Some tasks saw a decision and wrote nothing: then it must be there, with as many rows, or some would be
    missing.
    """
    check_decided(client.status(producer, epoch), producer, epoch, rows)


def check_decided(status: EpochStatus, producer: str, epoch: int, rows: int) -> None:
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
