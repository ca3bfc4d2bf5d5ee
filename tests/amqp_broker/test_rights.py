"""A user with only X can do nothing but X: every operation, on the wire and by `$management`, by every user.

Each operation says which rights it needs. A user who has just these does it, so it works; one who has all but
one of them does not, and one with a single right does it exactly if it needs no other one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary

import pytest

from amqp_broker.authorisation import (
    ACTIONS,
    BROWSE,
    CONNECT,
    CREATE,
    DELETE,
    HALF_CHECK,
    HALF_PUT,
    HALF_RESOLVE,
    MANAGE_READ,
    MANAGE_WRITE,
    PURGE,
    RECEIVE,
    RELOAD,
    SEND,
    TRANSACT,
)
from amqp_broker.client import (
    BlockingConnection,
    BlockingReceiver,
    BlockingSender,
    LinkRefused,
    MessageRefused,
    connect,
    message,
)
from amqp_broker.client.core_sender import SenderCore
from amqp_broker.client.errors import ConnectionGone
from amqp_broker.configuration import AccessRule, ListenerConfig, QueuePolicy, UserConfig
from amqp_broker.embedding import RunningBroker, memory_config, running_broker
from amqp_broker.frames import Coordinator, Source, plain_value
from amqp_broker.verifiers import SCRAM_SHA_256, make_verifier

Operation = Callable[[BlockingConnection], None]
"""Raises Denied, LinkRefused, MessageRefused or ConnectionGone where it is refused."""

EVERYWHERE = ("**", "$management", "$events", "$retained")
FRESH = count()
VERIFIER = str(make_verifier(SCRAM_SHA_256, "word", 4_096, bytes(16)))


class Denied(Exception):
    """The status 403 of `$management`."""


# Over the wire


def sends(address: str) -> Operation:
    """A sender; `fresh` in its name is new each time."""
    return lambda client: client.open_sender(named(address)).close()


def receives(address: str, **source: Any) -> Operation:
    """A receiver."""

    def receive(client: BlockingConnection) -> None:
        name = named(address)
        client.open_receiver(name, credit=1, source=Source(address=name, **source)).close()

    return receive


def named(address: str) -> str:
    """The address, with something new in it."""
    return address.replace("fresh", f"fresh{next(FRESH)}")


def relays(client: BlockingConnection) -> None:
    """A message by the anonymous terminus."""
    link = client.open_sender(None)
    try:
        link.send(message(b"x", to="q"))
    finally:
        link.close()


def transacts(client: BlockingConnection) -> None:
    """A link to the coordinator."""
    session = client.open_session()
    core = session.core
    link = SenderCore(core.connection, core, None)
    pump = session._pump
    pump.wait(
        pump.call(
            core._attach, link, lambda name: core.session.attach_sender(name, Source(), Coordinator())
        ),
        30.0,
    )


def asks_of_a_discharge(client: BlockingConnection) -> None:
    """A question to `$transactions`."""
    link = client.open_sender("$transactions")
    try:
        link.send(message({"txn-id": b"x"}, subject="outcome", reply_to=answers(client), correlation_id="1"))
    except MessageRefused as refused:
        if "may not" in str(refused):
            raise  # any other answer is one to who may ask
    finally:
        link.close()


WIRE: dict[str, tuple[Operation, frozenset[str]]] = {
    "send": (sends("q"), frozenset({SEND})),
    "send to a new queue": (sends("fresh"), frozenset({SEND, CREATE})),
    "send by the anonymous terminus": (relays, frozenset({SEND})),
    "send to a topic": (sends("news"), frozenset({SEND})),
    "receive": (receives("q"), frozenset({RECEIVE})),
    "receive from a new queue": (receives("fresh"), frozenset({RECEIVE, CREATE})),
    "subscribe": (receives("news"), frozenset({RECEIVE})),
    "subscribe to a pattern": (receives("news.#", capabilities=("topic",)), frozenset({RECEIVE})),
    "subscribe for good": (receives("news", durable=1, expiry_policy="never"), frozenset({RECEIVE, CREATE})),
    "browse": (receives("q", distribution_mode="copy"), frozenset({BROWSE})),
    "have a queue made": (lambda client: client.open_receiver(None).close(), frozenset({CREATE})),
    "transact": (transacts, frozenset({TRANSACT})),
    "ask how a discharge ended": (asks_of_a_discharge, frozenset({TRANSACT})),
    "put half messages": (sends("$half/group/q"), frozenset({HALF_PUT, SEND})),
    "resolve half messages": (sends("$half-resolve/group"), frozenset({HALF_RESOLVE})),
    "be asked": (receives("$half-check/group"), frozenset({HALF_CHECK})),
    "be asked, and answer": (
        receives("$half-check/group/by-outcome"), frozenset({HALF_CHECK, HALF_RESOLVE})),
    "look at parked ones": (
        receives("$half-parked/group", distribution_mode="copy"), frozenset({MANAGE_READ})),
    "stage a set": (sends("$half-set/group/p/1/s/q"), frozenset({HALF_PUT, SEND})),
    "read the journal": (receives("$events"), frozenset({MANAGE_READ})),
}  # fmt: skip


# By $management. The identity is of nothing, which only who may do it is told (404).

_OF_MESSAGES = {
    "PURGE": PURGE, "MOVE": MANAGE_WRITE, "COPY": MANAGE_WRITE, "BROWSE": BROWSE, "READ-MESSAGE": BROWSE,
    "DELETE-MESSAGE": PURGE,
}  # fmt: skip
MANAGED: dict[str, dict[str, str]] = {
    "broker": {"RELOAD": RELOAD},
    "queue": {
        "CREATE": MANAGE_WRITE, "UPDATE": MANAGE_WRITE, "RESET": MANAGE_WRITE, "DELETE": DELETE,
        "REDRIVE": MANAGE_WRITE, **_OF_MESSAGES,
    },
    "connection": {"DELETE": MANAGE_WRITE},
    "session": {},
    "link": {},
    "transaction": {"ROLLBACK": MANAGE_WRITE, "COMMIT": MANAGE_WRITE},
    "configuration": {"UPDATE": MANAGE_WRITE},
    "stream": {"RESET": MANAGE_WRITE},
    "cursor": {"DELETE": MANAGE_WRITE},
    "half": {"COMMIT": MANAGE_WRITE, "ROLLBACK": MANAGE_WRITE, "RESUME": MANAGE_WRITE},
    "set": {"VOID": MANAGE_WRITE},
    "topic": {"CREATE": MANAGE_WRITE, "DELETE": DELETE},
    "subscription": {"UPDATE": MANAGE_WRITE, "RESET": MANAGE_WRITE, "DELETE": DELETE, **_OF_MESSAGES},
    "binding": {"CREATE": MANAGE_WRITE, "DELETE": MANAGE_WRITE},
    "backup": {"CREATE": MANAGE_WRITE, "DELETE": MANAGE_WRITE},
}  # fmt: skip
OF_THE_NODE = ("QUERY", "GET-TYPES", "GET-ATTRIBUTES", "GET-OPERATIONS", "GET-MGMT-NODES")
ARGUMENTS = {"to": "q", "offset": 1, "value": "info"}


FEW = {"QUERY": {"count": 1, "offset": 0}}
"""Everybody may or may not ask: nobody reads all entities that there are, thousands of values each time."""


def answers(client: BlockingConnection) -> str:
    """The queue in which this client's replies come."""
    return f"answers.{client._pump.core.settings.user}"


