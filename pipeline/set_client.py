"""Sets of half messages from the producer's side: stage, seal, commit an epoch, void, ask.

The protocol: docs/protocols/sets.md.

    stage    messages to $half-set/<group>/<producer>/<epoch>/<set>/<destination>   stored, nobody sees them
    seal     count and checksum of a set to $half-resolve/<group>                   nothing more goes in
    commit   the winning sets of (producer, epoch): all become available at once, all other sets are voided
    void     drops sets that nobody will name
    status   whether (producer, epoch) is decided, and which sets there are

With several brokers what is said may be about another one: `store` is where a set's messages are,
`coordinator` is who decides, both by the id of their store (`store_id` of `status`).

The checksum of a set is the sum, modulo 2^64, of the CRC-32 of each message without header and
delivery-annotations. A refusal has a class for its condition; all of them can be pickled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar
from zlib import crc32

import attrs

from amqp_broker.client import ClientError, LinkRefused, OutgoingMessage
from amqp_broker.frames import SETTLE_MODE_UNSETTLED, Ulong, plain_value
from amqp_broker.halves.addresses import resolve_address
from amqp_broker.pipeline.errors import EpochError, MissingRight
from amqp_broker.pipeline.rights import NOT_FOUND, missing, missing_to_ask, missing_to_send

if TYPE_CHECKING:
    from amqp_broker.client import BlockingConnection, BlockingSender
    from amqp_broker.client.blocking_requests import BlockingRequester

CHECKSUM_MODULUS: Final = 1 << 64
STAGE_WINDOW: Final = 2_000  # messages without an outcome, below the broker's 2,048 for a link
SET: Final = "$half-set"
NO_GROUP: Final = "group of half messages"
"""Stands in what the broker says to who may not stage in a group, as to who names one that is not there."""

T = TypeVar("T")


class SetRefused(EpochError):
    """The broker refused; the text has its condition."""


class EpochDecided(SetRefused):
    """The epoch has its decision: nothing more is staged for it (half:decided)."""


class StaleEpoch(SetRefused):
    """A later epoch of this producer is decided, and this one never was (half:stale-epoch)."""


class SetGone(SetRefused):
    """A set was voided, or never staged (half:unknown-set, half:voided)."""


class SetMismatch(SetRefused):
    """Count or checksum differ, or the set is not sealed (half:mismatch, half:unsealed, half:sealed)."""


class SetUnsealed(SetMismatch):
    """The set is not sealed, or not prepared (half:unsealed)."""


class SetDecided(SetRefused):
    """The set belongs to a decision, and cannot be voided (half:conflict)."""


class SetPrepared(SetRefused):
    """Another broker decides about this set (half:prepared)."""


class EpochUndecided(SetRefused):
    """Sets of `epochs` below are prepared: those come first (half:undecided)."""

    epochs: tuple[int, ...] = ()


_REFUSALS: Final[dict[str, type[SetRefused]]] = {
    "half:decided": EpochDecided,
    "half:stale-epoch": StaleEpoch,
    "half:unknown-set": SetGone,
    "half:voided": SetGone,
    "half:mismatch": SetMismatch,
    "half:unsealed": SetUnsealed,
    "half:sealed": SetMismatch,
    "half:conflict": SetDecided,
    "half:prepared": SetPrepared,
    "half:undecided": EpochUndecided,
}


@attrs.frozen
class SealedSet:
    """A set as it is named in a decision. `store` is where its messages are, if not at the broker that
    decides.
    """

    set_id: str
    count: int
    checksum: int
    store: str = ""

    def described(self) -> dict[str, Any]:
        """Its map on the wire."""
        return {"set": self.set_id, "count": Ulong(self.count), "checksum": Ulong(self.checksum)}

    def named(self) -> dict[str, Any]:
        """Its map on the wire, with its store where that is another one."""
        return self.described() | ({"store": self.store} if self.store else {})


@attrs.frozen
class EpochStatus:
    """What the broker knows of (producer, epoch). `latest` is the newest epoch that is decided; `coordinator`
    and `latest_coordinator` are the stores that decided them where it was not this one, whose id is `store`.
    """

    decided: bool
    winners: tuple[SealedSet, ...] = ()
    latest: int | None = None
    sets: tuple[dict[str, Any], ...] = ()
    store: str = ""
    coordinator: str = ""
    latest_coordinator: str = ""


def checksum_of(rests: Iterable[bytes]) -> int:
    """The checksum of messages, given without their header and delivery annotations."""
    return sum(map(crc32, rests)) % CHECKSUM_MODULUS


def set_address(group: str, producer: str, epoch: int, set_id: str, destination: str) -> str:
    """Where messages of a set are staged."""
    return f"{SET}/{group}/{producer}/{epoch}/{set_id}/{destination}"


class SetClient:
    """Sets of one group, over one connection. Errors of the connection come as they are (ClientError); a
    right that is missing is told by its name (MissingRight).
    """

    def __init__(self, connection: BlockingConnection, group: str) -> None:
        self.group = group
        self._connection = connection
        self._requests: BlockingRequester | None = None

    def status(self, producer: str, epoch: int | None = None) -> EpochStatus:
        """What is known of this epoch."""
        asked = {"producer": producer} | ({} if epoch is None else {"epoch": Ulong(epoch)})
        found = self._told("status", lambda: self._requester.request("status", asked))
        return EpochStatus(
            bool(found["decided"]),
            tuple(
                SealedSet(
                    one["set"],
                    int(one["count"]),
                    int(one["checksum"]) % CHECKSUM_MODULUS,
                    one.get("store") or "",
                )
                for one in found.get("winners") or ()
            ),
            found.get("latest"),
            tuple(found.get("sets") or ()),
            found.get("store_id") or "",
            found.get("coordinator") or "",
            found.get("latest_coordinator") or "",
        )

    def stage(
        self, producer: str, epoch: int, set_id: str, destination: str, window: int = STAGE_WINDOW
    ) -> Staging:
        """A link on which messages of a set are staged. Raises EpochDecided, StaleEpoch, MissingRight."""
        address = set_address(self.group, producer, epoch, set_id, destination)
        sender = self._told(
            f"a link to stage for {destination!r}",
            lambda: self._connection.open_sender(address, snd_settle_mode=SETTLE_MODE_UNSETTLED),
            destination,
        )
        return Staging(sender, window)

    def seal(
        self, producer: str, epoch: int, sealed: SealedSet, *, coordinator: str = "", store: str = ""
    ) -> None:
        """Ends a set; harmless when it was sealed so before. With `store` the set is enlisted here and its
        messages are there, with `coordinator` it is prepared here. Raises SetMismatch, SetGone, EpochDecided.
        """
        told = {"producer": producer, "epoch": Ulong(epoch)} | sealed.described()
        self._tell("seal", told | _elsewhere(coordinator, store))

    def commit_epoch(
        self, producer: str, epoch: int, winners: Sequence[SealedSet], *, coordinator: str = ""
    ) -> None:
        """Decides an epoch: all of its winners become available, in this order, and all other sets up to this
        epoch are voided, in one commit of the store. Harmless when the epoch was decided before, however.

        With `coordinator` that one decided so, and it is applied here; then EpochUndecided says which epochs
        come before. Raises SetGone, SetMismatch, StaleEpoch: then nothing happened.
        """
        sets = [one.described() if coordinator else one.named() for one in winners]
        told = {"producer": producer, "epoch": Ulong(epoch), "sets": sets}
        self._tell("commit-epoch", told | _elsewhere(coordinator, ""))

    def void(
        self, producer: str, epoch: int, set_ids: Sequence[str], *, coordinator: str = "", store: str = ""
    ) -> None:
        """Drops sets; those that are not there are no error. With `store` it is about sets that are there:
        when this returns they never win. With `coordinator` that one decided so. Raises SetDecided.
        """
        told = {"producer": producer, "epoch": Ulong(epoch), "sets": list(set_ids)}
        self._tell("void", told | _elsewhere(coordinator, store))

    def close(self) -> None:
        """Detaches."""
        if self._requests is not None:
            self._requests.close()
            self._requests = None

    @property
    def _requester(self) -> BlockingRequester:
        if self._requests is None:
            self._requests = self._connection.open_requester(resolve_address(self.group))
        return self._requests

    def _missing(self, error: ClientError, destination: str | None) -> MissingRight | None:
        """The right that is missing, to stage for a destination or to ask."""
        if destination is not None:
            if error.condition == NOT_FOUND and NO_GROUP in str(error.description):
                return self._missing_in_group("half-put", error)
            return missing_to_send(error, destination)
        if isinstance(error, LinkRefused) and error.condition == NOT_FOUND:
            return self._missing_in_group("half-resolve", error)
        return missing_to_ask(error)

    def _missing_in_group(self, right: str, error: ClientError) -> MissingRight:
        otherwise = f', or there is no [[half_group]] with the name "{self.group}"'
        return missing(right, f"the group {self.group!r}", error, otherwise)

    def _tell(self, subject: str, body: dict[str, Any]) -> None:
        self._told(subject, lambda: self._requester.tell(subject, body))

    def _told(self, what: str, do: Callable[[], T], destination: str | None = None) -> T:
        try:
            return do()
        except ClientError as error:
            raise_refusal(error, f"group {self.group}: {what}", self._missing(error, destination))


class Staging:
    """Messages on their way into a set, for one destination; `count` and `checksum` are of those accepted."""

    def __init__(self, sender: BlockingSender, window: int) -> None:
        self._sender = sender
        self._window = window
        self.count = 0
        self.checksum = 0

    def send(self, heads: Sequence[bytes], rests: Sequence[bytes]) -> None:
        """Stages messages, in order, and returns when all are stored. Raises EpochDecided, SetGone, and
        ClientError, after which the set is of no use.
        """
        contents = (OutgoingMessage(head + rest) for head, rest in zip(heads, rests, strict=True))
        try:
            self.count += self._sender.send_many(contents, window=self._window)
        except ClientError as error:
            raise_refusal(error, f"staging to {self._sender.core.address!r}")
        self.checksum = (self.checksum + checksum_of(rests)) % CHECKSUM_MODULUS

    def close(self) -> None:
        """Detaches."""
        self._sender.close()


def _elsewhere(coordinator: str, store: str) -> dict[str, str]:
    return {name: value for name, value in (("coordinator", coordinator), ("store", store)) if value}


def raise_refusal(error: ClientError, what: str, missing: MissingRight | None = None) -> NoReturn:
    """Raises the error for a refusal of the broker's that has a class here, or the right that is `missing`;
    any other as it is.
    """
    kind = _REFUSALS.get(error.condition or "")
    if kind is None:
        if not (error.condition or "").startswith("half:"):
            if missing is not None:
                raise missing from error
            raise error
        kind = SetRefused
    words = f"{error.condition}: {error.description}" if error.description else str(error.condition)
    refused = kind(f"{what}: the broker refused it, {words}")
    if isinstance(refused, EpochUndecided):
        refused.epochs = tuple(int(each) for each in plain_value(error.info.get("half_epochs") or ()))
    raise refused from error
