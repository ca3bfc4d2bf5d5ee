"""Health and metrics over HTTP: what is told, what it costs, and what nobody can do with it."""

from __future__ import annotations

import http.client
import json
import re
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import attrs
import pytest
import trio
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from amqp_broker.authorisation import ACTIONS
from amqp_broker.broker import Broker
from amqp_broker.client import ClientError, LinkRefused, MessageRefused, connect
from amqp_broker.client.blocking_management import Refused
from amqp_broker.configuration import (
    AccessRule,
    BrokerConfig,
    BrokerLimits,
    ConfigurationError,
    HttpConfig,
    ListenerConfig,
    QueuePolicy,
    UserConfig,
    parse_configuration,
)
from amqp_broker.embedding import RunningBroker, running_broker
from amqp_broker.frames import Source, encode_message
from amqp_broker.management.command import Asker
from amqp_broker.monitoring.figures import ALL, COUNTER, HISTOGRAM
from amqp_broker.testing.blocking_peer import BlockingPeer
from amqp_broker.verifiers import make_verifier

EXPOSED = frozenset(
    name
    for one in ALL
    for name in (
        [f"{one.metric}_total"] if one.kind == COUNTER
        else [one.metric, *[f"{one.metric}_{part}" for part in ("bucket", "sum", "count")]]
        if one.kind == HISTOGRAM else [one.metric]
    )
)  # fmt: skip
"""The names by which Prometheus knows them."""

ANY = (ListenerConfig(url="amqp://127.0.0.1:0"),)
HTTP = HttpConfig(url="http://127.0.0.1:0")
WORDS = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: disk\r\n\r\n"


def config_with(http_config: HttpConfig = HTTP, **limits: int) -> BrokerConfig:
    """A broker in memory that tells figures as they are at that moment."""
    policies = (
        QueuePolicy(pattern="kept", retention_ms=60_000),
        QueuePolicy(pattern="small", max_messages=2),
    )
    known = BrokerLimits(**{"metrics_interval_ms": 0, **limits})
    return BrokerConfig(memory=True, listeners=ANY, http=http_config, limits=known, queue_policies=policies)


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    """One of these."""
    with running_broker(config_with()) as running:
        yield running


def address_of(broker: RunningBroker) -> tuple[str, int]:
    """Where health and metrics are."""
    url = broker.call(lambda inner: inner.http_url)
    host, _, port = url.removeprefix("http://").rpartition(":")
    return host, int(port)


def get(
    broker: RunningBroker, path: str, method: str = "GET", **fields: Any
) -> tuple[int, str, http.client.HTTPMessage]:
    """Status, body and headers."""
    with closing(http.client.HTTPConnection(*address_of(broker), timeout=20)) as connection:
        connection.request(method, path, **fields)
        response = connection.getresponse()
        return response.status, response.read().decode(), response.headers


def families(text: str) -> list[Any]:
    """What the parser of the library makes of it."""
    return [*text_string_to_metric_families(text)]  # type: ignore[no-untyped-call]


def metrics_of(broker: RunningBroker) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """All samples, read by the parser of the library: it is strict."""
    status, text, headers = get(broker, "/metrics")
    assert status == 200 and headers["Content-Type"].startswith("application/openmetrics-text")
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families(text) for sample in family.samples
    }  # fmt: skip


def test_health_of_a_running_broker(broker: RunningBroker) -> None:
    """Alive and ready; HEAD without a body; other paths and methods are named."""
    for path in ("/livez", "/readyz", "/livez?verbose=1"):
        status, body, headers = get(broker, path)
        assert (status, json.loads(body)) == (200, {"status": "ok"})
        assert headers["Cache-Control"] == "no-store"
    status, body, headers = get(broker, "/livez", "HEAD")
    assert (status, body, headers["Content-Length"]) == (200, "", "17")
    status, body, _ = get(broker, "/secrets")
    assert status == 404 and "/livez, /readyz, /metrics" in body
    status, _, headers = get(broker, "/livez", "POST", body=b"x" * 100)
    assert (status, headers["Allow"]) == (405, "GET, HEAD")


