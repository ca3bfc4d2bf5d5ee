"""One request of somebody who is logged in, and how a page is made for it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import attrs
import jinja2
from starlette.responses import HTMLResponse, RedirectResponse, Response

from amqp_broker.console.sessions import Session
from amqp_broker.looking import shown
from amqp_broker.looking.broker_view import Broker, BrokerView, Login, pause_s
from amqp_broker.looking.tables import MENU, TABLES, EntityTable

TEMPLATES: Final = Path(__file__).parent / "templates"
# Whatever a page shows is escaped: names are chosen by clients.
_ENVIRONMENT: Final = jinja2.Environment(
    loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, undefined=jinja2.StrictUndefined,
    trim_blocks=True, lstrip_blocks=True,
)  # fmt: skip
_ENVIRONMENT.globals.update(MENU=MENU, TABLES=TABLES, NUMBERS=shown.NUMBERS)
_ENVIRONMENT.filters.update(
    **{f"as_{name}": form for name, form in shown.FORMS.items()},
    label=shown.label,
    attribute=lambda value, name: shown.attribute(name, value),
    form_of=lambda value, name: shown.form_of(name, value),
    in_form=lambda value, form: shown.FORMS[form](value),
)


class NoSuchPage(Exception):
    """The address of a page that there is not."""


@attrs.frozen
class Visit:
    """Who asks (`session`, and `login` at the broker), of which broker, and for what."""

    session: Session
    login: Login
    view: BrokerView
    brokers: Sequence[Broker]
    path: str
    query: Mapping[str, str]
    form: Mapping[str, str]
    kind: str = ""
    live: bool = False
    """Whether only the part of the page is wanted that changes by itself."""
    begun_at: float = attrs.field(factory=time.monotonic)

    @property
    def pause_ms(self) -> int:
        """After how long the page looks again, so that this stays within SHARE of the broker's time."""
        return round(1_000 * pause_s(time.monotonic() - self.begun_at))

    @property
    def table(self) -> EntityTable:
        """The table of the page. Raises NoSuchPage."""
        found = TABLES.get(self.kind or self.told("kind"))
        if found is None:
            raise NoSuchPage("there is no such table")
        return found

    def told(self, name: str) -> str:
        """A field of the form, or of the address; empty where it is not there."""
        return self.form.get(name) or self.query.get(name) or ""

    def link(self, *parts: str, **query: Any) -> str:
        """The address of a page of this broker."""
        told = urlencode({name: value for name, value in query.items() if value not in (None, "")})
        return "/".join(("", self.view.broker.name, *parts)) + (f"?{told}" if told else "")

    def here(self, **changed: Any) -> str:
        """The address of this page with some parts of its query changed."""
        told = urlencode({k: v for k, v in {**self.query, **changed}.items() if v not in (None, "")})
        return self.path + (f"?{told}" if told else "")

    def page(self, template: str, status: int = 200, **context: Any) -> Response:
        """A page; it shows what the last action said, once."""
        notice = None
        if not self.live:
            notice, self.session.notice = self.session.notice, None
        return rendered(template, status, visit=self, notice=notice, live=self.live, **context)

    def to(self, address: str, notice: str = "", *, bad: bool = False) -> Response:
        """Go to another page, which says this."""
        if notice:
            self.session.notice = ("bad" if bad else "good", notice)
        return RedirectResponse(address, 303)


def rendered(template: str, status: int = 200, **context: Any) -> Response:
    """A page, also of somebody who is not logged in. Half of a surrogate pair, which JSON can name and UTF-8
    cannot carry, is shown as `\\ud800`.
    """
    text = _ENVIRONMENT.get_template(template).render(**context)
    return HTMLResponse(text.encode("utf-8", "backslashreplace"), status)
