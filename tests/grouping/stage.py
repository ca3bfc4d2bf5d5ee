"""A program on a broker: run it in chunks, look at what clients were told and what the store holds."""

from __future__ import annotations

import functools
import itertools
import random
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, Final
from unittest.mock import patch

import attrs

from amqp_broker.broker import Broker
from amqp_broker.configuration import (
    BindingConfig,
    BrokerConfig,
    BrokerLimits,
    HalfGroupConfig,
    QueuePolicy,
)
from amqp_broker.exit_status import leaves
from amqp_broker.testing import memory_config
from tests.grouping import looks
from tests.grouping.held_store import HeldStore, Watch
from tests.grouping.peer import Link, Peer
from tests.grouping.steps import (
    GROUP,
    KEY,
    AttachReceiver,
    AttachSender,
    Disk,
    Leave,
    Pass,
    Step,
    Tick,
    payload_of,
)
from tests.grouping.stores import Stores
from tests.support.jumping_broker import JumpingBroker

DAY_MS: Final = 86_400_000
FIRST_CHECK_MS: Final = 1_000
MAX_AGE_MS: Final = 1_200_000
TOMBSTONE_MS: Final = 3_600_000
DELAY_MS: Final = 500
WINDOW_MS: Final = 10_000
DECOY: Final = "decoy"
DECOYS_MAX: Final = 10_000  # beyond it the writer makes all commits in the loop
STUCK_S: Final = 60.0  # of real time without an answer: the writer has stopped working
WORKER_S: Final = 0.0005  # of real time, for a worker that no task of the loop waits for



class Stuck(Exception):
    """The broker does not answer any more."""


@attrs.frozen
class Program:
    """Steps that prepare, one at a time in every run; and those whose grouping must not matter."""

    setup: tuple[Step, ...]
    steps: tuple[Step, ...]
    policy: str = "rollback"
    name: str = ""

    def __str__(self) -> str:
        lines = [f"program {self.name} (half messages: {self.policy})"]
        lines += [f"  setup    {step}" for step in self.setup]
        lines += [f"  {number:2}       {step}" for number, step in enumerate(self.steps)]
        return "\n".join(lines)


Keyed = tuple[int, Step]
"""A step, and its number in the program."""


@attrs.frozen
class Chunk:
    """Steps that are sent before the broker comes to rest.

    `held`: a commit is under way all the time, so that they gather in one group; it is a commit of somebody
    else, or (`own`) that of the first of them that needs one. `merged`: one segment for each connection, else
    one for each step.
    """

    steps: tuple[Keyed, ...]
    held: bool
    merged: bool
    own: bool = False


Plan = tuple[Chunk, ...]


@attrs.define
class Observed:
    """What a run showed."""

    died: str = ""
    answers: dict[int, tuple[str, ...]] = attrs.field(factory=dict)
    """What each step's message was answered, by number of the step."""
    excused: set[int] = attrs.field(factory=set)
    """Steps whose link ended: the answer may be missing."""
    unanswered: list[int] = attrs.field(factory=list)
    """Steps that waited for an answer when the broker was at rest."""
    told: dict[tuple[int, str, int], tuple[str, ...]] = attrs.field(factory=dict)
    """What the broker said about each delivery to a client: connection, link, number."""
    ends: dict[tuple[int, str], str] = attrs.field(factory=dict)
    """How the broker ended links, and connections (link "")."""
    left: set[tuple[int, str | None]] = attrs.field(factory=set)
    """Links that the program leaves by itself; None: all of a connection."""
    state: dict[str, Any] = attrs.field(factory=dict)
    """What the broker holds: memory, queues as browsers see them, half messages, sets, streams, cursors."""
    faults: list[str] = attrs.field(factory=list)
    """What cannot be, whatever the program was."""


