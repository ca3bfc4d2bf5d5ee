"""Termini that outlive a restart as the store knows them: values, and the verbs that change them."""

from __future__ import annotations

import attrs


@attrs.define
class StoredTerminus:
    """Where a peer sends on a link that it may resume, or (`sends`) from where we send. The caller numbers
    them; `user`, `container` and `name` are whose link it is.

    `ends_at_ms` is when it is over, by the caller's clock; 0 while its time does not run. `attachments`: how
    many links it has had, where we send.
    """

    number: int
    user: str
    container: str
    name: str
    expiry_policy: str
    timeout_s: int
    ends_at_ms: int = 0
    sends: bool = False
    attachments: int = 0


@attrs.define
class KeepTerminus:
    """Keep a terminus from now on; it replaces what was kept under its number, but for its deliveries."""

    terminus: StoredTerminus


@attrs.define
class ForgetTerminus:
    """Remove a terminus, its deliveries and what it holds. One that does not exist is ignored."""

    number: int


@attrs.define
class KeepUnsettled:
    """Keep the states of deliveries by delivery-tag, as octets that the caller understands, until they are
    settled. Their terminus is kept.
    """

    number: int
    states: dict[bytes, bytes]


@attrs.define
class ForgetUnsettled:
    """Remove deliveries. One that does not exist is ignored."""

    number: int
    delivery_tags: list[bytes]


@attrs.define
class KeepHeld:
    """Messages of a queue, by offset, are held by a terminus under these delivery-tags from now on; whoever
    held one before holds it no longer. The terminus is kept, and so is the queue.
    """

    number: int
    queue_id: int
    delivery_tags: dict[int, bytes]


@attrs.define
class ForgetHeld:
    """A terminus no longer holds these messages of a queue. One that it does not hold is ignored."""

    number: int
    queue_id: int
    offsets: list[int]
