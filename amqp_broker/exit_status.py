"""From the reason why a broker ended to its exit status (sysexits.h where it has a word)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

STOPPED: Final = 0
BAD_CONFIGURATION: Final = 2
STORE_FAILED: Final = 74  # EX_IOERR
STORE_IN_USE: Final = 75  # EX_TEMPFAIL: another broker has it, perhaps not for long

_BY_NAME: Final = {
    "ConfigurationError": BAD_CONFIGURATION,
    "ListenError": BAD_CONFIGURATION,
    "UnsafeSqlite": BAD_CONFIGURATION,
    "StoreInUse": STORE_IN_USE,
    "StoreFailed": STORE_FAILED,
    "StoreFull": STORE_FAILED,
    "StoreTooNew": STORE_FAILED,
    "StoreCorrupt": STORE_FAILED,
    "StoreError": STORE_FAILED,
    "OSError": STORE_FAILED,
}


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The errors in (groups of) groups, as trio's nurseries raise them."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves(inner)
    else:
        yield error


def reason_of(error: BaseException) -> tuple[int, BaseException] | None:
    """(exit status, the error that decides it), or None when all of it is a bug of ours."""
    found: list[tuple[int, BaseException]] = []
    for leaf in leaves(error):
        names = [cls.__name__ for cls in type(leaf).__mro__]
        status = next((_BY_NAME[name] for name in names if name in _BY_NAME), None)
        if status is not None:
            found.append((status, leaf))
    # What the store said counts more than what broke because of it.
    return max(found, key=lambda item: item[0], default=None)
