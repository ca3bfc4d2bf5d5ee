"""Logins with the clients of other languages, by every mechanism and transport that they have:
`python -m tests.examples.client_logins`.

Each client is one program of `conformance/clients`, which is told its logins line by line (the README there
has the lines). A login counts where the message is there and the broker names the mechanism; each is tried
with a wrong proof, too, and then fails. In the end every login of the table in docs/how-to/securing.md has
to have been shown, and nothing else.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import attrs
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    load_pem_private_key,
    pkcs12,
)

from amqp_broker.configuration import (
    AccessRule,
    BrokerLimits,
    ListenerConfig,
    TokenIssuerConfig,
    UserConfig,
)
from amqp_broker.embedding import RunningBroker, memory_config, running_broker
from amqp_broker.verifiers import SCRAM_SHA_1, SCRAM_SHA_256, SCRAM_SHA_512, make_verifier
from tests.examples.client_snippets import BUILD, CLIENTS
from tests.support.tokens import AUDIENCE, ISSUER, token, write_jwks
from tests.tidy.sources import ROOT

SALT: Final = bytes(range(16))
PARTS: Final = ("connect", "send", "create")
SECONDS: Final = 120
"""For one login; the programs give up before."""

TCP, TLS, TLS_INSIDE, WS, WSS = (
    "TCP", "TLS on the port", "TLS inside the AMQP port", "WebSocket", "WebSocket inside TLS",
)  # fmt: skip
TRANSPORTS: Final = (TCP, TLS, TLS_INSIDE, WS, WSS)
SCHEMES: Final = {TCP: "amqp", TLS: "amqps", TLS_INSIDE: "amqp+tls", WS: "ws", WSS: "wss"}
LISTENERS: Final = {TCP: 0, TLS: 1, TLS_INSIDE: 0, WS: 2, WSS: 3}
SCRAM: Final = (SCRAM_SHA_256, SCRAM_SHA_512, SCRAM_SHA_1)


@attrs.frozen(order=True)
class Login:
    """One client, one mechanism, one transport."""

    client: str
    mechanism: str
    transport: str

    def __str__(self) -> str:
        return f"{self.client}, {self.mechanism}, {self.transport}"


@attrs.frozen
class Client:
    """A library: its program, what it is built with (a name of `run.py`), and its logins."""

    name: str
    built_as: str
    command: tuple[str, ...]
    logins: tuple[tuple[str, str], ...]

    def cases(self) -> list[Login]:
        """Its logins."""
        return [Login(self.name, mechanism, transport) for mechanism, transport in self.logins]


def java(folder: str) -> tuple[str, ...]:
    """The class `interop.Logins` of a Maven module."""
    target = CLIENTS / folder / "target"
    path = os.pathsep.join([str(target / "classes"), str(target / "lib" / "*")])
    return ("java", "-XX:TieredStopAtLevel=1", "-cp", path, "interop.Logins")


def python(folder: str) -> tuple[str, ...]:
    """`logins.py` of a client in Python, with its own Python where it has one."""
    own = BUILD / folder / "bin" / "python"
    return (str(own) if own.exists() else sys.executable, str(CLIENTS / folder / "logins.py"))


def clients() -> tuple[Client, ...]:
    """All of them."""
    on_tls = tuple((mechanism, TLS) for mechanism in SCRAM)
    common = (("ANONYMOUS", TCP), ("PLAIN", TLS))
    external = ("EXTERNAL", TLS)
    by_socket = (("PLAIN", WS), ("PLAIN", WSS))
    token = ("XOAUTH2", TLS)
    return (
        Client("rhea", "rhea", ("node", str(CLIENTS / "rhea" / "logins.js")),
               (*common, external, token, ("OAUTHBEARER", TLS), *by_socket)),
        Client("go-amqp", "go-amqp", (str(BUILD / "go-amqp-logins"),), (*common, external, token)),
        Client("Qpid JMS", "qpid-jms", java("qpid-jms"),
               (*common, external, *on_tls, (SCRAM_SHA_1, TCP), token, ("OAUTHBEARER", TLS),
                (SCRAM_SHA_256, WS), (SCRAM_SHA_256, WSS))),
        Client("protonj2", "protonj2", java("protonj2"),
               (*common, external, *on_tls, token, (SCRAM_SHA_512, WS), (SCRAM_SHA_512, WSS))),
        Client("proton", "proton", python("proton"), (*common, external, *on_tls)),
        Client("fe2o3-amqp", "fe2o3-amqp", (str(BUILD / "fe2o3-amqp" / "debug" / "logins"),),
               (*common, *on_tls, ("PLAIN", TLS_INSIDE), (SCRAM_SHA_256, TLS_INSIDE), *by_socket)),
    )  # fmt: skip


# --- the broker, and what proves a user


def write_keys(place: Path) -> None:
    """Certificates of the authority, of listeners and of two clients; beside each one as Java reads it."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(place / "ca.pem")
    secret = BestAvailableEncryption(b"word")
    trusted = pkcs12.PKCS12Certificate(
        x509.load_pem_x509_certificate(authority.cert_pem.bytes()), b"authority"
    )
    (place / "ca.pem.p12").write_bytes(pkcs12.serialize_java_truststore([trusted], secret))
    server = authority.issue_cert("localhost", "127.0.0.1")
    server.private_key_and_cert_chain_pem.write_to_path(place / "server.pem")
    for name in ("till-7", "eve"):
        made = authority.issue_cert(f"{name}@example.org", common_name=name)
        made.private_key_and_cert_chain_pem.write_to_path(place / name)
        key: Any = load_pem_private_key(made.private_key_pem.bytes(), None)
        shown = x509.load_pem_x509_certificate(made.cert_chain_pems[0].bytes())
        store = pkcs12.serialize_key_and_certificates(name.encode(), key, shown, None, secret)
        (place / f"{name}.p12").write_bytes(store)


