"""What a scenario is, and the list of all of them.

A scenario is a function. What it begins with are its parameters: each is made for it by its class
(`Broker.given`), for example the broker under test. Its docstring's first paragraph is its title; it passes
by returning; connections that it leaves open are then closed in good order. It names the rows of the standard
that it shows:

    @scenario("2.2/supported-version", "2.2-06")
    def supported_version(broker: Broker) -> None:
        '''A supported version is answered with the same header.'''
        peer = broker.connect()
        peer.send_header(AMQP_HEADER)
        peer.expect_header(AMQP_HEADER)

Scenarios that are one dialogue with other values are the cases of one function, each with its id, its rows,
its title, and what the function gets after the broker:

    @cases(
        Case("2.2/higher-major", "2.2-07 2.2-03", "Version 2.0.0 is answered with a supported version.",
             b"AMQP\\x00\\x02\\x00\\x00"),
    )
    def refused(broker: Broker, octets: bytes) -> None:
"""

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

import attrs

from amqp_broker.conformance.requirements import PROTOCOLS, section_key

if TYPE_CHECKING:
    from amqp_broker.conformance.broker import Broker

DECLARED = ("core", "full", "exactly-once")
"""What a scenario of the standard is declared to be about. core: what the standard says of every broker.
exactly-once: what it says of those whose termini outlive their links. full: what this project promises beyond
the standard (limits, strictness where the standard leaves a choice).
"""

PROFILES = {
    "core": "what parts 1, 2, 3 and 5 of the standard say of every broker",
    "transactions": "part 4",
    "exactly-once": "links that are resumed, for brokers whose termini outlive their links",
    "hostile": "what may choke a broker: noise, floods, bombs; one by one, at the end",
    "jms": "what JMS programs need",
    "half-messages": "this project's half messages with check-back",
    "sequences": "this project's sequenced streams",
    "retention": "this project's queues that are read by offset",
    "sets": "this project's sets of half messages",
    "full": "the standard (the first four), and what this project's broker promises beyond it",
}
"""What a run can be about; a scenario has at most one of them, beside full."""

USUAL = ("core", "transactions", "hostile")
"""What is run where nobody says what: what the standard says of every broker."""

Body = TypeVar("Body", bound=Callable[..., object])


@attrs.frozen
class Scenario:
    """One dialogue with a broker, and the rows of the standard that it shows."""

    id: str
    rows: tuple[str, ...]
    title: str
    body: Callable[["Broker"], None]
    profile: str = "core"
    waits: bool = False
    alone: bool = False
    breaks: tuple[str, ...] = ()
    """Rows that its own peer breaks on purpose; it proves nothing where that breaks another."""

    @property
    def section(self) -> str:
        """The section of the standard that the id begins with."""
        return self.id.split("/")[0]

    @property
    def transactional(self) -> bool:
        """Whether it is about part 4, and shows nothing where there is no coordinator."""
        return self.section.startswith("4.")

    @property
    def protocol(self) -> str:
        """The protocol of `PROTOCOLS` that it is about; empty for the standard."""
        return self.profile if self.profile in PROTOCOLS.values() else ""

    @property
    def promise(self) -> bool:
        """Whether it is about what only this project promises: the standard says nothing of it, or leaves it
        open.
        """
        return self.profile == "full"

    @property
    def belongs_to(self) -> str:
        """The profile of `PROFILES` that runs it, beside full."""
        if self.profile != "core":
            return self.profile
        return "hostile" if self.alone else "transactions" if self.transactional else "core"

    def is_called(self, pattern: str) -> bool:
        """Whether somebody means it who says its id or a glob of ids, a part, a section, or a profile."""
        return (
            fnmatchcase(self.id, pattern)
            or pattern in (self.section, self.belongs_to)
            or self.section.startswith(pattern + ".")
        )


_registered: dict[str, Scenario] = {}


