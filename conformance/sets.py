"""Who stages, seals and commits sets of half messages, for scenarios, with a group and a producer of its own.

sets = Sets(broker)
one = sets.sealed("one", b"1", b"2")
sets.commit(one)
expect_left(broker, sets.queue, b"1", b"2", in_order=True)
"""

from collections.abc import Iterable
from typing import Any
from zlib import crc32

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.dialogue import Sender, Session
from amqp_broker.conformance.halves import FOR_TESTS
from amqp_broker.conformance.messages import data
from amqp_broker.conformance.outcomes import error_of, expect_state
from amqp_broker.conformance.queues import Replies
from amqp_broker.frames import (
    Accepted,
    AmqpValue,
    Error,
    Properties,
    Rejected,
    Transfer,
    Ulong,
    encode_message,
)

DECIDED = "half:decided"
STALE = "half:stale-epoch"
SEALED = "half:sealed"
UNSEALED = "half:unsealed"
UNKNOWN = "half:unknown-set"
MISMATCH = "half:mismatch"
CONFLICT = "half:conflict"
VOIDED = "half:voided"
INVALID = "amqp:invalid-field"
NOT_ALLOWED = "amqp:not-allowed"

PREPARED = "half:prepared"
UNDECIDED = "half:undecided"

Winner = tuple[str, int, int]
Named = Winner | tuple[str, int, int, str]
"""A winner as a commit names it, with the id of its store if that is another one."""


def checksum(*payloads: bytes) -> int:
    """Returns the checksum of messages that have neither header nor delivery annotations."""
    return sum([crc32(payload) for payload in payloads]) % (1 << 64)


class Sets:
    """One producer, on a connection of its own; `queue` is where its messages are to go."""

    def __init__(self, broker: Broker, container: str = "producer", queue: str = "q") -> None:
        self.broker = broker
        own = f"{broker.settings.run_id}-{broker.scenario_id.replace('/', '-')}"
        self.group = (FOR_TESTS + own)[:64]
        self.queue = broker.queue(queue)
        self.session: Session = broker.session(container=container)
        self._handle = 20
        self.resolve_link = self.session.sender(f"$half-resolve/{self.group}", 10, "resolve")
        self._replies = Replies(self.session, 11)

    def address(self, set_id: str, epoch: int = 1, queue: str = "") -> str:
        """Returns where messages of a set are staged."""
        return f"$half-set/{self.group}/p/{epoch}/{set_id}/{queue or self.queue}"

    def stager(self, set_id: str, epoch: int = 1, queue: str = "", **fields: Any) -> Sender:
        """Attaches a link that stages, which must not be refused."""
        self._handle += 1
        name = f"stage-{self._handle}"
        return self.session.sender(self.address(set_id, epoch, queue), self._handle, name, **fields)

    def refused(self, set_id: str, *conditions: str, epoch: int = 1, **fields: Any) -> Error:
        """Returns the error of a link that must be refused with one of these conditions."""
        self._handle += 1
        link = self.session.put_sender(self.address(set_id, epoch), self._handle, **fields)
        return link.expect_refused(*conditions)

    def stage(self, link: Sender, *payloads: bytes) -> None:
        """Stages messages; each must be accepted."""
        for payload in payloads:
            expect_state(self.answer(link.send(payload)), Accepted)

    def sealed(self, set_id: str, *bodies: bytes, epoch: int = 1, **elsewhere: str) -> Winner:
        """Stages a set and seals it, for a ``coordinator`` if there is one; returns how a commit names it."""
        payloads = [data(body) for body in bodies]
        link = self.stager(set_id, epoch)
        self.stage(link, *payloads)
        link.detach()
        winner = (set_id, len(payloads), checksum(*payloads))
        self.seal(winner, epoch, **elsewhere)
        return winner

    def answer(self, number: int) -> Any:
        """Waits for the settled outcome of a delivery and returns it."""
        return self.session.await_settled(number, skip=(Transfer,))

    def ask(self, subject: str, body: Any, **properties: Any) -> int:
        """Sends a request and returns its delivery-id."""
        message = encode_message(properties=Properties(subject=subject, **properties), body=AmqpValue(body))
        return self.resolve_link.send(message)

    def tell(self, subject: str, body: Any) -> Any:
        """Sends a request and returns its outcome."""
        return self.answer(self.ask(subject, body))

    def asked_to_seal(self, winner: Winner, epoch: int = 1, **elsewhere: str) -> Any:
        """Returns the outcome of a seal; with ``store`` the set is enlisted."""
        set_id, count, total = winner
        body = {"producer": "p", "epoch": Ulong(epoch), "set": set_id, "count": Ulong(count)}
        return self.tell("seal", {**body, "checksum": Ulong(total), **elsewhere})

    def seal(self, winner: Winner, epoch: int = 1, **elsewhere: str) -> None:
        """Seals a set; that must be accepted."""
        expect_state(self.asked_to_seal(winner, epoch, **elsewhere), Accepted)

    def asked_to_commit(self, winners: Iterable[Named], epoch: int = 1, **elsewhere: str) -> Any:
        """Returns the outcome of the commit of an epoch, or (``coordinator``) of carrying it out."""
        sets = [
            {"set": one[0], "count": Ulong(one[1]), "checksum": Ulong(one[2])}
            | ({"store": one[3]} if len(one) > 3 else {})
            for one in winners
        ]
        body = {"producer": "p", "epoch": Ulong(epoch), "sets": sets}
        return self.tell("commit-epoch", {**body, **elsewhere})

    def commit(self, *winners: Named, epoch: int = 1, **elsewhere: str) -> None:
        """Commits an epoch; that must be accepted."""
        expect_state(self.asked_to_commit(winners, epoch, **elsewhere), Accepted)

    def asked_to_void(self, *set_ids: str, epoch: int | None = None, **elsewhere: str) -> Any:
        """Returns the outcome of a void, or (``store``) of a vote."""
        body: dict[str, Any] = {"producer": "p", "sets": [*set_ids], **elsewhere}
        return self.tell("void", body if epoch is None else {**body, "epoch": Ulong(epoch)})

    def void(self, *set_ids: str, epoch: int | None = None, **elsewhere: str) -> None:
        """Voids sets; that must be accepted."""
        expect_state(self.asked_to_void(*set_ids, epoch=epoch, **elsewhere), Accepted)

    def status(self, epoch: int | None = None) -> dict[str, Any]:
        """Returns what is decided and what is staged, numbers as numbers."""
        body: dict[str, Any] = {"producer": "p"}
        asked = body if epoch is None else {**body, "epoch": Ulong(epoch)}
        number = self.ask("status", asked, reply_to=self._replies.address, correlation_id="asked")
        found = self._replies.expect("asked")
        expect_state(self.answer(number), Accepted)
        return found


def refusal(outcome: Any, *conditions: str) -> Error:
    """Returns the error of an outcome that must be rejected with one of these conditions."""
    return error_of(expect_state(outcome, Rejected), *conditions)
