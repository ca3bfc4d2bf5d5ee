"""What a run of a program left behind: in the broker's memory, for its clients, after a restart, and on disk.

All that knows the broker from inside is in `figures`; everything else is the wire, the administration that
`Broker` offers, and the protocol of the store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import attrs

from amqp_broker.broker import Broker
from amqp_broker.duplicates.duplicates import NODE_KIND as SEEN
from amqp_broker.duplicates.duplicates import WindowRule
from amqp_broker.duplicates.seen import VOLATILE, Window
from amqp_broker.frames import Message, plain_value
from amqp_broker.judged_queue import JudgedQueue
from amqp_broker.persistence import Store
from amqp_broker.testing.peer import PeerReceiver
from tests.grouping.peer import Link, end_of
from tests.grouping.steps import GROUP, PRODUCER
from tests.support.event_replay import replay
from tests.support.memory_kept import count_faults, memory_faults

if TYPE_CHECKING:
    from tests.grouping.stage import Observed, Stage

QUEUES: Final[tuple[str, ...]] = (
    "a", "b", "bound", "e.c", "i.a", "i.b", "l.q", "o.a", "r.d", "s", "v.a", "x.f", "y.g", "dead-letters",
    "dead.e", "dead.t", "dead.x",
)  # fmt: skip
"""All that programs use and that outlive their links."""
TOLD: Final = (
    "x-opt-seq", "x-opt-half", "x-opt-dead-letter-reason", "x-opt-dead-letter-address",
    "x-opt-dead-letter-count",
)  # fmt: skip
"""Annotations of the broker that are neither random nor a time."""
DURABLE: Final = "$subscription/durable/"
EVERYTHING: Final = 100_000
CREDIT: Final = 1_000


@attrs.frozen
class Figures:
    """Of one queue, in memory."""

    messages: int
    octets: int
    reserved_messages: int
    reserved_octets: int
    pending_posts: int

    @property
    def impossible(self) -> bool:
        """Whether one of them cannot be, at rest."""
        return min(attrs.astuple(self)) < 0 or self.pending_posts != 0


def figures(stage: Stage) -> dict[str, Figures]:
    """Of all queues, by name; a temporary one has that of its link."""
    names = {link.address: f"@{who}/{key}" for who, key, link in _links(stage) if link.address}
    return {
        names.get(queue.name, queue.name) if not queue.persistent else queue.name: Figures(
            queue.message_count, queue.byte_count, queue.reserved_messages, queue.reserved_bytes,
            queue.pending_posts,
        )
        for queue in stage.broker.nodes.queues.queues()
        if queue.name != "decoy"
    }  # fmt: skip


def _links(stage: Stage) -> list[tuple[int, str, Link]]:
    return [(who, key, link) for who, peer in stage.peers.items() for key, link in peer.links.items()]


def at_answers(stage: Stage, observed: Observed, *, final: bool) -> None:
    """What clients were told, at rest."""
    for key, (who, name, number) in stage.sent.items():
        if key < 0:
            continue
        peer = stage.peers[who]
        link = peer.links[name]
        answers = peer.answers.get(number)
        if link.detached or link.detach_sent or peer.gone or peer.ended is not None or peer.lost:
            observed.excused.add(key)
        elif answers == [] and not final:
            observed.unanswered.append(key)
        if final and answers is not None:
            observed.answers[key] = tuple(answers)
    if not final:
        return
    for who, called, link in _links(stage):
        peer = stage.peers[who]
        over = link.detach_sent or link.detached or peer.gone or peer.ended is not None
        if end := end_of(link):
            observed.ends[(who, called)] = end
        arrivals = link.deliveries if isinstance(link, PeerReceiver) else ()
        for number, arrival in enumerate(arrivals):
            told = tuple(peer.told.get(arrival.delivery_id, ()))
            if not told and (over or arrival.delivery_id in peer.forgotten):
                told = ("over",)
            if told and link.address.startswith("$half-check/"):
                told = ("settled",)  # an answer and the end of the question may cross on the wire
            observed.told[(who, called, number)] = told
        if not over:  # what is on its way to a link that goes may arrive or not
            observed.state[f"arrived at {who}/{called}"] = sorted(
                describe(a.payload) for a in arrivals
            )
    for who, peer in stage.peers.items():
        if peer.ended:
            observed.ends[(who, "")] = peer.ended


def at_rest(stage: Stage, observed: Observed) -> None:
    """The broker's memory, before and after the clients have gone, and the queues as a browser sees them."""
    found = figures(stage)
    observed.state["figures"] = found
    for peer in list(stage.peers.values()):
        peer.leave()
    stage.rest()
    stage.barrier()
    observed.state["figures alone"] = alone = figures(stage)
    observed.faults += [f"alone: {fault}" for fault in memory_faults(stage.broker)]
    observed.faults += count_faults(stage.broker)
    for when, each in (("at rest", found), ("alone", alone)):
        for name, figure in each.items():
            if figure.impossible:
                observed.faults.append(f"{when}: {name} has {figure}")
    observed.state["queues"] = browse(stage)
    for name, messages in observed.state["queues"].items():
        if name in alone and alone[name].messages != len(messages):
            observed.faults.append(f"{name} counts {alone[name].messages} messages and has {len(messages)}")
    observed.state["views"] = stage.running.call(views, observed)


