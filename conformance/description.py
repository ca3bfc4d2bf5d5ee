"""What has to be known of a broker before it can be tested: a small TOML file.

    title = "Example 1.2"                  # what reports call it
    product = "example"                    # what its open says (2.7.1): a run finds the file by it
    url = "amqp://127.0.0.1:5672"
    profiles = ["core", "transactions"]    # what is run where nobody says otherwise
    promises = false                       # whether it promises what this project does, beyond the standard
    setup = "Allow the user guest."        # what a reader has to do first

    [user]                                 # who logs in, unless the URL says it
    name = "guest"
    password = "guest"

    [nodes]
    prefix = "/queue/"                     # before each queue's name
    capabilities = ["queue"]               # what an attach asks for, so that a queue is made (3.5.3)
    make = "example make {address}"        # makes a queue, for a broker that makes none on first use
    unknown = "no-such-node"               # an address that it refuses
    every_address_exists = false           # true: it refuses none

    [limits]
    jobs = 8                               # scenarios at a time
    timeout_s = 5.0                        # how long a frame may take

    [lacks]                                # what it does not have (an id, glob, section or profile), and why
    "transactions" = "it has no coordinator"

    [process]
    start = "example-broker"               # run where nobody listens; {url}: where it has to
    restart = "systemctl restart example"  # run after it has died or hung
    ready_s = 60.0                         # how long a start may take

Every key may be left out. Those of this project are in `brokers/`, and are found by their name.
"""

import tomllib
from pathlib import Path
from typing import Any

import attrs

from amqp_broker.conformance.broker import DEFAULT_UNKNOWN_ADDRESS
from amqp_broker.conformance.scenario import PROFILES, USUAL, load_scenarios
from amqp_broker.conformance.subject import READY_S
from amqp_broker.conformance.wire import STEP_TIMEOUT_S

READY_MADE = Path(__file__).with_name("brokers")

DEFAULT_URL = "amqp://127.0.0.1:5672"

JOBS = 8

OUR_PRODUCT = "amqp-broker"
"""What this project's broker calls itself in its open."""


@attrs.frozen(kw_only=True)
class Description:
    """A broker's description; the fields are the keys of the file, those of its tables with their name."""

    title: str = ""
    product: str = ""
    url: str = DEFAULT_URL
    profiles: tuple[str, ...] = USUAL
    promises: bool = False
    setup: str = ""
    user_name: str | None = None
    user_password: str | None = attrs.field(default=None, repr=False)
    nodes_prefix: str = ""
    nodes_capabilities: tuple[str, ...] = ()
    nodes_make: str = ""
    nodes_unknown: str = DEFAULT_UNKNOWN_ADDRESS
    nodes_every_address_exists: bool = False
    limits_jobs: int = JOBS
    limits_timeout_s: float = STEP_TIMEOUT_S
    lacks: dict[str, str] = attrs.field(factory=dict)
    process_start: str = ""
    process_restart: str = ""
    process_ready_s: float = READY_S


TABLES = ("user", "nodes", "limits", "process")

KINDS = {
    "str": str, "str | None": str, "bool": bool, "int": int, "float": (int, float), "tuple[str, ...]": list,
    "dict[str, str]": dict,
}  # fmt: skip
"""What TOML gives for a field's type."""


def read_description(text: str, where: str) -> Description:
    """Returns a description; raises ValueError with the file, the key and what is wrong with it."""
    try:
        read = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{where}: {error}") from error
    flat: dict[str, Any] = {}
    for key, value in read.items():
        if key in TABLES and isinstance(value, dict):
            flat |= {f"{key}_{name}": (f"{key}.{name}", one) for name, one in value.items()}
        else:
            flat[key] = (key, value)
    values: dict[str, Any] = {}
    fields = {
        field.name: str(field.type).removeprefix("<class '").removesuffix("'>")
        for field in attrs.fields(Description)
    }
    for name, (key, value) in flat.items():
        if name not in fields or (key == name and name.split("_")[0] in TABLES):
            raise ValueError(f"{where}: nothing is called {key}")
        values[name] = _value(f"{where}: {key}", fields[name], value)
    described = Description(**values)
    _check(described, where)
    return described


def _value(where: str, kind: str, value: Any) -> Any:
    texts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    right = isinstance(value, KINDS[kind]) and (isinstance(value, bool) == (kind == "bool"))  # type: ignore[arg-type]
    if not right or not all(isinstance(one, str) for one in texts):
        words = {"str | None": "a text", "str": "a text", "tuple[str, ...]": "a list of texts",
                 "dict[str, str]": "a table of texts", "bool": "true or false"}  # fmt: skip
        raise ValueError(f"{where} must be {words.get(kind, 'a number')}, not {value!r}")
    return tuple(value) if isinstance(value, list) else value


def _check(described: Description, where: str) -> None:
    for profile in described.profiles:
        if profile not in PROFILES:
            there = ", ".join(PROFILES)
            raise ValueError(f"{where}: profiles: no profile is called {profile}; there are {there}")
    for pattern, reason in described.lacks.items():
        if not any(one.is_called(pattern) for one in load_scenarios()):
            raise ValueError(f"{where}: lacks: no scenario is called {pattern}")
        if not reason.strip():
            raise ValueError(f"{where}: lacks: say why there is no {pattern}")
    if not 1 <= described.limits_jobs <= 64 or not 0.1 <= described.limits_timeout_s <= 600:
        raise ValueError(f"{where}: limits: jobs must be 1 to 64, timeout_s 0.1 to 600")
    if not 0.1 <= described.process_ready_s <= 600:
        raise ValueError(f"{where}: process.ready_s must be 0.1 to 600")
    if "{address}" not in described.nodes_make and described.nodes_make:
        raise ValueError(f"{where}: nodes.make must say {{address}} where the queue's address belongs")


def ready_made() -> dict[str, Description]:
    """Returns the descriptions of this project by name."""
    found = sorted(READY_MADE.glob("*.toml"))
    return {path.stem: read_description(path.read_text(encoding="utf-8"), path.name) for path in found}


def load_description(name: str) -> Description:
    """Returns the description of a ready broker, or that in a file; raises OSError or ValueError."""
    known = ready_made()
    if name in known:
        return known[name]
    path = Path(name)
    if not path.suffix and not path.exists():
        raise ValueError(f"no broker is called {name}; there are {', '.join(known)}, or give a file")
    return read_description(path.read_text(encoding="utf-8"), name)


def described_by(product: object) -> Description | None:
    """Returns the ready description of a broker whose open names this product; None where there is none."""
    for one in ready_made().values():
        if one.product and one.product == product:
            return one
    return None
