"""The asynchronous producer of half messages: put, local transaction, resolution, check-back."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from amqp_broker.client.async_client import Client, open_client
from amqp_broker.client.errors import ConnectionGone, Gone, LinkRefused, WrongUse
from amqp_broker.client.half_errors import HalfConflict, HalfIdConflict, HalfUnknown
from amqp_broker.client.halves import Half, Resolution
from amqp_broker.embedding import RunningBroker
from amqp_broker.testing import ScriptedFaults
from tests.client.shops import GROUP, PATIENT, QUEUE, WAIT_S, Table, halves, shop_broker
from tests.support.both_loops import on_both_loops

COMMIT, ROLLBACK, UNKNOWN = Resolution.COMMIT, Resolution.ROLLBACK, Resolution.UNKNOWN


def with_shop(test: Callable[..., Awaitable[None]]) -> Any:
    """The test with a client and its broker, on both loops."""
    signature = inspect.signature(test)

    @functools.wraps(test)
    async def in_shop(**fixtures: Any) -> None:
        with shop_broker() as broker, anyio.fail_after(WAIT_S):
            async with open_client(broker.url) as client:
                await test(client, broker, **fixtures)

    parameters = list(signature.parameters.values())[2:]
    in_shop.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return on_both_loops(in_shop)


async def shipped(client: Client) -> list[Any]:
    """What the warehouse gets now."""
    receiver = await client.open_receiver(QUEUE)
    bodies = []
    while (received := await receiver.receive_now()) is not None:
        bodies.append(received.body)
        receiver.accept(received)
    receiver.close()
    return bodies


async def next_of(table: Table) -> Half:
    """The next half message that is asked about."""
    return await anyio.to_thread.run_sync(table.next)


@with_shop
async def test_a_half_message_is_decided_once(client: Client, broker: RunningBroker) -> None:
    """Seen after its commit, once; contradictions say what was decided."""
    async with client.producer(PATIENT) as producer:
        half_id = await producer.send_half(QUEUE, "one")
        assert await shipped(client) == []
        await producer.commit(half_id)
        await producer.commit(half_id)
        assert await shipped(client) == ["one"]
        with pytest.raises(HalfConflict) as caught:
            await producer.rollback(half_id)
        assert (caught.value.state, caught.value.half_id) == ("committed", half_id)
        await producer.send_half(QUEUE, "two", half_id="order-2")
        with pytest.raises(HalfIdConflict):
            await producer.send_half(QUEUE, "three", half_id="order-2")
        await producer.rollback("order-2", "no shoes")
        with pytest.raises(HalfUnknown):
            await producer.commit("order-3")
        found = await anyio.to_thread.run_sync(halves, broker)
        assert (found["order-2"].state, found["order-2"].reason) == ("rolled-back", "no shoes")


@with_shop
async def test_the_local_transaction_decides(client: Client, broker: RunningBroker) -> None:
    """Or leaves it to the check-back, when it does not know or fails; after a conflict it does not run."""
    ran: list[Any] = []

    def returning(answer: Any) -> Callable[[Any], Awaitable[Resolution]]:
        async def local_transaction(half_id: Any) -> Resolution:
            ran.append(half_id)
            if isinstance(answer, Exception):
                raise answer
            return answer  # type: ignore[no-any-return]

        return local_transaction

    async with client.producer(PATIENT) as producer:
        receipts = [
            await producer.send_in_transaction(QUEUE, answer.value, returning(answer))
            for answer in (COMMIT, ROLLBACK, UNKNOWN)
        ]
        assert [receipt.told for receipt in receipts] == [True, True, False]
        assert ran == [receipt.half_id for receipt in receipts]
        for wrong in (ValueError("the database is away"), None):
            with pytest.raises((ValueError, TypeError)) as caught:
                await producer.send_in_transaction(QUEUE, "x", returning(wrong), half_id=str(wrong))
            assert "is not resolved: the broker will ask" in caught.value.__notes__[0]
        found = await anyio.to_thread.run_sync(halves, broker)
        assert [found[half_id].state for half_id in ran] == [
            "committed", "rolled-back", "prepared", "prepared", "prepared"
        ]  # fmt: skip
        with pytest.raises(HalfConflict):
            await producer.send_in_transaction(QUEUE, "rollback", returning(COMMIT), half_id=ran[1])
        assert len(ran) == 5 and await shipped(client) == ["commit"]

        async def too_slow(half_id: Any) -> Resolution:
            await producer.rollback(half_id)
            return COMMIT

        with pytest.raises(HalfConflict):
            await producer.send_in_transaction(QUEUE, "x", too_slow)


@on_both_loops
async def test_a_broker_that_cannot_be_told_is_no_error_of_the_local_transaction() -> None:
    """The receipt says so, and the check-back finds out."""
    faults = ScriptedFaults()
    with shop_broker(faults) as broker:

        async def local_transaction(half_id: Any) -> Resolution:
            await anyio.to_thread.run_sync(faults.reset_connections)
            return COMMIT

        async with open_client(broker.url) as client, client.producer(GROUP) as producer:
            receipt = await producer.send_in_transaction(QUEUE, "one", local_transaction)
            assert (receipt.resolution, receipt.told) == (COMMIT, False)
            assert isinstance(receipt.error, Gone)
        table = Table(COMMIT)
        async with open_client(broker.url) as client:
            async with client.producer(GROUP, table.check_in_turn):
                receiver = await client.open_receiver(QUEUE)
                assert (await receiver.receive()).body == "one"
        assert table.next().half_id == receipt.half_id


@pytest.mark.parametrize("by_outcome", [False, True])
@with_shop
async def test_the_checker_decides(client: Client, broker: RunningBroker, by_outcome: bool) -> None:
    """Unknown, an exception and an answer that is none are asked again, and told; then it commits."""
    table = Table(UNKNOWN, ValueError("the table is away"), None, COMMIT, ROLLBACK)
    check = table.check_in_turn
    async with client.producer(
        GROUP, check, by_outcome=by_outcome, checks_at_once=1, on_check_error=table.failed
    ) as producer:
        await producer.send_half(QUEUE, "one", half_id="order-1", application_properties={"OrderId": "1"})
        asked = [await next_of(table) for _ in range(4)]
        assert [half.attempt for half in asked] == [1, 2, 3, 4]
        assert all(half.application_properties == {"OrderId": "1"} for half in asked)
        assert [type(table.errors.get(timeout=WAIT_S)[1]) for _ in range(2)] == [ValueError, TypeError]
        await producer.send_half(QUEUE, "two", half_id="order-2")
        assert (await next_of(table)).half_id == "order-2"
        await producer.send_half(QUEUE, "three", half_id="order-3")
        assert (await next_of(table)).half_id == "order-3"
    assert await shipped(client) == ["one"]
    found = await anyio.to_thread.run_sync(halves, broker, GROUP)
    assert (found["order-1"].state, found["order-2"].state) == ("committed", "rolled-back")
    assert found["order-2"].resolver == "check"


@with_shop
async def test_several_checks_are_answered_at_once(client: Client, broker: RunningBroker) -> None:
    """As many as there is credit: a slow checker holds up no other check."""
    entered = 0
    all_there = anyio.Event()

    async def check(half: Half) -> Resolution:
        nonlocal entered
        entered += 1
        if entered == 5:
            all_there.set()
        await all_there.wait()
        return COMMIT

    async with client.producer(GROUP, check, checks_at_once=5) as producer:
        for number in range(5):
            await producer.send_half(QUEUE, number)
        receiver = await client.open_receiver(QUEUE)
        for _ in range(5):
            receiver.accept(await receiver.receive())


@with_shop
async def test_the_end_of_the_block_leaves_checks_to_others(client: Client, broker: RunningBroker) -> None:
    """One that is being answered is cancelled, and asked elsewhere."""
    entered = anyio.Event()

    async def check(half: Half) -> Resolution:
        entered.set()
        await anyio.sleep_forever()
        return COMMIT

    async with client.producer(GROUP, check) as producer:
        await producer.send_half(QUEUE, "one", half_id="order-1")
        await entered.wait()
    table = Table(ROLLBACK)
    async with client.producer(GROUP, table.check_in_turn):
        assert (await next_of(table)).attempt == 1


@on_both_loops
async def test_a_connection_that_ends_cancels_the_block() -> None:
    """Whoever only waits for checks is told, by one error."""
    with shop_broker() as broker, pytest.raises(ConnectionGone, match="amqp:connection:forced"):
        async with open_client(broker.url) as client:
            async with client.producer(GROUP, Table(COMMIT).check_in_turn):
                await anyio.to_thread.run_sync(broker.stop)
                await anyio.sleep_forever()


@with_shop
async def test_names_that_cannot_be(client: Client, broker: RunningBroker) -> None:
    """A group by its grammar, a destination by the broker's; a link that was lost is made again."""
    with pytest.raises(WrongUse, match="expected a group of 1 to 64"):
        async with client.producer("no/group"):
            raise AssertionError("no such group")
    async with client.producer(PATIENT) as producer:
        with pytest.raises(LinkRefused):
            await producer.send_half("$nope", "one")
        await producer.send_half(QUEUE, "two")
        (await producer.sender(f"$half/{PATIENT}/{QUEUE}")).close()
        await producer.send_half(QUEUE, "three")
