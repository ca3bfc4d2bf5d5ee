"""A right that is missing is told by its name and its node: of who writes, asks, or answers check-backs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import attrs
import pytest

from amqp_broker.authorisation import ANY_USER
from amqp_broker.client import BlockingConnection, connect
from amqp_broker.configuration import AccessRule
from amqp_broker.pipeline.connections import drop_connection
from amqp_broker.pipeline.epochs import Written, decide_epoch, send_all, write_sets
from amqp_broker.pipeline.errors import MissingRight
from amqp_broker.pipeline.messages_of_rows import Encoded
from amqp_broker.pipeline.options import BrokerAddress
from amqp_broker.pipeline.retained_client import RetainedClient
from amqp_broker.pipeline.set_brokers import SetBrokers
from amqp_broker.testing import memory_config, running_broker
from tests.pipeline.test_epochs import HEADER, data

ENCODED = Encoded(None, [HEADER] * 2, [data(b"1"), data(b"2")])
NEEDED = {
    ("send", "invoices"): "the right send on 'invoices' is missing",
    ("create", "invoices"): "the right create on 'invoices' is missing, and there is no such queue",
    ("half-put", "spark"): "the right half-put on the group 'spark' is missing, or there is no",
    ("half-resolve", "spark"): "the right half-resolve on the group 'spark' is missing, or there is no",
    ("create", "temporary.**"): r"the right create on 'temporary\.\*\*', where the broker's replies go, is",
    ("send", "temporary.**"): r"the right send on 'temporary\.\*\*', where the broker's replies go, is",
}
"""All that the sink needs to write exactly once, but for `connect`; and what is said without it."""


@contextmanager
def url_with(*rights: tuple[str, str]) -> Iterator[str]:
    """A broker where everybody has these rights only."""
    granted = [("connect", "**"), *rights]
    rules = tuple(AccessRule(users=(ANY_USER,), actions=(right,), nodes=(node,)) for right, node in granted)
    config = attrs.evolve(memory_config(), access_rules=rules)
    with running_broker(config) as broker:
        yield broker.url


@contextmanager
def broker_with(*rights: tuple[str, str]) -> Iterator[BlockingConnection]:
    """A connection to it."""
    with url_with(*rights) as url, connect(url) as connection:
        yield connection


def written(connection: BlockingConnection) -> Written:
    """A batch of a sink, exactly once."""
    brokers = SetBrokers(["the broker"], "spark", lambda number: connection, lambda number: None)
    told = write_sets(brokers, "p", 0, [ENCODED], "invoices")
    decide_epoch(brokers, [told], 10_000)
    brokers.close()
    return told


def test_the_rights_of_the_documentation_are_enough() -> None:
    """None of them is missing, and none more is needed."""
    with broker_with(*NEEDED) as connection:
        assert written(connection).rows == 2


@pytest.mark.parametrize("right", NEEDED)
def test_who_writes_exactly_once_without_one_of_them_is_told_which(right: tuple[str, str]) -> None:
    """The right, and the node: never only that something was refused."""
    with broker_with(*(each for each in NEEDED if each != right)) as connection:
        with pytest.raises(MissingRight, match=NEEDED[right]):
            written(connection)


@pytest.mark.parametrize("right", [("send", "invoices"), ("create", "invoices")])
def test_who_writes_at_least_once_is_told_too(right: tuple[str, str]) -> None:
    """With the same words; the two rights are all that it needs."""
    both = [("send", "invoices"), ("create", "invoices")]
    with broker_with(*both) as connection:
        assert send_all(lambda number: connection, [ENCODED], "invoices") == 2
    with broker_with(*(each for each in both if each != right)) as connection:
        with pytest.raises(MissingRight, match=NEEDED[right]):
            send_all(lambda number: connection, [ENCODED], "invoices")


@pytest.mark.parametrize("right", [("create", "temporary.**"), ("send", "temporary.**")])
def test_who_reads_is_told_of_the_replies(right: tuple[str, str]) -> None:
    """And not that the broker has no node of which it could be asked."""
    given = [("browse", "**"), ("create", "temporary.**"), ("send", "temporary.**")]
    with url_with(*given) as url:
        address = BrokerAddress((url,))
        assert RetainedClient(address).describe().nodes == {}
        drop_connection(address)
    with url_with(*(each for each in given if each != right)) as url:
        address = BrokerAddress((url,))
        with pytest.raises(MissingRight, match=NEEDED[right]):
            RetainedClient(address).describe()
        drop_connection(address)