async def views(broker: Broker, observed: Observed) -> dict[str, Any]:
    """What an administrator sees, without times."""
    found: dict[str, Any] = {}
    halves = await broker.half_messages.messages(GROUP)
    found["halves"] = [(h.half_id, h.state, h.destination, h.resolver, h.reason, h.attempts) for h in halves]
    counted = broker.half_messages.figures(GROUP)
    for state, number in (("prepared", counted.prepared), ("parked", counted.parked)):
        stored = sum(half.state == state for half in halves)
        if stored != number:
            observed.faults.append(f"memory says that {number} halves are {state}, the store says {stored}")
    found["sets"] = sorted((s.set_id, s.epoch, s.state, s.count, s.byte_count) for s in broker.half_sets())
    found["streams"] = [
        (each.queue, each.stream, each.seq_id, each.seq_no, each.former)
        for name in QUEUES
        for each in await broker.streams(name)
    ]
    found["cursors"] = [(each.name, sorted(each.positions.items())) for each in await broker.cursors()]
    found["windows"] = [
        (name, [seen.key for seen in window_of(queue)._in_order if seen.offset != VOLATILE])
        for name in ("i.a", "i.b")
        if isinstance(queue := broker.nodes.queues.find(name), JudgedQueue)
    ]
    return found


def window_of(queue: JudgedQueue) -> Window:
    """The message-ids that a queue with one rule knows."""
    (rule,) = queue.rules
    assert isinstance(rule, WindowRule)
    return rule.window


def browse(stage: Stage) -> dict[str, list[str]]:
    """All messages of the queues that there are, by a connection of its own."""
    peer = stage.connect("browser")
    there = {queue.name for queue in stage.broker.nodes.queues.queues()}
    links = {
        name: peer.attach_receiver(name, name, credit=CREDIT, settled=True, copy=True)
        for name in QUEUES
        if name in there
    }
    peer.flush()
    stage.rest()
    found = {name: [describe(each.payload) for each in link.deliveries] for name, link in links.items()}
    peer.leave()
    stage.rest()
    return found


def describe(payload: bytes) -> str:
    """A message without what is random or a time."""
    message = Message(payload)
    header = message.header
    told = plain_value(message.body_sections()[0].value)
    if isinstance(told, dict):
        told = {key: value for key, value in told.items() if key != "log"}
    annotations = {key.value: value for key, value in (message.message_annotations or {}).items()}
    kept = {key: plain_value(value) for key, value in annotations.items() if key.startswith(TOLD)}
    durable = "durable" if header.durable else "volatile"
    fresh = "" if header.first_acquirer else ", acquired before"
    named = message.application_properties or {}
    asked = {key: plain_value(named[key]) for key in ("half_id", "half_set", "half_attempt") if key in named}
    more = f" {kept}" if kept else ""
    return f"{told!r} {durable}, count {header.delivery_count or 0}{fresh}{more}{asked or ''}"


