"""A broker as a shop leaves it: orders that wait, some that died, a topic, a log, half messages, an open
transaction. The console's pictures and walks show it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from amqp_broker import Resolution
from amqp_broker.authorisation import ACTIONS
from amqp_broker.client import BlockingConnection, connect, message
from amqp_broker.configuration import AccessRule, BrokerConfig, QueuePolicy, UserConfig
from amqp_broker.embedding import RunningBroker, running_broker
from amqp_broker.testing import memory_config
from amqp_broker.verifiers import make_verifier

NODES = ("**", "$management", "$events", "$retained", "$transactions", "$half.*")
QUEUES = {"orders.eu": 42, "orders.us": 17, "invoices": 128, "mails": 3_200, "till.sync": 9}


def _user(name: str, *roles: str) -> UserConfig:
    verifier = str(make_verifier("SCRAM-SHA-256", name, 4096, b"salt" * 4))
    return UserConfig(name=name, roles=roles, scram_sha_256=verifier)


def _config() -> BrokerConfig:
    return memory_config(
        container_id="shop-broker",
        users=(_user("ada", "operator"), _user("shop", "seller"), _user("till", "seller")),
        access_rules=(
            AccessRule(roles=("operator",), actions=ACTIONS, nodes=NODES),
            AccessRule(roles=("seller",), actions=ACTIONS, nodes=NODES),
        ),
        queue_policies=(
            QueuePolicy(pattern="orders.**", events=True, max_messages=10_000),
            QueuePolicy(pattern="prices", kind="topic"),
            QueuePolicy(pattern="sales.log", kind="log", retention_ms=86_400_000),
        ),
    )


def order(number: int) -> str:
    """The body of one."""
    return json.dumps({"order": number, "item": "a pair of shoes", "size": 36 + number % 12, "eur": 89.0})


@contextmanager
def running_shop() -> Iterator[RunningBroker]:
    """The broker with all of it, as long as the block."""
    with ExitStack() as opened:
        broker = opened.enter_context(running_broker(_config()))

        def client(user: str, container: str) -> BlockingConnection:
            return opened.enter_context(connect(broker.url, user=user, password=user, container_id=container))

        shop, till = client("shop", "shop-1"), client("till", "till-berlin")
        for name, count in QUEUES.items():
            shop.open_sender(name).send_many([
                message(order(at).encode(), content_type="application/json", message_id=f"{name}-{at}",
                        subject="order", application_properties={"shop": "berlin", "customer": 4_000 + at})
                for at in range(count)
            ])  # fmt: skip
        shop.open_sender("sales.log").send_many([order(at) for at in range(30)])
        dying = till.open_receiver("orders.eu", credit=5)
        for at in range(5):
            dying.reject(dying.receive(10), "shop:no-such-size", f"size {41 + at} is not made")
        dying.close()
        broker.wait_until(lambda: broker.depth("dead-letters") == 5)
        till.open_receiver("prices")
        shop.open_sender("prices").send_many([b"12.50"] * 8)
        till.open_receiver("invoices", credit=3)
        producer = opened.enter_context(shop.producer("checkout", lambda half: Resolution.UNKNOWN))
        for at in range(7):
            receipt = producer.send_half("orders.us", order(100 + at).encode(), half_id=f"basket-{at}")
            if at < 3:
                producer.commit(receipt)
            elif at == 3:
                producer.rollback(receipt)
        yield broker
