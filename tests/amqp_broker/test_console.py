"""The console against a real broker, by HTTP: pages, actions, rights, and what nobody can do with it."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

import pytest

from amqp_broker import Resolution
from amqp_broker.client import Gone, connect, message
from amqp_broker.configuration import QueuePolicy
from amqp_broker.embedding import RunningBroker, running_broker
from amqp_broker.looking import broker_view
from amqp_broker.looking.broker_view import Broker
from amqp_broker.looking.tables import TABLES
from amqp_broker.testing import memory_config
from tests.support.console_browser import Reader, running_console


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    """A broker that lets everybody in."""
    policies = (
        QueuePolicy(pattern="news", kind="topic"),
        QueuePolicy(pattern="told", events=True),
        QueuePolicy(pattern="kept.log", kind="log", retention_ms=60_000),
        QueuePolicy(pattern="fragile", max_deliveries=1),
    )
    with running_broker(memory_config(queue_policies=policies)) as running:
        yield running


@pytest.fixture(scope="module")
def port(broker: RunningBroker) -> Iterator[int]:
    """Where the console for it listens."""
    with running_console([Broker("main", broker.url)]) as listening:
        yield listening


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables are read at each look: what a test did is there."""
    monkeypatch.setattr(broker_view, "TABLE_PAUSE_S", 0.0)
    monkeypatch.setattr(broker_view, "TABLE_PAUSE_MAX_S", 0.0)


@pytest.fixture
def reader(port: int) -> Reader:
    """Somebody who is logged in."""
    one = Reader(port)
    assert one.log_in().status == 200
    return one


def test_every_page_is_there(broker: RunningBroker, reader: Reader) -> None:
    """Each table, with what a broker that is used has in it."""
    with connect(broker.url, container_id="worker") as client:
        client.open_sender("told").send("hello")
        for page in ("", "send", "journal", "users", *TABLES):
            answer = reader.get(f"/main/{page}")
            assert answer.status == 200, (page, answer.words)
        assert "worker" in reader.get("/main/connection").words


def test_nothing_comes_from_elsewhere_or_stands_in_a_page(reader: Reader) -> None:
    """No page has a script, a style or an address of another site in it, and the policy forbids them."""
    for page in ("", "queue", "half", "send", "journal", "users"):
        answer = reader.get(f"/main/{page}")
        assert "default-src 'self'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert not re.search(
            r"""<script(?![^>]* src="/static/)|\sstyle=|\son\w+=|(?:src|href)="(?!/)""", answer.text
        )
    for name in ("console.css", "console.js", "live.js", "keys.js", "theme.js", "icon.svg"):
        answer = reader.get(f"/static/{name}")
        assert answer.status == 200
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", answer.text)


def test_names_are_escaped_wherever_they_are_shown(broker: RunningBroker, reader: Reader) -> None:
    """A queue, a container, a body and a property may be called as a script is."""
    nasty = '<script>alert("1")</script>&<!--'
    with connect(broker.url, container_id=nasty) as client:
        client.open_sender(nasty).send(message(nasty, subject=nasty, application_properties={nasty: nasty}))
        (number,) = (row["name"] for row in broker.entities("connection") if row["container_id"] == nasty)
        (link,) = (row["name"] for row in broker.entities("link") if row["address"] == nasty)
        for path, query in (
            ("queue", {"q": "alert"}), ("queue/one", {"name": nasty}), ("queue/messages", {"name": nasty}),
            ("queue/message", {"name": nasty, "offset": "0"}), ("connection", {}),
            ("connection/one", {"name": number}), ("link/one", {"name": link}), ("send", {"address": nasty}),
            ("ask", {"kind": "queue", "op": "PURGE", "name": nasty}), ("queue", {"q": nasty}),
            ("ask", {"kind": "queue", "op": nasty, "name": nasty}), ("queue/one", {"name": nasty + "gone"}),
            ("queue/messages", {"name": nasty, "selector": nasty}),
        ):  # fmt: skip
            answer = reader.get(f"/main/{path}", **query)
            assert answer.status in (200, 400, 404), (path, answer.words)
            assert "<script>" not in answer.text and "<!--" not in answer.text, path
            if path not in ("connection/one", "send") and not {"op", "selector"} & set(query):
                assert "alert(" in answer.words, path
    assert reader.get("/main/queue/one", name=nasty).status == 200
    assert "deleted" in reader.act("queue", "PURGE", nasty).words


