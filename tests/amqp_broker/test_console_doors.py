"""Who gets into the console, what a user may not, and what no other site can have done with it."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from amqp_broker import command_line
from amqp_broker.authorisation import ACTIONS
from amqp_broker.client import connect
from amqp_broker.configuration import AccessRule, BrokerLimits, UserConfig
from amqp_broker.console import limits, server, sessions
from amqp_broker.console.command import BadOption, address_of, brokers_of
from amqp_broker.console.sessions import Sessions, TooMany
from amqp_broker.embedding import RunningBroker, running_broker
from amqp_broker.looking import broker_view
from amqp_broker.looking import limits as looking_limits
from amqp_broker.looking.broker_view import Broker, BrokerView, Login
from amqp_broker.testing import memory_config
from amqp_broker.verifiers import make_verifier
from tests.support.console_browser import Reader, running_console


def user(name: str) -> UserConfig:
    """Whose password is the name."""
    return UserConfig(name=name, scram_sha_256=str(make_verifier("SCRAM-SHA-256", name, 4096, b"salt" * 4)))


QUICK = BrokerLimits(login_failure_delay_ms=1)
NODES = ("**", "$management")
RULES = (
    AccessRule(users=("boss",), actions=ACTIONS, nodes=("**", "$management", "$events", "$retained")),
    AccessRule(users=("guest",), actions=("connect", "manage-read"), nodes=NODES),
    AccessRule(users=("guest",), actions=("create", "send"), nodes=("temporary.**",)),
    AccessRule(users=("shop",), actions=("connect", "create", "send", "receive"), nodes=NODES),
    AccessRule(users=("stranger",), actions=("connect",), nodes=NODES),
)


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    """A broker with users, one message in a queue."""
    users = tuple(map(user, ("boss", "guest", "shop", "stranger")))
    with running_broker(memory_config(users=users, access_rules=RULES, limits=QUICK)) as running:
        running.declare("orders")
        with connect(running.url, user="boss", password="boss") as client:
            client.open_sender("orders").send(b"secret")
        yield running


@pytest.fixture(scope="module")
def port(broker: RunningBroker) -> Iterator[int]:
    """Where the console for it listens; it may be called by a name of its own."""
    with running_console([Broker("main", broker.url)], ["console.example.org"]) as listening:
        yield listening


@pytest.fixture
def boss(port: int) -> Reader:
    """Who may do everything."""
    one = Reader(port)
    assert "Overview" in one.log_in("boss", "boss").words
    return one


def test_the_broker_says_who_gets_in(port: int) -> None:
    """A wrong password, nobody's name, and a user who may not look: a word, no session."""
    for name, password, said in (
        ("boss", "wrong", "did not take"), ("nobody", "boss", "did not take"), ("", "", "did not take"),
        ("shop", "shop", "may not manage-read"), ("stranger", "stranger", "unauthorized-access"),
    ):  # fmt: skip
        reader = Reader(port)
        answer = reader.log_in(name, password)
        assert answer.status == 403 and said in answer.words and "wrong" not in answer.text
        assert not reader.cookie
    assert Reader(port).ask("GET", "/main/queue").headers["location"].startswith("/login?")
    assert Reader(port).ask("GET", "/main/queue", X_Live="1").status == 401
    assert Reader(port).ask("POST", "/main/do", {"op": "PURGE"}).status == 303


def test_the_cookie_is_for_no_script_and_no_other_site(port: int) -> None:
    """And it is another one after each login; a page to go to is one of the console."""
    form = {"broker": "main", "user": "boss", "password": "boss", "next": "//evil.example.org/"}
    reader = Reader(port)
    answer = reader.ask("POST", "/login", form)
    assert answer.headers["location"] == "/main/"
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(answer.headers["set-cookie"].split("; "))
    first = reader.cookie
    answer = reader.ask("POST", "/login", form | {"next": "/main/queue?q=a"})
    assert answer.headers["location"] == "/main/queue?q=a"
    assert reader.cookie != first
    stale = Reader(port)
    stale.cookie = first
    assert stale.ask("GET", "/main/").status == 303
    form["next"] = "/\\evil.example.org"
    assert reader.ask("POST", "/login", form).headers["location"] == "/main/"


def test_what_a_user_may_not_is_refused_by_the_broker(broker: RunningBroker, port: int) -> None:
    """In the broker's words, and nothing is done."""
    guest = Reader(port)
    assert guest.log_in("guest", "guest").status == 200
    assert "orders" in guest.get("/main/queue").words
    for kind, operation, told in (
        ("queue", "PURGE", {}), ("queue", "DELETE", {"force": "1"}),
        ("queue", "DELETE-MESSAGE", {"offset": "0"}),
        ("queue", "UPDATE", {"max_messages": "1"}), ("queue", "CREATE", {}), ("queue", "REDRIVE", {}),
    ):  # fmt: skip
        answer = guest.act(kind, operation, "orders", **told)
        assert answer.status == 403 and "'guest' may not" in answer.words, operation
    for page in ("messages", "message", "octets"):
        answer = guest.get(f"/main/queue/{page}", name="orders", offset="0")
        assert answer.status == 403 and "may not browse" in answer.words and "secret" not in answer.text
    send = {"token": guest.token(), "address": "orders", "body": "x"}
    assert "unauthorized" in guest.ask("POST", "/main/send", send).words
    assert guest.get("/main/half").status == 200
    assert broker.depth("orders") == 1


