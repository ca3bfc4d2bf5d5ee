"""A fault in the handler of an outcome: its connection ends, and none of its deliveries is lost."""

from __future__ import annotations

from typing import Any

import pytest

from amqp_broker.broker_nodes import BrokerNodes
from amqp_broker.frames import Accepted, Modified, Rejected
from amqp_broker.nodes import queue_source
from amqp_broker.testing import memory_config, running_broker
from amqp_broker.testing.blocking_peer import ConnectionLost
from amqp_broker.testing.peer import PeerError
from tests.support.broker_clients import receive, send, session_to

pytestmark = pytest.mark.interpreted

COUNT = 20
FAULTS: dict[str, tuple[Any, str, Any]] = {
    "the verbs of what leaves": (queue_source, "retire_verbs", Accepted()),
    "the log of what is rejected": (BrokerNodes, "rejected", Rejected()),
    "the verbs of what returns": (queue_source, "return_verbs", Modified(delivery_failed=True)),
    "the merge of annotations": (queue_source, "annotated", Modified(message_annotations={"x-opt-a": 1})),
}


@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_gives_everything_back(fault: str, settled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them come to the next consumer."""
    owner, name, outcome = FAULTS[fault]

    def fails(*_: Any) -> None:
        raise RuntimeError("a fault")

    with running_broker(memory_config()) as broker:
        with session_to(broker) as session:
            send(session.attach_sender("s", "q"), *[b"x"] * COUNT, durable=True)
            receiver = session.attach_receiver("r", "q", credit=COUNT)
            got = receive(receiver, COUNT)
            with monkeypatch.context() as planted:
                planted.setattr(owner, name, fails)
                receiver.settle(got, outcome, settled=settled)
                with pytest.raises((ConnectionLost, PeerError)):
                    session.connection.pump_until(lambda: False)
        with session_to(broker, "next") as session:
            assert len(receive(session.attach_receiver("r", "q", credit=COUNT), COUNT)) == COUNT
