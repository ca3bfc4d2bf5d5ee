"""The web server of the console: what is let in, which page answers, and what is told when it does not work.

    request --> called by its own name? --> session --> form with its token --> page, in a thread

A page may wait for a broker; the loop never does. Nothing comes from anywhere else: neither scripts nor
styles nor pictures, and no script or style stands in a page (`CONTENT_POLICY`).
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import SplitResult, parse_qsl, urlsplit

from anyio import CapacityLimiter, to_thread
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from amqp_broker.client.blocking_management import Refused
from amqp_broker.client.errors import ClientError, LinkRefused, LoginRefused, MessageRefused
from amqp_broker.console import acting, pages
from amqp_broker.console.acting import WrongInput
from amqp_broker.console.limits import (
    FORM_BYTES_MAX,
    FORM_FIELDS_MAX,
    FORM_PARSED_AT_ONCE_BYTES,
    FORM_S,
    LOGIN_FORM_BYTES_MAX,
    LOGINS_AT_ONCE,
)
from amqp_broker.console.sessions import COOKIE, SECURE_COOKIE, LoginPlaces, Session, Sessions, TooMany
from amqp_broker.console.visit import NoSuchPage, Visit, rendered
from amqp_broker.frames import EncodeError
from amqp_broker.host_names import is_local_name
from amqp_broker.looking.broker_view import Broker, BrokerView, Login
from amqp_broker.looking.limits import PAGES_AT_ONCE, PLACE_WAIT_S, SAMPLE_PAUSE_S
from amqp_broker.looking.places import Busy

FAULT: Final = "This is a fault of the console: what happened stands in its log."
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
T = TypeVar("T")
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
        name = (_parts(f"//{host}").hostname or "").lower()
        if not is_local_name(name) and name not in self._names:
            said = "expected Host to be an address, localhost, or a name given by --name\n"
            return PlainTextResponse(said, 421)
        if request.method not in ("GET", "HEAD"):
            origin = request.headers.get("origin")
            site = request.headers.get("sec-fetch-site", "same-origin")
            if site != "same-origin" or origin is not None and _parts(origin).netloc != host:
                return PlainTextResponse("expected a form of the console itself\n", 403)
        return None


class Console:
    """Everything of one console: brokers, what is known of them, and sessions."""

    def __init__(self, brokers: Sequence[Broker], *, secure: bool, anonymous: bool) -> None:
        self.brokers = brokers
        self.views = {broker.name: BrokerView(broker) for broker in brokers}
        self.sessions = Sessions()
        self._secure = secure
        self._anonymous = anonymous
        self._logins = LoginPlaces()
        self._threads: CapacityLimiter | None = None
        self._stop = threading.Event()

    @asynccontextmanager
    async def lifespan(self, _: Starlette) -> AsyncIterator[None]:
        """Take samples as long as the server runs; at its end everybody is logged out."""
        # A thread for each place, and some for forms: who has a place never waits for a thread.
        self._threads = CapacityLimiter((len(self.brokers) + 1) * PAGES_AT_ONCE + LOGINS_AT_ONCE)
        samplers = [
            threading.Thread(target=self._sample, args=(view,), name="console-samples", daemon=True)
            for view in self.views.values()
        ]
        for sampler in samplers:
            sampler.start()
        try:
            yield
        finally:
            self._stop.set()
            await run_in_threadpool(self.sessions.close)
            for sampler in samplers:
                await run_in_threadpool(sampler.join)

    def _sample(self, view: BrokerView) -> None:
        while not self._stop.wait(SAMPLE_PAUSE_S / 2):
            self.sessions.sweep()
            try:
                view.sample()
            except (ClientError, Refused, Busy) as error:
                _LOG.info("no sample of %s: %s", view.broker.name, error)

    async def _in_thread(self, function: Callable[[], T]) -> T:
        return await to_thread.run_sync(function, limiter=self._threads)

    # Who is there

    def session_of(self, request: Request) -> Session | None:
        """The session of a request's cookie."""
        session = self.sessions.find(request.cookies.get(SECURE_COOKIE))
        if session is None and not self._secure:
            session = self.sessions.find(request.cookies.get(COOKIE))
            if session is not None and session.secure:
                return None
        return session

    async def home(self, request: Request) -> Response:
        """The first broker."""
        return RedirectResponse(f"/{self.brokers[0].name}/", 303)

    async def login_page(self, request: Request) -> Response:
        """The form to log in."""
        return self._login_form(request.query_params, 200, "")

    def _login_form(self, told: Mapping[str, str], status: int, fault: str) -> Response:
        return rendered(
            "login.html", status, brokers=self.brokers, fault=fault, broker=told.get("broker", ""),
            user=told.get("user", ""), next=told.get("next", ""), anonymous=self._anonymous,
        )  # fmt: skip

    async def log_in(self, request: Request) -> Response:
        """Log in at a broker: it is the broker that says yes or no."""
        form = await self._read_form(request, LOGIN_FORM_BYTES_MAX)
        try:
            async with self._logins.one("" if request.client is None else request.client.host):
                return await self._in_thread(partial(self._log_in, request, form))
        except Busy as busy:
            return self._login_form(form, 503, str(busy))

    def _log_in(self, request: Request, form: Mapping[str, str]) -> Response:
        view = self.views.get(form.get("broker", ""))
        if view is None:
            return self._login_form(form, 400, "expected one of the brokers")
        user, password = form.get("user") or None, form.get("password") or None
        if (user is None or password is None) and (user or password or not self._anonymous):
            return self._login_form(form, 403, "expected a user and a password")
        target = _inside(form.get("next", "")) or f"/{view.broker.name}/"
        try:
            login = view.log_in(user, password)
        except Refused as refused:
            return self._login_form(form, 403, f"the broker said: {refused}")
        except LoginRefused:
            return self._login_form(form, 403, "the broker did not take this user and password")
        except (LinkRefused, MessageRefused) as refused:  # no right to ask anything, or to be answered
            return self._login_form(form, 403, str(refused))
        except ClientError as error:
            return self._login_form(form, 502, str(error))
        except Exception:
            _LOG.exception("a login at %s ended by a fault of the console", view.broker.name)
            return self._login_form(form, 500, FAULT)
        try:
            return self._logged_in(request, login, target)
        except TooMany as many:
            login.close()
            return self._login_form(form, 503, str(many))
        except BaseException:
            login.close()
            raise

    def _logged_in(self, request: Request, login: Login, target: str) -> Response:
        known = self.session_of(request)
        secure = self._secure or request.headers.get("origin", "").startswith("https://")  # by a proxy
        session = self.sessions.begin(secure=secure)  # a key that nobody had before the login
        if known is not None:
            session.take_over(known, but=login.broker.name)
            self.sessions.end(known)
        session.logins[login.broker.name] = login
        response = RedirectResponse(target, 303)
        response.set_cookie(session.cookie, session.key, httponly=True, samesite="strict", secure=secure)
        return response

    async def log_out(self, request: Request) -> Response:
        """Log out at all brokers."""
        form = await self._read_form(request, LOGIN_FORM_BYTES_MAX)
        session, response = self.session_of(request), RedirectResponse("/login", 303)
        if session is not None:
            if not session.has_token(form.get("token", "")):
                return PlainTextResponse("expected a form of this session\n", 403)
            await self._in_thread(partial(self.sessions.end, session))
            response.delete_cookie(session.cookie, secure=session.secure, httponly=True, samesite="strict")
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
            form: Mapping[str, str] = {}
            if request.method == "POST":
                form = await self._read_form(request, FORM_BYTES_MAX)
                if not session.has_token(form.get("token", "")):
                    return PlainTextResponse("expected a form of this session\n", 403)
            visit = Visit(
                session, login, view, self.brokers, request.url.path, dict(request.query_params), form,
                request.path_params.get("kind", ""), live,
            )  # fmt: skip
            try:
                async with login.places.one(), view.places.one():
                    return await self._in_thread(partial(self._answered, handler, visit))
            except Busy as busy:
                return _busy(visit, busy)

        return endpoint

    def _answered(self, handler: Handler, visit: Visit) -> Response:
        """The page, or what the broker said instead."""
        try:
            visit.view.admit(visit.login)
            return handler(visit)
        except NoSuchPage as error:
            return visit.page("error.html", 404, title="No such page", said=str(error))
        except (WrongInput, EncodeError) as error:
            return visit.page("error.html", 400, title="That was not understood", said=str(error))
        except Refused as refused:
            status = refused.status if refused.status in (403, 404, 409) else 400
            return visit.page("error.html", status, title="The broker says no", said=str(refused))
        except (LinkRefused, MessageRefused) as refused:
            return visit.page("error.html", 403, title="The broker says no", said=str(refused))
        except LoginRefused:
            self.sessions.end(visit.session)
            return _expected_login() if visit.live else RedirectResponse("/login", 303)
        except ClientError as error:
            return visit.page("error.html", 502, title="The broker does not answer", said=str(error))
        except Busy as busy:
            return _busy(visit, busy)
        except Exception:
            _LOG.exception("the page %s ended by a fault of the console", visit.path)
            return visit.page("error.html", 500, title="This page does not work", said=FAULT)

    async def _read_form(self, request: Request, most: int) -> dict[str, str]:
        """The fields of a form. Raises HTTPException where it is too large, or too slow."""
        octets = bytearray()
        try:
            async with asyncio.timeout(FORM_S):
                async for chunk in request.stream():
                    octets += chunk
                    if len(octets) > most:
                        raise _no_form(413, "expected a smaller form\n")
        except TimeoutError:
            raise _no_form(408, f"expected a form within {FORM_S:g} s\n") from None
        except ClientDisconnect:
            raise _no_form(400, "expected the rest of the form\n") from None
        try:
            if len(octets) <= FORM_PARSED_AT_ONCE_BYTES:
                return _parsed(octets)
            return await self._in_thread(partial(_parsed, octets))
        except ValueError:
            raise _no_form(413, f"expected at most {FORM_FIELDS_MAX} fields\n") from None


