"""Apache Qpid Broker-J with the store that its documentation recommends, Berkeley DB Java Edition."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from amqp_broker.conformance.load.peers.maven import Artifact, java_program
from amqp_broker.conformance.load.peers.peer import HOST, Peer, Program

VERSION: Final = "10.1.0"
ARTIFACTS: Final = (
    Artifact("org.apache.qpid", "qpid-broker", VERSION, alone=True),  # else with its web pages
    Artifact("commons-cli", "commons-cli", "1.11.0"),
    Artifact("org.apache.qpid", "qpid-broker-core", VERSION),
    Artifact("org.apache.qpid", "qpid-broker-plugins-amqp-1-0-protocol", VERSION),
    Artifact("org.apache.qpid", "qpid-bdbstore", VERSION, alone=True),
    Artifact("com.sleepycat", "je", "18.3.12"),  # the only line of it in Maven's repository
    Artifact("org.apache.qpid", "qpid-broker-plugins-logging-logback", VERSION),
)
OPTIONS: Final = ("-Xmx512m", "-XX:MaxDirectMemorySize=1536m")  # as its own start script
MAIN: Final = "org.apache.qpid.server.Main"


def configuration(port: int, store: Path) -> dict[str, Any]:
    """Its initial configuration: anybody, one port on loopback, queues for whoever names one."""
    host = {
        "type": "BDB",
        "storePath": str(store),
        "nodeAutoCreationPolicies": [
            {"pattern": ".*", "nodeType": "queue", "createdOnPublish": True, "createdOnConsume": True}
        ],
    }
    return {
        "name": "peer",
        "modelVersion": "9.1",
        "authenticationproviders": [{"name": "anybody", "type": "Anonymous"}],
        "ports": [
            {
                "name": "AMQP",
                "port": port,
                "bindingAddress": HOST,
                "authenticationProvider": "anybody",
                "protocols": ["AMQP_1_0"],
                "virtualhostaliases": [{"name": "by its address", "type": "hostnameAlias"}],
            }
        ],
        "virtualhostnodes": [
            {
                "name": "default",
                "type": "JSON",
                "defaultVirtualHostNode": "true",
                "virtualHostInitialConfiguration": json.dumps(host),
            }
        ],
    }


def prepare(folder: Path, port: int) -> tuple[Program, ...]:
    """Its initial configuration, which it copies into its work folder."""
    initial = folder / "initial.json"
    initial.write_text(json.dumps(configuration(port, folder / "store"), indent=2))
    command = (MAIN, "-icp", str(initial), "-prop", f"qpid.work_dir={folder}")
    return (java_program(folder, ARTIFACTS, OPTIONS, command),)


BROKER_J: Final = Peer(
    name="broker-j",
    version=VERSION,
    title=f"Broker-J {VERSION}, Berkeley DB",
    accepted="in the log of its store, and that synced",
    prepare=prepare,
)