def test_why_a_broker_is_not_ready(broker: RunningBroker) -> None:
    """A commit that does not return; a stop. A failed store is no life any more."""

    def begun(inner: Broker, ago_s: float) -> None:
        inner.writer.counts.begun_at = time.perf_counter() - ago_s if ago_s else 0.0

    broker.call(begun, 60.0)
    status, body, _ = get(broker, "/readyz")
    assert status == 503 and "a commit has taken 60 s" in json.loads(body)["reason"]
    assert get(broker, "/livez")[0] == 200
    broker.call(begun, 0.0)
    assert get(broker, "/readyz")[0] == 200

    def when_stopping(inner: Broker) -> tuple[str, str]:
        before = inner.why_closed()
        inner._stop_asked.set()
        try:
            return before, inner.why_closed()
        finally:
            inner._stop_asked = trio.Event()

    assert broker.call(when_stopping) == ("", "it is stopping")


def test_metrics_are_what_management_tells(broker: RunningBroker) -> None:
    """The same figures, by other names."""
    url = broker.url
    with connect(url) as client, Asker(url) as asker:
        sender = client.open_sender("orders")
        sender.send_many([b"x" * 100] * 50)
        receiver = client.open_receiver("orders", credit=10)
        for _ in range(3):
            receiver.accept(receiver.receive(5))
        kept = client.open_sender("kept")
        kept.send_many([b"y"] * 4)
        found = metrics_of(broker)
        queue = asker.ask("READ", "queue", identity="orders")
        whole = asker.ask("READ", "broker", identity="self")
    of_queue = (("queue", "orders"),)
    assert found["amqp_queue_messages", of_queue] == queue["messages"] == 47
    assert found["amqp_queue_arrived_total", of_queue] == queue["arrived"] == 50
    assert found["amqp_queue_accepted_total", of_queue] == queue["accepted"] == 3
    assert found["amqp_queue_consumers", of_queue] == 1
    assert 0 <= found["amqp_queue_oldest_age_seconds", of_queue] < 20
    assert found["amqp_messages_arrived_total", ()] >= 54
    assert found["amqp_memory_limit_bytes", ()] == whole["memory_limit_bytes"]
    assert 0 < found["amqp_commit_seconds_count", ()] <= whole["commits"]
    assert found["amqp_commit_seconds_bucket", (("le", "+Inf"),)] == found["amqp_commit_seconds_count", ()]
    assert found["amqp_commit_operations_sum", ()] <= whole["commit_operations"]
    assert found["process_resident_memory_bytes", ()] > 1e6


def test_states_and_lags_are_told(broker: RunningBroker) -> None:
    """Half messages by state, transactions by state, a cursor's lag, a backup's age."""
    with connect(broker.url) as client:
        producer = client.producer("payments")
        producer.send_half("orders", b"x")
        client.open_sender("kept").send_many([b"y"] * 7)
        requester = client.open_requester("$retained")
        requester.request("hold", {"cursor": "reader", "start": {"kept": "first"}})
        found = metrics_of(broker)
        assert sum(value for (name, _), value in found.items() if name == "amqp_half_messages") == 1
        assert found["amqp_cursor_lag", (("address", "kept"), ("cursor", "reader"))] == 7
        assert found["amqp_backup_last_success_seconds", ()] == 0
        assert found["amqp_sequenced_streams", ()] == 0


def test_all_that_is_told_is_in_the_table(broker: RunningBroker) -> None:
    """And nothing else but the process; each has a meaning, and no two one name."""
    names = {name for name, _ in metrics_of(broker)}
    own = {name for name in names if not name.startswith("process_")}
    assert own <= EXPOSED | {name.removesuffix("_total") + "_created" for name in EXPOSED}
    assert len({one.metric for one in ALL}) == len(ALL) and all(one.meaning.endswith(".") for one in ALL)


def test_names_that_are_told_apart_are_bounded() -> None:
    """By `metrics_labels` and the patterns; the rest is in the sums."""
    wanted = HttpConfig(url="http://127.0.0.1:0", queues=("shop.*",))
    with running_broker(config_with(wanted, metrics_labels=3)) as broker:
        with connect(broker.url) as client:
            for number in range(6):
                client.open_sender(f"shop.{number}").send(b"x")
                client.open_sender(f"other.{number}").send(b"x")
            found = metrics_of(broker)
        told = {labels[0][1] for name, labels in found if name == "amqp_queue_messages"}
        assert told == {"shop.0", "shop.1", "shop.2"}
        assert found["amqp_queues_not_told_apart", ()] == 9 and found["amqp_messages", ()] == 12


