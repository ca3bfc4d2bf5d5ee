"""Logins and WebSocket with the clients of other languages: `python -m tests.examples.client_logins`.

Each program logs in to one broker, by one mechanism, and sends a message to the queue `greetings`; then
that is there. Each is tried with a wrong proof, too, and then fails. The libraries are those of
`conformance/clients`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import attrs
import trustme

from amqp_broker.configuration import (
    AccessRule,
    BrokerLimits,
    ListenerConfig,
    TokenIssuerConfig,
    UserConfig,
)
from amqp_broker.embedding import RunningBroker, memory_config, running_broker
from amqp_broker.verifiers import SCRAM_SHA_1, SCRAM_SHA_256, make_verifier
from tests.examples.client_snippets import CLIENTS, SECONDS, Commands, go_amqp, proton, qpid_jms, rhea
from tests.support.tokens import AUDIENCE, ISSUER, token, write_jwks

SALT: Final = bytes(range(16))
PARTS: Final = ("connect", "send", "create")

JAVASCRIPT: Final = """
const container = require('rhea').create_container();
%(ready)s
for (const event of ['connection_error', 'sender_error', 'disconnected']) {
    container.on(event, (context) => { console.error(event, context.error); process.exit(1); });
}
container.on('connection_open', (context) => context.connection.open_sender('greetings'));
container.once('sendable', (context) => context.sender.send({ body: 'hello' }));
container.on('accepted', () => process.exit(0));
container.connect({ %(how)s, reconnect: false });
"""
GO_XOAUTH2: Final = """
	connection, err := amqp.Dial(ctx, "amqp://%(host)s:%(port)d", &amqp.ConnOptions{
		SASLType: amqp.SASLTypeXOAUTH2("ada", "%(proof)s", 8192),
	})
	if err != nil {
		log.Fatal(err)
	}
	session, err := connection.NewSession(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	sender, err := session.NewSender(ctx, "greetings", nil)
	if err != nil {
		log.Fatal(err)
	}
	err = sender.Send(ctx, amqp.NewMessage([]byte("hello")), nil)
"""
JAVA: Final = """
        JmsConnectionFactory factory = new JmsConnectionFactory("%(url)s?amqp.saslMechanisms=%(mechanism)s");
        try (Connection connection = factory.createConnection("ada", "%(proof)s");
             Session session = connection.createSession()) {
            connection.start();
            session.createProducer(session.createQueue("greetings")).send(session.createTextMessage("hello"));
        }
"""
PYTHON: Final = """
from proton import Message, SSLDomain
from proton.utils import BlockingConnection

domain = SSLDomain(SSLDomain.MODE_CLIENT)
domain.set_trusted_ca_db("%(authority)s")
domain.set_credentials("%(proof)s", "%(proof)s", None)
domain.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME)
connection = BlockingConnection("amqps://localhost:%(port)d", ssl_domain=domain, allowed_mechs="EXTERNAL")
connection.create_sender("greetings").send(Message("hello"))
connection.close()
"""


@attrs.frozen
class Case:
    """One login: `program` with its values filled in, and what proves the user, rightly and wrongly."""

    name: str
    client: str
    commands: Callable[[Path, str], Commands]
    program: str
    listener: int
    right: str
    wrong: str
    values: dict[str, str] = attrs.field(factory=dict)


def cases(place: Path) -> list[Case]:
    """All logins; what they need of files stands in `place`."""
    good, bad = token("ada"), token("bob")
    by_token = {"how": "host: '%(host)s', port: %(port)d, username: 'ada', token: '%(proof)s'", "ready": ""}
    socket = {
        "how": "connection_details: connect('ws://%(host)s:%(port)d', ['amqp'], {}), "
        "username: 'ada', password: '%(proof)s'",
        "ready": "const connect = container.websocket_connect(require('ws'));",
    }
    java = ("qpid-jms", qpid_jms, JAVA)
    sha_1, sha_256 = ({"mechanism": name} for name in (SCRAM_SHA_1, SCRAM_SHA_256))
    till, eve = (str(place / name) for name in ("till-7", "eve"))
    return [
        Case("rhea, XOAUTH2", "rhea", rhea, JAVASCRIPT % by_token, 0, good, bad),
        Case("go-amqp, XOAUTH2", "go-amqp", go_amqp, GO_XOAUTH2, 0, good, bad),
        Case("Qpid JMS, XOAUTH2", *java, 0, good, bad, {"mechanism": "XOAUTH2"}),
        Case("Qpid JMS, SCRAM-SHA-1", *java, 0, "word", "wrong", sha_1),
        Case("proton, EXTERNAL by a rule", "proton", proton, PYTHON, 1, till, eve),
        Case("rhea, WebSocket", "rhea", rhea, JAVASCRIPT % socket, 2, "word", "wrong"),
        Case("Qpid JMS, WebSocket", *java, 2, "word", "wrong", sha_256),
    ]


def write_keys(place: Path) -> ListenerConfig:
    """The certificates of a listener and of two clients; the listener."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(place / "ca.pem")
    server = authority.issue_cert("localhost", "127.0.0.1")
    server.private_key_and_cert_chain_pem.write_to_path(place / "server.pem")
    for name in ("till-7", "eve"):
        made = authority.issue_cert(f"{name}@example.org", common_name=name)
        made.private_key_and_cert_chain_pem.write_to_path(place / name)
    return ListenerConfig(
        url="amqps://127.0.0.1:0", certificate_file=str(place / "server.pem"),
        key_file=str(place / "server.pem"), client_ca_file=str(place / "ca.pem"),
    )  # fmt: skip


