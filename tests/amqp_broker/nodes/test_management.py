"""The node `$management`, asked as any AMQP client would ask it (AMQP Management, working draft 11)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio

from amqp_broker.authorisation import ACTIONS
from amqp_broker.configuration import AccessRule, BrokerLimits, QueuePolicy
from amqp_broker.frames import Accepted, Data, Message, Rejected, encode_message, plain_value
from amqp_broker.looking.limits import FILTER_CHARACTERS_MAX
from amqp_broker.management.entity_types import EntityType
from amqp_broker.management.node import ATTRIBUTES_ASKED_MAX
from amqp_broker.management.ordering import CONTAINS_MAX, READ_AT_ONCE, ordered
from amqp_broker.testing import memory_config
from tests.links.pair import Message as Sendable
from tests.support.by_hand import Control, Served, at_hand, declared, posted, within
from tests.support.managing import SELF, Asking, asking, asks

TYPES = (
    "broker", "queue", "connection", "session", "link", "transaction", "configuration", "stream", "cursor",
    "half", "set", "topic", "subscription", "binding", "backup",
)  # fmt: skip


@asks()
async def test_what_there_is_to_ask_for(one: Asking) -> None:
    """Types, with what each has and can; asked for one of them, it alone is told."""
    types = await one.body("GET-TYPES")
    assert types == {name: [] for name in TYPES}
    attributes = await one.body("GET-ATTRIBUTES")
    assert list(attributes) == list(types)
    assert all(names[:3] == ["identity", "name", "type"] for names in attributes.values())
    operations = await one.body("GET-OPERATIONS")
    assert operations["transaction"] == {"READ": [], "ROLLBACK": ["reason"], "COMMIT": ["reason"]}
    assert operations["queue"]["CREATE"] == [] and operations["queue"]["PURGE"] == [
        "offset", "count", "selector"
    ]  # fmt: skip
    assert await one.body("GET-OPERATIONS", entityType="connection") == {
        "connection": {"READ": [], "DELETE": ["reason"]}
    }
    assert await one.body("GET-MGMT-NODES") == []


@asks()
async def test_every_entity_has_the_attributes_that_its_type_says(one: Asking) -> None:
    """In READ and in QUERY alike."""
    await one.at.post("q", b"1", b"2")
    for kind, names in (await one.body("GET-ATTRIBUTES")).items():
        found = await one.body("QUERY", entityType=kind)
        assert found["attributeNames"] == names
        for row in found["results"]:
            assert len(row) == len(names)
            read = await one.body("READ", kind, identity=row[0])
            assert list(read) == names and read["type"] == kind
            assert read["identity"] == read["name"] == row[0]


@asks(memory_config(queue_policies=(QueuePolicy(pattern="small", max_messages=2),)))
async def test_a_queue_says_what_is_in_it(one: Asking) -> None:
    """Messages, those that nobody holds, and who is attached."""
    at = one.at
    await at.post("small", b"1", b"22")
    taker = await at.receiver("small", 1)
    at.take()
    read = await one.body("READ", "queue", name="small")
    told = {name: read[name] for name in ("kind", "messages", "available", "consumers", "senders", "full")}
    assert told == {
        "kind": "queue", "messages": 2, "available": 1, "consumers": 1, "senders": 0, "full": True,
    }  # fmt: skip
    assert (read["max_messages"], read["max_bytes"], read["temporary"]) == (2, 0, False)
    taker.detach()
    await at.settle()
    assert (await one.body("READ", "queue", name="small"))["available"] == 2


@asks()
async def test_a_query_gives_pages_in_one_order(one: Asking) -> None:
    """`offset` and `count` cut the same list; the attributes are those that were asked for, null where a type
    has none of this name.
    """
    for name in ("c", "a", "b"):
        await one.at.post(name, b"x")
    names = {"attributeNames": ["name", "messages", "color"]}
    found = await one.body("QUERY", body=names, entityType="queue")
    assert found == {
        "attributeNames": ["name", "messages", "color"],
        "results": [["a", 1, None], ["b", 1, None], ["c", 1, None], ["replies", 0, None]],
    }
    status, _, page, more = await one.ask("QUERY", body=names, entityType="queue", offset=1, count=2)
    assert (status, page["results"], more) == (200, found["results"][1:3], {"count": 2})
    for offset, count in ((9, 7), (4, 7), (0, 0)):
        _, _, page, more = await one.ask("QUERY", body=names, entityType="queue", offset=offset, count=count)
        assert (page["results"], more) == ([], {"count": 0})
    same = {"attributeNames": ["name", "name"] * 999}
    twice = await one.body("QUERY", body=same, entityType="queue", count=1)
    assert twice == {"attributeNames": ["name"], "results": [["a"]]}
    many = [f"color-{at}" for at in range(ATTRIBUTES_ASKED_MAX + 1)]
    status, why = await one.refused("QUERY", body={"attributeNames": many}, entityType="queue")
    assert (status, why) == (400, f"attributeNames: expected at most {ATTRIBUTES_ASKED_MAX}, got {len(many)}")
    everything = await one.body("QUERY", body={"attributeNames": ["type"]})
    assert {kind for (kind,) in everything["results"]} == {"broker", "queue", "configuration"}


@asks()
async def test_a_query_has_an_order_and_words(one: Asking) -> None:
    """One page of what was asked for, and how many there are: by an attribute, rising or falling, the same in
    the order of names, what has none last; only names with all the words.
    """
    for name, count in (("shop.a", 1), ("shop.c", 3), ("Shop.b", 3), ("shop.till", 2)):
        for _ in range(count):
            await one.at.post(name, b"x")
    await one.at.post("shop.empty", b"x")
    await one.body("PURGE", "queue", identity="shop.empty")

    async def names(words: str = "shop", **told: Any) -> tuple[list[str], int]:
        names = {"attributeNames": ["name"]}
        found = await one.body("QUERY", body=names, entityType="queue", contains=words, **told)
        return [name.removeprefix("shop.") for (name,) in found["results"]], found["found"]

    assert await names(orderBy="-messages") == (["Shop.b", "c", "till", "a", "empty"], 5)
    assert await names(orderBy="messages") == (["empty", "a", "till", "Shop.b", "c"], 5)
    assert await names(orderBy="-messages", offset=1, count=2) == (["c", "till"], 5)
    assert await names("SHOP c") == (["c"], 1)
    assert await names(orderBy="-name") == (["till", "empty", "c", "Shop.b", "a"], 5)
    assert (await names(orderBy="oldest_age_ms"))[0][-1] == "empty"
    assert (await names(orderBy="-oldest_age_ms"))[0][-1] == "empty"
    for wrong, why in (
        ({"orderBy": "color"}, "orderBy: expected an attribute of a queue, got 'color'"),
        ({"contains": " ".join("abcdefghijk")}, "contains: expected at most 10 words, got 11"),
        ({"contains": "x" * 201}, "contains: expected at most 200 characters, got 201"),
        ({"orderBy": 7}, "orderBy: expected a string, got 7"),
    ):
        assert await one.refused("QUERY", entityType="queue", **wrong) == (400, why)
    assert FILTER_CHARACTERS_MAX == CONTAINS_MAX
    nothing = await one.refused("QUERY", entityType="transaction", orderBy="color")  # there are none
    assert nothing == (400, "orderBy: expected an attribute of a transaction, got 'color'")


@asks()
async def test_a_query_orders_names_as_people_count(one: Asking) -> None:
    """As the console does: 2 stands before 10."""
    for number in (10, 2, 1, 11):
        await one.at.post(f"till-{number}", b"x")
    asked = {"attributeNames": ["name"]}
    told: dict[str, Any] = {"entityType": "queue", "contains": "till"}
    found = await one.body("QUERY", body=asked, orderBy="name", count=3, **told)
    assert (found["results"], found["found"]) == ([["till-1"], ["till-2"], ["till-10"]], 4)
    found = await one.body("QUERY", body=asked, orderBy="-name", offset=2, **told)
    assert found["results"] == [["till-2"], ["till-1"]]


def test_an_order_leaves_turns_to_others() -> None:
    """However many there are: after each group of them everybody else has one."""
    numbers = EntityType[int]("number", "", list, str, {})
    found = [(numbers, number) for number in reversed(range(3 * READ_AT_ONCE))]
    turns: list[int] = []

    async def other() -> None:
        while True:
            turns.append(1)
            await trio.lowlevel.checkpoint()

    async def both() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(other)
            assert [number for _, number in await ordered(found, "name", 3)] == [0, 1, 2]
            nursery.cancel_scope.cancel()

    trio.run(both)
    assert len(turns) >= 2


@asks()
async def test_a_queue_is_made_once(one: Asking) -> None:
    """201 and what it is; again 200; and a link finds it."""
    status, description, made, _ = await one.ask("CREATE", "queue", name="fresh.one")
    assert (status, description, made["identity"], made["messages"]) == (201, "Created", "fresh.one", 0)
    again = await one.body("CREATE", "queue", name="fresh.one")
    assert again == made
    assert (await one.at.post("fresh.one", b"x")).message_count == 1


@asks(memory_config(queue_policies=(QueuePolicy(pattern="**", create="strict"), QueuePolicy(
    pattern="replies", create="on-first-use"))))  # fmt: skip
async def test_a_queue_that_no_link_makes_is_made_by_hand(one: Asking) -> None:
    """That is what a strict policy is for."""
    assert (await one.ask("CREATE", "queue", name="by-hand"))[0] == 201
    assert (await one.at.post("by-hand", b"x")).message_count == 1


@asks()
async def test_requests_behind_a_creation_are_answered_behind_it(one: Asking) -> None:
    """Sent in one read: the second finds what the first made."""
    one.send({"operation": "CREATE", "type": "queue", "name": "q"})
    one.send({"operation": "READ", "type": "queue", "name": "q"})
    one.send({"operation": "CREATE", "type": "queue", "name": "q"})
    await one.at.settle()
    told = [plain_value(Message(each.payload).application_properties) for each in one.at.take()]
    assert [each["statusCode"] for each in told] == [201, 200, 200]


@pytest.mark.parametrize(
    ("told", "status", "words"),
    [
        ({"operation": "JUMP"}, 501, "expected one of QUERY"),
        ({"operation": "READ", "type": "planet", "name": "x"}, 400, "of the types broker, queue"),
        ({"operation": "READ", "type": "queue"}, 400, "application property name"),
        ({"operation": "READ", "type": "queue", "name": "gone"}, 404, "'gone'"),
        ({"operation": "READ", "type": "queue", "name": 7}, 400, "expected a string, got 7"),
        ({"operation": "PURGE", "type": "transaction", "name": "x"}, 501, "READ, ROLLBACK, COMMIT"),
        ({"operation": "ROLLBACK", "type": "transaction", "name": "00"}, 404, "'00'"),
        ({"operation": "DELETE", "type": "connection", "name": "0"}, 404, "'0'"),
        ({"operation": "CREATE", "type": "link", "name": "x"}, 501, "expected one of READ for a link"),
        ({"operation": "CREATE", "type": "queue"}, 400, "application property name"),
        ({"operation": "CREATE", "type": "queue", "name": "a b*"}, 400, "address"),
        ({"operation": "CREATE", "type": "queue", "name": "$mine"}, 403, "no name for a queue"),
        ({"operation": "CREATE", "type": "queue", "name": "temporary.x"}, 403, "no name for a queue"),
        ({"operation": "QUERY", "entityType": "planet"}, 400, "planet"),
        ({"operation": "QUERY", "offset": -1}, 400, "offset: expected a number from 0 on"),
        ({"operation": "QUERY", "count": "many"}, 400, "count: expected a number"),
        ({"type": SELF}, 400, "application property operation"),
    ],
)
def test_what_cannot_be_done_is_answered_with_why(told: dict[str, Any], status: int, words: str) -> None:
    """A reply with a status, as HTTP has it; nothing was done."""

    @asks()
    async def run(one: Asking) -> None:
        operation = told.get("operation")
        rest = {name: value for name, value in told.items() if name not in ("operation", "type")}
        found, why = await one.refused(operation, told.get("type", SELF), **rest)  # type: ignore[arg-type]
        assert found == status and words in why

    run()


@asks()
async def test_bodies_that_mean_nothing(one: Asking) -> None:
    """What a request is told in its body is a map with strings as keys, and attributes that can be set."""
    assert await one.refused("QUERY", body=["x"]) == (
        400, "body: expected a map with strings as keys, got ['x']",
    )  # fmt: skip
    assert (await one.refused("QUERY", body={"attributeNames": "name"}))[0] == 400
    assert (await one.refused("QUERY", body={7: 1}))[0] == 400
    status, why = await one.refused("CREATE", "queue", body={"max_messages": 7}, name="q")
    assert status == 400 and "its policy says them, got max_messages" in why


@at_hand()
async def test_a_request_that_nobody_would_hear_the_answer_of(at: Served) -> None:
    """No reply-to, or none that is there: rejected, and nothing is done."""
    one = await asking(at)
    for reply_to, condition in ((None, "amqp:invalid-field"), ("nowhere", "amqp:not-found")):
        one.send({"operation": "CREATE", "type": "queue", "name": "q"}, reply_to=reply_to)
        await at.settle()
        outcome = at.outcomes.pop()
        assert isinstance(outcome, Rejected) and outcome.error is not None
        assert outcome.error.condition == condition
    one.requests.send([Sendable(encode_message(body=[Data(b"x")]))])
    one.requests.send([Sendable(b"\x00\x53\x74\x41")])  # no map
    await at.settle()
    assert [type(outcome) for outcome in at.outcomes[-2:]] == [Rejected, Rejected]
    assert [queue.name for queue in at.broker.nodes.queues.queues()] == ["replies"]


@at_hand()
async def test_a_transaction_is_rolled_back_by_hand(at: Served) -> None:
    """It is found by its txn-id; its controller is told the reason when it names it next."""
    one = await asking(at)
    _, txn_id = await declared(at, "amqp:rejected:list")
    await at.post("q", b"1", b"2")
    receiver = await at.receiver("q", 2)
    first, second = at.take()
    receiver.dispose([first], within(txn_id, Accepted()), False)
    await at.settle()
    read = await one.body("READ", "transaction", identity=txn_id.hex())
    assert (read["retired"], read["container_id"]) == (1, "client")
    assert await one.body("ROLLBACK", "transaction", identity=txn_id.hex(), reason="too old") == {}
    assert (await one.body("QUERY", entityType="transaction"))["results"] == []
    assert at.queue().message_count == 2
    receiver.dispose([second], within(txn_id, Accepted()), False)
    await at.settle()
    (error,) = [gone.error for gone in at.detached]
    assert error is not None and error.condition == "amqp:transaction:rollback"
    assert error.description is not None and "too old (anonymous)" in error.description


@at_hand()
async def test_a_transaction_is_committed_by_hand(at: Served) -> None:
    """What is in it is done, and what it has acquired besides is free; its controller finds no such
    transaction any more.
    """
    one = await asking(at.another("boss"))
    control = Control(at)
    txn_id = await control.declare()
    await at.post("q", b"1", b"2")
    receiver = await at.receiver("q", 1)
    receiver.dispose(at.take(), within(txn_id, Accepted()), False)
    sender = await at.sender("other")
    await posted(at, sender, txn_id, b"3")
    assert await one.body("COMMIT", "transaction", identity=txn_id.hex()) == {}
    assert at.queue().message_count == 1 and await at.left("other") == [b"3"]
    assert (await one.refused("COMMIT", "transaction", identity=txn_id.hex()))[0] == 404
    again = await control.discharge(txn_id)
    assert again.error.condition == "amqp:transaction:unknown-id"
    assert await at.left("q") == [b"2"]


@at_hand()
async def test_what_cannot_commit_is_not_committed_by_hand(at: Served) -> None:
    """Its queue is gone: it can only roll back, as when its controller had asked."""
    one = await asking(at.another("boss"))
    control = Control(at)
    txn_id = await control.declare()
    for name in ("q", "other"):
        await posted(at, await at.sender(name, name), txn_id, b"1")
    assert (await one.ask("DELETE", "queue", name="q", force=True))[0] == 204
    status, why = await one.refused("COMMIT", "transaction", identity=txn_id.hex())
    assert status == 409 and "only be rolled back" in why
    assert await at.left("other") == []
    refused = await control.discharge(txn_id)
    assert refused.error.condition == "amqp:transaction:rollback"


RULES = (
    AccessRule(users=("*",), actions=("connect", "create", "send", "receive", "transact"), nodes=("**",)),
)


@asks(memory_config(access_rules=RULES))
async def test_without_a_right_nothing_is_told_and_nothing_done(one: Asking) -> None:
    """Each operation needs `manage-read` or `manage-write`."""
    for operation in ("QUERY", "GET-TYPES", "GET-ATTRIBUTES", "GET-OPERATIONS", "GET-MGMT-NODES"):
        assert await one.refused(operation) == (403, "'anonymous' may not manage-read")
    assert await one.refused("READ", "queue", name="replies") == (403, "'anonymous' may not manage-read")
    assert await one.refused("CREATE", "queue", name="q") == (403, "'anonymous' may not manage-write at 'q'")
    for operation, kind in (("ROLLBACK", "transaction"), ("DELETE", "connection")):
        status, why = await one.refused(operation, kind, identity="1")
        assert (status, why) == (403, "'anonymous' may not manage-write at '$management'")


NOT_MANAGE_WRITE = {
    ("queue", "PURGE"): "purge", ("subscription", "PURGE"): "purge",
    ("queue", "DELETE-MESSAGE"): "purge", ("subscription", "DELETE-MESSAGE"): "purge",
    ("queue", "BROWSE"): "browse", ("subscription", "BROWSE"): "browse",
    ("queue", "READ-MESSAGE"): "browse", ("subscription", "READ-MESSAGE"): "browse",
    ("queue", "DELETE"): "delete", ("subscription", "DELETE"): "delete",
    ("topic", "DELETE"): "delete", ("broker", "RELOAD"): "reload",
}  # fmt: skip
"""The right that an operation needs, where that is another one; what only looks needs `manage-read`."""


@pytest.mark.parametrize("right", ACTIONS)
def test_each_operation_of_each_type_needs_its_right(right: str) -> None:
    """With one right beside those that a client needs, exactly what it allows is not forbidden."""
    granted = AccessRule(users=("*",), actions=(right,), nodes=("**", "$management"))

    @asks(memory_config(access_rules=(*RULES, granted)))
    async def run(one: Asking) -> None:
        for each in one.at.broker.managed.management.types:
            for operation in each.operations():
                needed = NOT_MANAGE_WRITE.get((each.name, operation), "manage-write")
                needed = "manage-read" if operation == "READ" else needed
                told = {"to": "q", "offset": 0} if operation != "CREATE" else {}
                status, why, _, _ = await one.ask(operation, each.name, name="nothing", **told)
                assert (status == 403) == (needed != right), f"{operation} of a {each.name}: {status} {why}"
                if status == 403:
                    assert why.startswith(f"'anonymous' may not {needed}")

    run()


@asks(memory_config(access_rules=(*RULES, AccessRule(
    users=("*",), actions=("manage-write",), nodes=("mine.*", "replies")))))  # fmt: skip
async def test_a_move_needs_the_right_at_both_ends(one: Asking) -> None:
    """Whoever may change a queue puts its messages in no queue of others."""
    await one.at.post("yours", b"1")
    await one.at.post("mine.q", b"2")
    for operation in ("MOVE", "COPY"):
        for name, to in (("mine.q", "yours"), ("yours", "mine.q")):
            status, why = await one.refused(operation, "queue", name=name, to=to)
            assert status == 403 and "manage-write at 'yours'" in why
    assert (await one.body("MOVE", "queue", name="mine.q", to="replies"))["messages"] == 1


@asks(memory_config(access_rules=(*RULES, AccessRule(
    users=("*",), actions=("manage-write",), nodes=("mine.*",)))))  # fmt: skip
async def test_a_right_at_some_addresses_is_for_queues_there(one: Asking) -> None:
    """Whoever may make queues below `mine` closes nobody's connection."""
    assert (await one.ask("CREATE", "queue", name="mine.q"))[0] == 201
    assert (await one.refused("CREATE", "queue", name="yours.q"))[0] == 403
    assert (await one.refused("DELETE", "connection", identity="1"))[0] == 403


@asks(memory_config(limits=BrokerLimits(max_nodes=1)))
async def test_no_room_for_a_queue_is_a_status(one: Asking) -> None:
    """The bound of nodes holds here, too, and has its name."""
    status, why = await one.refused("CREATE", "queue", name="q")
    assert status == 503 and "max_nodes" in why


def test_a_query_reads_what_it_is_asked_for() -> None:
    """And nothing else: of many thousand entities that is most of the time."""
    read: list[str] = []

    def attribute(name: str) -> Callable[[str], str]:
        def value(thing: str) -> str:
            read.append(name)
            return thing

        return value

    attributes = {name: attribute(name) for name in ("big", "small")}
    kind = EntityType("thing", "one", lambda: ["a"], str, attributes)
    assert kind.said("a", ["small", "color"]) == {"identity": "a", "name": "a", "type": "thing", "small": "a"}
    assert read == ["small"]
