"""What a scenario is, and the list of all of them.

A scenario is a function of one argument, the broker under test. Its docstring's first paragraph is its title;
it passes by returning; connections that it leaves open are then closed in good order. It names the rows of
the standard that it shows:

    @scenario("2.2/supported-version", "2.2-06")
    def supported_version(broker: Broker) -> None:
        '''A supported version is answered with the same header.'''
        peer = broker.connect()
        peer.send_header(AMQP_HEADER)
        peer.expect_header(AMQP_HEADER)
"""

import importlib
import pkgutil
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import attrs

from amqp_broker.conformance.requirements import section_key

if TYPE_CHECKING:
    from amqp_broker.conformance.broker import Broker

STANDARD_PROFILES = ("core", "full")
PROFILES = (*STANDARD_PROFILES, "half-messages", "sequences", "retention", "sets")
"""core: what the standard says of every broker. full: core, and what this project promises beyond it
(limits). The others: a protocol of this project, and nothing else.
"""

Body = Callable[["Broker"], None]


@attrs.frozen
class Scenario:
    """One dialogue with a broker, and the rows of the standard that it shows."""

    id: str
    rows: tuple[str, ...]
    title: str
    body: Body
    profile: str = "core"
    waits: bool = False
    alone: bool = False

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
        """The protocol of this project that it is about; empty for the standard."""
        return "" if self.profile in STANDARD_PROFILES else self.profile


_registered: dict[str, Scenario] = {}


def scenario(
    id: str, *rows: str, profile: str = "core", waits: bool = False, alone: bool = False
) -> Callable[[Body], Body]:
    """Registers a function as the scenario ``id`` ("section/name") that shows ``rows``.

    ``waits`` says that it mostly waits for time to pass: such scenarios start first, so that they overlap.
    ``alone`` says that a broker may choke on it: such scenarios run at the end, one by one, so that no other
    scenario pays for it.
    """

    def register(body: Body) -> Body:
        assert id not in _registered, f"two scenarios {id}"
        assert rows, f"scenario {id} names no row"
        assert profile in PROFILES, profile
        title = " ".join((body.__doc__ or "").strip().split("\n\n")[0].split())
        assert title, f"scenario {id} has no title"
        _registered[id] = Scenario(id, rows, title, body, profile, waits, alone)
        return body

    return register


def load_scenarios() -> list[Scenario]:
    """Imports all modules of scenarios and returns what they registered, in the standard's order."""
    from amqp_broker.conformance import scenarios

    for module in pkgutil.iter_modules(scenarios.__path__):
        importlib.import_module(f"{scenarios.__name__}.{module.name}")
    return sorted(_registered.values(), key=lambda one: (section_key(one.section), one.id))


def select_scenarios(profile: str, patterns: list[str]) -> list[Scenario]:
    """Returns the scenarios of a profile whose id matches one of the glob ``patterns`` (none: all)."""
    return [
        one
        for one in load_scenarios()
        if (one.profile == profile or (profile == "full" and one.profile == "core"))
        and (not patterns or any(fnmatchcase(one.id, pattern) for pattern in patterns))
    ]