def after_restart(stage: Stage, observed: Observed) -> None:
    """What a restart found is what memory said; and after everything is taken nothing is left."""
    before = observed.state["queues"]
    kept = {name: [each for each in messages if " durable" in each] for name, messages in before.items()}
    found = browse(stage)
    for name in kept | found:
        ours, theirs = kept.get(name, []), found.get(name, [])
        if _without_marks(ours) != _without_marks(theirs):
            observed.faults.append(f"{name} had {ours}, and after a restart {theirs}")
    for name, figure in figures(stage).items():
        if figure.impossible:
            observed.faults.append(f"after a restart {name} has {figure}")
        if name in found and figure.messages != len(found[name]):
            observed.faults.append(f"after a restart {name} counts {figure.messages}, not {len(found[name])}")
    again = stage.running.call(views, observed)
    for what, told in observed.state["views"].items():
        if again[what] != told:
            observed.faults.append(f"{what} were {told}, and after a restart {again[what]}")
    _check_events(observed, stage.running.call(_events), found)
    _drain(stage, observed, found)


def _without_marks(messages: list[str]) -> list[str]:
    # What was acquired and not returned is not told apart after a restart (3.2.1).
    return [each.replace(", acquired before", "") for each in messages]


async def _events(broker: Broker) -> list[Any]:
    return await broker.half_messages.events(0, EVERYTHING)


def _check_events(observed: Observed, events: list[Any], found: dict[str, list[str]]) -> None:
    """The journal does not contradict itself or the queues, and decides once."""
    told = replay(events)
    observed.faults += told.problems
    for name, messages in found.items():
        if name.startswith(("e.", "x.")) and len(told.offsets(name)) != len(messages):
            observed.faults.append(f"by its events {name} has {told.offsets(name)}, and it has {messages}")
    decided: dict[Any, int] = {}
    for event in events:
        if event.kind == "decide":
            fields = event.fields
            key = (fields.get("half_id"), fields.get("producer"), fields.get("epoch"))
            decided[key] = decided.get(key, 0) + 1
    observed.state["decided"] = sorted((str(key), count) for key, count in decided.items())


async def _end_halves(broker: Broker) -> None:
    for half in await broker.half_messages.messages(GROUP):
        if half.state in ("prepared", "parked"):
            await broker.half_messages.roll_back(GROUP, half.half_id, "the test")
    for each in broker.half_sets():
        await broker.void_half_set(GROUP, PRODUCER, each.set_id, "the test")


def _drain(stage: Stage, observed: Observed, found: dict[str, list[str]]) -> None:
    stage.running.call(_end_halves)
    peer = stage.connect("drain")
    links = [peer.attach_receiver(name, name, credit=CREDIT, settled=True) for name in found]
    peer.flush()
    stage.rest()
    for link in links:
        got = [describe(each.payload) for each in link.deliveries]
        if _without_marks(got) != _without_marks(found[link.name]):
            observed.faults.append(f"{link.name}: a browser saw {found[link.name]}, a consumer got {got}")
    observed.state["subscriptions"] = _drain_subscriptions(stage)
    stage.barrier()
    for name, figure in figures(stage).items():
        if any(attrs.astuple(figure)):
            observed.faults.append(f"after everything was taken {name} has {figure}")
    peer.leave()
    stage.rest()
    observed.faults += [f"after everything was taken: {fault}" for fault in memory_faults(stage.broker)]


def _drain_subscriptions(stage: Stage) -> dict[str, list[str]]:
    """What each durable subscription holds, taken by a link of the name that it belongs to."""
    found: dict[str, list[str]] = {}
    for queue in list(stage.broker.nodes.queues.queues()):
        if queue.name.startswith(DURABLE):
            container, name = map(unquote, queue.name.split("/")[3:5])
            peer = stage.connect(container.removeprefix("="))
            link = peer.attach_subscriber(name, f"{name}|" if "shared" in name else name, None, CREDIT)
            peer.flush()
            stage.rest()
            found[f"{container} {name}"] = [describe(each.payload) for each in link.deliveries]
            link.settle(link.deliveries)
            peer.flush()
            stage.rest()
            peer.leave()
    return found


def at_store(store: Store, observed: Observed) -> None:
    """Nothing is left of what was taken."""
    for node in store.recover().nodes:
        if node.name != "decoy" and node.kind != SEEN and node.message_count:
            observed.faults.append(f"the store still has {node}")
