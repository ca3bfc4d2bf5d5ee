"""The web server of the console: what is let in, which page answers, and what is told when it does not work.

    request --> called by its own name? --> session --> form with its token --> page, in a thread

A page may wait for a broker; the loop never does. Nothing comes from anywhere else: neither scripts nor
styles nor pictures, and no script or style stands in a page (`CONTENT_POLICY`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from amqp_broker.client.blocking_management import Refused
from amqp_broker.client.errors import ClientError, LinkRefused, LoginRefused, MessageRefused
from amqp_broker.console import acting, pages
from amqp_broker.console.acting import WrongInput
from amqp_broker.console.broker_view import Broker, BrokerView, Login
from amqp_broker.console.limits import (
    FORM_BYTES_MAX,
    FORM_FIELDS_MAX,
    LOGINS_AT_ONCE,
    SAMPLE_PAUSE_S,
)
from amqp_broker.console.sessions import COOKIE, Session, Sessions, TooMany
from amqp_broker.console.visit import NoSuchPage, Visit, rendered
from amqp_broker.host_names import is_local_name

STATIC: Final = Path(__file__).parent / "static"
CONTENT_POLICY: Final = (
    "default-src 'self'; base-uri 'none'; object-src 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "Content-Security-Policy": CONTENT_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
Handler = Callable[[Visit], Response]
_LOG: Final = logging.getLogger("amqp_broker.console")


class Guard:
    """Takes requests that call the console by its own name, from its own pages; puts HEADERS into answers."""

    def __init__(self, app: ASGIApp, names: Sequence[str]) -> None:
        self._app = app
        self._names = {name.lower() for name in names}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                if not scope["path"].startswith("/static/"):
                    headers["Cache-Control"] = "no-store"
            await send(message)

        refused = self._refusal(Request(scope))
        await (refused or self._app)(scope, receive, sent)

    def _refusal(self, request: Request) -> Response | None:
        host = request.headers.get("host", "")
        name = (urlsplit(f"//{host}").hostname or "").lower()
        if not is_local_name(name) and name not in self._names:
            said = "expected Host to be an address, localhost, or a name given by --name\n"
            return PlainTextResponse(said, 421)
        if request.method not in ("GET", "HEAD"):
            origin = request.headers.get("origin")
            site = request.headers.get("sec-fetch-site", "same-origin")
            if site != "same-origin" or origin is not None and urlsplit(origin).netloc != host:
                return PlainTextResponse("expected a form of the console itself\n", 403)
        return None


class Console:
    """Everything of one console: brokers, what is known of them, and sessions."""

    def __init__(self, brokers: Sequence[Broker], *, secure: bool = False) -> None:
        self.brokers = brokers
        self.views = {broker.name: BrokerView(broker) for broker in brokers}
        self.sessions = Sessions()
        self._secure = secure
        self._logins = threading.BoundedSemaphore(LOGINS_AT_ONCE)
        self._stop = threading.Event()

    @asynccontextmanager
    async def lifespan(self, _: Starlette) -> AsyncIterator[None]:
        """Take samples as long as the server runs; at its end everybody is logged out."""
        sampler = threading.Thread(target=self._sample, name="console-samples", daemon=True)
        sampler.start()
        try:
            yield
        finally:
            self._stop.set()
            await run_in_threadpool(self.sessions.close)
            await run_in_threadpool(sampler.join)

    def _sample(self) -> None:
        while not self._stop.wait(SAMPLE_PAUSE_S / 2):
            self.sessions.sweep()
            for view in self.views.values():
                try:
                    view.sample()
                except (ClientError, Refused) as error:
                    _LOG.info("no sample of %s: %s", view.broker.name, error)

    # Who is there

    def session_of(self, request: Request) -> Session | None:
        """The session of a request's cookie."""
        return self.sessions.find(request.cookies.get(COOKIE))

    async def home(self, request: Request) -> Response:
        """The first broker."""
        return RedirectResponse(f"/{self.brokers[0].name}/", 303)

    async def login_page(self, request: Request) -> Response:
        """The form to log in."""
        return self._login_form(request.query_params, 200, "")

    def _login_form(self, told: Mapping[str, str], status: int, fault: str) -> Response:
        return rendered(
            "login.html", status, brokers=self.brokers, fault=fault, broker=told.get("broker", ""),
            user=told.get("user", ""), next=told.get("next", ""),
        )  # fmt: skip

    async def log_in(self, request: Request) -> Response:
        """Log in at a broker: it is the broker that says yes or no."""
        form = await _read_form(request)
        if form is None:
            return PlainTextResponse("expected a smaller form\n", 413)
        return await run_in_threadpool(self._log_in, request, form)

    def _log_in(self, request: Request, form: Mapping[str, str]) -> Response:
        view = self.views.get(form.get("broker", ""))
        if view is None:
            return self._login_form(form, 400, "expected one of the brokers")
        if not self._logins.acquire(blocking=False):
            return self._login_form(form, 503, "others are just logging in: try again")
        try:
            login = Login(view.broker, form.get("user") or None, form.get("password") or None)
        except Refused as refused:
            return self._login_form(form, 403, f"the broker said: {refused}")
        except LoginRefused:
            return self._login_form(form, 403, "the broker did not take this user and password")
        except (LinkRefused, MessageRefused) as refused:  # no right to ask anything, or to be answered
            return self._login_form(form, 403, str(refused))
        except ClientError as error:
            return self._login_form(form, 502, str(error))
        finally:
            self._logins.release()
        known = self.session_of(request)
        try:
            session = self.sessions.begin()  # a key that nobody had before the login
        except TooMany as many:
            login.close()
            return self._login_form(form, 503, str(many))
        if known is not None:
            session.logins, known.logins = {**known.logins}, {}
            self.sessions.end(known)
        former = session.logins.get(view.broker.name)
        session.logins[view.broker.name] = login
        if former is not None:
            former.close()
        response = RedirectResponse(_inside(form.get("next", "")) or f"/{view.broker.name}/", 303)
        response.set_cookie(COOKIE, session.key, httponly=True, samesite="strict", secure=self._secure)
        return response

    async def log_out(self, request: Request) -> Response:
        """Log out at all brokers."""
        session, form = self.session_of(request), await _read_form(request)
        if session is not None:
            if form is None or not session.has_token(form.get("token", "")):
                return PlainTextResponse("expected a form of this session\n", 403)
            await run_in_threadpool(self.sessions.end, session)
        response = RedirectResponse("/login", 303)
        response.delete_cookie(COOKIE)
        return response

    # Pages

    def page(self, handler: Handler) -> Callable[[Request], Any]:
        """The endpoint of a page for somebody who is logged in."""

        async def endpoint(request: Request) -> Response:
            view = self.views.get(request.path_params["broker"])
            if view is None:
                return rendered("error.html", 404, visit=None, title="No such page", said="")
            session = self.session_of(request)
            login = None if session is None else session.logins.get(view.broker.name)
            live = "x-live" in request.headers
            if session is None or login is None:
                return _to_login(request, view, live)
            form = await _read_form(request) if request.method == "POST" else {}
            if form is None:
                return PlainTextResponse("expected a smaller form\n", 413)
            if request.method == "POST":
                if not session.has_token(form.get("token", "")):
                    return PlainTextResponse("expected a form of this session\n", 403)
            visit = Visit(
                session, login, view, self.brokers, request.url.path, dict(request.query_params), form,
                request.path_params.get("kind", ""), live,
            )  # fmt: skip
            return await run_in_threadpool(self._answered, handler, visit)

        return endpoint

    def _answered(self, handler: Handler, visit: Visit) -> Response:
        """The page, or what the broker said instead."""
        try:
            return handler(visit)
        except NoSuchPage as error:
            return visit.page("error.html", 404, title="No such page", said=str(error))
        except WrongInput as error:
            return visit.page("error.html", 400, title="That was not understood", said=str(error))
        except Refused as refused:
            status = refused.status if refused.status in (403, 404, 409) else 400
            return visit.page("error.html", status, title="The broker says no", said=str(refused))
        except (LinkRefused, MessageRefused) as refused:
            return visit.page("error.html", 403, title="The broker says no", said=str(refused))
        except LoginRefused:
            self.sessions.end(visit.session)
            return RedirectResponse("/login", 303)
        except ClientError as error:
            return visit.page("error.html", 502, title="The broker does not answer", said=str(error))