def test_a_name_cannot_forge_a_sample(broker: RunningBroker) -> None:
    """Quotes, line ends and backslashes in the name of a queue stay in its label."""
    name = 'a"} 7\\n# x \\'
    with connect(broker.url) as client:
        client.open_sender(name).send(b"x")
        assert metrics_of(broker)["amqp_queue_messages", (("queue", name),)] == 1


def test_no_secret_is_told() -> None:
    """Neither the name nor the verifier of a user, nor the name of a peer or its container."""
    verifier = str(make_verifier("SCRAM-SHA-256", "secret-password", 4096, b"0123456789abcdef"))
    config = BrokerConfig(
        memory=True,
        listeners=ANY,
        http=HTTP,
        users=(UserConfig(name="top-secret-user", scram_sha_256=verifier),),
        access_rules=(AccessRule(users=("*",), actions=ACTIONS),),
    )
    with running_broker(config) as broker:
        with connect(
            broker.url, user="top-secret-user", password="secret-password", container_id="secret-c"
        ) as client:
            client.open_sender("orders").send(b"x")
            _, text, _ = get(broker, "/metrics")
    assert "secret" not in text and verifier[20:40] not in text


def test_scrapes_share_what_they_cost() -> None:
    """Within `metrics_interval_ms` the figures of before are told."""
    with running_broker(config_with(metrics_interval_ms=3_600_000)) as broker:
        before = get(broker, "/metrics")[1]
        with connect(broker.url) as client:
            client.open_sender("orders").send(b"x")
        assert get(broker, "/metrics")[1] == before


# Limits


def raw(broker: RunningBroker, data: bytes, patience_s: float = 10.0) -> bytes:
    """What comes back until the broker closes."""
    with closing(socket.create_connection(address_of(broker), patience_s)) as peer:
        peer.sendall(data)
        found = b""
        while piece := _read(peer):
            found += piece
        return found


def _read(peer: socket.socket) -> bytes:
    try:
        return peer.recv(65_536)
    except ConnectionResetError:
        return b""


def test_what_is_no_request_ends_its_connection_only() -> None:
    """Garbage, large heads and bodies, half a request: an answer or the end, and the next one is served."""
    with running_broker(config_with(http_timeout_ms=300, http_request_bytes=1_024)) as broker:
        for data, status in (
            (b"\x00\x01\x02garbage\r\n\r\n", b"400"),
            (b"AMQP\x03\x01\x00\x00" * 8 + b"\r\n\r\n", b"400"),
            (b"GET /livez HTTP/1.1\r\n\r\n", b"400"),  # without a host
            (b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 5_000 + b"\r\n\r\n", b"431"),
            (b"POST /livez HTTP/1.1\r\nHost: ::1\r\nContent-Length: 5000\r\n\r\n" + b"x" * 5_000, b"413"),
            (b"GET /livez HTTP/1.1\r\nHost: localhost\r\n", b""),  # and nothing more
            (b"", b""),
        ):
            found = raw(broker, data)
            assert (found.split(b" ")[1] if found else b"") == status, (data[:40], found[:200])
            assert get(broker, "/livez")[0] == 200
        assert raw(broker, b"GET /livez HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 200")
        assert refused(broker) == {"http_request_bytes": 2, "http_timeout_ms": 1}


def test_a_page_that_calls_by_a_name_that_leads_here_learns_nothing(broker: RunningBroker) -> None:
    """A loopback listener is called by an address or by localhost (DNS rebinding)."""
    for host in (b"evil.example", b"127.0.0.1.evil.example", b"", b"[", b"localhost.evil.example:80"):
        found = raw(broker, b"GET /metrics HTTP/1.1\r\nConnection: close\r\nHost: " + host + b"\r\n\r\n")
        assert found.startswith(b"HTTP/1.1 421"), (host, found[:60])
    for host in (b"127.0.0.1", b"localhost:9", b"[::1]:80", b"127.9.9.9"):
        found = raw(broker, b"GET /livez HTTP/1.1\r\nConnection: close\r\nHost: " + host + b"\r\n\r\n")
        assert found.startswith(b"HTTP/1.1 200"), (host, found[:60])