def listeners(place: Path) -> tuple[ListenerConfig, ...]:
    """TCP that also has a certificate, TLS, and WebSocket without and with TLS."""
    server = str(place / "server.pem")
    keys: dict[str, Any] = {"certificate_file": server, "key_file": server}
    return (
        ListenerConfig(url="amqp://127.0.0.1:0", plain_without_tls=True, anonymous=True, **keys),
        ListenerConfig(url="amqps://127.0.0.1:0", client_ca_file=str(place / "ca.pem"), **keys),
        ListenerConfig(url="ws://127.0.0.1:0", plain_without_tls=True),
        ListenerConfig(url="wss://127.0.0.1:0", **keys),
    )


@contextmanager
def broker_with_logins(place: Path) -> Iterator[RunningBroker]:
    """One user, who may log in by everything; strangers may at the listener that takes them."""
    write_keys(place)
    verifiers: dict[str, Any] = {
        name.lower().replace("-", "_"): str(make_verifier(name, "word", 4_096, SALT)) for name in SCRAM
    }
    issuer = TokenIssuerConfig(
        issuer=ISSUER, audience=AUDIENCE, jwks_file=write_jwks(place / "keys.json", k1="one")
    )
    config = memory_config(
        users=(UserConfig(name="ada", certificates=("CN=till-*",), **verifiers),),
        access_rules=(AccessRule(users=("ada", "anonymous"), actions=PARTS),),
        token_issuers=(issuer,),
        listeners=listeners(place),
        limits=BrokerLimits(login_failure_delay_ms=1),
    )
    with running_broker(config) as broker:
        yield broker


def proofs(mechanism: str, place: Path) -> tuple[str, str]:
    """The right one, and a wrong one."""
    if mechanism == "EXTERNAL":
        return str(place / "till-7"), str(place / "eve")
    if mechanism in ("XOAUTH2", "OAUTHBEARER"):
        return token("ada"), token("bob")
    return "word", "wrong"


def line(login: Login, broker: RunningBroker, proof: str, listener: int | None = None) -> str:
    """What a program is told."""
    number = LISTENERS[login.transport] if listener is None else listener
    address = broker.urls[number].rpartition("/")[2]
    return "\t".join([f"{SCHEMES[login.transport]}://{address}", login.mechanism, "ada", proof])


# --- the programs


class Program:
    """A client's program, which is told one login after the other."""

    def __init__(self, command: Sequence[str], place: Path) -> None:
        trusted = str(place / "ca.pem")
        environment = os.environ | {"SSL_CERT_FILE": trusted, "NODE_EXTRA_CA_CERTS": trusted}
        environment.pop("SSL_CERT_DIR", None)
        self._errors = (place / "errors").open("w+")
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True,
            env=environment,
        )  # fmt: skip

    def ask(self, told: str) -> str:
        """Its answer to a line; an empty one if it has ended, or takes too long."""
        assert self._process.stdin is not None and self._process.stdout is not None
        timer = threading.Timer(SECONDS, self._process.kill)
        timer.start()
        try:
            self._process.stdin.write(f"{told}\n")
            self._process.stdin.flush()
            for answer in self._process.stdout:
                if answer.split(maxsplit=1)[:1] in (["in"], ["out"], ["refused"]):
                    return answer.strip()
        except BrokenPipeError:
            pass
        finally:
            timer.cancel()
        self._errors.seek(0)
        return f"the program has ended: {self._errors.read()[-2_000:]}"

    def end(self) -> None:
        """Its input ends, and so does it."""
        self._process.communicate(timeout=SECONDS)
        self._errors.close()


