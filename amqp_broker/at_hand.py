"""Turns that are taken where they are caused: what a lone request leads to on other connections.

    the loop slept --> a read of A --turn of A--> commit, answer --wake--> B has mail
                                                                            |
          nothing else was ready: B's turn follows in the same step <-------+
          else: the task of B takes it in the next round, with what gathers for it until then

A round of the loop costs as much as such a turn. Where there is traffic, the next round comes anyway, and one
turn of B for all of it is less than one for each. Once for each time that the loop slept.
"""

from __future__ import annotations

from typing import Protocol, cast

import trio


class Woken(Protocol):
    """A connection that has mail."""

    def turn_at_hand(self) -> None:
        """Take a turn now if it needs to wait for nothing, else leave it to its task."""

    def leave_to_task(self) -> None:
        """Have its task take the turn."""


class TurnsAtHand:
    """Of all connections of a broker; the loop tells it when it sleeps."""

    __slots__ = ("_slept", "_woken")

    def __init__(self) -> None:
        self._slept = False
        self._woken: dict[Woken, None] | None = None

    def begin_watching(self) -> None:
        """Have the running loop tell. trio asks for what its Instrument names, and for no class: of that one
        it could not be compiled.
        """
        trio.lowlevel.add_instrument(cast(trio.abc.Instrument, self))

    def end_watching(self) -> None:
        """`begin_watching` was called before."""
        trio.lowlevel.remove_instrument(cast(trio.abc.Instrument, self))

    def before_io_wait(self, timeout: float) -> None:
        """The loop looks for what is ready, and has nothing to do meanwhile if it may wait."""
        self._slept = timeout > 0

    def begin(self) -> None:
        """A turn begins of what was read. `end` has to follow, or before the step does `give_up`."""
        if self._slept:
            self._slept = False
            self._woken = {}

    def takes(self, connection: Woken) -> bool:
        """Whether the connection, which has mail, will be told at the `end`, and has to do nothing before."""
        if self._woken is None:
            return False
        self._woken[connection] = None
        return True

    def end(self) -> None:
        """The turn is over: those that have mail by it take theirs."""
        woken, self._woken = self._woken, None
        for each in woken or ():
            each.turn_at_hand()

    def give_up(self) -> None:
        """The turn waits for something: others should not."""
        woken, self._woken = self._woken, None
        for each in woken or ():
            each.leave_to_task()
