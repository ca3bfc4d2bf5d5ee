"""RabbitMQ as Debian packages it, with its plugin for AMQP 1.0."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

from amqp_broker.conformance.load.peers.peer import HOST, NotThereError, Peer, Program, free_port

VERSION: Final = "3.10.8"
SERVER: Final = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")  # Debian's own command changes the user
PLUGINS: Final = "[rabbitmq_amqp1_0].\n"


def configuration(port: int) -> str:
    """Its rabbitmq.conf: one listener on loopback, and its log where we can read it."""
    return f"listeners.tcp.local = {HOST}:{port}\nlog.console = true\nlog.file = false\n"


def environment(folder: Path, ports: tuple[int, int]) -> dict[str, str]:
    """Where it keeps everything, and the ports by which its parts find each other, of loopback as well."""
    names, distribution = ports
    return {
        "HOME": str(folder),
        "ERL_EPMD_ADDRESS": HOST,
        "ERL_EPMD_PORT": str(names),
        "RABBITMQ_NODENAME": "load@localhost",
        "RABBITMQ_DIST_PORT": str(distribution),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
        "RABBITMQ_MNESIA_BASE": str(folder / "data"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_PID_FILE": str(folder / "pid"),
        "RUNNING_UNDER_SYSTEMD": "true",  # its script becomes the broker, and does not wait for it
    }


def prepare(folder: Path, port: int) -> tuple[Program, ...]:
    """Its files, and its service of names, which would outlive it if it started that itself."""
    if not SERVER.exists() or shutil.which("epmd") is None:
        raise NotThereError("rabbitmq-server is not installed (Debian: rabbitmq-server)")
    ask = ["dpkg-query", "-W", "-f", "${Version}", "rabbitmq-server"]
    found = subprocess.run(ask, capture_output=True, text=True).stdout
    if not found.startswith(VERSION):
        raise NotThereError(f"rabbitmq-server is {found or 'no package'}, not {VERSION}")
    (folder / "rabbitmq.conf").write_text(configuration(port))
    (folder / "plugins").write_text(PLUGINS)
    ports = (free_port(), free_port())
    names = Program(("epmd", "-address", HOST, "-port", str(ports[0])))
    return names, Program((str(SERVER),), environment(folder, ports))


RABBITMQ: Final = Peer(
    name="rabbitmq",
    version=VERSION,
    title=f"RabbitMQ {VERSION}, classic queues",
    accepted="in its store, and that synced, or with a consumer that has accepted it",
    prepare=prepare,
    prefix="/queue/",
    transactions=False,
    user="guest",
    password="guest",
)
