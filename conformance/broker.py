"""The broker under test, as scenarios see it: an address, what it was found to offer, and names for their
queues.
"""

import shlex
import socket
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import count
from threading import Timer
from typing import Any, TypeVar, cast

import attrs

from amqp_broker.client.settings import Endpoint, parse_url
from amqp_broker.conformance.dialogue import Peer, Session
from amqp_broker.conformance.dialogue_rules import Breach
from amqp_broker.conformance.dialogue_state import Conversation
from amqp_broker.conformance.outcomes import CannotConnect, Interrupted, NotApplicable, Unexpected, error_of
from amqp_broker.conformance.transcript import Transcript, describe
from amqp_broker.conformance.wire import STEP_TIMEOUT_S
from amqp_broker.frames import (
    AMQP_HEADER,
    SASL_HEADER,
    Accepted,
    AmqpValue,
    Attach,
    Close,
    Coordinator,
    Described,
    Detach,
    Disposition,
    End,
    Open,
    Properties,
    Source,
    Symbol,
    Target,
    encode_message,
)
from amqp_broker.frames.sasl import SaslInit, SaslMechanisms, SaslOutcome

Given = TypeVar("Given")

DEFAULT_UNKNOWN_ADDRESS = "$no-such-node"
"""An address that no broker should know; '$' is reserved in many brokers, so that it is not created on
first use.
"""

RESOLVE = "$half-resolve/conformance"
"""A node of whoever speaks of half messages."""

NOT_ESTABLISHED = "amqp:connection-establishment-failed"
"""A property of an open that is followed by a close: many brokers say so, though no standard does."""

MAKE_NODE_S = 30.0
"""How long the command that makes a queue may take: it may be a program of Java's."""

PROBE_LIMIT_S = 30.0
"""How long a broker may take for what is asked before the run: a few dozen frames."""

MAX_FRAME_SIZE = 65536
"""What scenarios announce unless they are about frame sizes."""


def endpoint_of(url: str) -> Endpoint:
    """Reads ``amqp://[user:password@]host[:port]``; raises ValueError with what is wrong."""
    endpoint = parse_url(url)
    if endpoint.tls:
        raise ValueError(f"{endpoint}: the scheme must be amqp, since scenarios look at what TLS would hide")
    return endpoint


@attrs.frozen
class Findings:
    """What the first connections found out about the broker."""

    mechanisms: tuple[str, ...] = ()
    """SASL mechanisms offered, in the broker's order; empty when it speaks no SASL."""

    bare_header: bool = False
    """Whether AMQP without a SASL layer is accepted."""

    container_id: str = ""
    properties: dict[str, object] = attrs.field(factory=dict)
    coordinator: tuple[str, ...] | None = None
    """The capabilities of the transaction coordinator (4.5.1); None where there is no coordinator."""

    no_coordinator: str = ""
    """What the broker answered instead, where there is none."""

    missing_protocols: dict[str, str] = attrs.field(factory=dict)
    """Protocols of this project that the broker does not speak, and what it answered instead."""

    def mechanisms_usable(self, address: Endpoint) -> bool:
        """Whether the SASL layer lets us in; otherwise AMQP's header without it does."""
        return ("ANONYMOUS" if address.user is None else "PLAIN") in self.mechanisms


@attrs.frozen
class Settings:
    """One run's settings, the same for each scenario."""

    address: Endpoint
    run_id: str = ""
    address_prefix: str = ""
    _unknown_address: str = DEFAULT_UNKNOWN_ADDRESS
    """Empty where every address is a node."""

    capabilities: tuple[str, ...] = ()
    """What a terminus that names one of our queues asks for (3.5.3), where the broker makes it only then."""

    make_node: str = ""
    """A command that makes a queue, before it is used first; ``{address}`` in it is where."""

    lacks: Mapping[str, str] = attrs.field(factory=dict)
    """What the broker does not have: scenarios (see `Scenario.is_called`), and why they are no matter."""

    timeout_s: float = STEP_TIMEOUT_S
    gaps: dict[str, str] = attrs.field(factory=dict)
    """Scenarios that are known to fail on this broker, and why."""

    findings: Findings = Findings()

    @property
    def unknown_address(self) -> str:
        """An address that the broker must refuse; ends the scenario as not applicable where there is none."""
        if not self._unknown_address:
            raise NotApplicable("every address is a node of this broker")
        return self._unknown_address


