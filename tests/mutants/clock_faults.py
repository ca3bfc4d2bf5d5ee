"""Faults of time: what is judged by the clock on the wall, or by a time that nobody has witnessed."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

CLOCK_TESTS: Final = "tests/amqp_broker/test_clock.py"
STORE_TESTS: Final = "tests/persistence/test_store_suite.py"

FAULTS: Final = (
    Mutant(
        "the broker's time is that of the clock on the wall",
        "amqp_broker/clock.py",
        "        return self._began_ms + round(1_000 * (self._elapsed_s() - self._began_s))\n",
        "        return self._wall_ms()\n",
        (f"{CLOCK_TESTS}::test_time_is_what_has_elapsed",),
    ),
    Mutant(
        "time goes on while no broker runs",
        "amqp_broker/clock.py",
        "        self._began_s, self._began_ms = self._elapsed_s(), now_ms\n",
        "        self._began_s, self._began_ms = self._elapsed_s(), self._wall_ms()\n",
        (f"{CLOCK_TESTS}::test_it_goes_on_where_it_stopped",),
    ),
    Mutant(
        "a jump of the clock on the wall is not noticed",
        "amqp_broker/clock.py",
        "        if not -JUMP_MS < by_ms < JUMP_MS:\n",
        "        if False:\n",
        (f"{CLOCK_TESTS}::test_a_jump_is_logged_once",),
    ),
    Mutant(
        "a message whose time is ahead makes all others old",
        "persistence/sqlite_store.py",
        "        clock_ms = round(1_000 * now)\n",
        "        kept = [node.retention for node in self._retaining.values() if node.retention is not None]\n"
        "        clock_ms = max([round(1_000 * now), *[each.at_ms for each in kept]])\n",
        (f"{STORE_TESTS}::test_sqlite_store[dropping_by_age-cache]",),
    ),
    Mutant(
        "the store does not keep what time it is",
        "persistence/ledger.py",
        "            self._save_clock(self.tell(changes.time), changes.time.now_ms)\n",
        "            self.tell(changes.time)\n",
        (f"{STORE_TESTS}::test_sqlite_store[time_is_kept-cache]",),
    ),
)
