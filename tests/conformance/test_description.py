"""Descriptions of brokers: read, checked, found by a product's name, and what a run makes of them."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path

import attrs
import pytest

from amqp_broker.conformance.broker import Broker, Settings, endpoint_of
from amqp_broker.conformance.command_line import main
from amqp_broker.conformance.description import (
    Description,
    described_by,
    load_description,
    read_description,
    ready_made,
)
from amqp_broker.conformance.outcomes import NotApplicable
from amqp_broker.frames import Attach
from amqp_broker.testing import memory_config, running_broker
from tests.conformance.probed import probed

WHOLE = Path("conformance/description.py")


def test_the_example_is_a_description() -> None:
    """What the module shows a reader can be read, and has every key."""
    text = (Path(__file__).resolve().parents[2] / WHOLE).read_text()
    example = text.split("file.\n\n")[1].split("Every key")[0]
    described = read_description("\n".join(line[4:] for line in example.splitlines()), "example")
    assert described.nodes_capabilities == ("queue",) and described.user_password == "guest"
    assert described.lacks == {"transactions": "it has no coordinator"}
    keys = [line for line in example.splitlines() if " = " in line]
    assert len(keys) == len(attrs.fields(Description))


def test_nothing_described_is_the_usual() -> None:
    """Every key may be left out."""
    assert read_description("", "empty") == Description()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("colour = 'red'", "x.toml: nothing is called colour"),
        ("nodes_prefix = '/q/'", "x.toml: nothing is called nodes_prefix"),
        ("[nodes]\ncolour = 'red'", "x.toml: nothing is called nodes.colour"),
        ("[nodes]\nprefix = 1", "x.toml: nodes.prefix must be a text, not 1"),
        ("[limits]\njobs = true", "x.toml: limits.jobs must be a number, not True"),
        ("promises = 1", "x.toml: promises must be true or false, not 1"),
        ("profiles = ['cor']", "no profile is called cor; there are core, transactions"),
        ("[lacks]\n'9.9' = 'why'", "no scenario is called 9.9"),
        ("[lacks]\n'4.*' = ' '", r"say why there is no 4\.\*"),
        ("[limits]\njobs = 65", "jobs must be 1 to 64"),
        ("[nodes]\nmake = 'create it'", "must say {address}"),
        ("title = ", "x.toml: "),
    ],
)
def test_a_wrong_description_is_refused(text: str, message: str) -> None:
    """The file, the key and what is wrong are named."""
    with pytest.raises(ValueError, match=message):
        read_description(text, "x.toml")


def test_ready_ones_are_found() -> None:
    """By name, and by what a broker's open says; each says what a reader has to do first."""
    assert set(ready_made()) == {"activemq", "artemis", "broker-j", "ours", "qpid-cpp", "rabbitmq"}
    assert load_description("rabbitmq").nodes_prefix == "/queue/"
    assert described_by("RabbitMQ") == load_description("rabbitmq") and described_by(None) is None
    assert all(one.title and one.setup for one in ready_made().values())
    assert [name for name, one in ready_made().items() if one.promises] == ["ours"]
    with pytest.raises(ValueError, match="no broker is called rabbit; there are activemq"):
        load_description("rabbit")


def test_only_our_own_broker_is_asked_for_our_promises(tmp_path: Path) -> None:
    """A run of another broker has no scenario of them, whatever the profile."""
    path, promised = tmp_path / "run.json", "2.3/huge-size"
    for product, expected in ((None, [promised]), ("another", [])):
        config = memory_config(product=product) if product else memory_config()
        with running_broker(config) as broker:
            main(["run", broker.url, "--profile", "full", "--only", "2.3/*", "--json", str(path)])
        ran = [one["id"] for one in json.loads(path.read_text())["scenarios"]]
        assert [one for one in ran if one == promised] == expected and len(ran) > 1


def test_a_queue_is_made_by_the_command_given(tmp_path: Path) -> None:
    """Once, before it is used first; where it cannot be made the scenario is not applicable."""
    notes = tmp_path / "made"
    make = f"{sys.executable} -c \"open('{notes}', 'a').write('{{address}} ')\""
    settings = Settings(endpoint_of("amqp://host"), run_id="t", make_node=make)
    broker = Broker(settings, "2.2/example")
    assert broker.queue() == broker.queue()
    assert notes.read_text() == "conformance-t-2_2-example-q "
    with pytest.raises(NotApplicable, match="could not be made"):
        Broker(Settings(endpoint_of("amqp://host"), make_node="false {address}"), "2.2/x").queue()


def test_an_attach_asks_for_what_makes_the_queue() -> None:
    """Both termini that name a queue of the run ask for the capability; others are left alone."""
    with running_broker() as server:
        broker = Broker(probed(server.url, capabilities=("queue",)), "2.2/example")
        try:
            session = broker.session()
            sender = session.put_sender(broker.queue())
            session.put_receiver("elsewhere")
            asked = [session.peer.expect(Attach) for _ in range(2)]
        finally:
            broker.discard()
    assert sender.remote_attach is asked[0]
    assert "capabilities=[Symbol('queue')]" in next(
        line for line in broker.transcript.lines if "-> attach(name='sender-0'" in line
    )
    assert not any("capabilities" in line for line in broker.transcript.lines if "'receiver-1'" in line)


def test_a_described_broker_is_started_and_ended(tmp_path: Path) -> None:
    """Where nobody listens its command is run; nobody listens there after the run."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    file = tmp_path / "mine.toml"
    file.write_text(
        f"url = 'amqp://127.0.0.1:{port}'\n"
        "[process]\nstart = '{python} -m amqp_broker serve --memory --listen {url}'\n"
    )
    assert main(["run", "--broker", str(file), "--only", "2.5.1/begin"]) == 0
    with socket.socket() as client:
        assert client.connect_ex(("127.0.0.1", port)) != 0