Links = tuple[BlockingSender, BlockingReceiver]
MANAGING: WeakKeyDictionary[BlockingConnection, Links] = WeakKeyDictionary()
"""The links of each client that may have them, to ask by and to get answers. Others are refused each time."""


def managing_links(client: BlockingConnection) -> Links:
    """Opened for the first question. Raises LinkRefused."""
    if client not in MANAGING:
        requests = client.open_sender("$management")
        MANAGING[client] = requests, client.open_receiver(answers(client), credit=100)
    return MANAGING[client]


def ask(client: BlockingConnection, operation: str, kind: str, identity: str = "nothing") -> Any:
    """The body of the answer, whatever its status. Raises Denied for 403."""
    requests, replies = managing_links(client)
    told = {"operation": operation, "type": kind, "name": identity, "identity": identity, **ARGUMENTS}
    if kind == "":
        told = {"operation": operation, **FEW.get(operation, {})}
    requests.send(message({}, application_properties=told, reply_to=answers(client), message_id="1"))
    reply = replies.receive(30.0)
    replies.accept(reply)
    properties = plain_value(reply.message.application_properties)
    if properties["statusCode"] == 403:
        raise Denied(properties["statusDescription"])
    return plain_value(reply.body)


def managing() -> dict[str, tuple[Operation, frozenset[str]]]:
    """Each operation of each type, and those of the node."""
    every = [("", operation, MANAGE_READ) for operation in OF_THE_NODE]
    for kind, operations in MANAGED.items():
        every += [(kind, "READ", MANAGE_READ), *((kind, *each) for each in operations.items())]

    def asking(operation: str, kind: str) -> Operation:
        return lambda client: ask(client, operation, kind) and None

    return {f"{op} {kind}".strip(): (asking(op, kind), frozenset({right})) for kind, op, right in every}


