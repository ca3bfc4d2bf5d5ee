"""Where a message may be, and who may get it: the kills and the model judge by this what a client is told.

    message.post()                     it is in its queue
    message.received("link 1")         what is wrong with that; nothing if it may be
    message.remove(sure=False)         an outcome was sent, and nobody has confirmed it
    message.give_back()                whoever holds it does so no more

Who knows how everything ended (the model) has one place for each message: that is a prediction. Behind an end
that nobody saw (a kill, an answer that was lost) there are several, and what is received later says which it
was.
"""

from __future__ import annotations

from enum import Enum
from typing import Any


class Place(Enum):
    """What is true of a message at one moment."""

    NOWHERE = "had never been sent"
    AVAILABLE = "is available"
    HELD = "is held"
    GONE = "is gone for good"


class Whereabouts:
    """One message: its possible `places`, its possible delivery-counts, and who has received it last."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.places = {Place.NOWHERE}
        self.counts = {0}
        self.holder: Any = None
        self.receivers: set[Any] = set()
        """All that have received it."""
        self.receipts = 0
        """How often it was received."""

    def __repr__(self) -> str:
        return f"{self.name}, which {' or '.join(sorted(place.value for place in self.places))}"

    # What is asked

    def is_only(self, place: Place) -> bool:
        """Whether it cannot be anywhere else."""
        return self.places == {place}

    @property
    def may_be_gone(self) -> bool:
        """Whether there is an outcome that may have removed it."""
        return Place.GONE in self.places

    @property
    def has_to_come(self) -> bool:
        """Whether it is lost if nobody ever receives it."""
        return not self.places & {Place.NOWHERE, Place.GONE}

    # What happens

    def post(self, *, sure: bool = True) -> None:
        """It comes into its queue; not `sure`: perhaps."""
        if Place.NOWHERE in self.places:
            self.places |= {Place.AVAILABLE}
        if sure:
            self.places -= {Place.NOWHERE}

    def received(self, by: Any) -> str:
        """A consumer has it: what is wrong with that, empty if nothing is."""
        wrong = ""
        if Place.AVAILABLE not in self.places:
            told = f"{self.name} was received on {by}"
            if self.is_only(Place.GONE):
                wrong = f"came back: {told}, and was gone for good"
            elif self.is_only(Place.NOWHERE):
                wrong = f"{told}, and {Place.NOWHERE.value}"
            else:
                wrong = f"twice: {told} while {self.holder} held it"
        self.places = {Place.HELD}
        self.holder = by
        self.receivers.add(by)
        self.receipts += 1
        return wrong

    def wrong_count(self, count: int) -> str:
        """What is wrong with the delivery-count that its consumer was told; empty if nothing is."""
        if count in self.counts:
            return ""
        expected = " or ".join(str(each) for each in sorted(self.counts))
        return f"{self.name} was received on {self.holder} with delivery-count {count}, expected {expected}"

    def give_back(self) -> None:
        """Who holds it does so no more, and it is available again."""
        self.places = {Place.AVAILABLE if place is Place.HELD else place for place in self.places}

    def tried(self, *times: int) -> None:
        """A delivery failed so often; several numbers where nobody knows."""
        self.counts = {count + more for count in self.counts for more in times}

    def remove(self, *, sure: bool = True) -> None:
        """An outcome removes it; not `sure`: perhaps it did."""
        self.places = {Place.GONE} if sure else self.places | {Place.GONE}