def test_a_table_is_filtered_sorted_and_cut_by_the_server(broker: RunningBroker, reader: Reader) -> None:
    """What a browser gets is one page of rows, whatever there is."""
    for at in range(12):
        broker.declare(f"many-{at}")
    with connect(broker.url) as client:
        client.open_sender("many-7").send_many([b"x"] * 3)
        client.open_sender("many-9").send_many([b"x"] * 5)
    reader.act("queue", "CREATE", "many-12")
    first = reader.get("/main/queue", q="many-", size="5").words
    assert first.index("many-9 ") < first.index("many-7 ") < first.index("many-0 ") < first.index("many-1 ")
    assert "13 of" in first and "page 1 of 3" in first and "many-5" not in first
    assert "many-8" in reader.get("/main/queue", q="many-", size="5", page="3").words
    rising = reader.get("/main/queue", q="many-", sort="name").words
    assert rising.index("many-9 ") < rising.index("many-10 ")
    assert re.findall(
        r"many-\d+", reader.get("/main/queue", q="many- messages>3").words.split("Out/s")[1]
    ) == ["many-9"]
    assert "Nothing passes" in reader.get("/main/queue", q="many- messages>99").words


def test_a_message_is_sent_looked_into_and_deleted(broker: RunningBroker, reader: Reader) -> None:
    """By the form, over the user's own connection."""
    form = {
        "token": reader.token(), "address": "looked", "body": '{"a": 1}', "subject": "greeting",
        "durable": "1",
        "application_properties": "color=blue\nsize=3", "priority": "7", "content_type": "application/json",
    }  # fmt: skip
    assert "accepted it for looked" in reader.follow(reader.ask("POST", "/main/send", form)).words
    listed = reader.get("/main/queue/messages", name="looked").words
    assert "greeting" in listed and '{"a": 1}' in listed
    assert (
        "0 messages here" not in reader.get("/main/queue/messages", name="looked", selector="size = 3").words
    )
    assert "No message here" in reader.get("/main/queue/messages", name="looked", selector="size = 4").words
    assert "400: selector" in reader.get("/main/queue/messages", name="looked", selector="size =").words
    shown = reader.get("/main/queue/message", name="looked", offset="0").words
    assert '"a": 1' in shown and "color blue" in shown and "7b 22 61 22" in shown and "priority 7" in shown
    saved = reader.get("/main/queue/octets", name="looked", offset="0")
    assert saved.octets == b'{"a": 1}' and saved.headers["content-disposition"].startswith("attachment")
    assert (
        "Delete this message?"
        in reader.get("/main/ask", kind="queue", op="DELETE-MESSAGE", name="looked").words
    )
    assert "is deleted" in reader.act("queue", "DELETE-MESSAGE", "looked", offset="0").words
    assert broker.depth("looked") == 0
    for wrong, said in (({"priority": "high"}, "Priority: expected"),
                        ({"application_properties": "x"}, "NAME=VALUE"),
                        ({"address": "$nowhere"}, "not-found")):  # fmt: skip
        refused = reader.ask("POST", "/main/send", form | wrong)
        assert refused.status == 400 and said in refused.words


def test_dead_letters_are_moved_back(broker: RunningBroker, reader: Reader) -> None:
    """Re-driven, moved, copied and purged, each with how many."""
    with connect(broker.url) as client:
        client.open_sender("fragile").send_many([b"x"] * 3)
        receiver = client.open_receiver("fragile")
        for _ in range(3):
            receiver.reject(receiver.receive(5), "shop:broken", "does not fit")
        receiver.close()
        broker.wait_until(lambda: broker.depth("dead-letters") == 3)
    assert "does not fit" in reader.get("/main/queue/message", name="dead-letters", offset="0").words
    assert "1 messages moved back" in reader.act("queue", "REDRIVE", "dead-letters", count="1").words
    assert "2 messages moved back" in reader.act("queue", "REDRIVE", "dead-letters").words
    assert broker.depth("fragile") == 3
    broker.declare("other")
    assert "3 messages copied" in reader.act("queue", "COPY", "fragile", to="other").words
    assert "1 messages moved" in reader.act("queue", "MOVE", "fragile", to="other", count="1").words
    assert "expected something" in reader.act("queue", "MOVE", "fragile").words
    assert "4 messages deleted" in reader.act("queue", "PURGE", "other").words
    assert "expected an empty queue" in reader.act("queue", "DELETE", "fragile").words
    assert "done: delete, fragile" in reader.act("queue", "DELETE", "fragile", force="1").words