OPERATIONS = WIRE | managing()


# Users


def rules_of(name: str, rights: frozenset[str]) -> Iterator[AccessRule]:
    """These rights everywhere, and what it takes to be answered."""
    yield AccessRule(users=(name,), actions=(CONNECT, *sorted(rights)), nodes=EVERYWHERE)
    yield AccessRule(users=(name,), actions=(SEND, RECEIVE), nodes=(f"answers.{name}",))


def users() -> dict[str, frozenset[str]]:
    """Every user, by name: with one right, with all but one, with just what an operation needs."""
    found = {"nothing": frozenset[str](), "all": frozenset(ACTIONS)}
    for action in sorted({*ACTIONS} - {CONNECT}):
        found[f"only.{action}"] = frozenset({action})
        found[f"without.{action}"] = frozenset(ACTIONS) - {action}
    for _, needed in OPERATIONS.values():
        if len(needed) > 1:
            found["just." + ".".join(sorted(needed))] = needed
    return found


USERS = users()


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    """With all users, and what the operations need to be there."""
    config = memory_config(
        users=tuple(UserConfig(name=name, scram_sha_256=VERIFIER) for name in USERS),
        access_rules=tuple(rule for name, rights in USERS.items() for rule in rules_of(name, rights)),
        listeners=(ListenerConfig(url="amqp://127.0.0.1:0", plain_without_tls=True),),
        queue_policies=(
            QueuePolicy(pattern="q", create="at-start", events=True),
            QueuePolicy(pattern="news", kind="topic"),
            *(QueuePolicy(pattern=f"answers.{name}", create="at-start") for name in USERS),
        ),
    )
    with running_broker(config) as running, logged_in(running, "all") as client:
        client.open_receiver("$half-check/group")
        yield running


@contextmanager
def logged_in(broker: RunningBroker, name: str) -> Iterator[BlockingConnection]:
    """A connection of this user."""
    with connect(broker.url, container_id=name, user=name, password="word") as client:
        yield client


def succeeds(client: BlockingConnection, operation: Operation) -> bool:
    """Whether it was not refused."""
    try:
        operation(client)
    except (Denied, LinkRefused, MessageRefused):
        return False
    return True


@pytest.mark.parametrize("name", USERS)
def test_a_user_can_do_what_the_rights_allow_and_nothing_else(broker: RunningBroker, name: str) -> None:
    """Every operation, by this user."""
    rights = USERS[name]
    with logged_in(broker, name) as client:
        done = {what for what, (operation, _) in OPERATIONS.items() if succeeds(client, operation)}
    assert done == {what for what, (_, needed) in OPERATIONS.items() if needed <= rights}


def test_who_may_not_connect_can_do_nothing(broker: RunningBroker) -> None:
    """Whatever else the user may do: the connection is closed before anything is done."""
    rules = [AccessRule(users=("ada",), actions=tuple(set(ACTIONS) - {CONNECT}), nodes=EVERYWHERE)]
    config = memory_config(
        users=(UserConfig(name="ada", scram_sha_256=VERIFIER),), access_rules=tuple(rules),
        queue_policies=(QueuePolicy(pattern="q", create="at-start"),),
    )  # fmt: skip
    with running_broker(config) as other, pytest.raises(ConnectionGone, match="may not connect"):
        with connect(other.url, container_id="c", user="ada", password="word") as client:
            with suppress(LinkRefused):
                client.open_sender("q").send(b"x")


def test_every_operation_of_the_management_is_among_them(broker: RunningBroker) -> None:
    """What is new has to say here which right it needs."""
    with logged_in(broker, "all") as client:
        told = ask(client, "GET-OPERATIONS", "")
    assert {kind: {*operations} - {"READ"} for kind, operations in told.items()} == {
        kind: {*operations} for kind, operations in MANAGED.items()
    }


def test_every_right_is_needed_for_something() -> None:
    """But `sequence`, which takes a stream of somebody else (`test_sequences_links`)."""
    used = {right for _, needed in OPERATIONS.values() for right in needed}
    assert used == {*ACTIONS} - {CONNECT, "sequence"}
