"""What one run of the load tool is asked to do."""

from __future__ import annotations

import json
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import attrs

from amqp_broker.client.settings import parse_url as endpoint_of

# The body starts with the run's number, the message's number and its time, eight bytes each.
SMALLEST_BODY: Final = 24


def option(default: Any, meaning: str, least: int | None = None, **more: Any) -> Any:
    """An option of the command: what it means, the least value that it takes, and what `make_parser` of the
    command line has to know.
    """
    return attrs.field(default=default, metadata={"help": meaning, "least": least, **more})


@attrs.frozen(kw_only=True)
class BenchSettings:
    """One run: where, what is sent, how it is settled, how much may be on its way. Each `option` is one of
    the command, with dashes.
    """

    host: str
    port: int
    run: int = 0
    address: str = option(
        "bench", "queue to send to and receive from (default: the URL's path, or 'bench')", of_url=True
    )
    count: int = option(100_000, "messages for each pair (default %(default)s)", 1)
    body: int = option(
        100, f"bytes of the body, at least {SMALLEST_BODY} (default %(default)s)", SMALLEST_BODY
    )
    durable: bool = option(False, "durable messages")
    settled: bool = option(False, "sent settled: no outcome is waited for")
    settle_each: bool = option(False, "the receiver answers each delivery alone: the worst case")
    credit: int = option(1_000, "the receiver's link credit (default %(default)s)", 1)
    in_flight: int = option(1_000, "unsettled deliveries of the sender (default %(default)s)", 1)
    pairs: int = option(1, "senders and receivers, each through ADDRESS0, ADDRESS1, ...", 1)
    rtt: bool = option(False, "one message at a time: the time of a round trip")
    rate: float = option(0.0, "with --rtt: messages a second at most (default: no limit)")
    half_group: str = option(
        "", "half messages of this group, each put, committed and received", metavar="GROUP"
    )
    transactions: int = option(0, "measure so many transactions on each connection", 0, group=True)
    in_each: int = option(10, "postings in each transaction (default %(default)s)", 1, group=True)
    retire: bool = option(False, "as many retirements as postings in each transaction", group=True)
    retire_settled: bool = option(
        False, "the same, settled by the controller before the discharge", group=True
    )
    live: int = option(
        1, "transactions that are live at once on a connection; several numbers are several runs "
        "(default %(default)s: one at a time, then pipelined)", several="1,16", group=True,
    )  # fmt: skip
    roll_back_every: int = option(0, "roll every n-th transaction back (default: none)", 0, group=True)
    timeout: float = option(30.0, "give up after so many seconds without progress")
    user: str | None = option(None, "user for SASL PLAIN (default: the URL's, else ANONYMOUS)", of_url=True)
    password: str = option("", "password for SASL PLAIN", of_url=True)
    no_sasl: bool = option(False, "begin with the bare AMQP header")

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


def parse_url(url: str) -> dict[str, Any]:
    """The settings that `amqp://[user:password@]host[:port][/address]` says.

    Raises ValueError with a sentence for anything else.
    """
    parts = urlsplit(url)
    endpoint = endpoint_of(parts._replace(path="").geturl())
    if endpoint.tls:
        raise ValueError(f"expected a URL like amqp://127.0.0.1:5672, got {endpoint}")
    address = unquote(parts.path[1:]) or None
    said = {"user": endpoint.user, "password": endpoint.password, "address": address}
    found: dict[str, Any] = {"host": endpoint.host, "port": endpoint.port}
    return found | {name: text for name, text in said.items() if text is not None}