def _to_login(request: Request, view: BrokerView, live: bool) -> Response:
    if live:  # a page that is open: it loads itself, and comes to the login by that
        return PlainTextResponse("expected a login\n", 401)
    where = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    target = request.url_for("login").include_query_params(
        broker=view.broker.name, next=where if request.method == "GET" else ""
    )
    return RedirectResponse(f"{target.path}?{target.query}", 303)


def _inside(address: str) -> str:
    """The address, if it is one of a page of the console: no other site."""
    parts = urlsplit(address)
    own = address.startswith("/") and not address.startswith(("//", "/\\")) and "\\" not in address
    return address if own and not parts.scheme and not parts.netloc else ""


async def _read_form(request: Request) -> dict[str, str] | None:
    """The fields of a form; None where it is too large, or has too many fields."""
    octets = bytearray()
    async for chunk in request.stream():
        octets += chunk
        if len(octets) > FORM_BYTES_MAX:
            return None
    try:
        return dict(
            parse_qsl(octets.decode("latin-1"), keep_blank_values=True, max_num_fields=FORM_FIELDS_MAX)
        )
    except ValueError:
        return None


def application(brokers: Sequence[Broker], names: Sequence[str] = (), *, secure: bool = False) -> Starlette:
    """The console for these brokers. `names` are those by which it may be called, beside addresses and
    `localhost`; `secure` says that it is called by https only.
    """
    console = Console(brokers, secure=secure)

    def page(path: str, handler: Handler, method: str = "GET") -> Route:
        return Route("/{broker}" + path, console.page(handler), methods=[method])

    return Starlette(
        routes=[
            Route("/", console.home),
            Mount("/static", StaticFiles(directory=STATIC), name="static"),
            Route("/login", console.login_page, methods=["GET"], name="login"),
            Route("/login", console.log_in, methods=["POST"]),
            Route("/logout", console.log_out, methods=["POST"]),
            page("/", pages.overview),
            page("/journal", pages.journal),
            page("/users", pages.users),
            page("/send", acting.compose),
            page("/send", acting.send, "POST"),
            page("/ask", acting.ask),
            page("/do", acting.act, "POST"),
            page("/{kind}", pages.table),
            page("/{kind}/one", pages.entity),
            page("/{kind}/messages", pages.messages),
            page("/{kind}/message", pages.message),
            page("/{kind}/octets", pages.octets),
        ],
        middleware=[Middleware(Guard, names=names)],
        lifespan=console.lifespan,
    )
