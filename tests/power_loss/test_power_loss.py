"""What was acknowledged survives a power cut at every call of the store, and the proof can fail."""

from __future__ import annotations

from typing import Final

import pytest

from tests.power_loss.io_errors import run_preloaded
from tests.power_loss.many import run_many
from tests.power_loss.simulation import Setting
from tests.power_loss.workloads import REPLACING, RESUMPTION, SETS, TOPICS, WORKLOADS

SEED: Final = 20_240
STATES: Final = 20_000
STATES_TO_FAIL: Final = 1_500
STATES_TO_FAIL_RESUMING: Final = 5_000
"""Two of 3,000 show it: few commits of that workload are cut where it matters."""
STATES_OF_SETS: Final = 6_000
STATES_OF_TOPICS: Final = 4_000
STATES_OF_RESUMPTION: Final = 2_000
STATES_OF_REPLACING: Final = 2_000
PROCESSES: Final = 2
GROUPS_WITH_IO_ERRORS: Final = 8

pytestmark = pytest.mark.timeout(1_800)  # minutes of work, also beside other work


def test_no_power_cut_loses_what_was_acknowledged() -> None:
    """In 20,000 states every acknowledged unit is there whole, no other is there in part, the checker is
    content.
    """
    report = run_many(STATES, SEED, PROCESSES, Setting(), show=False)
    assert report.violations == []
    assert report.states >= STATES


def missed(setting: Setting, *words: str, states: int = STATES_TO_FAIL) -> list[str]:
    """Which of the patterns no violation is found for. It ends with the last of them that is found."""
    report = run_many(states, SEED, 1, setting, until=words, show=False)
    return [each for each in words if not report.tells([each])]


def test_the_proof_finds_a_store_that_does_not_sync_each_commit() -> None:
    """With synchronous=NORMAL a commit returns before it is on the disk, and power cuts show it."""
    words = ("message .* is lost", "message .* is there and should not", "transaction .* is lost")
    assert missed(Setting(synchronous="NORMAL"), *words) == []


def test_the_proof_finds_an_acknowledgement_before_the_commit() -> None:
    """With the sync in its place and only the answer too early, power cuts show it."""
    assert missed(Setting(acknowledge_first=True), "message .* is lost") == []


def test_the_proof_finds_bodies_that_are_not_synced_before_their_rows() -> None:
    """Where they are written only, a power cut leaves the rows, and takes the bodies."""
    assert missed(Setting(bodies_unsynced=True), "missing or unreadable") == []


@pytest.mark.parametrize("workload", [*WORKLOADS])
def test_the_proof_finds_an_answer_before_what_was_recovered_is_synced(workload: str) -> None:
    """A process ends between the write and the sync of a commit, the next one answers from it: power cuts
    show it.
    """
    setting = Setting(answer_first=True, workload=workload)
    states = STATES_TO_FAIL_RESUMING if workload == RESUMPTION else STATES_TO_FAIL
    assert missed(setting, "call", states=states) == []


def test_no_power_cut_parts_an_epoch_from_its_decision() -> None:
    """In 6,000 states of staging, sealing, voiding and committing sets into retaining queues, an epoch is
    there whole with its decision, or not at all; seals, offsets, cursors and events are as promised.
    """
    report = run_many(STATES_OF_SETS, SEED, PROCESSES, Setting(workload=SETS), show=False)
    assert report.violations == []
    assert report.states >= STATES_OF_SETS


def test_the_proof_finds_sets_that_are_acknowledged_too_early() -> None:
    """With synchronous=NORMAL seals, decisions, cursors and events are lost, and power cuts show it."""
    sealed = "node .*half-set.*, expected .*sealed"
    words = (sealed, "decision .* is lost", "cursor .* expected", "event .* is lost")
    assert missed(Setting(synchronous="NORMAL", workload=SETS), *words) == []


def test_no_power_cut_parts_a_message_from_its_outcome() -> None:
    """In 2,000 states of posts to durable termini, of what is settled, and of termini that come and go."""
    report = run_many(STATES_OF_RESUMPTION, SEED, PROCESSES, Setting(workload=RESUMPTION), show=False)
    assert report.violations == []
    assert report.states >= STATES_OF_RESUMPTION


def test_no_power_cut_parts_a_message_from_what_it_puts_out() -> None:
    """Rings and last values: it is there and they are gone, or neither."""
    report = run_many(STATES_OF_REPLACING, SEED, PROCESSES, Setting(workload=REPLACING), show=False)
    assert report.violations == []
    assert report.states >= STATES_OF_REPLACING


def test_no_power_cut_parts_the_copies_of_a_topic() -> None:
    """In 4,000 states of posts to several queues, subscriptions made and deleted, and messages that leave for
    the dead letters: each unit is there whole or not at all.
    """
    report = run_many(STATES_OF_TOPICS, SEED, PROCESSES, Setting(workload=TOPICS), show=False)
    assert report.violations == []
    assert report.states >= STATES_OF_TOPICS


def test_the_proof_finds_copies_that_are_acknowledged_too_early() -> None:
    """With synchronous=NORMAL copies and subscriptions are lost, or there again, and power cuts show it."""
    copy = "message .subscription/durable/"
    words = (f"{copy}.* is lost", f"{copy}.* is there and should not", "node .subscription/.* is lost")
    assert missed(Setting(synchronous="NORMAL", workload=TOPICS), *words) == []


def test_an_io_error_or_a_full_disk_at_any_call_loses_nothing() -> None:
    """Each call fails once, and from then on, in each way; the store says what happened, and recovers."""
    status, output = run_preloaded(SEED, GROUPS_WITH_IO_ERRORS)
    assert status == 0, output