class Stage:
    """A running broker with its clients."""

    def __init__(self, store: HeldStore, policy: str, after: Stage | None = None) -> None:
        self.store = store
        self.watch = Watch(self._spins)
        config = configuration(policy, store.in_memory)
        used: Any = store  # `Store` is a protocol that the wrapper passes on
        before: TickingBroker | None = None
        if after is not None:
            after.end()
            before = after.running
        self.running: TickingBroker = TickingBroker(config, before, store=used, instruments=(self.watch,))
        self.peers: dict[int, Peer] = {}
        self.txns: dict[str, bytes] = {}
        self.declares: dict[tuple[int, int], str] = {}
        self.sent: dict[int, tuple[int, str, int]] = {}
        self._all: list[Peer] = []
        self._jumped = False
        self._decoy: Link | None = None
        self._decoys: Peer | None = None

    def _spins(self) -> None:
        self.store.spinning = True
        self.running.scope.cancel()

    @property
    def broker(self) -> Broker:
        """From inside."""
        found = self.running._broker
        assert isinstance(found, Broker)
        return found

    @property
    def ticking(self) -> bool:
        """Whether the wall clock moves on by a millisecond whenever it is read."""
        return self.running.ticking

    @ticking.setter
    def ticking(self, ticks: bool) -> None:
        self.running.ticking = ticks

    def jump(self, ms: int) -> None:
        """Time passes; what becomes due is done at the next rest."""
        self.running.mock_clock.jump(ms / 1000)
        self._jumped = True

    def address(self, name: str | None) -> str | None:
        """`@0/link` is the address that the broker gave to a link of connection 0."""
        if name is None or not name.startswith("@"):
            return name
        who, link = name[1:].split("/", 1)
        peer = self.peers.get(int(who))
        found = None if peer is None else peer.links.get(link)
        return (found.address if found is not None else "") or "gone"

    def connect(self, name: str) -> Peer:
        """A new connection."""
        peer = self.running.dial(Peer)
        peer.introduce(name)
        self._all.append(peer)
        return peer

    def rest(self) -> None:
        """Nothing moves any more, or a commit is held. Raises what ended the broker."""
        self._settle()
        if self._jumped and not self.store.holding:
            self._jumped = False
            self.barrier()
        for (who, number), name in self.declares.items():
            txn_id = self.peers[who].declared.get(number)
            if txn_id is not None:
                self.txns[name] = txn_id

    def end(self) -> None:
        """Everybody leaves, and the broker stops, at once. Raises what ended it before."""
        for peer in self._all:
            peer.leave()
        self.running.rest()
        self.running.stop(0.0)

    def _settle(self) -> None:
        self.watch.steps = 0
        self.running.rest()
        for peer in self._all:
            peer.hear()
        if not self.running.alive:
            self.running.stop()
            raise Stuck("the broker has ended")

    def decoy(self) -> int:
        """Somebody else stores something."""
        if self._decoys is None or self._decoy is None:
            self._decoys = self.connect(DECOY)
            self._decoy = self._decoys.attach_sender(DECOY, DECOY)
        payload = payload_of(("plain", DECOY, True), self, self._decoys)
        assert payload is not None
        number = self._decoys.send(self._decoy, payload, settled=False)
        self._decoys.flush()
        return number

    def barrier(self) -> None:
        """Everything that the broker put off has been stored, and whatever a worker did has ended."""
        number = self.decoy()
        decoys = self._decoys
        assert decoys is not None
        begun = time.monotonic()
        while time.monotonic() < begun + STUCK_S:
            self.rest()
            if decoys.answers[number]:
                return
            time.sleep(WORKER_S)
        raise Stuck("the writer answers nothing any more")

    def quicken(self) -> None:
        """Small commits are made in the broker's own loop, as where the disk was seen to be quick by many."""

        def seen(broker: Broker) -> None:
            broker.writer._pace.commit_s = 0.0

        self.running.call(seen)

    def run(self, chunks: Plan) -> None:
        """All steps, in their chunks."""
        for chunk in chunks:
            try:
                if chunk.held and self.store.room != "nothing":
                    self._hold(chunk.own)
                self._send(chunk)
            finally:
                self.store.let_go()
            self.rest()

    def _hold(self, own: bool) -> None:
        """The next commit is under way until it is let go, unless it is that of somebody else: now."""
        if not self.store.slow:
            self.store.slow = True
            self.barrier()  # the broker finds its disk too slow for its own loop
        self.store.hold()
        if own:
            return
        for _ in range(DECOYS_MAX):
            self.decoy()
            self._settle()
            if self.store.held:
                return
        raise Stuck("no commit could be held: the writer makes all of them in the loop")

    def _send(self, chunk: Chunk) -> None:
        waiting: dict[int, None] = {}
        for key, step in chunk.steps:
            if step.who < 0:
                waiting = self._flush(waiting)
                step.put(self, key)
                self.rest()
                continue
            if step.who not in self.peers:
                self.peers[step.who] = self.connect(f"peer-{step.who}")
            step.put(self, key)
            waiting[step.who] = None
            if not chunk.merged:
                waiting = self._flush(waiting)
        self._flush(waiting)

    def _flush(self, waiting: dict[int, None]) -> dict[int, None]:
        for who in waiting:
            self.peers[who].flush()
            self.rest()
        return {}


