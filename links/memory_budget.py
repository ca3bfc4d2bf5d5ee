"""One budget for what the process keeps in memory because of its peers, and how it is shared out. Pure.

         0 ............... half of it ............................... limit_bytes
         everybody gets    an account gets more only while it        nobody gets
         what it wants     holds no more than what is left           more

Above the half two greedy connections end at half and a quarter of the budget, a third one at an eighth: what
is left is never taken up by those who hold much, so that small needs are met. `hold` is for what has to be,
whatever is left: what was accepted, and what a consumer is sent.

Back-pressure comes before refusal: an account is `pressed` a little before it gets nothing more, and `relief`
is called when it has twice that much again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

SETTING: Final = "limits.memory_bytes"
"""What a refusal names."""
PRESSED_PART: Final = 16  # of the budget, that an account could still have when it is pressed
STEPS: Final = 256  # of the budget: relief of others is looked for each time that so much was given back
SMALL_PART: Final = 64  # of the budget: who holds less is never the cause that others wait
CACHE_PART: Final = 4  # of the budget, for copies of what is on disk, too
READ_BYTES: Final = 524_288  # of messages in one read of 48 KiB, with what they cost beside their octets
CONNECTION_BYTES: Final = 16_384  # what a connection costs without anything on it, about
SESSION_BYTES: Final = 2_048
LINK_BYTES: Final = 4_096
NO_BOUND: Final = 1 << 60


class MemoryBudget:
    """Octets of the process. `on_pressure` is called when the first account is pressed (True), and when none
    is any more (False); `freed` each time that a part was given back.
    """

    __slots__ = (
        "_step", "_steps_used", "cache", "freed", "limit_bytes", "on_pressure", "own", "part_bytes",
        "pressed", "quiet_bytes", "used_bytes",
    )  # fmt: skip

    def __init__(self, limit_bytes: int = NO_BOUND) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self.pressed: dict[Account, None] = {}
        self.on_pressure: Callable[[bool], None] | None = None
        self.freed: Callable[[], None] | None = None
        self.part_bytes = limit_bytes // PRESSED_PART
        self.quiet_bytes = limit_bytes // 2 - self.part_bytes
        """Up to so many used octets nobody is pressed."""
        self._step = max(1, limit_bytes // STEPS)
        self._steps_used = 0
        self.cache = Account(self)
        """The account for copies of messages that are on disk, too."""
        self.own = Account(self)
        """The account for what the broker itself posts."""

    def resize(self, limit_bytes: int) -> None:
        """The budget is this large from now on. Who holds too much of a smaller one is pressed when it is to
        get more.
        """
        like = MemoryBudget(limit_bytes)
        self.limit_bytes, self.part_bytes, self.quiet_bytes = limit_bytes, like.part_bytes, like.quiet_bytes
        self._step = like._step
        self._steps_used = self.used_bytes // self._step
        for account in list(self.pressed):
            account.look_again()
        if self.freed is not None:
            self.freed()

    def cache_full(self) -> bool:
        """Whether no more copies should be kept than somebody waits for."""
        return self.cache.used_bytes * CACHE_PART >= self.limit_bytes

    def nearly_used(self) -> bool:
        """Whether hardly anything is left for anybody."""
        return self.used_bytes + self.part_bytes >= self.limit_bytes

    def change(self, octets: int) -> None:
        """Count octets that are used, or (negative) are used no longer. For accounts."""
        self.used_bytes += octets
        steps = self.used_bytes // self._step
        before, self._steps_used = self._steps_used, steps
        if steps < before:
            for account in list(self.pressed):
                account.look_again()
            if self.freed is not None:
                self.freed()

    def press(self, account: Account) -> None:
        """`account` should get no more. For accounts."""
        self.pressed[account] = None
        if len(self.pressed) == 1 and self.on_pressure is not None:
            self.on_pressure(True)

    def relieve(self, account: Account) -> None:
        """`account` may have more. For accounts."""
        del self.pressed[account]
        if not self.pressed and self.on_pressure is not None:
            self.on_pressure(False)

    def left_bytes(self) -> int:
        """What nobody has, in whole steps: so it changes only where pressed accounts look again."""
        return self.limit_bytes - self._steps_used * self._step


class Account:
    """What is kept for one connection, or for the broker itself. Each octet that is taken is given back.
    Without `relief` nobody can be asked to wait, and it is never pressed.
    """

    __slots__ = ("budget", "pressed", "relief", "used_bytes")

    def __init__(self, budget: MemoryBudget, relief: Callable[[], None] | None = None) -> None:
        self.budget = budget
        self.relief = relief
        self.used_bytes = 0
        self.pressed = False
        """Whether nothing more should be asked for: it would be refused soon."""

    def take(self, octets: int) -> bool:
        """True when so much more may be kept; only then it counts. Else the account is pressed."""
        if not self.fits(octets):
            if not self._roomy(2):
                self._press()
            return False
        self.hold(octets)
        return True

    def fits(self, octets: int) -> bool:
        """Whether `take` would give so much."""
        budget = self.budget
        used = budget.used_bytes + octets
        return used * 2 <= budget.limit_bytes or self.used_bytes + octets <= budget.limit_bytes - used

    def hold(self, octets: int) -> None:
        """Keep so many octets more, whatever is left."""
        self.used_bytes += octets
        budget = self.budget
        budget.change(octets)
        if budget.used_bytes > budget.quiet_bytes and not self._roomy(1):
            self._press()

    def give_back(self, octets: int) -> None:
        """Keep so many octets less."""
        assert octets <= self.used_bytes, "more memory given back than was taken"
        self.used_bytes -= octets
        self.budget.change(-octets)
        if self.pressed:
            self.look_again()

    def change(self, octets: int) -> None:
        """Keep so many octets more, or (negative) less: `hold` or `give_back`."""
        if octets > 0:
            self.hold(octets)
        elif octets:
            self.give_back(-octets)

    @property
    def exhausted(self) -> bool:
        """Whether what one read may bring does not fit, and it is this account that holds much: its peer can
        wait.
        """
        budget = self.budget
        return self.used_bytes * SMALL_PART >= budget.limit_bytes and not self.fits(READ_BYTES)

    def look_again(self) -> None:
        """There is more room, or it holds less: it is relieved when there is enough."""
        if self.pressed and self._roomy(2):
            self.pressed = False
            self.budget.relieve(self)
            if self.relief is not None:
                self.relief()

    def close(self) -> None:
        """Nobody waits for room of this account any more. What it holds it gives back as it goes."""
        self.relief = None
        if self.pressed:
            self.pressed = False
            self.budget.relieve(self)

    def _press(self) -> None:
        if not self.pressed and self.relief is not None:
            self.pressed = True
            self.budget.press(self)

    def _roomy(self, parts: int) -> bool:
        """Whether so many parts of the budget would be given."""
        budget = self.budget
        more = parts * budget.part_bytes
        left = budget.left_bytes() - more
        return left * 2 >= budget.limit_bytes or self.used_bytes + more <= left


def no_memory(account: Account, what: str) -> str:
    """Why `what` is refused: the description of amqp:resource-limit-exceeded."""
    budget = account.budget
    return (
        f"no memory for {what}: of the {budget.limit_bytes} octets of the broker ({SETTING}) "
        f"{max(0, budget.limit_bytes - budget.used_bytes)} are left, and what this connection sent "
        f"holds {account.used_bytes}"
    )


class Holdings:
    """What one place keeps for several accounts: it is given back first in, first out, and all of it in the
    end.
    """

    __slots__ = ("_by_account", "used_bytes")

    def __init__(self) -> None:
        self._by_account: dict[Account, int] = {}
        self.used_bytes = 0

    def add(self, account: Account, octets: int) -> None:
        """Keep so many octets more for `account`, which cannot refuse them: they were accepted."""
        if octets:
            self._by_account[account] = self._by_account.get(account, 0) + octets
            self.used_bytes += octets
            account.hold(octets)

    def remove(self, octets: int) -> None:
        """Keep so many octets less: the oldest are gone."""
        assert octets <= self.used_bytes, "more memory given back than is kept here"
        self.used_bytes -= octets
        while octets:
            account = next(iter(self._by_account))
            kept = self._by_account[account]
            gone = min(kept, octets)
            if gone == kept:
                del self._by_account[account]
            else:
                self._by_account[account] = kept - gone
            account.give_back(gone)
            octets -= gone

    def clear(self) -> None:
        """Give everything back: nothing is kept any more."""
        self.remove(self.used_bytes)
