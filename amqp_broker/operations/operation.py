"""An operation: one thing that a commit makes true. The writer gathers them, whoever asks, into groups.

    submitted --prepare--> verbs --COMMIT--> stored()       the asker is told, the messages are there
                  |  ^
                  |  +---undo-- the group is made again: something in it could not be
                  +--Refused, or the store's error--> undo --(the group is stored)--> refused(error)

Grouping is invisible: `prepare` is called when the group is made, in the order in which the operations came,
and judges by the store and by what the operations before it in the group leave. It has one time, which is
handed in. What it changes in memory is pending until `stored`, and `undo` takes it back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import trio

from amqp_broker.compilation import mypyc_attr
from amqp_broker.frames import Error
from amqp_broker.persistence import BodyGone, RowDamaged, Unit

if TYPE_CHECKING:
    from amqp_broker.connection import Connection

T = TypeVar("T")


@mypyc_attr(allow_interpreted_subclasses=True)
class Refused(Exception):
    """An operation can't be: `error` is what its asker is told."""

    def __init__(self, error: Error) -> None:
        super().__init__(f"{error.condition}: {error.description}")
        self.error = error


class NotYet(Exception):
    """An operation can be judged only after those before it are stored, or refused: its group ends before it.
    Where nothing stands before it, it is refused for `refusal`.
    """

    def __init__(self, refusal: Refused | None = None) -> None:
        super().__init__("it can be judged only after what stands before it is stored")
        self.refusal = refusal


class OperationFault(Exception):
    """A fault of the broker in what was done for one operation: nothing of it happened."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Operation:
    """Base. The writer calls `prepare`, then `stored` or `undo`; `refused` after `undo`, or alone."""

    __slots__ = ()

    def prepare(self, now_ms: int) -> Unit:
        """Judge it, and the verbs that do it; empty when nothing has to be stored. `now_ms` is the time of
        the group, by the broker's clock. Raises Refused or a StoreError when it can't be, NotYet
        when that is not known before the group so far is stored.
        """
        raise AssertionError("an operation says what it does")

    def undo(self) -> None:
        """Take back what `prepare` changed, the last operation first. Harmless when nothing was, or twice."""

    def stored(self) -> None:
        """The commit returned."""

    def refused(self, error: Exception) -> None:
        """The operation does not happen, and what it kept is free. Called after the commit of what stood
        before it.
        """

    def parts(self) -> Sequence[Operation]:
        """Operations that do the same one after the other, for when the store refuses it as a whole."""
        return [self]

    def judges(self) -> bool:
        """Whether what it answers depends on what the operations before it leave."""
        return True

    def waits_for_space(self) -> bool:
        """Whether a full store is no answer: it is tried again until there is room."""
        return False

    def asking_connection(self) -> Connection | None:
        """The connection whose peer asked for it; None: the broker itself asked."""
        return None

    def kept_bytes(self) -> int:
        """The octets that it keeps in memory until it is stored or refused, and nothing else counts: always
        the same, and as much as its parts do.
        """
        return 0

    def obstacle(self) -> Error | None:
        """Why the operation can't be done any more, when its transaction is to be committed, as far as no
        store is needed to say so.
        """
        return None


@mypyc_attr(allow_interpreted_subclasses=True)
class Batch(Operation):
    """Operations that are stored together, or not at all."""

    __slots__ = ("_begun", "operations")

    def __init__(self, operations: list[Any]) -> None:
        self.operations: list[Any] = operations
        self._begun = 0

    def prepare(self, now_ms: int) -> Unit:
        """The verbs of all, in their order; what refuses one of them refuses all."""
        unit: Unit = []
        self._begun = 0
        for operation in self.operations:
            self._begun += 1
            unit.extend(operation.prepare(now_ms))
        return unit

    def undo(self) -> None:
        """Undo the operations that were prepared, the last one first."""
        begun, self._begun = self._begun, 0
        for at in range(begun - 1, -1, -1):
            self.operations[at].undo()

    def stored(self) -> None:
        """Tell all operations that they are stored."""
        self._begun = 0
        for operation in self.operations:
            operation.stored()

    def refused(self, error: Exception) -> None:
        """Tell all operations that they are refused."""
        for operation in self.operations:
            operation.refused(error)


async def answer_to(begin: Callable[[Callable[[T], None]], object]) -> T:
    """Begin something, and wait until it calls what it is given, with its answer."""
    done = trio.Event()
    answers: list[T] = []

    def then(answer: T) -> None:
        answers.append(answer)
        done.set()

    begin(then)
    await done.wait()
    return answers[0]


_OURS: Final = (RowDamaged, BodyGone, OperationFault)


def error_of(refusal: Exception) -> Error:
    """What an asker is told of why its operation was refused."""
    if isinstance(refusal, Refused):
        return refusal.error
    ours = isinstance(refusal, _OURS)
    condition = "amqp:internal-error" if ours else "amqp:resource-limit-exceeded"
    return Error(condition=condition, description=str(refusal))
