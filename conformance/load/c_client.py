"""The C clients, which speak as the workers of `amqp-broker bench` do: built, and their commands."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

from amqp_broker.bench.run import Client, python_client
from amqp_broker.bench.settings import BenchSettings

MODES: Final = {"sender": "send", "receiver": "recv", "round-trips": "rtt"}
CLIENTS: Final = ("rawload", "protonload", "python")


def client_of(name: str, folder: Path) -> Client:
    """One of `CLIENTS`; a C client is compiled into the folder, outside the tree. It knows no transactions
    and no half messages: those are the Python client's. Raises RuntimeError with the compiler's words.
    """
    if name == "python":
        return python_client
    program = folder / name
    command = ["make", "--silent", "-C", str(Path(__file__).parent), f"OUT={folder}", str(program)]
    made = subprocess.run(command, capture_output=True, text=True)
    if made.returncode:
        raise RuntimeError(made.stderr)

    def client(role: str, pair: int, settings: BenchSettings) -> list[str]:
        if role not in MODES:
            return python_client(role, pair, settings)
        return [str(program), MODES[role], settings.host, str(settings.port), *arguments(pair, settings)]

    return client


def arguments(pair: int, settings: BenchSettings) -> list[str]:
    """Address and options as the C clients take them."""
    options: dict[str, object] = {
        "--count": settings.count,
        "--body": settings.body,
        "--credit": settings.credit,
        "--inflight": settings.in_flight,
        "--sasl": "none" if settings.no_sasl else "plain" if settings.user is not None else "anonymous",
        "--user": settings.user or "",
        "--password": settings.password,
    }
    if settings.rtt:
        options["--rate"] = settings.rate
    flags = {"--durable": settings.durable, "--settled": settings.settled, "--ack-each": settings.settle_each}
    found = [settings.address_of(pair), *(flag for flag, is_set in flags.items() if is_set)]
    for name, value in options.items():
        found += [name, str(value)]
    return found
