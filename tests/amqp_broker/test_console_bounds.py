"""Who was thrown out sees nothing more, a broker that hangs is nobody else's, and no input breaks a page."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.responses import Response

from amqp_broker.authorisation import ACTIONS
from amqp_broker.client import connect, message
from amqp_broker.client.errors import ClientError
from amqp_broker.configuration import AccessRule, BrokerLimits, QueuePolicy, UserConfig
from amqp_broker.console import acting, by_offset, limits, pages, server
from amqp_broker.console.command import is_for_this_machine
from amqp_broker.console.message_view import as_told
from amqp_broker.console.sessions import LoginPlaces, Sessions
from amqp_broker.embedding import RunningBroker, running_broker
from amqp_broker.looking import broker_view, places
from amqp_broker.looking import limits as looking_limits
from amqp_broker.looking.broker_view import Broker, BrokerView, Login
from amqp_broker.looking.places import Busy, Places
from amqp_broker.testing import memory_config
from amqp_broker.testing.broker_process import running
from amqp_broker.verifiers import make_verifier
from tests.support.console_browser import Reader, running_console

LOOK = "/main/queue"
BAD = {"broker": "main", "user": "", "password": ""}


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    """A broker that lets everybody in."""
    kept = QueuePolicy(pattern="big.log", kind="log", retention_ms=60_000)
    with running_broker(memory_config(queue_policies=(kept,))) as found:
        yield found


@pytest.fixture(scope="module")
def port(broker: RunningBroker) -> Iterator[int]:
    """Where the console for it listens."""
    with running_console([Broker("main", broker.url)]) as listening:
        yield listening


@pytest.fixture
def reader(port: int) -> Reader:
    """Somebody who is logged in."""
    one = Reader(port)
    assert one.log_in().status == 200
    return one


def user(name: str) -> UserConfig:
    """Whose password is the name."""
    return UserConfig(name=name, scram_sha_256=str(make_verifier("SCRAM-SHA-256", name, 4096, b"salt" * 4)))


def slow_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was read of a table stays for the whole test."""
    monkeypatch.setattr(broker_view, "TABLE_PAUSE_S", 600.0)
    monkeypatch.setattr(broker_view, "TABLE_PAUSE_MAX_S", 600.0)


# Who was thrown out


def test_who_was_thrown_out_sees_no_table_that_others_have_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither by a page nor by one that is open; who still gets in goes on."""
    slow_tables(monkeypatch)
    rule = AccessRule(users=("*",), actions=ACTIONS, nodes=("**", "$management"))
    told: dict[str, Any] = {"access_rules": (rule,), "limits": BrokerLimits(login_failure_delay_ms=1)}
    with running_broker(memory_config(users=(user("boss"), user("guest")), **told)) as first:
        first.declare("orders")
        with running_console([Broker("main", first.url)]) as port:
            boss, guest, open_page = (Reader(port) for _ in range(3))
            for one, name in ((boss, "boss"), (guest, "guest"), (open_page, "guest")):
                one.log_in(name, name)
                assert "orders" in one.get(LOOK).words
            at, listener = first.port, type(first.config.listeners[0])
            first.stop()
            listeners = (listener(url=f"amqp://127.0.0.1:{at}"),)
            with running_broker(memory_config(users=(user("boss"),), listeners=listeners, **told)) as second:
                assert "orders" in boss.ask("GET", LOOK).words
                # From when its client has noticed on:
                second.wait_until(lambda: guest.ask("GET", LOOK).headers.get("location") == "/login")
                second.wait_until(lambda: open_page.ask("GET", LOOK, X_Live="1").status == 401)
                assert all(one.ask("GET", LOOK).status == 303 for one in (guest, open_page))
                assert boss.ask("GET", "/main/").status == 200


def test_a_login_proves_from_time_to_time_that_it_may_look(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where its connection was left open."""
    view = BrokerView(Broker("main", broker.url))
    login = Login(view.broker, None, None)
    asked: list[str] = []
    monkeypatch.setattr(login, "ask", lambda operation, *rest, **told: asked.append(operation))
    view.admit(login)
    assert asked == []
    monkeypatch.setattr(broker_view, "PROVED_S", 0.0)
    view.admit(login)
    assert asked == ["READ"]
    login.close()


