"""What `amqp-broker doctor` says: what is open to whom, which limits are off, what the disk promises."""

from __future__ import annotations

from pathlib import Path

import pytest

from amqp_broker.command_line import main
from amqp_broker.configuration import BrokerConfig, parse_configuration
from amqp_broker.doctor import diagnosis
from tests.support.tokens import AUDIENCE, ISSUER, write_jwks

SECURED = f"""
[[listener]]
url = "amqps://0.0.0.0:5671"
certificate_file = "c"
key_file = "k"
client_ca_file = "a"
[[listener]]
url = "amqp://0.0.0.0:5672"
anonymous = true
[[listener]]
url = "ws://127.0.0.1:8080"
origins = ["https://shop.example"]
[[token_issuer]]
issuer = "{ISSUER}"
audience = "{AUDIENCE}"
jwks_file = "keys.json"
[[user]]
name = "shop"
roles = ["seller"]
[[user]]
name = "lost"
[[access]]
users = ["anonymous"]
actions = ["connect"]
[[access]]
roles = ["seller"]
actions = ["connect", "send"]
nodes = ["orders.**"]
[[queue]]
pattern = "orders.**"
max_messages = 1000
[limits]
event_keep_bytes = 0
max_connections = 7
"""


def test_a_broker_without_a_configuration_is_open_and_says_so(tmp_path: Path) -> None:
    """To this machine, for everything."""
    told = diagnosis(BrokerConfig(data_dir=str(tmp_path / "data")))
    assert "  amqp://127.0.0.1:5672: from this machine only, in the clear" in told
    assert "    in the clear: ANONYMOUS" in told
    assert "! whoever connects may do everything: no user, rule or issuer is configured" in told
    assert "! all other queues may grow until the disk is full: neither max_messages nor max_bytes" in told
    assert any("the directory is not there yet" in line for line in told)


def test_each_listener_user_rule_and_limit_is_told(tmp_path: Path) -> None:
    """What deserves a second look is marked."""
    write_jwks(tmp_path / "keys.json", k1="one")
    (tmp_path / "amqp-broker-data").mkdir(mode=0o755)
    told = diagnosis(parse_configuration(SECURED, tmp_path))
    for line in (
        "  amqps://0.0.0.0:5671: from other machines, too, inside TLS",
        "    inside TLS: EXTERNAL for certificates of users, OAUTHBEARER, XOAUTH2",
        "    clients may show a certificate, and need none",
        "!   without TLS messages are readable on the way",
        "!   who does not log in gets in from other machines",
        "    pages in browsers may connect from https://shop.example",
        "! who does not log in: connect at **",
        "  the role seller: connect, send at orders.**",
        "! lost can log in, and may do nothing, not even connect",
        f"  tokens of {ISSUER}: users of this configuration",
        "  other than by default: max_connections",
        f"! other users of this machine may look into {tmp_path / 'amqp-broker-data'}",
    ):
        assert line in told, line
    assert not any("queues orders" in line for line in told)
    off = next(line for line in told if line.startswith("  off: "))
    assert "event_keep_bytes" in off and "max_connections" not in off


def test_memory_promises_nothing() -> None:
    """And is marked."""
    assert "! everything is in memory: nothing outlives the broker" in diagnosis(BrokerConfig(memory=True))


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It prints, or says what is wrong with the file; no secret is shown."""
    file = tmp_path / "broker.toml"
    file.write_text("memory = true\n")
    assert main(["doctor", "--config", str(file)]) == 0
    assert capsys.readouterr().out.startswith("Who can connect\n")
    file.write_text("memory = 7\n")
    assert main(["doctor", "--config", str(file)]) == 2
    assert "memory = 7" in capsys.readouterr().err
