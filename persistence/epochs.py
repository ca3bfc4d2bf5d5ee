"""Decisions about the epochs of a producer's half-message sets, as the store knows them.

An epoch is decided once, by one commit that publishes its winning sets (`Move`) and keeps the decision; what
is asked or sent again later finds it.
"""

from __future__ import annotations

from typing import Final

import attrs

LAST_EPOCH: Final = (1 << 63) - 1  # epochs are numbers from 0 to this
KEEP_DECISIONS: Final = 1000  # of a producer, the newest: only the last few are ever asked for again


DecidedSet = tuple[str, int, int] | tuple[str, int, int, str]
"""(set_id, count, checksum) of a set, and the id of the store that has its messages if it is another one."""


@attrs.frozen
class Decision:
    """What was decided about an epoch: each winning set, in their order; `home` is the store that decided it,
    if it is another one.

    `decided_at_ms` is in milliseconds of the caller's clock; a checksum has 64 bits, without a sign.
    """

    group: str
    producer: str
    epoch: int
    decided_at_ms: int
    winners: tuple[DecidedSet, ...] = ()
    home: str = ""


@attrs.define
class DecideEpoch:
    """Keep a decision for good, or until the producer has `KEEP_DECISIONS` later ones.

    Nothing is kept yet about this epoch of this producer.
    """

    decision: Decision
