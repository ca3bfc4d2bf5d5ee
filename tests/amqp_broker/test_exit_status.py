"""From the reason of an end to the exit status."""

from __future__ import annotations

import pytest

from amqp_broker.configuration import ConfigurationError, Problem
from amqp_broker.exit_status import (
    BAD_CONFIGURATION,
    CANNOT_LISTEN,
    STORE_FAILED,
    STORE_IN_USE,
    leaves,
    reason_of,
)
from amqp_broker.listener_tls import AddressUnavailable, ListenError
from amqp_broker.persistence import StoreFailed, StoreFull
from amqp_broker.persistence.sqlite import StoreCorrupt, StoreInUse, StoreTooNew, UnsafeSqlite


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ConfigurationError(Problem("a", "b", "c")), BAD_CONFIGURATION),
        (ListenError("x"), BAD_CONFIGURATION),
        (AddressUnavailable("x"), CANNOT_LISTEN),
        (UnsafeSqlite("x"), BAD_CONFIGURATION),
        (StoreInUse("x"), STORE_IN_USE),
        (StoreFailed("x"), STORE_FAILED),
        (StoreCorrupt("x"), STORE_FAILED),
        (StoreTooNew("x"), STORE_FAILED),
        (StoreFull("x"), STORE_FAILED),
        (PermissionError("x"), STORE_FAILED),
    ],
)
def test_each_reason_has_its_status(error: Exception, status: int) -> None:
    """Alone and deep in the groups of nurseries."""
    assert reason_of(error) == (status, error)
    assert reason_of(BaseExceptionGroup("a", [ExceptionGroup("b", [error]), KeyboardInterrupt()])) == (
        status,
        error,
    )


def test_the_store_counts_more_than_what_broke_because_of_it() -> None:
    """A failed commit is the reason, whatever else failed with it."""
    failed = StoreFailed("x")
    assert reason_of(ExceptionGroup("a", [ListenError("y"), failed])) == (STORE_FAILED, failed)


def test_a_bug_of_ours_has_no_status() -> None:
    """It is shown with its traceback."""
    assert reason_of(AssertionError("x")) is None
    assert reason_of(ExceptionGroup("a", [ZeroDivisionError()])) is None


def test_leaves_are_found_in_order() -> None:
    """Groups in groups are flattened."""
    one, two = ValueError(1), ValueError(2)
    assert list(leaves(ExceptionGroup("a", [ExceptionGroup("b", [one]), two]))) == [one, two]