def test_only_forms_of_this_session_do_something(broker: RunningBroker, boss: Reader, port: int) -> None:
    """Not without the token, with another session's, from another site, or by a GET."""
    form = {"kind": "queue", "op": "PURGE", "name": "orders"}
    assert boss.ask("POST", "/main/do", form).status == 403
    other = Reader(port)
    other.log_in("boss", "boss")
    assert boss.ask("POST", "/main/do", form | {"token": other.token()}).status == 403
    good = form | {"token": boss.token()}
    assert boss.ask("POST", "/main/do", good, Origin="https://evil.example.org").status == 403
    assert boss.ask("POST", "/main/do", good, Origin="null").status == 403
    assert boss.ask("POST", "/main/do", good, Sec_Fetch_Site="cross-site").status == 403
    assert boss.ask("POST", "/login", good, Origin="https://evil.example.org").status == 403
    assert boss.ask("GET", "/main/do?kind=queue&op=PURGE&name=orders").status == 404
    assert boss.ask("POST", "/logout", {}).status == 403
    assert broker.depth("orders") == 1
    assert boss.ask("POST", "/logout", {"token": boss.token()}).status == 303
    assert boss.ask("GET", "/main/").status == 303


def test_a_name_that_leads_here_is_not_enough(port: int) -> None:
    """Whoever can have a name lead to this machine gets nothing from its reader's console."""
    reader = Reader(port)
    for host, status in (
        ("evil.example.org", 421), ("evil.example.org:8672", 421), ("", 421), ("localhost:1", 200),
        ("127.0.0.1", 200), ("[::1]:8672", 200), ("console.example.org", 200),
    ):  # fmt: skip
        assert reader.ask("GET", "/login", Host=host).status == status, host