def scenario(
    id: str, *rows: str, profile: str = "core", waits: bool = False, alone: bool = False, breaks: str = ""
) -> Callable[[Body], Body]:
    """Registers a function as the scenario ``id`` ("section/name") that shows ``rows``.

    ``waits`` says that it mostly waits for time to pass: such scenarios start first, so that they overlap.
    ``alone`` says that a broker may choke on it: such scenarios run at the end, one by one, so that no other
    scenario pays for it. ``breaks`` names the rows that the scenario breaks itself.
    """

    def register(body: Body) -> Body:
        kinds = [kind for name, kind in get_type_hints(body).items() if name != "return"]

        def run(broker: "Broker") -> None:
            body(*[broker.given(kind) for kind in kinds])

        title = (body.__doc__ or "").strip().split("\n\n")[0]
        _register(id, rows, title, run, profile=profile, waits=waits, alone=alone, breaks=breaks)
        return body

    return register


class Case:
    """One scenario of a function that has several (`cases`). ``rows`` are their ids; after the title comes
    what the function gets. ``profile`` and the others: see `scenario`.
    """

    def __init__(
        self, id: str, rows: str, title: str, *arguments: Any, profile: str = "core", waits: bool = False,
        alone: bool = False, breaks: str = "", **named: Any,
    ) -> None:  # fmt: skip
        self.id, self.rows, self.title = id, tuple(rows.split()), title
        self.options: dict[str, Any] = {
            "profile": profile, "waits": waits, "alone": alone, "breaks": breaks
        }  # fmt: skip
        self.arguments, self.named = arguments, named

    def register(self, body: Callable[..., object]) -> None:
        """Registers the scenario."""

        def run(broker: "Broker") -> None:
            body(broker, *self.arguments, **self.named)

        _register(self.id, self.rows, self.title, run, **self.options)


def cases(*all_of_them: Case) -> Callable[[Body], Body]:
    """Registers a function as several scenarios."""

    def register(body: Body) -> Body:
        for case in all_of_them:
            case.register(body)
        return body

    return register


def _register(
    id: str, rows: tuple[str, ...], title: str, run: Callable[["Broker"], None], *, profile: str, waits: bool,
    alone: bool, breaks: str,
) -> None:  # fmt: skip
    assert id not in _registered, f"two scenarios {id}"
    assert rows, f"scenario {id} names no row"
    assert profile in DECLARED, profile
    assert title, f"scenario {id} has no title"
    protocol = PROTOCOLS.get(id.split(".")[0], profile)
    broken = tuple(breaks.split())
    _registered[id] = Scenario(id, rows, " ".join(title.split()), run, protocol, waits, alone, broken)


def load_scenarios() -> list[Scenario]:
    """Imports all modules of scenarios and returns what they registered, in the standard's order."""
    from amqp_broker.conformance import scenarios

    for module in pkgutil.iter_modules(scenarios.__path__):
        importlib.import_module(f"{scenarios.__name__}.{module.name}")
    return sorted(_registered.values(), key=lambda one: (section_key(one.section), one.id))


def shown_by() -> dict[str, list[str]]:
    """Returns the ids of the scenarios that show each row that is shown."""
    found: dict[str, list[str]] = {}
    for one in load_scenarios():
        for row_id in one.rows:
            found.setdefault(row_id, []).append(one.id)
    return found


def select_scenarios(
    profiles: str | Sequence[str], only: Sequence[str] = (), *, but: Sequence[str] = ()
) -> list[Scenario]:
    """Returns the scenarios of the profiles that one of ``only`` calls (none: all) and none of ``but``; see
    `Scenario.is_called`.
    """
    wanted = {profiles} if isinstance(profiles, str) else set(profiles)
    return [
        one
        for one in load_scenarios()
        if (one.belongs_to in wanted or ("full" in wanted and one.profile in DECLARED))
        and (not only or any(one.is_called(pattern) for pattern in only))
        and not any(one.is_called(pattern) for pattern in but)
    ]