def _parsed(octets: bytearray) -> dict[str, str]:
    return dict(parse_qsl(octets.decode("latin-1"), keep_blank_values=True, max_num_fields=FORM_FIELDS_MAX))


def _no_form(status: int, said: str) -> HTTPException:
    """The rest of the form is not read: the connection ends with the answer."""
    return HTTPException(status, said, {"Connection": "close"})


def _busy(visit: Visit, busy: Busy) -> Response:
    answer = visit.page("error.html", 503, title="Too much at once", said=str(busy))
    answer.headers["Retry-After"] = str(round(PLACE_WAIT_S))
    return answer


def _to_login(request: Request, view: BrokerView, live: bool) -> Response:
    if live:
        return _expected_login()
    where = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    target = request.url_for("login").include_query_params(
        broker=view.broker.name, next=where if request.method == "GET" else ""
    )
    return RedirectResponse(f"{target.path}?{target.query}", 303)


def _expected_login() -> Response:
    """For a page that is open: it loads itself, and comes to the login by that."""
    return PlainTextResponse("expected a login\n", 401)


def _parts(address: str) -> SplitResult:
    """The parts of an address, without any where it is none."""
    try:
        return urlsplit(address)
    except ValueError:
        return urlsplit("")


def _inside(address: str) -> str:
    """The address, if it is one of a page of the console: no other site."""
    parts = _parts(address)
    own = parts.path.startswith("/") and not address.startswith("//") and "\\" not in address
    return address if own and not parts.scheme and not parts.netloc else ""


def application(
    brokers: Sequence[Broker], names: Sequence[str] = (), *, secure: bool = False, anonymous: bool = False
) -> Starlette:
    """The console for these brokers. `names` are those by which it may be called, beside addresses and
    `localhost`; `secure` says that it is called by https only, `anonymous` that who has no user may try: a
    broker that lets in whoever is on this machine must not let in whoever reaches the console.
    """
    console = Console(brokers, secure=secure, anonymous=anonymous)

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
