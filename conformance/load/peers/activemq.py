"""Apache ActiveMQ Classic with KahaDB, its own store, from a configuration like the one that it ships."""

from __future__ import annotations

from pathlib import Path
from typing import Final
from xml.sax.saxutils import quoteattr

from amqp_broker.conformance.load.peers.maven import Artifact, java_program
from amqp_broker.conformance.load.peers.peer import HOST, Peer, Program

VERSION: Final = "6.3.1"
ARTIFACTS: Final = (
    Artifact("org.springframework", "spring-context", "7.0.8"),  # reads its configuration
    Artifact("org.apache.activemq", "activemq-broker", VERSION),
    Artifact("org.apache.activemq", "activemq-amqp", VERSION),
    Artifact("org.apache.activemq", "activemq-kahadb-store", VERSION),
    Artifact("org.apache.activemq", "activemq-spring", VERSION),
    Artifact("org.apache.activemq", "activemq-console", VERSION),
    Artifact("org.slf4j", "slf4j-nop", "2.0.17"),
)
OPTIONS: Final = ("-Xms64M", "-Xmx1G")  # as its own start script
MAIN: Final = "org.apache.activemq.console.Main"
BEANS: Final = "http://www.springframework.org/schema/beans"
CORE: Final = "http://activemq.apache.org/schema/core"
ON_THE_WIRE: Final = "transport.transformer=native&wireFormat.maxFrameSize=104857600&maximumConnections=1000"
"""Messages stay as they came (`jms`, the default, makes other ones of them); the rest is as shipped."""


def configuration(port: int, data: Path) -> str:
    """Its activemq.xml: shipped defaults, but one connector on loopback, and no management by JMX, whose port
    is fixed. Anybody may connect, and queues are made for whoever names one: so it ships.
    """
    connector = quoteattr(f"amqp://{HOST}:{port}?{ON_THE_WIRE}")
    schemas = f"{BEANS} {BEANS}/spring-beans.xsd {CORE} {CORE}/activemq-core.xsd"
    return f"""<beans xmlns="{BEANS}" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
    xsi:schemaLocation="{schemas}">
  <broker xmlns="{CORE}" brokerName="peer" persistent="true" useJmx="false"
      dataDirectory={quoteattr(str(data))}>
    <persistenceAdapter>
      <kahaDB directory={quoteattr(str(data / "kahadb"))} enableJournalDiskSyncs="true"/>
    </persistenceAdapter>
    <systemUsage>
      <systemUsage>
        <memoryUsage><memoryUsage percentOfJvmHeap="70"/></memoryUsage>
        <storeUsage><storeUsage limit="100 gb"/></storeUsage>
        <tempUsage><tempUsage limit="50 gb"/></tempUsage>
      </systemUsage>
    </systemUsage>
    <transportConnectors>
      <transportConnector name="amqp" uri={connector}/>
    </transportConnectors>
  </broker>
</beans>
"""


def prepare(folder: Path, port: int) -> tuple[Program, ...]:
    """Its configuration, and the command by which its own script starts it."""
    file = folder / "activemq.xml"
    file.write_text(configuration(port, folder / "data"))
    return (java_program(folder, ARTIFACTS, OPTIONS, (MAIN, "start", f"xbean:file:{file}")),)


ACTIVEMQ: Final = Peer(
    name="activemq",
    version=VERSION,
    title=f"ActiveMQ Classic {VERSION}, KahaDB",
    accepted="in the journal of its store, and that synced",
    prepare=prepare,
)