class _AskingPeer(Peer):
    """A connection whose attaches ask for what makes the broker make the queues that they name."""

    asks_for: tuple[str, ...] = ()
    about = ""

    def put(self, performative: Any, payload: bytes = b"", channel: int = 0) -> None:
        """Sends one AMQP frame."""
        if isinstance(performative, Attach):
            source, target = self._asking(performative.source), self._asking(performative.target)
            performative = attrs.evolve(cast(Any, performative), source=source, target=target)
        super().put(performative, payload, channel)

    def _asking(self, terminus: Any) -> Any:
        """A terminus as it is sent; one that says itself what it wants is left alone."""
        ours = isinstance(terminus, Source | Target) and self.about in str(terminus.address or "")
        if not ours or terminus.capabilities:
            return terminus
        return attrs.evolve(terminus, capabilities=tuple(Symbol(one) for one in self.asks_for))


class Broker:
    """The broker, for one scenario: its connections share one transcript and are dropped at the end."""

    def __init__(self, settings: Settings, scenario_id: str, transcript: Transcript | None = None) -> None:
        self.settings = settings
        self.findings = settings.findings
        self.transcript = transcript or Transcript()
        self.scenario_id = scenario_id
        self._peers: list[Peer] = []
        self._conversations: list[Conversation] = []
        self._made: set[str] = set()
        self._unnamed = count()
        self._opened: set[str] = set()
        self._interrupted = ""

    def given(self, kind: type[Given]) -> Given:
        """Makes what a scenario has as a parameter of this class: this broker, an open connection, a session
        on one of its own, or whatever is made of a broker, by a class's own `given` if it has one.
        """
        usual: dict[Any, Callable[[], object]] = {
            Broker: lambda: self, Peer: lambda: self.opened()[0], Session: self.session
        }  # fmt: skip
        made = usual[kind]() if kind in usual else getattr(kind, "given", cast(Any, kind))(self)
        assert isinstance(made, kind)
        return made

    def connect(self) -> Peer:
        """Makes a TCP connection; nothing is sent yet."""
        if self._interrupted:
            raise Interrupted(self._interrupted)
        peer = (_AskingPeer if self.settings.capabilities else Peer)(
            (self.settings.address.host, self.settings.address.port), self.transcript, self.settings.timeout_s
        )
        peer.own_address = self.queue("catch-up")
        if isinstance(peer, _AskingPeer):
            peer.asks_for, peer.about = self.settings.capabilities, self.settings.run_id
        self._peers.append(peer)
        self._conversations.append(peer.rules.conversation)
        peer.rules.conversation.elsewhere = self._conversations
        return peer

    def breaches(self, by: str) -> list[Breach]:
        """The rules of a dialogue that one side has broken so far (`dialogue_rules`)."""
        return [breach for peer in self._peers for breach in peer.rules.breaches if breach.by == by]

    def log_in(self, peer: Peer, init: SaslInit | None = None) -> None:
        """Sends what comes before ``open``: the SASL layer where the broker offers one, then AMQP's header
        (5.3).
        """
        if init or self.findings.mechanisms_usable(self.settings.address):
            self.authenticate(peer, init)
        peer.send_header(AMQP_HEADER)
        peer.expect_header(AMQP_HEADER)

    def authenticate(self, peer: Peer, init: SaslInit | None = None) -> None:
        """Passes the SASL layer with ``init``, or as the user of the address, or else ANONYMOUS."""
        peer.send_header(SASL_HEADER)
        peer.expect_header(SASL_HEADER)
        peer.expect(SaslMechanisms)
        peer.send_sasl(init or self.sasl_init())
        peer.expect(SaslOutcome, code=0)

    def sasl_init(self) -> SaslInit:
        """Returns the sasl-init that logs us in."""
        address = self.settings.address
        if address.user is None:
            return SaslInit(mechanism="ANONYMOUS", initial_response=b"conformance")
        response = f"\0{address.user}\0{address.password or ''}".encode()
        return SaslInit(mechanism="PLAIN", initial_response=response)

    def own_open(self, **fields: object) -> Open:
        """Returns the open that scenarios send, changed by ``fields``. Each is of a container of its own: the
        standard does not say that a broker takes two connections of one. ``container`` names it; "" is the
        first one's, for what needs several connections of a container.
        """
        if "container" not in fields:
            number = next(self._unnamed)
            fields["container"] = f"connection-{number}" if number else ""
        usual: dict[str, object] = {
            "container_id": self.container_id(fields.pop("container")),
            "hostname": self.settings.address.host,
            "max_frame_size": MAX_FRAME_SIZE,
            "channel_max": 255,
        }
        return Open(**{**usual, **fields})  # type: ignore[arg-type]

    def logged_in(self) -> Peer:
        """Returns a new connection on which open may come."""
        peer = self.connect()
        self.log_in(peer)
        return peer

    def opened(self, **fields: object) -> tuple[Peer, Open]:
        """Returns a new connection after ``open`` went both ways, and the broker's open."""
        peer = self.logged_in()
        own = self.own_open(**fields)
        peer.put(own)
        opened = peer.expect(Open)
        if own.container_id in self._opened and NOT_ESTABLISHED in map(str, opened.properties or {}):
            error_of(peer.expect(Close), "amqp:invalid-field")
            raise NotApplicable("the broker takes one connection of a container at a time, and may")
        self._opened.add(own.container_id)
        return peer, opened

    def session(self, **fields: object) -> Session:
        """Returns a session on channel 0 of a new connection; ``fields`` change our open."""
        return self.opened(**fields)[0].begin()

    def container_id(self, container: object = "") -> str:
        """Returns the container-id of this scenario of this run, or of another ``container`` in it."""
        plain = self.scenario_id.replace("/", "-").replace(".", "_")
        return f"conformance-{self.settings.run_id}-{plain}" + (f"-{container}" if container else "")

    def queue(self, name: str = "q", kind: str = "") -> str:
        """Returns the address of a queue that only this scenario of this run uses, of a ``kind`` that
        second_broker.toml has a policy for.
        """
        policy = f"{kind}." if kind else ""
        return self._there(f"{self.settings.address_prefix}{policy}{self.container_id()}-{name}")

    def _there(self, address: str) -> str:
        """Makes a node where the broker does not make it by itself."""
        if self.settings.make_node and address not in self._made:
            self._made.add(address)
            words = [word.replace("{address}", address) for word in shlex.split(self.settings.make_node)]
            try:
                subprocess.run(
                    words, check=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=MAKE_NODE_S
                )
            except (OSError, subprocess.SubprocessError) as error:
                raise NotApplicable(f"the queue {address} could not be made: {error}") from error
        return address

    def still_serves(self) -> None:
        """Raises Unexpected unless a new connection can open, begin and close."""
        try:
            session = self.session()
        except CannotConnect as error:
            raise Unexpected(f"the broker is gone: {error}") from error
        session.end()
        session.peer.close()

    def require_mechanism(self, mechanism: str) -> None:
        """Ends the scenario as not applicable unless the broker offers a SASL mechanism."""
        if mechanism not in self.findings.mechanisms:
            offered = ", ".join(self.findings.mechanisms) or "no SASL at all"
            raise NotApplicable(f"the broker does not offer SASL {mechanism} (it offers {offered})")

    def require_coordinator(self, *capabilities: str) -> None:
        """Ends the scenario as not applicable unless there is a coordinator that offers ``capabilities``."""
        offered = self.findings.coordinator
        if offered is None:
            raise NotApplicable(f"no coordinator: {self.findings.no_coordinator}")
        for capability in capabilities:
            if capability not in offered:
                raise NotApplicable(f"the coordinator does not offer {capability}")

    def require_protocol(self, protocol: str) -> None:
        """Ends the scenario as not applicable where the broker does not speak a protocol of this project."""
        answered = self.findings.missing_protocols.get(protocol)
        if answered is not None:
            raise NotApplicable(f"no {protocol}: {answered}")

    def interrupt(self, why: str) -> None:
        """Ends the scenario from another thread: whatever it waits for ends, and nothing new begins."""
        self._interrupted = why
        for peer in list(self._peers):
            with suppress(OSError):
                peer.transport.shutdown(socket.SHUT_RDWR)

    @property
    def interrupted(self) -> str:
        """Why it was interrupted; empty where it was not."""
        return self._interrupted

    def finish(self) -> None:
        """Closes the connections that a scenario has left open, where nothing went wrong on them."""
        for peer in self._peers:
            peer.finish()

    def discard(self) -> None:
        """Drops what connections are left."""
        for peer in self._peers:
            peer.abort()


