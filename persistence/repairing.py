"""`amqp-broker check DIR --repair`: what is damaged is put away, as far as what is left then tells the truth.

    damaged message, run, half message    into table `quarantine`, as by `--remove`
    damaged row of a node                 written anew with what can be believed of it
    runs whose node is gone               their node is there again, by the name `damaged.ID`
    damaged row of `spread`               rows of `run` for what it says, which are put away as damaged ones
    indexes that do not fit their tables  made anew
    counts of what points to a segment    counted

All else stays: without its row a transaction would count as rolled back, a stream would begin anew, a cursor
would stand nowhere. Whoever asks for such a thing is told that it is damaged.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

import attrs

from amqp_broker.persistence.errors import StoreCorrupt
from amqp_broker.persistence.fault_points import fault_point
from amqp_broker.persistence.quarantine import mend_nodes
from amqp_broker.persistence.removal import NothingToRemove, remove_from
from amqp_broker.persistence.store_file import closed_store
from amqp_broker.persistence.unit_of_work import UnitOfWork
from amqp_broker.persistence.verify import MessageProblem, verify_directory

_SUBJECT: Final = re.compile(r"queue \d+, (?:offset|run) \d+|half message \d+")
_NO_MESSAGE: Final = re.compile(r"queue (\d+), offset (\d+): a changed header, but no such message")
_LEFT_ALONE: Final = (
    "live_count is",
    "live_bytes is",
    "overlaps run",
    "published before",
    "held by terminus",
)
"""Words of findings about messages that are whole themselves: nothing of them is put away."""
_DELETE_CHANGED: Final = "DELETE FROM changed WHERE queue_id=? AND offset=?"
_DELETE_SEGMENT: Final = "DELETE FROM segment WHERE id=?"
_NO_NODE: Final = (
    "INSERT INTO node (id, name, kind, settings, next_offset, purged_to, checksum) "
    "SELECT DISTINCT queue_id, NULL, 'queue', '', 0, 0, 0 FROM run "
    "WHERE queue_id NOT IN (SELECT id FROM node)"
)
_COUNT_RUNS: Final = (
    "UPDATE segment SET runs=(SELECT count(*) FROM run WHERE segment_id=segment.id) "
    "WHERE id IN (SELECT segment_id FROM run) "
    "AND runs<>(SELECT count(*) FROM run WHERE segment_id=segment.id)"
)
_ORPHANS: Final = (
    "SELECT id FROM segment WHERE id NOT IN (SELECT segment_id FROM run) "
    "AND id NOT IN (SELECT segment_id FROM quarantine)"
)


@attrs.frozen
class Repaired:
    """What was done, and the findings that are left."""

    done: list[str]
    left: list[str]


def repair(directory: str | os.PathLike[str], message_problem: MessageProblem | None = None) -> Repaired:
    """Repair the closed store of a data directory, round by round until nothing more can be done. Raises as
    `verify_directory` and `closed_store`; a store whose log is damaged is not touched.
    """
    done: list[str] = []
    while left := verify_directory(directory, message_problem):
        with closed_store(directory) as store:
            reindex = "the indexes were made anew" not in done
            more = _Round(store.unit, Path(directory), left, reindex).run()
        if not more:
            break
        done += more
    return Repaired(done, left)


class _Round:
    """What one list of findings leads to."""

    def __init__(self, unit: UnitOfWork, directory: Path, findings: list[str], reindex: bool) -> None:
        self._unit = unit
        self._directory = directory
        self._findings = findings
        self._reindex = reindex
        self._done: list[str] = []

    def run(self) -> list[str]:
        """What was done."""
        if self._reindex and any(finding.startswith("SQLite:") for finding in self._findings):
            self._try("the indexes were made anew", "REINDEX")
        self._done += [f"{each}; it was taken apart" for each in self._findings if each.startswith("spread ")]
        self._nodes()
        for finding in dict.fromkeys(self._findings):
            self._message(finding)
        self._references()
        return self._done

    def _nodes(self) -> None:
        try:
            self._unit.begin()
            made = self._unit.execute(_NO_NODE)
            self._unit.commit() if made > 0 else self._unit.rollback()
            for mended in mend_nodes(self._unit):
                self._done.append(f"node {mended.queue_id}: {mended.reason}")
        except StoreCorrupt:
            return  # what stands in the way is a finding

    def _message(self, finding: str) -> None:
        gone = _NO_MESSAGE.match(finding)
        if gone is not None:
            key = (int(gone[1]), int(gone[2]))
            self._try(f"{gone[0]}: it was deleted", _DELETE_CHANGED, key)
            return
        subject = _SUBJECT.match(finding)
        if subject is None or any(words in finding for words in _LEFT_ALONE):
            return
        try:
            self._done.append(f"put away: {remove_from(self._unit, self._directory, subject[0])}")
        except (NothingToRemove, StoreCorrupt):
            return  # it went with another one; or what stands around it is damaged, too, and is a finding

    def _references(self) -> None:
        self._try("the runs of segments were counted", _COUNT_RUNS)
        try:
            orphans = self._unit.query(_ORPHANS)
        except StoreCorrupt:
            return
        for (segment_id,) in orphans:
            self._try(f"segment {segment_id}: deleted, nothing points to it", _DELETE_SEGMENT, (segment_id,))

    def _try(self, told: str, sql: str, parameters: tuple[object, ...] = ()) -> None:
        """A unit of its own; told only where it changed something."""
        try:
            self._unit.begin()
            changed = self._unit.execute(sql, parameters)
            fault_point("quarantine.before_commit")
            self._unit.commit()
        except StoreCorrupt:
            return
        if changed or sql == "REINDEX":
            self._done.append(told)