def tried(login: Login, program: Program, broker: RunningBroker, place: Path) -> str:
    """What is wrong with a login, or nothing."""
    right, wrong = proofs(login.mechanism, place)
    before = broker.depth("greetings")
    answer = program.ask(line(login, broker, right))
    if answer != "in":
        return answer
    if broker.depth("greetings") != before + 1:
        return "the message did not come"
    found = [(one["mechanism"], one["tls"], one["user"]) for one in broker.entities("connection")]
    user = "anonymous" if login.mechanism == "ANONYMOUS" else "ada"
    expected = [(login.mechanism, login.transport not in (TCP, WS), user)]
    if found != expected:
        return f"expected the connections {expected}, there are {found}"
    answer = program.ask("")
    if answer != "out":
        return answer
    broker.wait_until(lambda: not broker.entities("connection"))
    # ANONYMOUS has no proof that could be wrong, but a listener that does not take it.
    elsewhere = LISTENERS[WS] if login.mechanism == "ANONYMOUS" else None
    answer = program.ask(line(login, broker, wrong, elsewhere))
    if not answer.startswith("refused"):
        return f"with a wrong proof: {answer}"
    broker.wait_until(lambda: not broker.entities("connection"))
    return "" if broker.depth("greetings") == before + 1 else "a message came by a wrong proof"


def run(client: Client, broker: RunningBroker, place: Path, only: str) -> dict[Login, str]:
    """What is wrong with each login of a client."""
    results: dict[Login, str] = {}
    chosen = [login for login in client.cases() if only in str(login)]
    program = Program(client.command, place)
    try:
        for login in chosen:
            results[login] = tried(login, program, broker, place)
            print(f"{login}: {results[login] or 'ok'}", flush=True)
    finally:
        program.end()
    return results


# --- the table of the page

PAGE: Final = ROOT / "docs" / "how-to" / "securing.md"
HERE: Final = "tests.examples.client_logins"


@attrs.frozen
class Row:
    """A mechanism or transport, the clients that log in by it, each with what shows it, and what is said of
    those that there are not.
    """

    subject: str
    shown: Mapping[str, str]
    remark: str


def table(text: str) -> list[Row]:
    """The rows of the section "Which clients log in how"."""
    section = text.split("\n## Which clients log in how\n")[1].split("\n## ")[0]
    rows = []
    for found in [each for each in section.splitlines() if re.match(r"\| [A-Z]", each)]:
        subject, named, remark = (cell.strip() for cell in found.strip("|").split("|"))
        shown = {}
        for name in filter(None, named.split(", ")):
            client, _, mark = name.partition(" [")
            shown[client] = mark.removesuffix("]") or HERE
        rows.append(Row(subject, shown, remark))
    return rows


def claimed(rows: Sequence[Row], where: str = HERE) -> set[tuple[str, str]]:
    """(mechanism or transport, client) of what the table says that `where` shows."""
    return {(row.subject, client) for row in rows for client, mark in row.shown.items() if mark == where}


def shown_by(logins: Sequence[Login]) -> set[tuple[str, str]]:
    """The same of logins."""
    return {(subject, each.client) for each in logins for subject in (each.mechanism, each.transport)}


def main(arguments: Sequence[str]) -> int:
    """Those whose names have a part, or all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", default="", help="a part of `client, mechanism, transport`")
    parser.add_argument("--built", action="store_true", help="the libraries are there already")
    options = parser.parse_args(arguments)
    chosen = [each for each in clients() if any(options.only in str(login) for login in each.cases())]
    if not options.built:
        names = ",".join(client.built_as for client in chosen)
        built = [sys.executable, str(CLIENTS / "run.py"), "--build-only", "--keep-going", "--only", names]
        subprocess.run(built, check=True)
        chosen = [each for each in clients() if each.built_as in names.split(",")]  # with what was built
    results: dict[Login, str] = {}
    with tempfile.TemporaryDirectory() as folder, broker_with_logins(Path(folder)) as broker:
        for client in chosen:
            results |= run(client, broker, Path(folder), options.only)
    failed = any(results.values())
    if not options.only:
        shown = shown_by([login for login, wrong in results.items() if not wrong])
        for subject, name in sorted(claimed(table(PAGE.read_text(encoding="utf-8"))) ^ shown):
            print(f"{subject}, {name}: expected the same in {PAGE.name} and in what passed", flush=True)
            failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
