"""The options of the transactional mode, and the runs that they ask for."""

from __future__ import annotations

import argparse

import attrs

from amqp_broker.bench.settings import BenchSettings


def add_transactions(parser: argparse.ArgumentParser) -> None:
    """The options of the transactional mode."""
    add = parser.add_argument_group(
        "transactions", "post to ADDRESS, and retire from ADDRESS-input; --pairs is the number of connections"
    ).add_argument
    add("--transactions", type=int, default=0, help="measure so many transactions on each connection")
    add("--in-each", type=int, default=10, help="postings in each transaction (default %(default)s)")
    add("--retire", action="store_true", help="as many retirements as postings in each transaction")
    add(
        "--retire-settled",
        action="store_true",
        help="the same, settled by the controller before the discharge",
    )
    add(
        "--live",
        default="1,16",
        help="transactions that are live at once on a connection; several numbers are several runs "
        "(default %(default)s: one at a time, then pipelined)",
    )
    add("--roll-back-every", type=int, default=0, help="roll every n-th transaction back (default: none)")


def transactional(options: argparse.Namespace, settings: BenchSettings) -> list[BenchSettings]:
    """The settings of one run for each number of live transactions; raises ValueError with a sentence."""
    try:
        lives = [int(text) for text in options.live.split(",")]
    except ValueError:
        raise ValueError(f"--live must be numbers like 1,16, got {options.live!r}") from None
    for name, value in (
        ("transactions", options.transactions),
        ("in-each", options.in_each),
        ("live", min(lives)),
    ):
        if value < 1:
            raise ValueError(f"--{name} must be at least 1, got {value}")
    if options.roll_back_every < 0:
        raise ValueError(f"--roll-back-every must not be negative, got {options.roll_back_every}")
    retire = options.retire or options.retire_settled
    if retire and options.in_each > options.credit:
        raise ValueError(f"--in-each {options.in_each} deliveries never come with --credit {options.credit}")
    if options.transactions * options.in_each >= 2**31:
        raise ValueError("--transactions times --in-each must stay below 2,147,483,648")
    return [
        attrs.evolve(
            settings,
            transactions=options.transactions,
            in_each=options.in_each,
            retire=retire,
            retire_settled=options.retire_settled,
            live=live,
            roll_back_every=options.roll_back_every,
            run=settings.run ^ place,
        )
        for place, live in enumerate(lives)
    ]