def test_a_page_asks_by_its_own_login(broker: RunningBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by that of another one, who looked in the same moment and is gone."""
    view = BrokerView(Broker("main", broker.url))
    mine, other = (Login(view.broker, None, None) for _ in range(2))
    other.close()
    monkeypatch.setattr(view, "_looked_by", lambda login: setattr(view, "_looked", (view._clock(), other)))
    assert view.newest(mine)["name"] == "self"
    mine.close()


# A broker that hangs


def test_a_broker_that_hangs_takes_nothing_from_another(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pages wait in places of its own, and those beyond are told to come again."""
    monkeypatch.setattr(broker_view, "ASK_S", 1.2)
    monkeypatch.setattr(broker_view, "PAGES_OF_LOGIN", 2)
    monkeypatch.setattr(places, "PLACE_WAIT_S", 0.1)
    with running("--memory") as hung:
        brokers = [Broker("main", broker.url), Broker("hung", hung.url)]
        with running_console(brokers) as port:
            reader = Reader(port)
            reader.log_in()
            reader.log_in(broker="hung")
            found: list[int] = []

            def look() -> None:
                found.append(reader.ask("GET", "/hung/queue/one?name=x").status)

            looking = [threading.Thread(target=look) for _ in range(12)]
            os.kill(hung.pid, signal.SIGSTOP)
            try:
                for each in looking:
                    each.start()
                assert reader.ask("GET", LOOK).status == 200
                for each in looking:
                    each.join()
            finally:
                os.kill(hung.pid, signal.SIGCONT)
    assert set(found) == {502, 503} and found.count(502) <= 2


def test_a_failure_that_took_long_is_remembered_for_a_moment(broker: RunningBroker) -> None:
    """Then the broker is asked again; one that came at once is not remembered."""
    now = [100.0]
    view = BrokerView(Broker("main", broker.url), lambda: now[0])
    for took_s, again in ((looking_limits.FAILURE_SLOW_S / 2, False), (looking_limits.FAILURE_SLOW_S, True)):
        with pytest.raises(ClientError, match="nothing came"), view._asked():
            now[0] += took_s
            raise ClientError("nothing came")
        if again:
            with pytest.raises(ClientError, match="nothing came"):
                view.log_in(None, None)
            now[0] += looking_limits.FAILURE_HELD_S
        view.log_in(None, None).close()


def test_who_waits_for_another_one_is_told_to_come_again(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For the first reading of a table, and for a login that connects."""
    monkeypatch.setattr(broker_view, "PLACE_WAIT_S", 0.01)
    view = BrokerView(Broker("main", broker.url))
    login = Login(view.broker, None, None)
    view._reading["queue"] = threading.Lock()
    with view._reading["queue"], pytest.raises(Busy):
        view.table(login, "queue", ("messages",))
    taken, done = threading.Event(), threading.Event()

    def hold() -> None:
        with login._held():
            taken.set()
            done.wait()

    holding = threading.Thread(target=hold)
    holding.start()
    taken.wait()
    with pytest.raises(Busy):
        view.admit(login)
    done.set()
    holding.join()
    login.close()


def test_logins_have_places_by_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """So many of one address, or one network of IPv6; more in all."""
    monkeypatch.setattr(places, "PLACE_WAIT_S", 0.01)

    async def take() -> None:
        found = LoginPlaces()
        taken = [found.one(f"2001:db8::{at}") for at in range(limits.LOGINS_OF_ADDRESS)]
        for each in taken:
            await each.__aenter__()
        with pytest.raises(Busy):
            await found.one("2001:db8::99").__aenter__()
        async with found.one("192.0.2.1"):
            pass
        for each in taken:
            await each.__aexit__(None, None, None)
        assert not found._taken
        few = Places(1)
        async with few.one():
            with pytest.raises(Busy):
                await few.one().__aenter__()
        async with few.one():
            pass

    asyncio.run(take())


# What anybody may send


@pytest.mark.parametrize("body", [b'{"a": "\\ud800"}', b"[" * 1_500, b"[" * 100_000 + b"]" * 100_000])
def test_every_body_has_a_page(broker: RunningBroker, reader: Reader, body: bytes) -> None:
    """Half a surrogate pair, and what nests without an end."""
    with connect(broker.url) as client:
        client.open_sender("odd").send(message(body, content_type="application/json"))
    assert reader.get("/main/queue/messages", name="odd").status == 200
    at = str(broker.ask("READ", "queue", identity="odd")["messages"] - 1)
    answer = reader.get("/main/queue/message", name="odd", offset=at)
    assert answer.status == 200
    assert ("\\ud800" if b"ud800" in body else "[[[") in answer.text


def test_input_that_is_no_address_or_number_is_refused(broker: RunningBroker, reader: Reader) -> None:
    """With a word, and without a trace."""
    assert reader.ask("GET", "/login", Host="[::1").status == 421
    assert reader.ask("POST", "/login", BAD, Origin="http://[").status == 403
    answer = reader.ask("POST", "/login", BAD | {"next": "//["})
    assert (answer.status, answer.headers["location"]) == (303, "/main/")
    broker.declare("numbered")
    for number in ("9" * 5_000, str(2**70), "-" + str(2**70)):
        answer = reader.act("queue", "UPDATE", "numbered", max_messages=number)
        assert answer.status == 400 and "expected a number" in answer.words
        form = {"token": reader.token(), "address": "numbered", "application_properties": f"a={number}"}
        answer = reader.ask("POST", "/main/send", form)
        assert answer.status == 400 and "expected a number" in answer.words
    answer = reader.act("queue", "PURGE", "numbered", count="9" * 5_000)
    assert answer.status == 400 and "expected a number" in answer.words
    assert reader.get("/main/ask", kind="queue", op="UPDATE").status == 400
    assert reader.get("/main/queue", q="messages>" + "9" * 5_000, page="9" * 5_000).status == 200
    assert reader.get("/static/%00").status == 404


def test_a_fault_of_the_console_is_a_short_page(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a line in its log."""

    def broken(*_: Any) -> None:
        raise ZeroDivisionError("inner words")

    monkeypatch.setattr(pages, "listed", broken)
    answer = reader.get(LOOK)
    assert answer.status == 500 and "a fault of the console" in answer.words
    assert "inner words" not in answer.text and "Log out" in answer.text


def test_little_is_taken_before_a_login(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In octets and in time."""
    large = BAD | {"next": "x" * limits.LOGIN_FORM_BYTES_MAX}
    assert Reader(port).ask("POST", "/login", large).status == 413
    assert Reader(port).ask("POST", "/logout", large).status == 413
    monkeypatch.setattr(server, "FORM_S", 0.05)
    with socket.create_connection(("127.0.0.1", port), 20) as slow:
        slow.sendall(b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nuser")
        answer = b"".join(iter(lambda: slow.recv(4_096), b""))
    assert answer.startswith(b"HTTP/1.1 408 ") and b"connection: close" in answer.lower()


def test_a_large_form_is_taken_from_who_is_logged_in(broker: RunningBroker, reader: Reader) -> None:
    """It is parsed in a thread."""
    form = {"token": reader.token(), "address": "large", "body": "x" * (2 * limits.FORM_PARSED_AT_ONCE_BYTES)}
    assert reader.ask("POST", "/main/send", form).status == 303
    assert broker.depth("large") == 1


# What is read by offset


def test_a_page_of_a_log_is_no_larger_than_a_reader_may_hold(
    broker: RunningBroker, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends with the message that goes beyond, and goes on from there; nothing of the bodies is kept."""
    monkeypatch.setattr(by_offset, "READ_BYTES_MAX", 250_000)
    monkeypatch.setattr(pages, "BODY_SHOWN_BYTES", 1_000)
    with connect(broker.url) as client:
        client.open_sender("big.log").send_many([b"%d " % at + b"x" * 100_000 for at in range(8)])
    page = reader.get("/main/queue/messages", name="big.log", offset="0")
    offsets = [int(at) for at in re.findall(r"message\?name=big\.log&amp;offset=(\d+)", page.text)]
    assert offsets == [0, 1, 2] and 'rel="next"' in page.text and "offset=3" in page.text
    login = Login(Broker("main", broker.url), None, None)
    kept = by_offset.read_page(
        login, "big.log", 8, 0, lambda each: pages._shown(as_told(each, limits.BODY_PREVIEW_BYTES))
    )
    assert all(len(repr(each)) < 1_000 for each in kept.messages)
    login.close()
    shown = reader.get("/main/queue/message", name="big.log", offset="1", retained="1")
    assert shown.status == 200 and "x" * 900 in shown.text and "x" * 1_001 not in shown.text
    saved = reader.get("/main/queue/octets", name="big.log", offset="1", retained="1")
    assert len(saved.octets) == 100_002


# Logins and cookies


def test_an_open_broker_is_not_published_by_a_console(broker: RunningBroker) -> None:
    """Who has no user is let in where only this machine reaches the console, or somebody said so."""
    with running_console([Broker("main", broker.url)], anonymous=False) as port:
        reader = Reader(port)
        assert "leave both empty" not in reader.get("/login").words
        answer = reader.log_in()
        assert answer.status == 403 and "expected a user and a password" in answer.words
        assert not reader.cookie
    assert is_for_this_machine("127.0.0.1", []) and is_for_this_machine("localhost", [])
    assert not is_for_this_machine("0.0.0.0", [])
    assert not is_for_this_machine("::1", ["console.example.org"])


def test_a_user_without_a_password_is_nobody(port: int) -> None:
    """Also where the broker lets in who has no user."""
    for name, password in (("boss", ""), ("", "boss")):
        assert Reader(port).log_in(name, password).status == 403


def test_the_cookie_of_https_comes_back_by_https_only(port: int) -> None:
    """Its prefix has the browser see to that; it is not taken by another name."""
    reader = Reader(port)
    host = f"127.0.0.1:{port}"
    answer = reader.ask("POST", "/login", BAD, Host=host, Origin=f"https://{host}")
    said = answer.headers["set-cookie"]
    assert said.startswith("__Host-amqp-console=") and {"Secure", "Path=/"} <= set(said.split("; "))
    assert reader.ask("GET", LOOK).status == 200
    plain = Reader(port)
    plain.cookie = reader.cookie.removeprefix("__Host-")
    assert plain.ask("GET", LOOK).status == 303
    answer = reader.ask("POST", "/logout", {"token": reader.token()})
    assert answer.headers["set-cookie"].startswith('__Host-amqp-console="";')
    assert "Secure" in answer.headers["set-cookie"]


def test_logins_that_are_taken_over_stay_as_old_as_they_are(broker: RunningBroker) -> None:
    """A session that only has the new login begins anew."""
    now = [0.0]
    kept = Sessions(lambda: now[0])
    former = kept.begin()
    former.logins = {name: Login(Broker(name, broker.url), None, None) for name in ("one", "two")}
    now[0] = limits.SESSION_IDLE_S
    second, third = kept.begin(), kept.begin()
    second.take_over(former, but="two")
    assert [*second.logins] == ["one"] and [*former.logins] == ["two"]
    assert second.begun_at == former.begun_at
    third.take_over(second, but="one")
    assert not third.logins and third.begun_at == now[0]
    for each in (former, second, third):
        kept.end(each)


def test_what_was_done_is_seen_by_who_looked_meanwhile(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table that was read while an operation went on does not count as fresh after it."""
    slow_tables(monkeypatch)
    done = acting._done

    def meanwhile(visit: Any, *told: Any) -> Response:
        pages._rows(visit, "queue")
        return done(visit, *told)

    monkeypatch.setattr(acting, "_done", meanwhile)
    reader.act("queue", "CREATE", "just-made")
    assert 'name=just-made"' in reader.get(LOOK).text
