"""From the reason why a broker or a command ended to its exit status (sysexits.h where it has a word)."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Final

STOPPED: Final = 0
REFUSED: Final = 1  # a broker that was asked says no
BAD_CONFIGURATION: Final = 2
CANNOT_LISTEN: Final = 69  # EX_UNAVAILABLE: an address that is in use, or not there yet
NOT_REACHED: Final = 69  # EX_UNAVAILABLE: no broker answers
INTERNAL_FAULT: Final = 70  # EX_SOFTWARE: a fault of the broker itself
STORE_FAILED: Final = 74  # EX_IOERR
STORE_IN_USE: Final = 75  # EX_TEMPFAIL: another broker has it, perhaps not for long
INTERRUPTED: Final = 130  # 128 and SIGINT, as shells count
READER_GONE: Final = 141  # 128 and SIGPIPE: nobody reads the output to its end (`... | head`)
PROGRAM: Final = "amqp-broker"

_BY_NAME: Final = {
    "ConfigurationError": BAD_CONFIGURATION,
    "AddressUnavailable": CANNOT_LISTEN,
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

# What to do, where the error cannot know it.
_ADVICE: Final = {
    "StoreCorrupt": (
        "`amqp-broker check {0}` tells what is damaged, and removes single rows (--remove); otherwise "
        "restore a backup"
    ),
    "RowDamaged": "`amqp-broker check {0}` tells which rows are damaged, and removes them",
    "OutcomesDamaged": "`amqp-broker check {0}` tells which rows are damaged, and removes them",
    "StoreFull": "make room on the disk of {0}, then start again",
    "StoreFailed": "look into the system's log for the disk of {0}, then start again: what was acknowledged "
    "is recovered",
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


def tell(error: BaseException, file: str | None = None, directory: str = "") -> int:
    """One line for a person on standard error: what happened, and what to do; returns the exit status.

    `file` is the configuration's, `directory` that of the store. A fault of ours is shown with its traceback.
    """
    reason = reason_of(error)
    if reason is not None:
        status, cause = reason
        text = str(cause) or type(cause).__name__
        if status in (STORE_FAILED, STORE_IN_USE):
            text = f"{directory}: {text}" if directory and directory not in text else text
            text += _advice(cause, directory)
        elif file is not None and not text.startswith(file):
            text = f"{file}: {text}"
    elif any(isinstance(leaf, KeyboardInterrupt) for leaf in leaves(error)):
        status, text = INTERRUPTED, "interrupted"
    else:
        status = INTERNAL_FAULT
        cause = next(leaves(error), error)
        text = (
            f"a fault of the broker itself ended it: {type(cause).__name__}: {cause}; please report it with "
            "the traceback above"
        )
        _print("".join(traceback.format_exception(error)))
    _print(f"{PROGRAM}: {text}\n")
    return status


def _advice(cause: BaseException, directory: str) -> str:
    text = str(cause)
    for cls in type(cause).__mro__:
        if cls.__name__ in _ADVICE and PROGRAM not in text:
            return f". What to do: {_ADVICE[cls.__name__].format(directory or 'DIR')}"
    return ""


def _print(text: str) -> None:
    """Where nobody reads standard error the status has to do."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except (OSError, ValueError):
        pass


def until_reader_is_gone(command: Callable[[], int]) -> int:
    """The exit status of `command`; nothing is said of a reader that has gone."""
    try:
        status = command()
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left is flushed to nowhere
        return READER_GONE
    return status
