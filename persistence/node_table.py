"""Which units can happen: decided from the nodes alone, before a store does anything.

A unit can be refused for four reasons: a name that is taken, a node that does not exist, no room for new
messages, damaged rows of what it changes (a half message, a node whose messages move, a decision). All are
known before its first statement runs; hence no unit needs a savepoint of its own. What is left (disk full,
I/O errors) concerns a whole group.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from amqp_broker.persistence.errors import NodeExists, NoSuchNode, StoreError, StoreFull
from amqp_broker.persistence.halves import Advance, Decide, DecideEpoch, Hold, Journal, Reschedule
from amqp_broker.persistence.retention import JOURNAL_ID, MoveCursor, Retain
from amqp_broker.persistence.verbs import (
    Configure,
    CreateNode,
    DeleteNode,
    Move,
    Post,
    PostLarge,
    Purge,
    Retire,
    Return,
    Unit,
)

NEW_DATA: Final = frozenset((Post, PostLarge, Hold, Advance))  # what is refused when there is no room
Objectionable = PostLarge | Hold | Decide | Reschedule | DecideEpoch | Move
_FULL: Final = "the disk is below its low-water mark: no new messages are taken"


class NodeTable:
    """Names and ids, with the changes of the group under way on top of them.

    `objection` tells why what is stored does not let a verb happen.
    """

    def __init__(self, objection: Callable[[Objectionable], StoreError | None] = lambda verb: None) -> None:
        self._objection = objection
        self._ids: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self._last_id = 0
        self._undo: list[tuple[bool, int, str]] = []  # (was created, id, name)

    def load(self, queue_id: int, name: str) -> None:
        """Take in a node that the store holds."""
        self._ids[name] = queue_id
        self._names[queue_id] = name
        self.reserve(queue_id)

    def reserve(self, queue_id: int) -> None:
        """Never hand out ids up to this one."""
        self._last_id = max(self._last_id, queue_id)

    def admit(self, unit: Unit, refuse_posts: bool) -> StoreError | None:
        """Why the unit cannot happen, or None; then its new nodes have their ids and its deleted ones are
        gone.
        """
        if len(unit) == 1 and type(unit[0]) is Post and not refuse_posts and unit[0].queue_id in self._names:
            return None
        mark = len(self._undo)
        for verb in unit:
            if type(verb) is Post and not refuse_posts and verb.queue_id in self._names:
                continue
            error = self._admit_verb(verb, refuse_posts)
            if error is not None:
                self._roll_back_to(mark)
                return error
        return None

    def _admit_verb(self, verb: object, refuse_posts: bool) -> StoreError | None:
        kind = type(verb)
        if kind is Post or kind is PostLarge:
            assert isinstance(verb, (Post, PostLarge))
            if refuse_posts:
                return StoreFull(_FULL)
            if verb.queue_id not in self._names:
                return NoSuchNode(f"post to node {verb.queue_id}, which does not exist")
            if isinstance(verb, PostLarge):
                return self._objection(verb)
        elif kind is Retire or kind is Return or kind is Journal:
            return None
        elif kind is Decide:
            assert isinstance(verb, Decide)
            return self._objection(verb)
        elif kind is Hold:
            assert isinstance(verb, Hold)
            return StoreFull(_FULL) if refuse_posts else self._objection(verb)
        elif kind is CreateNode:
            assert isinstance(verb, CreateNode)
            if verb.name in self._ids:
                return NodeExists(f"a node named {verb.name!r} exists already")
            self._last_id += 1
            verb.queue_id = self._last_id
            self._ids[verb.name] = verb.queue_id
            self._names[verb.queue_id] = verb.name
            self._undo.append((True, verb.queue_id, verb.name))
        elif isinstance(verb, DeleteNode | Purge | Configure | Retain):
            if verb.queue_id not in self._names:
                return NoSuchNode(f"{kind.__name__} of node {verb.queue_id}, which does not exist")
            if kind is DeleteNode:
                self._delete(verb.queue_id)
        elif kind is Move:
            assert isinstance(verb, Move)
            return self._admit_move(verb)
        elif kind is Advance:
            assert isinstance(verb, Advance)
            if refuse_posts:
                return StoreFull(_FULL)
            if verb.stream.queue_id not in self._names:
                return NoSuchNode(f"a stream of node {verb.stream.queue_id}, which does not exist")
        elif isinstance(verb, MoveCursor):
            if verb.queue_id != JOURNAL_ID and verb.queue_id not in self._names:
                return NoSuchNode(f"a cursor on node {verb.queue_id}, which does not exist")
        elif isinstance(verb, Reschedule | DecideEpoch):
            return self._objection(verb)
        return None

    def _admit_move(self, verb: Move) -> StoreError | None:
        assert verb.from_queue_id != verb.queue_id, f"node {verb.queue_id} moved onto itself"
        for queue_id in (verb.from_queue_id, verb.queue_id):
            if queue_id not in self._names:
                return NoSuchNode(
                    f"move of node {verb.from_queue_id} to {verb.queue_id}: {queue_id} does not exist"
                )
        error = self._objection(verb)
        if error is None:
            self._delete(verb.from_queue_id)
        return error

    def _delete(self, queue_id: int) -> None:
        name = self._names.pop(queue_id)
        del self._ids[name]
        self._undo.append((False, queue_id, name))

    def keep(self) -> None:
        """The group happened."""
        self._undo.clear()

    def forget(self) -> None:
        """The group did not happen."""
        self._roll_back_to(0)

    def _roll_back_to(self, mark: int) -> None:
        while len(self._undo) > mark:
            created, queue_id, name = self._undo.pop()
            if created:
                del self._ids[name]
                del self._names[queue_id]
                self._last_id = queue_id - 1  # nothing of it was durable, so the id is still unused
            else:
                self._ids[name] = queue_id
                self._names[queue_id] = name
