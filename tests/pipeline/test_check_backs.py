"""Check-backs about sets: what is read in a checkpoint, and what is answered."""

from __future__ import annotations

import os
from pathlib import Path

import attrs
import pytest

from amqp_broker.pipeline.check_backs import Answer, Question, answer
from amqp_broker.pipeline.checkpoints import Checkpoint, read_checkpoint

NOW = 10_000.0
GONE_AFTER_S = 600.0
ASKED = Question(producer="query", epoch=7, set_id="s", attempt=1)


def test_a_query_that_may_live_is_not_judged() -> None:
    """Its driver may name the set in a moment, however old the batch is."""
    living = Checkpoint("query", planned=7, done=6, changed_at_s=NOW - GONE_AFTER_S + 1)
    assert answer(ASKED, [living], NOW, GONE_AFTER_S)[0] is Answer.UNKNOWN
    ahead = attrs.evolve(living, changed_at_s=NOW + 60)  # clocks of two machines
    assert answer(ASKED, [ahead], NOW, GONE_AFTER_S)[0] is Answer.UNKNOWN


def test_a_set_of_a_query_that_is_gone_is_rolled_back() -> None:
    """Nothing changed in its checkpoint for long enough; it runs the batch again when it comes back."""
    gone = Checkpoint("query", planned=7, done=6, changed_at_s=NOW - GONE_AFTER_S)
    said, why = answer(ASKED, [gone], NOW, GONE_AFTER_S)
    assert said is Answer.ROLLBACK
    assert "600 s" in why


@pytest.mark.parametrize("changed_at_s", [NOW, 0.0])
def test_a_batch_that_is_done_is_never_rolled_back(changed_at_s: float) -> None:
    """Spark would not run it again: if the broker lost the decision, people have to look."""
    done = Checkpoint("query", planned=7, done=7, changed_at_s=changed_at_s)
    said, why = answer(ASKED, [done], NOW, GONE_AFTER_S)
    assert said is Answer.UNKNOWN
    assert "restored from a copy" in why


def test_sets_of_others_are_unknown() -> None:
    """An answerer knows its own checkpoints only."""
    other = Checkpoint("other", planned=1, done=0, changed_at_s=0.0)
    assert answer(ASKED, [other], NOW, GONE_AFTER_S)[0] is Answer.UNKNOWN
    assert answer(ASKED, [], NOW, GONE_AFTER_S)[0] is Answer.UNKNOWN


def test_a_named_producer_has_the_id_of_its_query_behind_it() -> None:
    """The option producerId is for people; the checkpoint knows the id alone."""
    gone = Checkpoint("query", planned=7, done=6, changed_at_s=0.0)
    assert (
        answer(attrs.evolve(ASKED, producer="my.app.query"), [gone], NOW, GONE_AFTER_S)[0] is Answer.ROLLBACK
    )
    assert answer(attrs.evolve(ASKED, producer="query.app"), [gone], NOW, GONE_AFTER_S)[0] is Answer.UNKNOWN


def test_commit_is_no_answer() -> None:
    """Spark notes a batch as done after the sink's commit: no checkpoint can prove that a set is wanted."""
    assert set(Answer) == {Answer.UNKNOWN, Answer.ROLLBACK, Answer.APPLIED}, "APPLIED was decided elsewhere"


def test_the_checkpoint_is_read_as_spark_writes_it(tmp_path: Path) -> None:
    """Ids are numbers; checksum files and temporary ones are not batches."""
    (tmp_path / "metadata").write_text('{"id":"6f9b"}')
    for folder, names in {
        "offsets": ["0", "1", "9", "10", ".10.crc"],
        "commits": ["0", "9", ".9.crc.tmp"],
    }.items():
        (tmp_path / folder).mkdir()
        for name in names:
            (tmp_path / folder / name).write_text("v1\n{}")
    os.utime(tmp_path / "commits", (5, 5))
    os.utime(tmp_path / "offsets", (70, 70))
    os.utime(tmp_path / "metadata", (6, 6))
    assert read_checkpoint(tmp_path) == Checkpoint("6f9b", planned=10, done=9, changed_at_s=70.0)


def test_what_is_no_checkpoint_is_none(tmp_path: Path) -> None:
    """A folder that is not there, or holds something else, says nothing."""
    assert read_checkpoint(tmp_path / "nowhere") is None
    (tmp_path / "metadata").write_text("{}")
    assert read_checkpoint(tmp_path) is None
    (tmp_path / "metadata").write_text('{"id":"6f9b"}')
    changed_at_s = (tmp_path / "metadata").stat().st_mtime
    assert read_checkpoint(tmp_path) == Checkpoint("6f9b", -1, -1, changed_at_s)
