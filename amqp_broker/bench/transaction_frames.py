"""Prepared frames of a controller: declare, postings, retirements and discharge (4.5).

    posting      transfer: handle 1, delivery-id, tag, state: txn-id | header | data: run number time abc...
    retirement   disposition: first, last, state: txn-id, accepted
    control      transfer: handle 0, delivery-id, tag | amqp-value: declare, or discharge: txn-id

Each is encoded once by `frames` with values that need the widest encoding, and patched where they stand; how
long a txn-id is becomes known with the first one that the broker gives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from amqp_broker.bench.settings import BenchSettings
from amqp_broker.bench.templates import (
    LARGEST_BLOCK,
    PLACE_BODY,
    PLACE_ID,
    PLACE_TAG,
    columns,
    message_sections,
)
from amqp_broker.bench.wire import BenchError
from amqp_broker.frames import (
    RECEIVER,
    Accepted,
    Declare,
    Discharge,
    Disposition,
    TransactionalState,
    Transfer,
    encode_composite,
    encode_frame,
)

CONTROL_HANDLE: Final = 0
POSTING_HANDLE: Final = 1
INPUT_HANDLE: Final = 2
PLACE_LAST: Final = 0x7E51C3B6
PLACE_TIME: Final = b"\xa4\x5e\x90\x17\xcb\x3d\xf2\x68"


class Template:
    """One frame and the places in it that differ each time."""

    __slots__ = ("data", "places")

    def __init__(self, make: Callable[[bytes], bytes], txn_id_size: int, **places: bytes) -> None:
        """`make` encodes the frame for a txn-id; the other places are found by what stands there."""
        data, other = make(b"\x00" * txn_id_size), make(b"\xff" * txn_id_size)
        self.data = bytearray(data)
        self.places = {name: data.index(value) for name, value in places.items()}
        # An id may be as short as it likes, so it is found by where two of them differ.
        self.places["txn_id"] = next((at for at, byte in enumerate(data) if byte != other[at]), 0)

    def patch(self, **values: bytes) -> None:
        """Write these values at their places."""
        for name, value in values.items():
            at = self.places[name]
            self.data[at : at + len(value)] = value


def control_transfer(request: Declare | Discharge) -> bytes:
    """A message to the coordinator, with places for delivery-id and tag."""
    transfer = Transfer(
        handle=CONTROL_HANDLE,
        delivery_id=PLACE_ID,
        delivery_tag=PLACE_TAG,
        message_format=0,
        settled=False,
    )
    return encode_frame(0, transfer, b"\x00\x53\x77" + encode_composite(request))


class DeclareFrame:
    """Asks for a transaction (4.5.2); the delivery-id is the tag, too."""

    __slots__ = ("_template",)

    def __init__(self) -> None:
        self._template = Template(
            lambda _: control_transfer(Declare()), 0, id=PLACE_ID.to_bytes(4, "big"), tag=PLACE_TAG
        )

    def numbered(self, delivery_id: int) -> bytes:
        """The frame with this delivery-id."""
        identity = delivery_id.to_bytes(4, "big")
        self._template.patch(id=identity, tag=identity)
        return bytes(self._template.data)


class WorkFrames:
    """The frames of transactions whose txn-ids have one length."""

    __slots__ = ("block", "stride", "txn_id_size", "_discharges", "_posting", "_retirement")

    def __init__(self, settings: BenchSettings, txn_id_size: int, max_frame_size: int) -> None:
        self.txn_id_size = txn_id_size
        self.block = min(settings.in_each, LARGEST_BLOCK)
        first, last = PLACE_ID.to_bytes(4, "big"), PLACE_LAST.to_bytes(4, "big")
        payload = message_sections(settings, settings.run.to_bytes(8, "big") + PLACE_BODY + PLACE_TIME)
        self._posting = Template(
            lambda txn_id: posting_transfer(settings.settled, txn_id, payload),
            txn_id_size,
            id=first,
            tag=PLACE_TAG,
            number=PLACE_BODY,
            time=PLACE_TIME,
        )
        self._retirement = Template(
            lambda txn_id: retirement(settings.retire_settled, txn_id), txn_id_size, first=first, last=last
        )
        self._discharges = [
            Template(
                lambda txn_id, fail=fail: control_transfer(Discharge(txn_id=txn_id, fail=fail)),  # type: ignore[misc]
                txn_id_size,
                id=first,
                tag=PLACE_TAG,
            )
            for fail in (False, True)
        ]
        self.stride = len(self._posting.data)
        if self.stride > max_frame_size:
            raise BenchError(
                f"a posting takes {self.stride} bytes, but the broker's frames hold {max_frame_size}: "
                "transactions need a smaller --body"
            )

    def postings(self, txn_id: bytes, delivery_id: int, number: int, count: int, now_ns: int) -> bytearray:
        """At most `block` transfers with consecutive delivery-ids and numbers."""
        template, stride = self._posting, self.stride
        template.patch(txn_id=txn_id, time=now_ns.to_bytes(8, "big"))
        data = template.data * count
        identities, places = columns(delivery_id, count, 4), template.places
        for at, values in (
            (places["id"], identities),
            (places["tag"], identities),
            (places["number"], columns(number, count, 8)),
        ):
            for place, value in enumerate(values, at):
                data[place::stride] = value
        return data

    def retirement(self, txn_id: bytes, first: int, last: int) -> bytes:
        """Accepted within the transaction, from first to last (4.4.2)."""
        template = self._retirement
        template.patch(first=first.to_bytes(4, "big"), last=last.to_bytes(4, "big"), txn_id=txn_id)
        return bytes(template.data)

    def discharge(self, txn_id: bytes, delivery_id: int, fail: bool) -> bytes:
        """The end of the transaction (4.5.3)."""
        template, identity = self._discharges[fail], delivery_id.to_bytes(4, "big")
        template.patch(id=identity, tag=identity, txn_id=txn_id)
        return bytes(template.data)


def posting_transfer(settled: bool, txn_id: bytes, payload: bytes) -> bytes:
    """A message posted in a transaction (4.4.1), with places for delivery-id and tag."""
    transfer = Transfer(
        handle=POSTING_HANDLE,
        delivery_id=PLACE_ID,
        delivery_tag=PLACE_TAG,
        message_format=0,
        settled=settled,
        state=TransactionalState(txn_id=txn_id),
    )
    return encode_frame(0, transfer, payload)


def retirement(settled: bool, txn_id: bytes) -> bytes:
    """A range that is accepted in a transaction (4.4.2), with places for its ends."""
    disposition = Disposition(
        role=RECEIVER,
        first=PLACE_ID,
        last=PLACE_LAST,
        settled=settled,
        state=TransactionalState(txn_id=txn_id, outcome=Accepted()),
    )
    return encode_frame(0, disposition)