def probe(settings: Settings) -> Findings:
    """Finds out how the broker can be spoken to; raises CannotConnect when it cannot be at all."""
    broker = Broker(settings, "probe")
    timer = Timer(PROBE_LIMIT_S, broker.interrupt, [f"its first answers took more than {PROBE_LIMIT_S:g} s"])
    timer.daemon = True
    timer.start()
    try:
        findings = _login_ways(broker)
        broker.findings = findings if findings.mechanisms_usable(settings.address) else Findings((), True)
        _, opened = broker.opened()
        coordinator, no_coordinator = _coordinator(broker)
        missing = {
            "half-messages": _no_capability(
                broker, RESOLVE, "half-messages", f"{RESOLVE} is an ordinary node"
            ),
            "sequences": _no_capability(
                broker, broker.queue("sequences"), "tx-sequence", "a queue has no capability tx-sequence"
            ),
            "retention": _no_retention(broker),
            "sets": _no_sets(broker),
        }
        if broker.interrupted:
            raise Interrupted(broker.interrupted)
    except (Unexpected, Interrupted, OSError) as error:
        why = broker.interrupted or error
        raise CannotConnect(f"{settings.address}: no AMQP 1.0 broker answers there: {why}") from error
    finally:
        timer.cancel()
        broker.discard()
    properties = {str(key): value for key, value in (opened.properties or {}).items()}
    return attrs.evolve(
        findings,
        container_id=opened.container_id or "",
        properties=properties,
        coordinator=coordinator,
        no_coordinator=no_coordinator,
        missing_protocols={protocol: answered for protocol, answered in missing.items() if answered},
    )


