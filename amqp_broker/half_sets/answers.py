"""What is said where something can't be done with a set of half messages: the condition, and in words what
was expected and what there is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from amqp_broker.coordinator.half_sets import SetAnswer, SetState, StagedSet, Winner
from amqp_broker.frames import Error, Ulong
from amqp_broker.halves.destinations import why_elsewhere

if TYPE_CHECKING:
    from amqp_broker.queue import Queue

VOIDED: Final = "half:voided"
EPOCHS_TOLD: Final = 100  # of those that are in the way of a commit


def refusal(
    answer: SetAnswer, set_id: str, epoch: int | None, named: Winner | None = None,
    found: StagedSet | None = None,
) -> Error:  # fmt: skip
    """The error of an answer; `named` is what the asker said of the set, `found` what there is."""
    if answer is SetAnswer.MISMATCH and named is not None and found is not None:
        return _mismatch(named, found)
    words = {
        SetAnswer.UNKNOWN: f"no set {set_id!r} of epoch {epoch}: it was never staged, or it was voided",
        SetAnswer.UNSEALED: f"set {set_id!r} of epoch {epoch} is not sealed",
        SetAnswer.SEALED: f"set {set_id!r} of epoch {epoch} is sealed: nothing is staged in it any more",
        SetAnswer.DECIDED: f"epoch {epoch} is decided",
        SetAnswer.STALE: f"a later epoch than {epoch} is decided, and {epoch} never was",
        SetAnswer.CONFLICT: f"set {set_id!r} was committed with its epoch",
        SetAnswer.PREPARED: f"set {set_id!r} of epoch {epoch} is prepared: its coordinator decides about it",
        SetAnswer.VOIDED: f"set {set_id!r} was voided for good",
    }
    return Error(condition=answer.value, description=words[answer])


def _mismatch(named: Winner, found: StagedSet) -> Error:
    if found.store != named.store:
        return other_store_error(found, named.store)
    checksum = found.checksum if found.sealed is None else found.sealed.checksum
    description = (
        f"set {found.set_id!r}: expected {named.count} messages with checksum {named.checksum}, "
        f"there are {found.count} with {checksum}"
    )
    info = {
        "half_set": found.set_id,
        "half_expected_count": Ulong(named.count),
        "half_expected_checksum": Ulong(named.checksum),
        "half_count": Ulong(found.count),
        "half_checksum": Ulong(checksum),
    }
    return Error(condition=SetAnswer.MISMATCH.value, description=description, info=info)


def decided_error(epoch: int) -> Error:
    """Why a link to a set ends: its epoch, or a later one, was committed."""
    return Error(condition=SetAnswer.DECIDED.value, description=f"epoch {epoch} is decided")


def voided_error(staged: StagedSet, reason: str) -> Error:
    """Why a link to a set ends: the set was voided."""
    return Error(condition=VOIDED, description=f"set {staged.set_id!r} was voided: {reason}")


def closed_error(staged: StagedSet) -> Error:
    """Why nothing can be staged in this set any more: it is sealed, committed or voided."""
    if staged.state in (SetState.OPEN, SetState.SEALED, SetState.PREPARED):
        return refusal(SetAnswer.SEALED, staged.set_id, staged.epoch)
    return voided_error(staged, "it was committed or voided")


def other_store_error(found: StagedSet, store: str) -> Error:
    """A set is named with another store than the one that has its messages."""
    where, there = [f"in the store {each!r}" if each else "here" for each in (store, found.store)]
    description = f"set {found.set_id!r}: expected its messages {where}, they are {there}"
    return Error(condition=SetAnswer.MISMATCH.value, description=description)


def prepared_error(staged: StagedSet, coordinator: str = "") -> Error:
    """A set is prepared, and only its coordinator ends it."""
    other = f", not the store {coordinator!r}" if coordinator else ""
    description = (
        f"set {staged.set_id!r} of epoch {staged.epoch} is prepared: its coordinator, the store "
        f"{staged.coordinator!r}, "
        f"decides about it{other}"
    )
    info = {
        "half_set": staged.set_id,
        "half_epoch": Ulong(staged.epoch),
        "half_coordinator": staged.coordinator,
    }
    return Error(condition=SetAnswer.PREPARED.value, description=description, info=info)


def undecided_error(in_the_way: Sequence[StagedSet]) -> Error:
    """Sets of earlier epochs are prepared: what their coordinator says of those comes first."""
    epochs = sorted({each.epoch for each in in_the_way})
    description = (
        f"{len(in_the_way)} sets of {len(epochs)} earlier epochs are prepared, the first of epoch "
        f"{epochs[0]}: apply those first, or void their sets, as their coordinator says"
    )
    info = {"half_epochs": [Ulong(epoch) for epoch in epochs[:EPOCHS_TOLD]]}
    return Error(condition=SetAnswer.UNDECIDED.value, description=description, info=info)


def forgotten_error(epoch: int) -> Error:
    """An epoch is older than all decisions that are kept, which are as many as can be."""
    description = f"epoch {epoch} is older than the decisions that are kept: nobody knows any more who won"
    return Error(condition=SetAnswer.STALE.value, description=description)


def other_winners_error(epoch: int, decided: Iterable[str], named: Iterable[str]) -> Error:
    """An epoch was committed here with other sets than its coordinator has decided: one of the two stores was
    restored from a copy.
    """
    description = (
        f"epoch {epoch} was decided here with the sets {_shown(decided)}, and its coordinator says "
        f"{_shown(named)}: "
        "was one of the stores restored from a copy?"
    )
    return Error(condition=SetAnswer.CONFLICT.value, description=description)


def _shown(set_ids: Iterable[str]) -> str:
    return f"{', '.join(sorted(set_ids)) or 'none':.200}"


def other_epoch_error(staged: StagedSet, epoch: int) -> Error:
    """A set is named with another epoch than its own."""
    description = f"set {staged.set_id!r} is of epoch {staged.epoch}, not of {epoch}"
    return Error(condition="amqp:not-allowed", description=description)


def elsewhere_error(destination: str, queue: Queue | None) -> Error:
    """The queue of a winner is gone, or takes nothing from sets any more: nothing happens."""
    gone = queue is None or queue.deleted or not queue.persistent
    reason = why_elsewhere(destination, None if gone else queue)
    condition = "amqp:resource-deleted" if gone else "amqp:not-allowed"
    return Error(condition=condition, description=f"{reason}: its set can be voided")


def internal_error(description: str) -> Error:
    """The error where damage or a fault of the broker hides the answer."""
    return Error(condition="amqp:internal-error", description=description)
