"""Half messages for asyncio and trio programs: put, run the local transaction, resolve, be asked.

async def check(half):
    return Resolution.COMMIT if await order_exists(half.half_id) else Resolution.ROLLBACK

async with open_client(url) as client, client.producer("shop", check) as producer:
    await producer.send_in_transaction("shipments", b"order 17", place_order, half_id="order-17")
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio

from amqp_broker.client.async_links import OpensLinks, Receiver, Sender
from amqp_broker.client.errors import ClientError, Gone, MessageRefused
from amqp_broker.client.groups import one_error
from amqp_broker.client.half_errors import HalfRefused, half_refusal
from amqp_broker.client.halves import (
    UNKNOWN_OUTCOME,
    Half,
    Receipt,
    Resolution,
    check_address,
    expect_group,
    expect_half_link,
    expect_resolution,
    half_message,
    half_of,
    log_check_error,
    outcome_of_check,
    put_address,
    resolution_message,
    unresolved,
)
from amqp_broker.client.messages import OutgoingMessage, ReceivedMessage
from amqp_broker.frames import SETTLE_MODE_UNSETTLED
from amqp_broker.halves.addresses import resolve_address

Check = Callable[[Half], Awaitable[Resolution]]
CheckErrors = Callable[[Half | None, Exception], None]


@asynccontextmanager
async def open_producer(
    client: OpensLinks,
    group: str,
    check: Check | None = None,
    *,
    by_outcome: bool = False,
    checks_at_once: int = 10,
    on_check_error: CheckErrors = log_check_error,
) -> AsyncIterator[TransactionProducer]:
    """A producer of one group; `client.producer(group, check)` is the same.

    `await check(half)` is asked during the block, up to `checks_at_once` at a time, for every producer of the
    group that died or did not know; what it raises goes to `on_check_error` (by default into the log) and
    counts as UNKNOWN. `by_outcome` answers checks by their outcome instead of by a message, which saves a
    round trip and is not confirmed. When the connection ends, the block is cancelled and Gone raised.
    """
    producer = TransactionProducer(client, group, by_outcome, on_check_error)
    try:
        await producer.sender(resolve_address(group))
        if check is None:
            yield producer
            return
        address = check_address(group, by_outcome)
        checks = await client.open_receiver(address, credit=checks_at_once)
        expect_half_link(checks)
        try:
            with one_error():
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(producer.answer_checks, checks, check)
                    yield producer
                    tasks.cancel_scope.cancel()
        finally:
            checks.close()
    finally:
        producer.close()


class TransactionProducer:
    """A producer of one group. Made by `open_producer`."""

    def __init__(self, client: OpensLinks, group: str, by_outcome: bool, on_check_error: CheckErrors) -> None:
        self.group = expect_group(group)
        self._client = client
        self._by_outcome = by_outcome
        self._on_check_error = on_check_error
        self._senders: dict[str, Sender] = {}
        self._opening = anyio.Lock()

    async def send_half(self, destination: str, body: Any, *, half_id: Any = None, **options: Any) -> Any:
        """Puts a half message; its id, which is made up where none is given. It is stored when this returns,
        and nobody sees it. `options` as for `half_message`.

        Raises HalfConflict and HalfIdConflict: do not run the local transaction then. After an OutcomeUnknown
        put again with the same id, as often as you like: it is one half message.
        """
        chosen = str(uuid.uuid4()) if half_id is None else half_id
        content = half_message(body, chosen, **options)
        await self._tell(put_address(self.group, destination), content, "the put", chosen)
        return chosen

    async def commit(self, half_id: Any) -> None:
        """Makes the message visible. Harmless when it was committed before.

        Raises HalfConflict when it was rolled back, HalfUnknown.
        """
        await self._resolve(half_id, Resolution.COMMIT)

    async def rollback(self, half_id: Any, reason: str | None = None) -> None:
        """Drops the message. Harmless when it was rolled back before. Raises HalfConflict, HalfUnknown."""
        await self._resolve(half_id, Resolution.ROLLBACK, reason)

    async def send_in_transaction(
        self,
        destination: str,
        body: Any,
        local_transaction: Callable[[Any], Awaitable[Resolution]],
        *,
        half_id: Any = None,
        **options: Any,
    ) -> Receipt:
        """Puts a half message, awaits `local_transaction(half_id)`, and resolves by what it returns.

        What it raises is raised here, and leaves the half message to the check-back. So does a broker that
        cannot be told: then `receipt.told` is False, for the local transaction stands. Raises what
        `send_half` does before the local transaction, HalfConflict after it when somebody else decided
        otherwise meanwhile.
        """
        chosen = await self.send_half(destination, body, half_id=half_id, **options)
        try:
            resolution = expect_resolution(await local_transaction(chosen), "the local transaction")
        except Exception as error:
            unresolved(error, chosen, self.group)
            raise
        if resolution is Resolution.UNKNOWN:
            return Receipt(chosen, resolution, False)
        try:
            await self._resolve(chosen, resolution)
        except HalfRefused:
            raise
        except ClientError as error:
            return Receipt(chosen, resolution, False, error)
        return Receipt(chosen, resolution, True)

    def close(self) -> None:
        """Detaches its links."""
        for sender in self._senders.values():
            sender.close()

    # --- parts

    async def sender(self, address: str) -> Sender:
        """The link to an address of the group; a new one where it was detached."""
        async with self._opening:
            sender = self._senders.get(address)
            if sender is None or (sender.core.gone is not None and self._client.gone is None):
                sender = await self._client.open_sender(address, snd_settle_mode=SETTLE_MODE_UNSETTLED)
                expect_half_link(sender)
                self._senders[address] = sender
            return sender

    async def answer_checks(self, checks: Receiver, check: Check) -> None:
        """Answers until the link or its connection is gone; as many at a time as the link has credit."""
        async with anyio.create_task_group() as tasks:
            async for received in checks:
                tasks.start_soon(self._answer, checks, check, received)

    async def _answer(self, checks: Receiver, check: Check, received: ReceivedMessage) -> None:
        half = None
        outcome = UNKNOWN_OUTCOME
        try:
            half = half_of(received)
            resolution = expect_resolution(await check(half), "the checker")
            if resolution is not Resolution.UNKNOWN and not self._by_outcome:
                await self._resolve(half.half_id, resolution)
            outcome = outcome_of_check(resolution, self._by_outcome)
        except Exception as error:
            self._on_check_error(half, error)
        try:
            checks.settle(received, outcome)
        except Gone:
            pass  # whoever waits for the next check is told; this one is asked again

    async def _resolve(self, half_id: Any, resolution: Resolution, reason: str | None = None) -> None:
        content = resolution_message(half_id, resolution, reason)
        await self._tell(resolve_address(self.group), content, f"the {resolution.value}", half_id)

    async def _tell(self, address: str, content: OutgoingMessage, what: str, half_id: Any) -> None:
        try:
            await (await self.sender(address)).send(content)
        except MessageRefused as refused:
            raise half_refusal(refused, what, half_id) from None