class TickingBroker(JumpingBroker):
    """Its wall clock may move on whenever it is read."""

    ticking = False

    def now_ms(self) -> int:
        """The clock on the wall."""
        if self.ticking:
            self.set_wall(0.001)
        return super().now_ms()


def one_by_one(steps: Sequence[Keyed]) -> Plan:
    """Each step alone."""
    return tuple(Chunk((each,), held=False, merged=False) for each in steps)


def _prepared(steps: Sequence[Keyed]) -> Plan:
    """Each step alone, but for links that are attached one after the other: they are nobody's subject."""

    def kind(each: Keyed) -> object:
        step = each[1]
        plain = isinstance(step, AttachSender | AttachReceiver) and not (step.address or "@").startswith("@")
        return ("attach", step.who) if plain else each[0]

    runs = [tuple(run) for _, run in itertools.groupby(steps, kind)]
    return tuple(Chunk(run, held=False, merged=True) for run in runs)


def all_in_one(steps: Sequence[Keyed], *, own: bool = False) -> Plan:
    """One segment for each connection, and all in one group, or in that behind the first that commits."""
    return tuple(Chunk(part, held=True, merged=not own, own=own) for part in _between_jumps(steps))


def all_at_once(steps: Sequence[Keyed]) -> Plan:
    """One segment for each connection, and no commit is under way."""
    return tuple(Chunk(part, held=False, merged=True) for part in _between_jumps(steps))


def _between_jumps(steps: Sequence[Keyed]) -> list[tuple[Keyed, ...]]:
    """A group is made, and judged, when the commit before it has ended. So that a clock says the same to all
    of it, whoever makes groups, time passes and the disk changes at the beginning of a group only.
    """
    parts: list[list[Keyed]] = [[]]
    for each in steps:
        if isinstance(each[1], Pass | Disk | Tick):
            parts.append([])
        parts[-1].append(each)
    return [tuple(part) for part in parts if part]


def in_groups(steps: Sequence[Keyed], rng: random.Random) -> Plan:
    """Random groups, in the order of the program."""
    chunks: list[Chunk] = []
    for rest in _between_jumps(steps):
        while rest:
            size = rng.choice((1, 2, 3, 5, 8, len(rest)))
            part, rest = rest[:size], rest[size:]
            alone = len({step.who for _, step in part if step.who >= 0}) == 1
            held, own = rng.random() < 0.75, rng.random() < 0.3
            chunks.append(Chunk(part, held=held, merged=alone and rng.random() < 0.5, own=own))
    return tuple(chunks)


def by_connection(steps: Sequence[Step]) -> list[Keyed]:
    """In the order in which `all_in_one` sends them: connection by connection, between the world's steps."""
    found: list[Keyed] = []
    part: list[Keyed] = []

    def close() -> None:
        order = list(dict.fromkeys(step.who for _, step in part))
        found.extend(sorted(part, key=lambda each: order.index(each[1].who)))
        part.clear()

    for key, step in enumerate(steps):
        if isinstance(step, Pass | Disk | Tick):
            close()
            found.append((key, step))
        else:
            part.append((key, step))
    close()
    return found