def test_requests_on_one_connection_are_answered_in_order(broker: RunningBroker) -> None:
    """Also where they come at once."""
    one = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
    last = b"GET /secrets HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    found = raw(broker, one + one + last)
    assert re.findall(rb"HTTP/1.1 (\d+)", found) == [b"200", b"200", b"404"]


def test_connections_beyond_the_limit_are_closed() -> None:
    """`http_connections`; when one has gone, the next one is served. AMQP's are none of them."""
    with running_broker(config_with(http_connections=2)) as broker:
        idle = [socket.create_connection(address_of(broker)) for _ in range(2)]
        for each in idle:  # they are accepted, since one of their requests is answered
            each.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert each.recv(1_000).startswith(b"HTTP/1.1 200")
        assert raw(broker, b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n") == b""
        with connect(broker.url) as client:
            client.open_sender("orders").send(b"x")
        for each in idle:
            each.close()
        deadline = time.monotonic() + 10
        while not raw(broker, b"GET /livez HTTP/1.0\r\n\r\n"):
            assert time.monotonic() < deadline


def test_a_fault_in_an_answer_is_an_answer(broker: RunningBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """500; the broker goes on."""
    from amqp_broker.monitoring.metrics import Metrics

    async def fail(_: Metrics) -> bytes:
        raise RuntimeError("nobody expected this")

    monkeypatch.setattr(Metrics, "_made", fail)
    status, body, _ = get(broker, "/metrics")
    assert status == 500 and "nobody expected" not in body
    assert get(broker, "/livez")[0] == 200


# The configuration


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('url = "http://0.0.0.0:9090"', "http.url = .*must be a loopback address"),
        ('url = "http://127.0.0.1"', "must be http://HOST:PORT"),
        ('url = "https://127.0.0.1:1"', "must be http://HOST:PORT"),
        ('url = "http://127.0.0.1:1/metrics"', "must be http://HOST:PORT"),
        ("queues = []", "at least one"),
        ('queues = ["a.*.b"]', "pattern"),
    ],
)
def test_wrong_settings_are_told(text: str, words: str) -> None:
    """With the field, the value and what is allowed."""
    with pytest.raises(ConfigurationError, match=words):
        parse_configuration(f"[http]\n{text}\n")


def test_others_may_reach_it_where_that_is_said() -> None:
    """And a port that is in use is told."""
    config = parse_configuration('[http]\nurl = "http://0.0.0.0:9090"\nnot_only_loopback = true\n')
    assert (config.http.host, config.http.port) == ("0.0.0.0", 9090)
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(Exception, match="http.url.*in use"):
            with running_broker(config_with(HttpConfig(url=f"http://127.0.0.1:{port}"))):
                pass


def test_the_dashboard_and_the_alerts_name_metrics_that_exist() -> None:
    """Each name in their files is one that is told."""
    files = [*Path("docs/monitoring").glob("*.json"), *Path("docs/monitoring").glob("*.yml")]
    assert len(files) == 2
    for file in files:
        named = set(re.findall(r"\b(?:amqp|process)_[a-z0-9_]+", file.read_text()))
        assert named and {name for name in named if name.startswith("amqp_")} <= EXPOSED, named - EXPOSED


# Refusals by limit, and ages


def refused(broker: RunningBroker) -> dict[str, float]:
    """How often each limit was met."""
    found = metrics_of(broker).items()
    return {labels[0][1]: value for (name, labels), value in found if name == "amqp_refusals_total"}


def test_what_is_refused_is_counted_by_its_limit() -> None:
    """A transfer without credit, links, a rejected half message, a session, and octets that never come."""
    config = config_with(HTTP, max_sessions=2, max_nodes=5, header_timeout_ms=50)
    with running_broker(config) as broker:
        assert refused(broker) == {}
        with BlockingPeer.connect(broker.host, broker.port) as peer:
            peer.raises_errors = False
            sender = peer.begin().attach_sender("to", "small")
            numbers = [sender.send(encode_message(body=b"x")) for _ in range(2)]
            peer.pump_until(lambda: all(number in sender.outcomes for number in numbers))
            peer.checks_credit = False
            sender.send(encode_message(body=b"3"))
            peer.pump_until(lambda: sender.detached is not None)
            assert refused(broker) == {"credit": 1}
            peer.put_begin(9)
            peer.pump_until(lambda: peer.closed is not None)
        with connect(broker.url) as client:
            with pytest.raises(LinkRefused, match="max_nodes"):
                for number in range(6):
                    client.open_sender(f"c.{number}")
            with pytest.raises(MessageRefused, match="max_messages"):
                client.producer("shop").send_half("small", b"x")
        assert raw_amqp(broker, b"AMQ")
        assert refused(broker) == {
            "credit": 1, "max_sessions": 1, "max_nodes": 1, "resources": 1, "header_timeout_ms": 1,
        }  # fmt: skip


