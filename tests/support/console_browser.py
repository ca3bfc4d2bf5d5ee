"""A console in a thread of its own, and somebody who looks at it by HTTP alone, without a browser."""

from __future__ import annotations

import html
import http.client
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode, urlsplit

import attrs
import uvicorn

from amqp_broker.console.command import config_of
from amqp_broker.console.server import application
from amqp_broker.looking.broker_view import Broker

STARTED_S = 20.0


class _Server(uvicorn.Server):
    """Says when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = threading.Event()

    async def startup(self, sockets: Any = None) -> None:
        """As ever."""
        await super().startup(sockets)
        self.listening.set()


@contextmanager
def running_console(
    brokers: Sequence[Broker], names: Sequence[str] = (), *, anonymous: bool = True
) -> Iterator[int]:
    """The port of a console for these brokers."""
    server = _Server(config_of(application(brokers, names, anonymous=anonymous), "127.0.0.1", 0))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    assert server.listening.wait(STARTED_S), "the console did not start"
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(STARTED_S)


@attrs.frozen
class Answer:
    """What came."""

    status: int
    headers: dict[str, str]
    octets: bytes

    @property
    def text(self) -> str:
        """The page."""
        return self.octets.decode()

    @property
    def words(self) -> str:
        """What a reader sees: the page without its tags."""
        return html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", self.text)))


class Reader:
    """Keeps a cookie, as a browser does, and follows where it is sent."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.cookie = ""

    def ask(self, method: str, path: str, form: dict[str, str] | None = None, **headers: str) -> Answer:
        """One request and its answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        told = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.cookie:
            told["Cookie"] = self.cookie
        body = None
        if form is not None:
            body = urlencode(form)
            told["Content-Type"] = "application/x-www-form-urlencoded"
        try:
            connection.request(method, path, body, told)
            got = connection.getresponse()
            answer = Answer(got.status, {k.lower(): v for k, v in got.getheaders()}, got.read())
        finally:
            connection.close()
        if "set-cookie" in answer.headers:
            self.cookie = answer.headers["set-cookie"].partition(";")[0]
        return answer

    def follow(self, answer: Answer) -> Answer:
        """The page to which an answer leads."""
        while answer.status == 303:
            answer = self.get(answer.headers["location"])
        return answer

    def get(self, path: str, **query: str) -> Answer:
        """A page."""
        parts = urlsplit(path)
        told = "&".join(filter(None, (parts.query, urlencode(query))))
        return self.follow(self.ask("GET", parts.path + (f"?{told}" if told else "")))

    def log_in(self, user: str = "", password: str = "", broker: str = "main") -> Answer:
        """Log in by the form."""
        form = {"broker": broker, "user": user, "password": password, "next": ""}
        return self.follow(self.ask("POST", "/login", form))

    def token(self) -> str:
        """That of this session's forms."""
        found = re.search(r'name="token" value="([^"]+)"', self.get("/main/send").text)
        assert found is not None
        return found[1]

    def act(self, kind: str, operation: str, name: str = "", **told: str) -> Answer:
        """What the button of an operation does."""
        form = {"token": self.token(), "kind": kind, "op": operation, "name": name, **told}
        return self.follow(self.ask("POST", "/main/do", form))
