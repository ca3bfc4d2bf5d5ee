"""Faults of sets, epochs and of the traffic as a whole: the second half of events_with_faults.py."""

from __future__ import annotations

from datetime import timedelta

from amqp_broker.pipeline.event_schema import COMMITTED
from tests.pipeline.events_with_faults import Expected, fault
from tests.pipeline.truthful_day import World


def _set(kind: str, world: World, epoch: int, set_id: str) -> tuple[str, str, str]:
    return "transactions", kind, f"group {world.name} producer enrich epoch {epoch} set {set_id}"


def _about(world: World, epoch: int, producer: str = "enrich") -> dict[str, str | int]:
    return {"group": world.name, "producer": producer, "epoch": epoch}


def _visible(world: World, epoch: int, set_id: str) -> None:
    offset = world.put("rich", "publish", **_about(world, epoch), set_id=set_id, message_id=None)
    world.consume("rich", offset)


@fault
def set_torn(world: World) -> Expected:
    """Sealed with three messages, and two became visible."""
    world.find(type="seal", set_id="3-1")[0]["count"] = 3
    return {_set("set-torn", world, 3, "3-1")}


@fault
def set_unsealed(world: World) -> Expected:
    """Visible, and its seal never came."""
    world.events.remove(world.find(type="seal", set_id="3-0")[0])
    return {_set("set-unsealed", world, 3, "3-0")}


@fault
def set_undecided(world: World) -> Expected:
    """Visible, and its epoch was never decided."""
    world.say("seal", **_about(world, 4), set_id="4-0", count=1)
    _visible(world, 4, "4-0")
    return {_set("set-undecided", world, 4, "4-0")}


@fault
def set_void_and_visible(world: World) -> Expected:
    """Given up and visible."""
    world.say("void", **_about(world, 3), set_id="3-0", reason="aborted")
    return {_set("set-void-and-visible", world, 3, "3-0")}


@fault
def set_left(world: World) -> Expected:
    """Its epoch was decided, and nothing became of the set."""
    world.events.remove(world.find(type="void")[0])
    return {_set("set-left", world, 2, "first try")}


@fault
def set_unresolved(world: World) -> Expected:
    """Sealed five hours ago, and nobody decided."""
    world.say("seal", **_about(world, 4), set_id="4-0", count=1)["time"] -= timedelta(hours=5)
    return {_set("set-unresolved", world, 4, "4-0")}


@fault
def epoch_twice(world: World) -> Expected:
    """An epoch was decided twice."""
    world.say("decide", **_about(world, 3), outcome=COMMITTED, resolver="producer")
    return {("transactions", "epoch-twice", f"group {world.name} producer enrich epoch 3")}


@fault
def epoch_order(world: World) -> Expected:
    """An epoch below the last one was decided."""
    world.say("decide", **_about(world, 0), outcome=COMMITTED, resolver="producer")
    return {("transactions", "epoch-order", f"group {world.name} producer enrich epoch 0")}


@fault
def clock_went_back(world: World) -> Expected:
    """A message ended before it came, by the clock."""
    world.find(type="settle", address=world.at("plain"), offset=3)[0]["time"] -= timedelta(seconds=3)
    return {("traffic", "clock-backwards", f"{world.at('plain')} offset 3")}


@fault
def stalled(world: World) -> Expected:
    """A message waited for two hours, and nothing went."""
    put = world.find(type="put", address=world.at("orders"), offset=0)[0]
    put["time"] -= timedelta(hours=2)
    return {("traffic", "stalled", f"{world.at('orders')} since {put['time']:%Y-%m-%d %H:%M}")}