def test_forms_have_bounds(boss: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    """In octets and in fields."""
    monkeypatch.setattr(server, "FORM_BYTES_MAX", 10_000)
    assert boss.ask("POST", "/main/send", {"body": "x" * 10_001}).status == 413
    fields = {f"f{at}": "" for at in range(limits.FORM_FIELDS_MAX + 1)}
    assert boss.ask("POST", "/main/send", fields).status == 413


def test_what_is_not_there(boss: Reader) -> None:
    """A word, and never a trace."""
    for path in ("/main/planet", "/main/planet/one?name=x", "/other/", "/main/queue/one?name=gone",
                 "/main/topic/messages?name=x", "/main/ask?kind=queue&op=EXPLODE&name=x",
                 "/main/queue/message?name=orders&offset=77", "/main/queue/one"):  # fmt: skip
        answer = boss.get(path)
        assert answer.status in (400, 404) and "Traceback" not in answer.text, path
    assert boss.get("/static/../server.py").status == 404


def test_a_live_look_is_the_part_that_changes(boss: Reader) -> None:
    """No frame, no forms, and after how long to look again."""
    answer = boss.ask("GET", "/main/queue", X_Live="1")
    assert answer.text.startswith('<div id="live" data-every="') and "<html" not in answer.text
    assert "orders" in answer.words and "token" not in answer.text


def test_users_and_rules_are_told_without_secrets(boss: Reader) -> None:
    """Who may log in how, and what is allowed."""
    answer = boss.get("/main/users")
    assert "guest" in answer.words and "SCRAM-SHA-256" in answer.words and "manage-read" in answer.words
    assert "$" + "4096" not in answer.text and "salt" not in answer.text


def test_a_session_ends(broker: RunningBroker) -> None:
    """After its longest age, and when nobody looks; its login with it."""
    now = [0.0]
    kept = Sessions(lambda: now[0])
    session = kept.begin()
    login = session.logins["main"] = Login(Broker("main", broker.url), "boss", "boss")
    while now[0] < limits.SESSION_AGE_S:
        assert kept.find(session.key) is session
        now[0] += limits.SESSION_IDLE_S
    now[0] = limits.SESSION_AGE_S
    assert kept.find(session.key) is session
    now[0] += 1
    assert kept.find(session.key) is None
    kept.sweep()
    with pytest.raises(Exception, match="logged out"):
        login.ask("READ", "broker", identity="self")
    idle = kept.begin()
    now[0] += limits.SESSION_IDLE_S + 1
    assert kept.find(idle.key) is None and kept.find(None) is None
    kept.close()


def test_there_are_so_many_sessions_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one is refused, until one is over."""
    monkeypatch.setattr(sessions, "SESSIONS_MAX", 2)
    kept = Sessions()
    first, _ = kept.begin(), kept.begin()
    with pytest.raises(TooMany):
        kept.begin()
    kept.end(first)
    assert kept.begin()


def test_all_who_look_share_what_is_read(broker: RunningBroker) -> None:
    """Within the pause, which grows with what the broker needed; an action is seen at once."""
    now = [0.0]
    view = BrokerView(Broker("main", broker.url), lambda: now[0])
    one, other = (Login(view.broker, "boss", "boss") for _ in range(2))
    table = view.table(one, "queue", ("messages", "arrived"))
    now[0] = looking_limits.TABLE_PAUSE_S - 0.1
    assert view.table(other, "queue", ("messages", "arrived")) is table
    view.changed("queue")
    assert view.table(other, "queue", ("messages", "arrived")) is not table
    now[0] = 2 * looking_limits.TABLE_PAUSE_S
    newer = view.table(one, "queue", ("messages", "arrived"))
    assert newer.rows[0]["arrived/s"] == 0.0
    assert broker_view.Table([], 0.0, 0.05).pause_s() == pytest.approx(0.05 / looking_limits.SHARE)
    assert broker_view.Table([], 0.0, 99.0).pause_s() == looking_limits.TABLE_PAUSE_MAX_S
    assert view.newest(one)["queues"] == view.newest(other)["queues"] >= 1
    assert len(view.history.samples) == 1
    for login in (one, other):
        login.close()


def test_a_broker_that_is_gone_is_said_so_and_comes_back() -> None:
    """The page says it; the same session goes on when the broker is there again."""
    with running_broker(memory_config()) as first, running_console([Broker("main", first.url)]) as port:
        reader = Reader(port)
        reader.log_in()
        listener = first.config.listeners[0]
        at = first.port
        first.stop()
        answer = reader.get("/main/queue/one", name="x")
        assert answer.status == 502 and "does not answer" in answer.words and "Traceback" not in answer.text
        again = memory_config(listeners=(type(listener)(url=f"amqp://127.0.0.1:{at}"),))
        with running_broker(again) as second:
            second.declare("x")
            assert reader.get("/main/queue/one", name="x").status == 200


def test_several_brokers_each_with_its_login(broker: RunningBroker) -> None:
    """One session, and no right of one broker at another."""
    with running_broker(memory_config()) as open_one:
        brokers = [Broker("main", broker.url), Broker("open", open_one.url)]
        with running_console(brokers) as port:
            reader = Reader(port)
            reader.log_in(broker="open")
            assert reader.get("/open/queue").status == 200
            assert "Password" in reader.get("/main/queue").words
            assert "Overview" in reader.log_in("guest", "guest").words
            assert reader.get("/open/queue").status == 200
            assert "orders" in reader.get("/main/queue").words


def test_options_that_cannot_be_meant(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Are said, with what was expected."""
    for told in (["http://x"], ["amqp://user:secret@host"], ["Big=amqp://h"], ["static=amqp://h"],
                 ["a=amqp://h", "a=amqp://i"]):  # fmt: skip
        with pytest.raises(BadOption) as error:
            brokers_of(told)
        assert "secret" not in str(error.value)
    assert [each.name for each in brokers_of(["amqp://h", "b=amqps://h", "amqp://i"])] == [
        "broker",
        "b",
        "broker-3",
    ]
    assert address_of("http://127.0.0.1:0", tls=False) == ("127.0.0.1", 0)
    assert address_of("https://0.0.0.0:443", tls=True) == ("0.0.0.0", 443)
    for url, tls in (("http://0.0.0.0:80", False), ("https://h:1", False), ("ftp://h:1", False),
                     ("http://h", False),
                     ("http://127.0.0.1:1", True), ("http://h:x", False)):  # fmt: skip
        with pytest.raises(BadOption):
            address_of(url, tls=tls)
    assert command_line.main(["console", "--key", "x"]) == 2
    assert "--certificate and --key" in capsys.readouterr().err


def test_without_the_extra_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And everything else works without it."""
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "amqp_broker.console.command", raising=False)
    assert command_line.main(["console"]) == 2
    assert "pip install 'amqp-broker[console]'" in capsys.readouterr().err


def test_the_command_says_where_it_listens(broker: RunningBroker) -> None:
    """A process of its own, which ends with status 0 when it is told to."""
    command = [
        sys.executable,
        "-m",
        "amqp_broker",
        "console",
        "--broker",
        broker.url,
        "--listen",
        "http://127.0.0.1:0",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            found = re.fullmatch(r"listening on http://127\.0\.0\.1:(\d+)\n", process.stdout.readline())
            assert found is not None
            assert Reader(int(found[1])).ask("GET", "/login").status == 200
        finally:
            process.terminate()
    assert process.returncode == 0
