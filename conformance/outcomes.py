"""How a scenario ends: it passes by returning, and ends otherwise by raising one of these."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any, TypeVar

from amqp_broker.conformance.transcript import describe_value
from amqp_broker.frames import Error

T = TypeVar("T")

ATTEMPTS = 6
"""Of what a busy machine can disturb: a clock of the broker's may run out before the next octet is sent."""


class Verdict(Enum):
    """The result of one scenario; skipped: it is not applicable, since it has nothing to show on this broker;
    admitted: it failed, and a list of known gaps says why; not run: the broker or the time was gone before.
    """

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    ADMITTED = "admitted"
    NOT_RUN = "not run"


class Unexpected(Exception):
    """The peer did something else than the standard says; the message says what was expected and what
    came.
    """


class Late(Unexpected):
    """A clock has decided it: something had not come in time, or came within a time. On a busy machine that
    is no proof, and the scenario is run again when less is going on.
    """


class NotApplicable(Exception):
    """The scenario cannot show anything on this broker; the message says why (it becomes a skip)."""


class Interrupted(Exception):
    """The scenario was ended from outside: its time, or that of the whole run, was over."""


class CannotConnect(Exception):
    """No connection could be established to the broker at all."""


def expect_equal(what: str, expected: object, got: object) -> None:
    """Raises Unexpected unless two values are equal."""
    if expected != got:
        raise Unexpected(f"{what}: expected {describe_value(expected)}, got {describe_value(got)}")


def expect(holds: object, otherwise: str) -> None:
    """Raises Unexpected, which says what was expected and what came, unless something holds."""
    if not holds:
        raise Unexpected(otherwise)


def expect_state(state: object, kind: type[T]) -> T:
    """Returns an outcome; raises Unexpected unless it is of ``kind``."""
    if not isinstance(state, kind):
        raise Unexpected(f"expected {kind.__name__.lower()}, got {describe_value(state)}")
    return state


def error_of(said: Any, *conditions: str) -> Error:
    """Returns the error of a rejected, detach, end or close; raises Unexpected unless it has one, of
    ``conditions`` (none: any).
    """
    error: Error | None = said.error
    if error is None or (conditions and error.condition not in conditions):
        raise Unexpected(f"expected {' or '.join(conditions) or 'an error'}, got {describe_value(said)}")
    return error


@contextmanager
def by_the_clock() -> Iterator[None]:
    """Whatever is not as expected inside may be so because this process, or the broker, came late."""
    try:
        yield
    except Unexpected as error:
        raise Late(str(error)) from error


def in_some_attempt(attempt: Callable[[int], None]) -> None:
    """Calls ``attempt`` with 0, 1, ... until one call returns; after ATTEMPTS raises what the last one did.

    It is for what a broker does before a time is over. What may never happen is no matter of attempts.
    """
    for number in range(ATTEMPTS - 1):
        try:
            return attempt(number)
        except Unexpected:
            continue
    attempt(ATTEMPTS - 1)
