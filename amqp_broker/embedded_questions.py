"""What the owner of an embedded broker asks it, and has it do: what `$management` can, without a connection.

    broker.depth("orders")                          3
    broker.peek("orders")[0].body                   "one pair of shoes"
    broker.wait_until(lambda: broker.depth("orders") == 0)
    broker.refused[-1].description                  "queue 'orders' is full ..."
    broker.ask("QUERY", entityType="transaction")   whatever the reference of management lists
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

import attrs

from amqp_broker.authorisation import OWNER, Principal

if TYPE_CHECKING:
    from amqp_broker.broker import Broker
    from amqp_broker.testing.traces import FrameTrace, Refusal

WAIT_S: Final = 10.0
"""How long `wait_until` and `until` wait unless they are told."""
LOOK_S: Final = 0.002
"""Between two looks of them."""
NOT_FOUND: Final = 404


@attrs.frozen
class PeekedMessage:
    """A message that waits in a queue. `body` is as our client gives it: octets, a value, or a list; the maps
    have strings as keys.
    """

    offset: int
    body: Any
    properties: dict[str, Any]
    application_properties: dict[str, Any]
    message_annotations: dict[str, Any]
    durable: bool
    priority: int
    delivery_count: int
    expires_at_ms: int
    """By the clock on the wall; 0: never."""


@attrs.frozen
class _Owner:
    principal: Principal = OWNER
    container_id: str = "embedding"


class Questions:
    """The part of a running broker that is asked. From any thread but that of the broker."""

    _faults: Any

    @property
    def faults(self) -> Any:
        """The script of faults that it was made with (`ScriptedFaults`). Raises RuntimeError where it has
        none: `running_broker(faults=ScriptedFaults())` has one, and so has the fixture of pytest.
        """
        if self._faults is None:
            raise RuntimeError("no faults can be scripted: say running_broker(faults=ScriptedFaults())")
        return self._faults

    def call(self, function: Any, *arguments: Any) -> Any:
        """Run `function(broker, *arguments)` where the broker runs."""
        raise AssertionError("a running broker knows where it runs")

    def ask(self, operation: str, kind: str = "", name: str = "", body: Any = None, **arguments: Any) -> Any:
        """One request to the management: READ, DELETE, PURGE, ... of the entity of type `kind` with this
        name, `body` and `arguments` as in the reference. Returns the body of the answer. Raises Unmanageable
        where the answer is an error: `status` is that of HTTP.
        """
        told = {"operation": operation, "type": kind or None, "name": name or None, **arguments}
        return self.call(_answered, {key: value for key, value in told.items() if value is not None}, body)

    def entities(self, kind: str) -> list[dict[str, Any]]:
        """All entities of a type (`queue`, `connection`, `link`, `topic`, `half`, ...) with their attributes,
        as the reference of management lists them.
        """
        found: list[dict[str, Any]] = []
        while True:
            page = self.ask("QUERY", entityType=kind, offset=len(found))
            names = page["attributeNames"]
            found += [dict(zip(names, row, strict=True)) for row in page["results"]]
            if not page["results"]:
                return found

    def queues(self) -> list[str]:
        """The names of the queues that there are."""
        return [each["name"] for each in self.entities("queue")]

    def depth(self, queue: str) -> int:
        """How many messages a queue has, those that a consumer holds too; 0 where there is no such queue."""
        from amqp_broker.management.errors import Unmanageable

        try:
            found: int = self.ask("READ", "queue", queue)["messages"]
        except Unmanageable as refused:
            if refused.status != NOT_FOUND:
                raise
            return 0
        return found

    def peek(self, queue: str, count: int = 100) -> list[PeekedMessage]:
        """The first `count` messages of a queue that nobody holds; they stay where they are. Bodies are whole
        up to a MiB. Raises Unmanageable where there is no such queue.
        """
        found: list[PeekedMessage] = []
        offset = 0
        while len(found) < count:
            left = count - len(found)
            page = self.ask("BROWSE", "queue", queue, offset=offset, count=left, body_bytes=1 << 20)
            found += [_peeked(shown) for shown in page["messages"]]
            offset = page["next_offset"]
            if offset >= page["end_offset"]:
                break
        return found

    def purge(self, queue: str) -> int:
        """Have the messages gone that nobody holds; how many these were. Raises Unmanageable where there is
        no such queue.
        """
        count, offset, end = 0, 0, 1
        while offset < end:
            page = self.ask("PURGE", "queue", queue, offset=offset)
            count, offset, end = count + page["messages"], page["next_offset"], page["end_offset"]
        return count

    def declare(self, queue: str) -> None:
        """Make a queue, as its policy says, unless it is there. Raises Unmanageable."""
        self.ask("CREATE", "queue", queue)

    def delete(self, queue: str) -> None:
        """Delete a queue with its messages; its links are detached. Raises Unmanageable."""
        self.ask("DELETE", "queue", queue, force=True)

    def clear(self, prefix: str = "") -> None:
        """Delete the queues, topics and subscriptions whose names begin with `prefix`; by default all. Links
        to them are detached.
        """
        from amqp_broker.management.errors import Unmanageable

        kinds: dict[str, dict[str, Any]] = {"subscription": {}, "queue": {"force": True}, "topic": {}}
        for kind, told in kinds.items():
            for entity in self.entities(kind):
                if (entity.get("topic") or entity["name"]).startswith(prefix):
                    try:
                        self.ask("DELETE", kind, entity["name"], **told)
                    except Unmanageable:  # a link that is just ending has it, or it goes with another one
                        continue

    @property
    def trace(self) -> FrameTrace:
        """The frames of all connections so far. Raises RuntimeError where none are recorded:
        `running_broker(faults=ScriptedFaults(FrameTrace()))` does, and so does the fixture of pytest.
        """
        found: FrameTrace | None = getattr(self._faults, "trace", None)
        if found is None:
            raise RuntimeError(
                "no frames are recorded: say running_broker(faults=ScriptedFaults(FrameTrace()))"
            )
        return found

    @property
    def refused(self) -> list[Refusal]:
        """What the broker has refused so far, and why: messages, links, sessions, connections (`trace`)."""
        return self.trace.refusals()

    # Waiting

    def wait_until(self, condition: Callable[[], Any], timeout_s: float = WAIT_S) -> None:
        """Return when `condition()` is true. Raises TimeoutError, which says what the queues hold."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() >= deadline:
                raise self._too_late(timeout_s)
            time.sleep(LOOK_S)

    async def until(self, condition: Callable[[], Any], timeout_s: float = WAIT_S) -> None:
        """`wait_until` for asyncio and trio, whose loop goes on meanwhile."""
        import asyncio

        import trio

        sleep: Callable[[float], Awaitable[Any]]
        sleep = trio.sleep if trio.lowlevel.in_trio_run() else asyncio.sleep
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() >= deadline:
                raise self._too_late(timeout_s)
            await sleep(LOOK_S)

    def _too_late(self, timeout_s: float) -> TimeoutError:
        held = {each["name"]: each["messages"] for each in self.entities("queue")}
        return TimeoutError(f"it did not become true within {timeout_s:g} s; messages in queues: {held}")


async def _answered(broker: Broker, told: dict[str, Any], body: Any) -> Any:
    from amqp_broker.frames import plain_value
    from amqp_broker.management.errors import Unmanageable
    from amqp_broker.management.requests import ManagementRequest

    answer = await broker.managed.management.answer(ManagementRequest(None, None, told, body), _Owner())
    if answer.status >= 400:
        raise Unmanageable(answer.status, answer.description)
    return plain_value(answer.body)


def _peeked(shown: dict[str, Any]) -> PeekedMessage:
    from amqp_broker.client.messages import body_of
    from amqp_broker.frames import Message, plain_value

    body = shown["body"]
    return PeekedMessage(
        offset=shown["offset"],
        body=bytes(body) if shown["body_type"] == "data" else plain_value(body_of(Message(bytes(body)))),
        properties=shown.get("properties", {}),
        application_properties=shown.get("application_properties", {}),
        message_annotations=shown.get("message_annotations", {}),
        durable=shown["durable"],
        priority=shown["priority"],
        delivery_count=shown["delivery_count"],
        expires_at_ms=shown["expires_at_ms"],
    )