@contextmanager
def broker_with_logins(place: Path) -> Iterator[RunningBroker]:
    """One user, who may log in by everything, at three listeners."""
    ada = UserConfig(
        name="ada", certificates=("CN=till-*",),
        scram_sha_1=str(make_verifier(SCRAM_SHA_1, "word", 4_096, SALT)),
        scram_sha_256=str(make_verifier(SCRAM_SHA_256, "word", 4_096, SALT)),
    )  # fmt: skip
    config = memory_config(
        users=(ada,),
        access_rules=(AccessRule(users=("ada",), actions=PARTS),),
        token_issuers=(
            TokenIssuerConfig(
                issuer=ISSUER, audience=AUDIENCE, jwks_file=write_jwks(place / "keys.json", k1="one")
            ),
        ),
        listeners=(
            ListenerConfig(url="amqp://127.0.0.1:0", plain_without_tls=True),
            write_keys(place),
            ListenerConfig(url="ws://127.0.0.1:0", plain_without_tls=True),
        ),
        limits=BrokerLimits(login_failure_delay_ms=1),
    )
    with running_broker(config) as broker:
        yield broker


def ran(case: Case, url: str, place: Path, proof: str) -> str:
    """What the program said in vain, or nothing."""
    host, port = url.rpartition("/")[2].rsplit(":", 1)
    values: dict[str, Any] = {"host": host, "port": int(port), "proof": proof, "authority": place / "ca.pem"}
    values["url"] = url.replace("ws://", "amqpws://")
    with tempfile.TemporaryDirectory() as folder:
        for command in case.commands(Path(folder), case.program % (values | case.values)):
            done = subprocess.run(
                command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS
            )
            if done.returncode:
                return f"{command[0]} ended with status {done.returncode}:\n{done.stdout}{done.stderr}"
    return ""


def main(arguments: Sequence[str]) -> int:
    """Those whose names have a part, or all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", default="", help="a part of their names")
    parser.add_argument("--built", action="store_true", help="the libraries are there already")
    options = parser.parse_args(arguments)
    failed = False
    with tempfile.TemporaryDirectory() as folder, broker_with_logins(Path(folder)) as broker:
        chosen = [case for case in cases(Path(folder)) if options.only in case.name]
        if not options.built:
            names = ",".join(sorted({case.client for case in chosen}))
            built = [sys.executable, str(CLIENTS / "run.py"), "--build-only", "--keep-going", "--only", names]
            subprocess.run(built, check=True)
        for number, case in enumerate(chosen, 1):
            url = broker.urls[case.listener]
            wrong = ran(case, url, Path(folder), case.right)
            if not wrong and broker.depth("greetings") != number:
                wrong = "the message did not come"
            if not wrong and not ran(case, url, Path(folder), case.wrong):
                wrong = "a wrong proof was taken"
            failed = failed or bool(wrong)
            print(f"{case.name}: {wrong or 'ok'}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
