"""What one run of the load tool is asked to do."""

from __future__ import annotations

import json
from typing import Final
from urllib.parse import unquote, urlsplit

import attrs

# The body starts with the run's number, the message's number and its time, eight bytes each.
SMALLEST_BODY: Final = 24


@attrs.frozen(kw_only=True)
class BenchSettings:
    """One run: where, what is sent, how it is settled, how much may be on its way.

    The names are those of the options, where `make_parser` of the command line explains them.
    """

    host: str
    port: int
    user: str | None = None
    password: str = ""
    no_sasl: bool = False
    address: str = "bench"
    count: int = 100_000
    body: int = 100
    durable: bool = False
    settled: bool = False
    settle_each: bool = False
    credit: int = 1_000
    in_flight: int = 1_000
    pairs: int = 1
    rtt: bool = False
    rate: float = 0.0
    half_group: str = ""
    timeout: float = 30.0
    run: int = 0
    # The transactional mode: how many transactions, and what each of them does.
    transactions: int = 0
    in_each: int = 10
    retire: bool = False
    retire_settled: bool = False
    live: int = 1
    roll_back_every: int = 0

    @property
    def roles(self) -> tuple[str, ...]:
        """What processes each pair has, in the order in which they connect: receivers before senders, so that
        a queue is never filled by accident.
        """
        if self.transactions:
            return ("controller",)
        if self.half_group:
            return ("half-messages",)
        return ("round-trips",) if self.rtt else ("receiver", "sender")

    def address_of(self, pair: int) -> str:
        """The address of one pair: the address itself when there is only one."""
        return self.address if self.pairs == 1 else f"{self.address}{pair}"

    def input_of(self, pair: int) -> str:
        """Where the transactions of one pair take from what they retire."""
        return self.address_of(pair) + "-input"

    @property
    def postings(self) -> int:
        """Messages that the transactions of one pair post."""
        return self.transactions * self.in_each

    @property
    def inputs(self) -> int:
        """Messages that the transactions of one pair find to retire.

        They are enough only if what a rolled back transaction took can be taken again.
        """
        rolled_back = self.transactions // self.roll_back_every if self.roll_back_every else 0
        return min(self.transactions, self.transactions - rolled_back + self.live) * self.in_each

    def rolls_back(self, number: int) -> bool:
        """Whether the transaction of this number is to be discharged with fail=true (4.3)."""
        return self.roll_back_every > 0 and number % self.roll_back_every == self.roll_back_every - 1

    def only(self, address: str, count: int) -> BenchSettings:
        """These settings for one queue with `count` messages, each accepted outside of any transaction."""
        return attrs.evolve(self, address=address, count=count, pairs=1, settled=False, settle_each=False)

    def to_json(self) -> str:
        """For the command line of a worker process."""
        return json.dumps(attrs.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> BenchSettings:
        """What `to_json` wrote."""
        return cls(**json.loads(text))

    def describe(self) -> str:
        """One line for the head of the report."""
        kind = "durable" if self.durable else "non-durable"
        settling = "settled" if self.settled else "unsettled"
        if not self.transactions:
            pairs = "1 pair" if self.pairs == 1 else f"{self.pairs} pairs"
            what = "half messages" if self.half_group else "messages"
            return (
                f"{self.count:,} {what} of {self.body:,} B for each of {pairs}, {kind}, {settling}, "
                f"credit {self.credit:,}, in flight {self.in_flight:,}"
            )
        kind += f", posted {settling}"
        retiring = f" and {self.in_each:,} retirements" if self.retire else ""
        if self.retire:
            kind += ", retired settled" if self.retire_settled else ", retired unsettled"
        live = "one at a time" if self.live == 1 else f"{self.live:,} at once"
        connections = "1 connection" if self.pairs == 1 else f"each of {self.pairs} connections"
        return (
            f"{self.transactions:,} transactions of {self.in_each:,} postings{retiring} of {self.body:,} B "
            f"on {connections}, {live}, {kind}"
        )


def parse_url(url: str) -> tuple[str, int, str | None, str, str | None]:
    """Host, port, user, password and address of `amqp://[user:password@]host[:port][/address]`.

    Raises ValueError with a sentence for anything else.
    """
    parts = urlsplit(url)
    if parts.scheme != "amqp":
        raise ValueError(f"expected a URL like amqp://127.0.0.1:5672, got {url!r}")
    if not parts.hostname:
        raise ValueError(f"the URL {url!r} names no host")
    user = unquote(parts.username) if parts.username is not None else None
    address = unquote(parts.path[1:]) or None
    return parts.hostname, parts.port or 5672, user, unquote(parts.password or ""), address
