"""The other brokers of `conformance/load`: each starts and accepts, or says what is missing here."""

from __future__ import annotations

import subprocess
import sys

import pytest

from amqp_broker.conformance.load.peers import PEERS, NotThereError, running_peer


@pytest.mark.parametrize("name", PEERS)
def test_a_peer_starts_and_accepts_durable_messages(name: str) -> None:
    """As the comparison asks of it, by its own login and form of address."""
    try:
        with running_peer(PEERS[name]) as found:
            peer = found.peer
            login = "" if peer.user is None else f"{peer.user}:{peer.password}@"
            url = f"amqp://{login}{found.host}:{found.port}/{peer.prefix}kept"
            command = [sys.executable, "-m", "amqp_broker", "bench", url, "--durable", "--count", "100"]
            said = subprocess.run(command, capture_output=True, text=True)
    except NotThereError as error:
        assert "is missing" in str(error) or "rabbitmq-server is" in str(error) or "Maven" in str(error)
        return
    assert said.returncode == 0, said.stdout + said.stderr
    assert "outcomes: 100 accepted" in said.stdout