def test_what_can_be_changed_is(broker: RunningBroker, reader: Reader) -> None:
    """Bounds of a queue until a reset, a key of the configuration; topics and bindings come and go."""
    broker.declare("bounded")
    form = reader.get("/main/ask", kind="queue", op="UPDATE", name="bounded").text
    assert 'name="max_messages"' in form and 'name="redelivery_factor"' in form
    assert "done: change" in reader.act("queue", "UPDATE", "bounded", max_messages="5").words
    assert broker.ask("READ", "queue", identity="bounded")["max_messages"] == 5
    assert "done: reset" in reader.act("queue", "RESET", "bounded").words
    assert "The broker says no" in reader.act("queue", "UPDATE", "bounded", max_messages="-1").words
    assert "debug" in reader.act("configuration", "UPDATE", "logging.level", value="debug").words
    reader.act("configuration", "UPDATE", "logging.level", value="info")
    assert "done: new, fresh" in reader.act("topic", "CREATE", "fresh").words
    made = reader.act("binding", "CREATE", "b1", topic="fresh", queue="bounded").words
    assert "done: new, b1" in made
    assert "b1" in reader.get("/main/topic/one", name="fresh").words
    assert "done: delete, b1" in reader.act("binding", "DELETE", "b1").words


def test_a_connection_is_closed(broker: RunningBroker, reader: Reader) -> None:
    """With its sessions and links on its page before, and the reason told."""
    with connect(broker.url, container_id="noisy") as client:
        sender = client.open_sender("jobs")
        (number,) = (row["name"] for row in broker.entities("connection") if row["container_id"] == "noisy")
        reader.act("queue", "CREATE", "jobs")
        page = reader.get("/main/connection/one", name=number).words
        assert "Sessions" in page and "jobs" in page
        assert "done: close" in reader.act("connection", "DELETE", number, reason="too loud").words
        with pytest.raises(Gone, match="too loud"):
            sender.send("one")


def test_half_messages_are_drawn_and_decided(broker: RunningBroker, reader: Reader) -> None:
    """Counted in their states, and what the journal told of them."""
    with connect(broker.url) as client, client.producer("shop", lambda half: Resolution.UNKNOWN) as producer:
        for name in ("one", "two", "three"):
            producer.send_half("shipments", b"x", half_id=name)
        page = reader.get("/main/half").words
        assert "prepared 3" in page and "put 3" in page and "commit 0" in page
        assert "done: commit" in reader.act("half", "COMMIT", "shop/string:one", reason="paid").words
        assert "done: roll back" in reader.act("half", "ROLLBACK", "shop/string:two").words
        page = reader.get("/main/half").words
        assert "prepared 1" in page and "commit 1" in page and "roll back 1" in page
        journal = reader.get("/main/journal", type="decide").words
        assert "committed" in journal and "paid" in journal
        reader.act("half", "ROLLBACK", "shop/string:three")


def test_logs_and_the_journal_are_read_by_offset(broker: RunningBroker, reader: Reader) -> None:
    """The newest on the first page, and those before it by a link."""
    with connect(broker.url) as client:
        client.open_sender("kept.log").send_many([f"line {at}" for at in range(30)])
    page = reader.get("/main/queue/messages", name="kept.log", size="10")
    assert "line 29" in page.words and "line 19 " not in page.words
    (before,) = re.findall(r'rel="prev" href="([^"]+)"', page.text)
    assert "line 19" in reader.get(html.unescape(before)).words
    shown = reader.get("/main/queue/message", name="kept.log", offset="3", retained="1")
    assert shown.status == 200 and "line 3" in shown.words
    assert reader.get("/main/queue/message", name="kept.log", offset="99", retained="1").status == 404