@functools.lru_cache
def configuration(policy: str, memory: bool) -> BrokerConfig:
    """Of the brokers of all programs: thousands, none of which needs to ask how much memory there is."""
    return memory_config(
        memory=memory,
        limits=BrokerLimits(idle_time_out_ms=2**32 - 1, memory_bytes=1 << 30),
        queue_policies=(
            QueuePolicy(pattern="e.**", events=True, dead_letter_address="dead.e"),
            QueuePolicy(pattern="dead-letters", create="at-start"),
            QueuePolicy(pattern="dead.**", events=True),
            QueuePolicy(pattern="r.**", retention_ms=DAY_MS, max_deliveries=1),
            QueuePolicy(
                pattern="x.**", events=True, retention_ms=DAY_MS, max_deliveries=2,
                dead_letter_address="dead.x",
            ),
            QueuePolicy(
                pattern="y.**", max_deliveries=2, redelivery_delay_ms=DELAY_MS, dead_letter_address="dead.e"
            ),
            QueuePolicy(pattern="t.**", kind="topic", max_deliveries=2, dead_letter_address="dead.t"),
            QueuePolicy(pattern="i.**", duplicate_window_ms=WINDOW_MS, max_duplicate_ids=3, events=True),
            QueuePolicy(pattern="o.**", ring_messages=2, message_type="normal", events=True),
            QueuePolicy(
                pattern="v.**", last_value_key=KEY, max_messages=1_000_000, message_type="normal", events=True
            ),
            QueuePolicy(pattern="u.**", kind="topic", max_messages=5),
            QueuePolicy(pattern="l.**", max_messages=2),
        ),
        bindings=(BindingConfig(topic="t.#", queue="bound"),),
        half_groups=(
            HalfGroupConfig(
                name=GROUP, policy=policy, first_check_ms=FIRST_CHECK_MS, tombstone_ms=TOMBSTONE_MS,
                max_age_ms=MAX_AGE_MS, max_attempts=2,
            ),
        ),
    )  # fmt: skip


def run_program(
    program: Program, plan: Plan, stores: Stores, *, restart: bool = True,
    tweak: Callable[[HeldStore], None] | None = None,
) -> Observed:  # fmt: skip
    """One run of a program, with a look at everything afterwards, and again after a restart."""
    observed = Observed()
    observed.left = {(step.who, step.link) for step in program.steps if isinstance(step, Leave)}
    real = stores.make()
    store = HeldStore(real)
    if tweak is not None:
        tweak(store)
    with ExitStack() as stages:
        stages.callback(store.let_go)
        try:
            with patch.object(time, "perf_counter", store.perf_counter):
                stage = _staged(stages, store, program.policy)
                _played(stage, program, plan, observed)
                if restart:
                    looks.after_restart(_staged(stages, store, program.policy, stage), observed)
                stages.close()
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            observed.died = "; ".join(f"{type(leaf).__name__}: {leaf}"[:400] for leaf in leaves(error))
    if store.spinning:
        observed.died = f"the broker spins; {observed.died}"
    if restart and not observed.died:
        looks.at_store(real, observed)
    real.close()
    if not observed.died:
        observed.faults += stores.findings()
    return observed


def _staged(stages: ExitStack, store: HeldStore, policy: str, after: Stage | None = None) -> Stage:
    stage = Stage(store, policy, after)
    stages.callback(stage.end)
    return stage


def _played(stage: Stage, program: Program, plan: Plan, observed: Observed) -> None:
    setup = tuple((-1 - key, step) for key, step in enumerate(program.setup))
    stage.run(_prepared(setup))
    stage.barrier()
    if not any(chunk.held for chunk in plan):
        stage.quicken()
    stage.run(plan)
    stage.store.room = "enough"
    looks.at_answers(stage, observed, final=False)
    stage.barrier()
    looks.at_answers(stage, observed, final=True)
    looks.at_rest(stage, observed)
