"""Apache ActiveMQ Artemis with its journal, as `artemis create` would set it up here."""

from __future__ import annotations

from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

from amqp_broker.conformance.load.peers.maven import Artifact, java_program
from amqp_broker.conformance.load.peers.peer import HOST, Peer, Program
from amqp_broker.conformance.load.processes import sync_ns

VERSION: Final = "2.44.0"
ARTIFACTS: Final = (
    Artifact("org.apache.activemq", "artemis-server", VERSION),
    Artifact("org.apache.activemq", "artemis-amqp-protocol", VERSION),
    Artifact("org.slf4j", "slf4j-nop", "2.0.17"),
)
OPTIONS: Final = ("-XX:+UseG1GC", "-Xms512M", "-Xmx2G")  # as its own start script
MAIN: Final = "org.apache.activemq.artemis.core.server.embedded.Main"


def configuration(port: int, data: Path, timeout_ns: int) -> str:
    """Its broker.xml: shipped defaults, but queues that stay, any user, and one acceptor on loopback."""
    folders = "\n".join(
        f"    <{name}-directory>{escape(str(data / name))}</{name}-directory>"
        for name in ("paging", "bindings", "journal", "large-messages")
    )
    acceptor = (
        f"tcp://{HOST}:{port}?tcpSendBufferSize=1048576;tcpReceiveBufferSize=1048576;protocols=AMQP;"
        "useEpoll=true;amqpCredits=1000;amqpLowCredits=300"
    )
    return f"""<configuration xmlns="urn:activemq">
  <core xmlns="urn:activemq:core">
    <security-enabled>false</security-enabled>
    <persistence-enabled>true</persistence-enabled>
    <journal-type>ASYNCIO</journal-type>
{folders}
    <journal-datasync>true</journal-datasync>
    <journal-sync-transactional>true</journal-sync-transactional>
    <journal-sync-non-transactional>true</journal-sync-non-transactional>
    <journal-min-files>2</journal-min-files>
    <journal-pool-files>10</journal-pool-files>
    <journal-file-size>10M</journal-file-size>
    <journal-buffer-timeout>{timeout_ns}</journal-buffer-timeout>
    <acceptors>
      <acceptor name="amqp">{escape(acceptor)}</acceptor>
    </acceptors>
    <address-settings>
      <address-setting match="#">
        <default-address-routing-type>ANYCAST</default-address-routing-type>
        <default-queue-routing-type>ANYCAST</default-queue-routing-type>
        <max-size-bytes>-1</max-size-bytes>
        <address-full-policy>PAGE</address-full-policy>
        <auto-create-addresses>true</auto-create-addresses>
        <auto-create-queues>true</auto-create-queues>
        <auto-delete-addresses>false</auto-delete-addresses>
        <auto-delete-queues>false</auto-delete-queues>
      </address-setting>
    </address-settings>
  </core>
</configuration>
"""


def prepare(folder: Path, port: int) -> tuple[Program, ...]:
    """Its configuration where its own main class looks for it."""
    program = java_program(folder, ARTIFACTS, OPTIONS, (MAIN, str(folder)))
    (folder / "etc").mkdir()
    (folder / "etc" / "broker.xml").write_text(configuration(port, folder / "data", sync_ns(folder)))
    return (program,)


ARTEMIS: Final = Peer(
    name="artemis",
    version=VERSION,
    title=f"Artemis {VERSION}, synced journal",
    accepted="in its journal, and that synced",
    prepare=prepare,
)