def test_what_strangers_write_is_not_counted() -> None:
    """A request for a WebSocket with the words of limits, one that is too large, and one that never comes."""
    listeners = (*ANY, ListenerConfig(url="ws://127.0.0.1:0"))
    limits = {"websocket_timeout_ms": 300, "websocket_header_bytes": 1_024}
    with running_broker(attrs.evolve(config_with(HTTP, **limits), listeners=listeners)) as broker:
        where = urlsplit(broker.urls[1])
        assert where.scheme == "ws"
        raw_amqp(broker, WORDS, where.port)
        raw_amqp(broker, b"GET /max_bytes\r\n\r\n", where.port)
        assert refused(broker) == {}
        raw_amqp(broker, b"GET / HTTP/1.1\r\nX: " + b"x" * 2_000, where.port)
        raw_amqp(broker, b"GET / HTTP/1.1\r\n", where.port)
        assert refused(broker) == {"websocket_header_bytes": 1, "websocket_timeout_ms": 1}


def test_a_queue_that_management_may_not_make_is_counted() -> None:
    """Beyond `max_nodes`."""
    with running_broker(config_with(HTTP, max_nodes=3)) as broker, Asker(broker.url) as asker:
        with pytest.raises(Refused, match="max_nodes"):
            for number in range(4):
                asker.ask("CREATE", "queue", name=f"q{number}")
        assert refused(broker) == {"max_nodes": 1}


def raw_amqp(broker: RunningBroker, data: bytes, port: int | None = None) -> bytes:
    """What comes back until the broker closes."""
    with closing(socket.create_connection((broker.host, port or broker.port), 20)) as peer:
        peer.sendall(data)
        found = b""
        while piece := _read(peer):
            found += piece
        return found


def test_rights_and_logins_are_counted() -> None:
    """Who may not do what he wants, and who is not whom he says."""
    verifier = str(make_verifier("SCRAM-SHA-256", "word", 4096, b"0123456789abcdef"))
    rules = (AccessRule(users=("ada",), actions=("connect", "send", "create"), nodes=("small",)),)
    users = (UserConfig(name="ada", scram_sha_256=verifier),)
    config = attrs.evolve(config_with(login_failure_delay_ms=0), users=users, access_rules=rules)
    with running_broker(config) as broker:
        with connect(broker.url, user="ada", password="word") as client:
            with pytest.raises(LinkRefused):
                client.open_sender("other")
            with pytest.raises(LinkRefused):
                client.open_sender("another")
        with pytest.raises(ClientError):
            connect(broker.url, user="ada", password="wrong")
        assert refused(broker) == {"rights": 2, "login": 1}


def test_how_old_messages_were_when_they_were_sent(broker: RunningBroker) -> None:
    """Each delivery counts, with the time since it was put; a browser's do not."""
    with connect(broker.url) as client:
        client.open_sender("orders").send_many([b"x"] * 30)
        browser = client.open_receiver("orders", source=Source(address="orders", distribution_mode="copy"))
        browser.receive(5)
        assert metrics_of(broker)["amqp_message_age_seconds_count", ()] == 0
        browser.close()
        broker.call(_later)
        receiver = client.open_receiver("orders", credit=100)
        for _ in range(30):
            receiver.accept(receiver.receive(5))
    found = metrics_of(broker)
    assert found["amqp_message_age_seconds_count", ()] == 30
    assert found["amqp_message_age_seconds_bucket", (("le", "60.0"),)] == 0
    assert 30 * 90 <= found["amqp_message_age_seconds_sum", ()] < 30 * 600


async def _later(inner: Broker) -> None:
    """The queue's messages came a minute and a half ago."""
    for record in inner.nodes.queues.queues():
        first = record.backlog.oldest()
        if first is not None:
            first.enqueued_at_ms -= 90_000