def _coordinator(broker: Broker) -> tuple[tuple[str, ...] | None, str]:
    """Returns what the coordinator says it can do, or None and what came instead of a coordinator (4.2)."""
    capabilities: list[str] = []

    def lacks(answer: Attach) -> str | None:
        if not isinstance(answer.target, Coordinator):
            return None
        capabilities.extend(str(one) for one in answer.target.capabilities or ())
        return ""

    wished = Coordinator(capabilities=("amqp:local-transactions",))
    missing = _no_node(broker, "one", lambda session: session.put_sender(None, target=wished), lacks)
    return (None, missing) if missing else (tuple(capabilities), "")


def _no_capability(broker: Broker, address: str, capability: str, otherwise: str) -> str:
    """Returns what came instead of a node with this capability; nothing where there is one."""

    def lacks(answer: Attach) -> str | None:
        if not isinstance(answer.target, Target):
            return None
        return "" if capability in [str(one) for one in answer.target.capabilities or ()] else otherwise

    return _no_node(broker, address, lambda session: session.put_sender(address), lacks)


def _no_retention(broker: Broker) -> str:
    """Returns what came instead of a queue that is read by offset; nothing where there is one."""
    address = f"{broker.settings.address_prefix}kept.{broker.container_id()}"
    spec = "rabbitmq:stream-offset-spec"
    source = Source(address=address, filter={spec: Described(Symbol(spec), "first")})

    def lacks(answer: Attach) -> str | None:
        if not isinstance(answer.source, Source):
            return None
        return "" if spec in (answer.source.filter or {}) else f"the filter {spec} is not in effect"

    return _no_node(broker, address, lambda session: session.put_receiver(None, source=source), lacks)


def _no_node(
    broker: Broker,
    address: str,
    attach: Callable[[Session], object],
    lacks: Callable[[Attach], str | None],
) -> str:
    """Returns what came instead of the node that `attach` is for; nothing where it is there.

    `lacks` looks at the answering attach: "" is what was wanted, None a refusal whose detach follows (2.6.3).
    """
    try:
        session = broker.session()
        attach(session)
        answer = session.peer.expect_frame(Attach, Detach, End, Close).performative
        if isinstance(answer, Attach):
            missing = lacks(answer)
            if missing is not None:
                return f"{missing}: {describe(answer)}" if missing else ""
            answer = session.peer.expect_frame(Detach, End, Close).performative
    except (Unexpected, CannotConnect, OSError) as error:
        return f"an attach to {address}: {error}"
    return f"an attach to {address} is answered with {describe(answer)}"


def _no_sets(broker: Broker) -> str:
    """Returns what came instead of an answer about sets of half messages; nothing where there is one."""
    void = AmqpValue({"producer": "conformance", "sets": []})
    message = encode_message(properties=Properties(subject="void"), body=void)
    try:
        link = broker.session().sender(RESOLVE)
        link.send(message)
        state = link.peer.expect(Disposition).state
    except (Unexpected, CannotConnect, OSError) as error:
        return f"a message with the subject void: {error}"
    return "" if isinstance(state, Accepted) else f"the subject void is answered with {describe(state)}"


def _login_ways(broker: Broker) -> Findings:
    """Tries both headers; raises CannotConnect when the address's login fits neither."""
    address = broker.settings.address
    mechanisms: tuple[str, ...] = ()
    peer = broker.connect()
    peer.send_header(SASL_HEADER)
    if peer.expect_header(None).octets == SASL_HEADER:
        mechanisms = tuple(peer.expect(SaslMechanisms).sasl_server_mechanisms or ())
    peer = broker.connect()
    peer.send_header(AMQP_HEADER)
    bare = peer.expect_header(None).octets == AMQP_HEADER
    if bare:
        peer.put(Open(container_id="conformance-probe", hostname=address.host))
        bare = isinstance(peer.expect_frame(Open, object).performative, Open)
    offered = ", ".join(mechanisms) or "no SASL"
    if address.user is not None and "PLAIN" not in mechanisms:
        raise CannotConnect(f"{address}: a user is given, but PLAIN is not offered (offered: {offered})")
    if address.user is None and not bare and "ANONYMOUS" not in mechanisms:
        raise CannotConnect(f"{address}: give a user, ANONYMOUS is not offered (offered: {offered})")
    return Findings(mechanisms, bare)
