"""Sets of half messages by the frame-level peer: stage, seal, commit an epoch, void, ask."""

from __future__ import annotations

from typing import Any
from zlib import crc32

import pytest

from amqp_broker.embedding import RunningBroker
from amqp_broker.frames import (
    AmqpValue,
    Message,
    Properties,
    Rejected,
    Source,
    Ulong,
    encode_message,
    plain_value,
)
from amqp_broker.half_sets.administration import HalfSetInfo
from amqp_broker.testing.peer import PeerError, PeerReceiver, PeerSender, PeerSession
from tests.support.broker_clients import address_of, attach_with, receive
from tests.support.halves import resolver, tell


def row(body: bytes, **properties: Any) -> bytes:
    """A message to stage, without a header."""
    return encode_message(properties=Properties(**properties) if properties else None, body=body)


def checksum(*payloads: bytes) -> int:
    """Of a set with these messages, which have no header: any client can compute it."""
    return sum([crc32(payload) for payload in payloads]) % (1 << 64)


def stager(
    session: PeerSession, set_id: str = "s1", *, epoch: int = 1, producer: str = "p",
    destination: str = "q", group: str = "g",
) -> PeerSender:  # fmt: skip
    """A link of `$half-set/...`."""
    address = f"$half-set/{group}/{producer}/{epoch}/{set_id}/{destination}"
    name = f"stage-{len(session.links)}-{address}"
    return session.attach_sender(name, address)


def stage(sender: PeerSender, *payloads: bytes) -> None:
    """Send messages and wait until all of them are accepted."""
    connection = sender.session.connection
    numbers: list[int] = []
    for payload in payloads:
        connection.pump_until(lambda: sender.may_send)
        numbers.append(sender.send(payload))
    connection.pump_until(lambda: all(number in sender.outcomes for number in numbers))
    refused = [sender.outcomes[n] for n in numbers if isinstance(sender.outcomes[n], Rejected)]
    assert not refused, refused


def request(subject: str, body: object, **properties: Any) -> bytes:
    """A message for `$half-resolve/<group>`."""
    return encode_message(properties=Properties(subject=subject, **properties), body=AmqpValue(body))


def seal_of(
    set_id: str, count: int, total: int, *, epoch: int = 1, producer: str = "p", **elsewhere: str
) -> bytes:
    """A set is complete; `coordinator` decides about it, or `store` has its messages."""
    body = {"producer": producer, "epoch": Ulong(epoch), "set": set_id, "count": Ulong(count)}
    return request("seal", {**body, "checksum": Ulong(total), **elsewhere})


Named = tuple[str, int, int] | tuple[str, int, int, str]
"""A winner as a commit names it, with its store if that is another one."""


def commit_of(*winners: Named, epoch: int = 1, producer: str = "p", **elsewhere: str) -> bytes:
    """These sets are the epoch; so `coordinator` decided."""
    sets = [
        {"set": each[0], "count": Ulong(each[1]), "checksum": Ulong(each[2])}
        | ({"store": each[3]} if len(each) > 3 else {})
        for each in winners
    ]
    body = {"producer": producer, "epoch": Ulong(epoch), "sets": sets, **elsewhere}
    return request("commit-epoch", body)


def void_of(*set_ids: str, epoch: int | None = None, producer: str = "p", **elsewhere: str) -> bytes:
    """These sets are not wanted; `coordinator` voted, or is asked for it about sets of `store`."""
    body: dict[str, Any] = {"producer": producer, "sets": list(set_ids), **elsewhere}
    return request("void", body if epoch is None else {**body, "epoch": Ulong(epoch)})


class SetClient:
    """One session that stages, seals and commits, for the producer `p` of the group `g` and its queue `q`."""

    def __init__(self, session: PeerSession) -> None:
        self.session = session
        self.resolve = resolver(session)
        self._replies: PeerReceiver | None = None

    def staged(self, set_id: str, *payloads: bytes, epoch: int = 1, destination: str = "q") -> PeerSender:
        """Stage messages in a set."""
        link = stager(self.session, set_id, epoch=epoch, destination=destination)
        stage(link, *payloads)
        return link

    def seal(self, set_id: str, *payloads: bytes, epoch: int = 1, **elsewhere: str) -> Any:
        """Seal it with what was staged; the outcome."""
        asked = seal_of(set_id, len(payloads), checksum(*payloads), epoch=epoch, **elsewhere)
        return tell(self.resolve, asked)

    def sealed(self, set_id: str, *payloads: bytes, epoch: int = 1, **elsewhere: str) -> tuple[str, int, int]:
        """Stage and seal a set, as a commit names it."""
        self.staged(set_id, *payloads, epoch=epoch).detach()
        outcome = self.seal(set_id, *payloads, epoch=epoch, **elsewhere)
        assert not isinstance(outcome, Rejected), outcome
        return set_id, len(payloads), checksum(*payloads)

    def commit(self, *winners: Named, epoch: int = 1, **elsewhere: str) -> Any:
        """Commit an epoch; the outcome."""
        return tell(self.resolve, commit_of(*winners, epoch=epoch, **elsewhere))

    def void(self, *set_ids: str, epoch: int | None = None, **elsewhere: str) -> Any:
        """Void sets; the outcome."""
        return tell(self.resolve, void_of(*set_ids, epoch=epoch, **elsewhere))

    def status(self, epoch: int | None = None, producer: str = "p") -> dict[str, Any]:
        """What is decided, and what is staged; numbers as int."""
        if self._replies is None:
            link = attach_with(self.session, "replies", source=Source(dynamic=True))
            assert isinstance(link, PeerReceiver)
            self._replies = link
        self._replies.flow(1)
        body: dict[str, Any] = {"producer": producer}
        asked = body if epoch is None else {**body, "epoch": Ulong(epoch)}
        question = request("status", asked, reply_to=address_of(self._replies), correlation_id="asked")
        outcome = tell(self.resolve, question)
        assert not isinstance(outcome, Rejected), outcome
        (reply,) = receive(self._replies, 1)
        message = Message(reply.payload)
        properties = message.properties
        assert properties is not None and properties.correlation_id == "asked" and properties.subject == "ok"
        found = plain_value(message.body_sections()[0].value)
        assert isinstance(found, dict)
        return found


def refused(session: PeerSession, condition: str, address: str, **fields: Any) -> str:
    """The attach of a sender is refused with this condition; the words."""
    with pytest.raises(PeerError) as found:
        session.attach_sender(f"refused {address}", address, **fields)
    error = found.value.error
    assert error is not None and error.condition == condition, error
    return error.description or ""


def ended(link: PeerSender, condition: str) -> None:
    """The broker detaches the link with this error."""
    with pytest.raises(PeerError, match=condition):
        link.session.connection.pump_until(lambda: link.detached)


def half_sets(broker: RunningBroker) -> list[HalfSetInfo]:
    """What an administrator sees, the oldest first."""
    found = broker.call(lambda running: running.half_sets())
    assert isinstance(found, list)
    return found
