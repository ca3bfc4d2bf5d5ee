"""Random verbs for two stores at once: that on disk against that in memory, with restarts and crashes."""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import attrs
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from amqp_broker.persistence import CreateNode, Discharged, Journal, MemoryStore, Post, Record, Unit, Verb
from amqp_broker.persistence.sqlite import SqliteStore, verify_directory
from tests.promises.facts import facts_of

REFUSED: Final = Post(1_000_000, [Record(0, b"")])
ENDS: Final = st.sampled_from([True, True, True, False])  # does the group end with this verb?


def settings_of(examples: int) -> settings:
    """Of such a test."""
    return settings(
        max_examples=examples,
        stateful_step_count=40,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )


class TwoStores(RuleBasedStateMachine):
    """Verbs gather into a unit, units into a group, and both stores get the same groups."""

    store: SqliteStore

    def __init__(self, model: MemoryStore) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.number = 0
        self.model = model
        self.units: list[Unit] = []

    @property
    def directory(self) -> Path:
        """Where the store on disk is now."""
        return Path(self.folder.name) / str(self.number)

    def open(self) -> SqliteStore:
        """The store on disk."""
        raise AssertionError("a machine opens its store")

    def group_is_over(self, *, lost: bool) -> None:
        """What a machine knows of the group under way is so, or never was."""
        self.units = []

    def add(self, unit: Unit, ends: bool = True) -> None:
        """One more unit of the group."""
        self.units.append(unit)
        if ends:
            self.group_ends()

    @precondition(lambda self: len(self.units) > 1)
    @rule()
    def join_units(self) -> None:
        """Join the last two units to one that happens wholly or not. A transaction ends its unit."""
        if all(REFUSED not in unit for unit in self.units[-2:]):
            two, one = self.units.pop(), self.units.pop()
            self.add([verb for verb in (*one, *two) if not isinstance(verb, Discharged)], ends=False)

    def apply_both(self) -> None:
        """The group, without its commit."""
        twins = [[_own(verb) for verb in unit] for unit in self.units]
        answers, expected = self.store.apply(self.units), self.model.apply(twins)
        assert [type(answer) for answer in answers] == [type(answer) for answer in expected]
        assert receipts(self.units) == receipts(twins)

    @rule()
    def group_ends(self) -> None:
        """Commit."""
        self.apply_both()
        self.store.commit()
        self.model.commit()
        self.group_is_over(lost=False)

    @precondition(lambda self: self.units)
    @rule()
    def group_is_abandoned(self) -> None:
        """Roll back."""
        self.apply_both()
        self.store.abandon()
        self.model.abandon()
        self.group_is_over(lost=True)

    @rule()
    def restart(self) -> None:
        """Close and open the store on disk."""
        self.store.close()
        assert verify_directory(self.directory) == []
        self.store = self.open()

    @rule(applied=st.booleans())
    def crash(self, applied: bool) -> None:
        """Go on with a copy of the open files, in which a group was applied and never committed."""
        if applied:
            self.apply_both()
        before = self.directory
        self.number += 1
        shutil.copytree(before, self.directory)
        old, self.store = self.store, self.open()
        if applied:
            self.model.abandon()
            self.group_is_over(lost=True)
        old.close()
        shutil.rmtree(before)

    def teardown(self) -> None:
        """All that both say is the same."""
        if hasattr(self, "store"):
            assert facts_of(self.store) == facts_of(self.model)
            self.store.close()
            assert verify_directory(self.directory) == []
        self.folder.cleanup()


def _own(verb: Verb) -> Verb:
    """What a store writes into is copied for the other one."""
    if isinstance(verb, Journal):
        return Journal(attrs.evolve(verb.event))
    return attrs.evolve(verb) if isinstance(verb, CreateNode) else verb


def receipts(units: list[Unit]) -> list[int]:
    """The numbers that a store gave to nodes and events."""
    found = []
    for verb in (verb for unit in units for verb in unit):
        if isinstance(verb, Journal):
            found.append(verb.event.seq)
        elif isinstance(verb, CreateNode):
            found.append(verb.queue_id)
    return found
