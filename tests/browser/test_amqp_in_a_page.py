"""A page in Chromium that speaks AMQP over WebSocket, with rhea as its package has it for browsers."""

from __future__ import annotations

import base64
import hashlib
import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from amqp_broker.configuration import AccessRule, BrokerLimits, ListenerConfig, UserConfig
from amqp_broker.embedding import RunningBroker, memory_config, running_broker
from amqp_broker.verifiers import SCRAM_SHA_256, make_verifier
from tests.amqp_broker.test_listener import Keys
from tests.amqp_broker.test_listener import keys as keys
from tests.browser.chromium import Page, chromium
from tests.tidy.sources import ROOT

RHEA: Final = ROOT / "conformance" / "clients" / "rhea" / "node_modules" / "rhea" / "dist" / "rhea.js"
MESSAGES: Final = 3
PAGE: Final = """<!doctype html><title>A shop</title><link rel="icon" href="data:,">
<script src="rhea.js"></script><script>
const container = require("rhea").create_container();
let connection;

function opened(url, password) {
  return new Promise((done, failed) => {
    for (const event of ["connection_error", "disconnected", "error"])
      container.once(event, (context) => failed(new Error(`${event}: ${context.error || context}`)));
    container.once("connection_open", () => done(true));
    const socket = container.websocket_connect(WebSocket)(url, ["amqp"], {});
    connection = container.connect(
      { connection_details: socket, username: "ada", password: password, reconnect: false });
  });
}

function sent(bodies) {
  return new Promise((done, failed) => {
    let accepted = 0;
    connection.once("sendable", ({ sender }) => {
      for (const body of bodies) sender.send({ durable: true, body: body });
    });
    connection.on("rejected", failed);
    connection.on("accepted", () => { if (++accepted == bodies.length) done(accepted); });
    connection.open_sender("greetings");
  });
}

function received(count) {
  return new Promise((done) => {
    const bodies = [];
    connection.on("message", ({ message, delivery }) => {
      bodies.push(`${message.durable} ${message.body}`);
      delivery.accept();
      if (bodies.length == count) done(bodies);
    });
    connection.open_receiver({ source: "greetings", credit_window: count, autoaccept: false });
  });
}

function closed() {
  return new Promise((done) => {
    connection.once("connection_close", () => done(true));
    connection.close();
  });
}
</script>"""


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a web server with the page."""
    assert RHEA.exists(), "expected rhea, found none: conformance/clients/run.py --build-only --only rhea"
    folder = tmp_path_factory.mktemp("site")
    (folder / "index.html").write_text(PAGE)
    (folder / "rhea.js").symlink_to(RHEA)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port
    server.shutdown()
    server.server_close()
    thread.join()


@contextmanager
def broker_at(listener: ListenerConfig) -> Iterator[RunningBroker]:
    """A broker with one user."""
    ada = UserConfig(name="ada", scram_sha_256=str(make_verifier(SCRAM_SHA_256, "word", 4_096, bytes(16))))
    rule = AccessRule(users=("ada",), actions=("connect", "send", "create", "receive"))
    config = memory_config(
        users=(ada,), access_rules=(rule,), listeners=(listener,),
        limits=BrokerLimits(login_failure_delay_ms=1),
    )  # fmt: skip
    with running_broker(config) as broker:
        yield broker


def trusted(keys: Keys) -> str:
    """The option by which Chromium trusts the key of this server, and nothing else."""
    shown = x509.load_pem_x509_certificate(Path(keys.server).read_bytes()).public_key()
    digest = hashlib.sha256(shown.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).digest()
    return f"--ignore-certificate-errors-spki-list={base64.b64encode(digest).decode()}"


def refused(page: Page, broker: RunningBroker, password: str) -> str:
    """Why it does not get in."""
    told = f"opened('{broker.url}', '{password}').then(() => 'it is in', String)"
    return str(page.js(told))


@pytest.mark.parametrize("scheme", ["ws", "wss"])
def test_a_page_logs_in_sends_and_receives(scheme: str, site: int, keys: Keys, tmp_path: Path) -> None:
    """Durable messages, sent, received and accepted; by WebSocket, and inside TLS."""
    origins = (f"http://127.0.0.1:{site}",)
    if scheme == "wss":
        listener = keys.listener(url="wss://127.0.0.1:0", origins=origins)
    else:
        listener = ListenerConfig(url="ws://127.0.0.1:0", plain_without_tls=True, origins=origins)
    with broker_at(listener) as broker, chromium(tmp_path, trusted(keys)) as page:
        page.go(f"http://127.0.0.1:{site}/")
        assert page.js(f"opened('{broker.url}', 'word')") is True
        (found,) = broker.entities("connection")
        assert (found["user"], found["mechanism"], found["tls"]) == ("ada", "PLAIN", scheme == "wss")
        bodies = [f"shoe {number}" for number in range(MESSAGES)]
        assert page.js(f"sent({bodies})") == MESSAGES
        assert broker.depth("greetings") == MESSAGES
        assert page.js(f"received({MESSAGES})") == [f"true {body}" for body in bodies]
        assert page.js("closed()") is True
        broker.wait_until(lambda: broker.depth("greetings") == 0)  # nobody confirms an acceptance
        assert page.faults == []


def test_a_page_with_a_wrong_password_or_of_another_origin_is_refused(site: int, tmp_path: Path) -> None:
    """The same page by another name is of another origin."""
    listener = ListenerConfig(
        url="ws://127.0.0.1:0", plain_without_tls=True, origins=(f"http://127.0.0.1:{site}",)
    )
    with broker_at(listener) as broker, chromium(tmp_path) as page:
        page.go(f"http://127.0.0.1:{site}/")
        assert "Failed to authenticate: 1" in refused(page, broker, "wrong")
        page.go(f"http://localhost:{site}/")
        assert refused(page, broker, "word").startswith("Error: disconnected")
        assert any("403" in fault for fault in page.faults), page.faults
        assert broker.entities("connection") == []


def test_a_certificate_that_the_browser_does_not_know_is_refused(
    site: int, keys: Keys, tmp_path: Path
) -> None:
    """What is trusted above is trusted by its option only."""
    listener = keys.listener(url="wss://127.0.0.1:0", origins=(f"http://127.0.0.1:{site}",))
    with broker_at(listener) as broker, chromium(tmp_path) as page:
        page.go(f"http://127.0.0.1:{site}/")
        assert refused(page, broker, "word").startswith("Error: disconnected")
        assert any("ERR_CERT_AUTHORITY_INVALID" in fault for fault in page.faults), page.faults
