"""How a scenario ends: it passes by returning, and ends otherwise by raising one of these."""

from enum import Enum


class Verdict(Enum):
    """The result of one scenario; admitted: it failed, and a list of known gaps says why."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    ADMITTED = "admitted"


class Unexpected(Exception):
    """The peer did something else than the standard says; the message says what was expected and what
    came.
    """


class NotApplicable(Exception):
    """The scenario cannot show anything on this broker; the message says why (it becomes a skip)."""


class CannotConnect(Exception):
    """No connection could be established to the broker at all."""
