"""Commands whose output nobody reads to its end (`... | head`)."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Final

GONE: Final = 141
"""The exit status then: that of a program which SIGPIPE has ended."""


def until_reader_is_gone(command: Callable[[], int]) -> int:
    """The exit status of `command`; nothing is said of a reader that has gone."""
    try:
        status = command()
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left is flushed to nowhere
        return GONE
    return status
