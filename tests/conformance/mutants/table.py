"""The mutants: each breaks one rule, and names its rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from amqp_broker.conformance.dialogue_state import CLIENT, SERVER
from amqp_broker.conformance.messages import HEADER, MESSAGE_ANNOTATIONS, split_sections
from amqp_broker.conformance.transactions import NEVER_DECLARED
from amqp_broker.frames import (
    AMQP_HEADER,
    EMPTY_FRAME,
    Accepted,
    AmqpError,
    AmqpValue,
    Attach,
    Begin,
    Close,
    Coordinator,
    Declared,
    DecodeError,
    Detach,
    Discharge,
    Disposition,
    End,
    Error,
    Flow,
    Header,
    Message,
    Modified,
    Open,
    Properties,
    ProtocolHeader,
    Rejected,
    Released,
    Source,
    Symbol,
    Target,
    TransactionalState,
    Transfer,
    decode_composite,
    encode_composite,
    encode_message,
)
from amqp_broker.testing.peer import SERIAL
from tests.conformance.mutants.between import Change, Mutant, Sent, Wiretap, evolve

INTERNAL: Final = "amqp:internal-error"
When = Callable[[Any, Wiretap], object]


def always(said: Any, tap: Wiretap) -> bool:
    return True


def so(when: When = always, **fields: Any) -> Change:
    """Changes fields where `when` holds: to a value, or to what a function of the performative gives."""

    def change(said: Any, tap: Wiretap) -> Any:
        if not when(said, tap):
            return said
        made = {name: value(said) if callable(value) else value for name, value in fields.items()}
        return evolve(said, **made)

    return change


def gone(when: When = always) -> Change:
    """Says nothing instead, where `when` holds."""
    return lambda said, tap: None if when(said, tap) else said


def instead(made: Callable[[Any], Any], when: When = always) -> Change:
    """Says what a function makes of it, where `when` holds."""
    return lambda said, tap: made(said) if when(said, tap) else said


def body(changed: Callable[[bytes], bytes]) -> Change:
    """Changes the message of a delivery that came in one transfer; what is none stays as it is."""

    def change(said: Transfer, tap: Wiretap) -> Any:
        try:
            return Sent(said, changed(tap.payload)) if whole(said, tap) else said
        except (AssertionError, AmqpError):
            return said

    return change


def whole(said: Transfer, tap: Wiretap) -> bool:
    return said.delivery_id is not None and not said.more and not said.aborted and len(tap.payload) < 2_000


def sends(said: Attach, tap: Wiretap) -> bool:
    return said.role is False


def of_sender(said: Flow, tap: Wiretap) -> bool:
    """A flow of the broker's on a link on which it sends."""
    link = tap.link(SERVER, said.handle)
    return link is not None and link.sends


def of_receiver(said: Flow, tap: Wiretap) -> bool:
    link = tap.link(SERVER, said.handle)
    return link is not None and not link.sends


def of_session(said: Flow, tap: Wiretap) -> bool:
    return said.handle is None


def refused(said: Attach, tap: Wiretap) -> bool:
    """The broker's terminus is null (2.6.3)."""
    return (said.target if said.role else said.source) is None


def names(*conditions: str) -> When:
    return lambda said, tap: said.error is not None and (not conditions or said.error.condition in conditions)


def other(said: Any) -> Error:
    return Error(condition=INTERNAL, description="another condition")


def outcome(kind: type) -> When:
    return lambda said, tap: isinstance(said.state, kind)


def at_coordinator(said: Transfer, tap: Wiretap) -> bool:
    link = tap.link(CLIENT, said.handle)
    return link is not None and isinstance(link.attach.target, Coordinator)


def wants_second(said: Attach, tap: Wiretap) -> bool:
    if said.rcv_settle_mode == 1:
        tap.notes[said.name] = True
    return said.rcv_settle_mode == 1


def wanted_second(said: Attach, tap: Wiretap) -> bool:
    return said.name in tap.notes


def discharged(fail: bool) -> Change:
    """A discharge that says so says the opposite."""

    def change(said: Transfer, tap: Wiretap) -> Any:
        if not at_coordinator(said, tap) or said.more:
            return said
        try:
            sections = Message(tap.payload).body_sections()
        except DecodeError:
            return said  # a scenario means to send what is no message
        request = sections[0].value if sections and isinstance(sections[0], AmqpValue) else None
        if not isinstance(request, Discharge) or bool(request.fail) != fail:
            return said
        return Sent(said, encode_message(body=AmqpValue(Discharge(txn_id=request.txn_id, fail=not fail))))

    return change


def without(code: int) -> Callable[[bytes], bytes]:
    return lambda payload: b"".join(octets for got, octets in split_sections(payload) if got != code)


def header_with(**fields: Any) -> Callable[[bytes], bytes]:
    """Changes the header of a message, where it has one."""

    def changed(payload: bytes) -> bytes:
        parts = split_sections(payload)
        if not parts or parts[0][0] != HEADER:
            return payload
        header = decode_composite(parts[0][1])[0]
        assert isinstance(header, Header)
        rest = b"".join(octets for _, octets in parts[1:])
        return encode_composite(evolve(header, **fields)) + rest

    return changed


def inserted(payload: bytes) -> bytes:
    """Properties that the sender did not write."""
    parts = split_sections(payload)
    if any(code == 0x73 for code, _ in parts):
        return payload
    front = [octets for code, octets in parts if code < 0x73]
    return b"".join([*front, encode_composite(Properties(subject="inserted")),
                     *[octets for code, octets in parts if code > 0x73]])  # fmt: skip


def data_in_other_octets(payload: bytes) -> bytes:
    """A data section with a size of four octets where one was enough."""
    wide = b"\x00\x53\x75\xb0"
    return b"".join(
        wide + (len(octets) - 5).to_bytes(4, "big") + octets[5:] if octets[:4] == b"\x00Su\xa0" else octets
        for _, octets in split_sections(payload)
    )


def same_tag(said: Transfer, tap: Wiretap) -> Any:
    return said if said.delivery_tag is None else evolve(said, delivery_tag=b"same")


def stuttered(said: Transfer, tap: Wiretap) -> Any:
    """The third delivery of a connection comes with the id of the second."""
    if said.delivery_id is None:
        return said
    tap.notes["count"] = tap.notes.get("count", 0) + 1
    return evolve(said, delivery_id=said.delivery_id - 1) if tap.notes["count"] == 3 else said


def first_of_several(said: Transfer, tap: Wiretap) -> bool:
    return said.delivery_id is not None and said.more


def twice_decided(said: Disposition, tap: Wiretap) -> Any:
    final = isinstance(said.state, Accepted) and said.settled
    return (said, evolve(said, state=Released())) if final else said


def within(said: Any, tap: Wiretap) -> bool:
    return isinstance(said.state, TransactionalState)


def longer_id(said: Disposition, tap: Wiretap) -> Any:
    state = said.state
    if isinstance(state, Declared):
        tap.notes[state.txn_id + b"!" * 20] = state.txn_id
        return evolve(said, state=Declared(txn_id=state.txn_id + b"!" * 20))
    if isinstance(state, TransactionalState):
        return evolve(said, state=evolve(state, txn_id=state.txn_id + b"!" * 20))
    return said


def shorter_id(said: Any, tap: Wiretap) -> Any:
    known = {long: short for long, short in tap.notes.items() if isinstance(long, bytes)}
    state = said.state
    if isinstance(state, TransactionalState) and state.txn_id in known:
        said = evolve(said, state=evolve(state, txn_id=known[state.txn_id]))
    if isinstance(said, Transfer) and at_coordinator(said, tap):
        payload = tap.payload
        for long, short in known.items():
            if long in payload:
                return Sent(said, encode_message(body=AmqpValue(evolve(
                    Message(payload).body_sections()[0].value, txn_id=short))))  # fmt: skip
    return said


def without_policy(said: Attach, tap: Wiretap) -> Any:
    """The lifetime-policy that a client wants is not heard, and confirmed."""
    for name in ("source", "target"):
        terminus = getattr(said, name)
        wished = getattr(terminus, "dynamic_node_properties", None)
        if wished:
            tap.notes[said.name] = wished
            return evolve(said, **{name: evolve(terminus, dynamic_node_properties=None)})
    return said


def with_policy(said: Attach, tap: Wiretap) -> Any:
    wished = tap.notes.get(said.name)
    if wished is None:
        return said
    name = "target" if said.role else "source"
    terminus = getattr(said, name)
    return said if terminus is None else evolve(
        said, **{name: evolve(terminus, dynamic_node_properties=wished)})  # fmt: skip


def mode_heard(wish: str, heard: str) -> tuple[Change, Change]:
    """A distribution-mode is taken for another, and the one that was wanted confirmed."""

    def ask(said: Attach, tap: Wiretap) -> Any:
        source = said.source
        if said.role and getattr(source, "distribution_mode", None) == wish:
            tap.notes[said.name] = True
            return evolve(said, source=evolve(source, distribution_mode=heard))
        return said

    def answer(said: Attach, tap: Wiretap) -> Any:
        if said.name in tap.notes and said.source is not None:
            return evolve(said, source=evolve(said.source, distribution_mode=wish))
        return said

    return ask, answer


def in_source(when: When = always, **fields: Any) -> Change:
    """Changes the source of an attach of the broker's, where it has one."""

    def change(said: Attach, tap: Wiretap) -> Any:
        if not isinstance(said.source, Source) or not when(said, tap):
            return said
        return evolve(said, source=evolve(said.source, **fields))

    return change


def in_target(when: When = always, **fields: Any) -> Change:
    """Changes the target of an attach of the broker's, where it has one."""

    def change(said: Attach, tap: Wiretap) -> Any:
        if not isinstance(said.target, Target) or not when(said, tap):
            return said
        return evolve(said, target=evolve(said.target, **fields))

    return change


def claims_wishes(said: Attach, tap: Wiretap) -> Any:
    """Whatever capability a client wishes of a terminus is claimed."""
    session = tap.conversation.sides[CLIENT].sessions
    for one in session.values():
        for link in one.links.values():
            if (
                link.attach.name == said.name
                and isinstance(link.attach.source, Source)
                and said.source is not None
            ):
                return evolve(said, source=evolve(
                    said.source, capabilities=link.attach.source.capabilities))  # fmt: skip
    return said


MOVES = mode_heard("copy", "move")

MUTANTS: Final = (
    # --- connections
    Mutant(
        "other-version-answered",
        "2.2-06",
        {
            ProtocolHeader: instead(
                lambda said: AMQP_HEADER[:6] + b"\x01\x00", lambda said, tap: said.octets == AMQP_HEADER
            )
        },
        tells="expected header AMQP 0 1.0.0, got header AMQP 0 1.1.0",
    ),
    Mutant(
        "any-version-accepted",
        "2.2-07 2.2-03 2.2-08 2.2-09 2.2-10 2.2-11",
        asks={
            ProtocolHeader: instead(
                lambda said: AMQP_HEADER, lambda said, tap: said.octets[5:] != b"\x01\x00\x00"
            )
        },
        also="5.3",
    ),
    Mutant(
        "open-on-channel-1", "2.4.1-channel-0", {Open: lambda said, tap: Sent(said, channel=1)}, also="2.4.3"
    ),
    Mutant(
        "empty-frame-after-close",
        "2.4.5-06 2.4.3-02 2.7.9-last",
        {Close: instead(lambda said: (said, EMPTY_FRAME))},
    ),
    Mutant(
        "flow-after-close",
        "2.4.3-02 2.7.9-last",
        {Close: instead(lambda said: (said, Flow(incoming_window=1, next_outgoing_id=0, outgoing_window=1)))},
        also="2.5.5 2.5.6 2.7.4 2.7.8",
    ),
    Mutant(
        "close-unanswered",
        "2.4.3-01 2.7.9-01",
        {Close: gone(lambda said, tap: said.error is None)},
        tells="expected close, but the broker closed its side",
    ),
    Mutant(
        "close-without-error",
        "2.7.9-error 2.7.1-05 2.7.1-08 2.8.16-framing-error 2.8.14-condition 2.7.9-02",
        {Close: so(names(), error=None)},
        also="1 2.3 2.4 2.5 2.6 2.7 2.8 5.3 3.5",
    ),
    Mutant(
        "framing-error-by-another-name",
        "2.7.1-05 2.7.1-08 2.8.16-framing-error 2.3.1-small-size 2.3.1-small-doff",
        {Close: so(names("amqp:connection:framing-error"), error=other)},
        also="2.7.2 2.3.1",
    ),
    Mutant(
        "decode-error-by-another-name",
        "2.8.15-decode-error",
        {Close: so(names("amqp:decode-error"), error=other)},
        also="1.2 1.4 1.6 2.3.2",
    ),
    Mutant(
        "larger-frames-than-wanted",
        "2.7.1-04",
        asks={Open: so(max_frame_size=65_536)},
        also="2.5.6 2.6.13 2.6.14 2.7.3 2.7.5 2.8 4.4.3",
    ),
    Mutant(
        "smaller-frames-than-promised",
        "2.7.1-06 2.7.1-04",
        {Open: so(max_frame_size=262_144)},
        also="2.7.1 2.8",
    ),
    Mutant(
        "no-heartbeat", "2.4.5-empty 2.4.5-desired 2.7.1-idle 2.4.5-02", asks={Open: so(idle_time_out=None)}
    ),
    Mutant(
        "offers-what-nobody-knows", "2.7.1-12", {Open: so(offered_capabilities=("x-conformance-desired",))}
    ),
    # --- sessions
    Mutant(
        "wrong-remote-channel",
        "2.7.2-02 2.5.1-01",
        {
            Begin: so(
                lambda said, tap: bool(said.remote_channel),
                remote_channel=lambda said: said.remote_channel + 1,
            )
        },
        also="2.5 2.7.1 2.3 1.2 2.7.6 4",
    ),
    Mutant(
        "no-remote-channel",
        "2.5.1-01 2.7.2-02",
        {Begin: so(lambda said, tap: bool(said.remote_channel), remote_channel=None)},
        also="2.5 2.7.1 2.3 1.2 2.7.6 4",
    ),
    Mutant("offers-what-a-session-wants", "2.7.2-02", {Begin: so(offered_capabilities=("x-conformance",))}),
    Mutant(
        "end-unanswered",
        "2.5.2-end",
        {End: gone(lambda said, tap: said.error is None)},
        also="2.5 2.4 1.3 1.4 1.6 3.5 4 2.7 2.2 2.3 1.2 2.6 5.3 3 2",
    ),
    Mutant(
        "unattached-handle-by-another-name",
        "2.7.4-01 2.8.17-unattached-handle 2.5.4-01",
        {End: so(names("amqp:session:unattached-handle"), error=other)},
    ),
    Mutant(
        "session-error-without-error",
        "2.5.4-01 2.7.4-01 2.8.17-unattached-handle 2.7.8-error 2.8.14-condition 2.7.8-01",
        {End: so(names(), error=None)},
        also="2.6 2.7 2.5 1.3 1.4",
    ),
    Mutant(
        "next-outgoing-id-ahead",
        "2.5.6-next-outgoing-id",
        {Flow: so(next_outgoing_id=lambda said: said.next_outgoing_id + 1)},
    ),
    Mutant(
        "no-next-incoming-id",
        "2.7.4-next-incoming-id",
        {Flow: so(next_incoming_id=None)},
        also="2.5.6",
    ),
    Mutant(
        "next-incoming-id-stands-still",
        "2.5.6-receiving 2.7.4-next-incoming-id",
        {Flow: so(next_incoming_id=0)},
        also="2.5.6",
    ),
    Mutant(
        "window-unheard",
        "2.5.6-incoming-window 2.5.6-01 2.5.6-sending",
        asks={Begin: so(incoming_window=2048), Flow: so(incoming_window=2048)},
        also="2.5.6 4.4.3",
    ),
    Mutant("highest-handle-not-taken", "2.7.2-handle-max", {Begin: so(handle_max=1 << 20)}, also="2.7.2"),
    # --- links
    Mutant(
        "no-initial-delivery-count",
        "2.7.3-08",
        {Attach: so(sends, initial_delivery_count=None)},
        also="2.7.3",
    ),
    Mutant(
        "refusal-with-a-terminus",
        "2.6.3-refused",
        {Attach: so(lambda said, tap: refused(said, tap) and said.role, target=Target(address="x"))},
        also="2.6.3 3.5 2.7.3 4.5",
    ),
    Mutant(
        "refusal-without-detach",
        "2.6.3-01",
        {
            Detach: gone(
                lambda said, tap: (
                    (link := tap.link(SERVER, said.handle)) is not None and refused(link.attach, tap)
                )
            )
        },
        also="2.6.3 3.5 2.6.5 4.2 4.5 2.8",
    ),
    Mutant(
        "closing-detach-answered-by-a-plain-one",
        "2.6.6-closed",
        {Detach: so(lambda said, tap: said.error is None, closed=False)},
        also="2.6.6 2.6.3",
    ),
    Mutant(
        "detach-unanswered",
        "2.7.7-unmaps 2.6.4-01 2.6.6-closed",
        {
            Detach: gone(
                lambda said, tap: (
                    said.error is None and "catch-up" not in tap.link(SERVER, said.handle).attach.name
                )
            )
        },
        also="2.6 2.7 2.8 3.3 3.4 3.5 4 1.2 2.5 2.4 3",
    ),
    Mutant(
        "detach-without-error",
        "2.6.5-01 2.7.7-error 2.8.15-not-found 2.8.14-condition 2.7.7-01",
        {Detach: so(names(), error=None)},
        also="2.6 2.7 3.2 3.5 4 2.8",
    ),
    Mutant(
        "not-found-by-another-name",
        "2.8.15-not-found",
        {Detach: so(names("amqp:not-found"), error=other)},
        also="2.6.3",
    ),
    Mutant(
        "stolen-by-another-name",
        "2.8.18-stolen 2.6.1-02",
        {Detach: so(names("amqp:link:stolen"), error=other)},
    ),
    Mutant(
        "too-large-by-another-name",
        "2.8.18-message-size 2.7.3-max-message-size",
        {Detach: so(names("amqp:link:message-size-exceeded"), error=other)},
    ),
    Mutant(
        "handle-in-use-by-another-name",
        "2.7.3-02 2.8.17-handle-in-use",
        {
            End: so(names("amqp:session:handle-in-use"), error=other),
            Close: so(names("amqp:session:handle-in-use"), error=other),
        },
    ),
    Mutant(
        "settles-early",
        "2.7.5-11 2.8.3-second",
        {Attach: so(wanted_second, rcv_settle_mode=1)},
        asks={Attach: so(wants_second, rcv_settle_mode=0)},
        also="2.6 2.7 2.8 3.4",
    ),
    Mutant(
        "small-messages-unheard",
        "2.7.3-max-message-size 2.7.3-supported-size",
        asks={Attach: so(max_message_size=None)},
    ),
    Mutant(
        "initial-count-unheard",
        "2.6.7-initial 2.7.4-04 2.6.7-serial",
        asks={Attach: so(lambda said, tap: said.role is False, initial_delivery_count=0)},
        also="2.6.7 2.6.10 2.7.4",
    ),
    # --- credit
    Mutant(
        "more-than-credit",
        "2.6.7-illegal 2.6.7-04",
        asks={
            Flow: so(
                lambda said, tap: said.link_credit in (2, 3), link_credit=lambda said: said.link_credit + 1
            )
        },
        also="2.6 2.7.4 2.7.5 2.5.6 3.3 4.4 3.4 2.4",
    ),
    Mutant("drain-unheard", "2.6.7-07 2.6.7-drain", asks={Flow: so(drain=False)}, also="2.6 4.4 2.7.4"),
    Mutant("echo-unheard", "2.7.4-echo 2.6.10-echo", asks={Flow: so(echo=False)}, also="2.6 2.7.4 2.5.6"),
    Mutant(
        "count-missing-in-flow",
        "2.7.4-03",
        {Flow: so(of_sender, delivery_count=None)},
        also="2.6 2.5.6 4.4.3",
    ),
    Mutant(
        "count-ahead-in-flow",
        "2.7.4-03 2.6.7-01",
        {Flow: so(of_sender, delivery_count=lambda said: said.delivery_count + 1)},
        also="2.6 4.4.3",
    ),
    Mutant(
        "receivers-count-behind",
        "2.7.4-04",
        {Flow: so(of_receiver, delivery_count=lambda said: ((said.delivery_count or 0) - 1) % SERIAL)},
        also="2.6 2.7.4",
    ),
    Mutant(
        "session-flow-with-delivery-count",
        "2.7.4-02 2.7.4-session-only",
        {Flow: so(of_session, delivery_count=0)},
    ),
    Mutant(
        "session-flow-with-link-credit", "2.7.4-06 2.7.4-session-only", {Flow: so(of_session, link_credit=1)}
    ),
    Mutant("session-flow-with-available", "2.7.4-07 2.7.4-session-only", {Flow: so(of_session, available=1)}),
    Mutant("session-flow-with-drain", "2.7.4-08 2.7.4-session-only", {Flow: so(of_session, drain=True)}),
    Mutant(
        "session-flow-with-properties",
        "2.7.4-properties 2.7.4-session-only",
        {Flow: so(of_session, properties={"x": 1})},
    ),
    # --- deliveries
    Mutant("no-delivery-tag", "2.7.5-02", {Transfer: so(delivery_tag=None)}, also="2.6.13 3.4.6"),
    Mutant("no-message-format", "2.7.5-03", {Transfer: so(message_format=None)}),
    Mutant("one-tag-for-all", "2.6.12-02 2.7.5-unique 2.6.12-01", {Transfer: same_tag}, also="2.6.13 3.4.6"),
    Mutant("delivery-id-again", "2.6.12-delivery-id", {Transfer: stuttered}, also="2.6 2.7 3 4 2.5.6"),
    Mutant(
        "settled-where-unsettled",
        "2.7.5-07 2.8.2-unsettled",
        {Transfer: so(settled=True)},
        also="2.6 2.7 3 4 2.8.2",
    ),
    Mutant(
        "unsettled-where-settled",
        "2.7.5-06 2.8.2-settled",
        {Transfer: so(lambda said, tap: said.settled, settled=False)},
        also="2.7 2.8 2.6 3.4.6",
    ),
    Mutant(
        "another-tag-later",
        "2.7.5-same-tag",
        {
            Transfer: so(
                lambda said, tap: (
                    (link := tap.link(SERVER, said.handle)) is not None and link.partial is not None
                ),
                delivery_tag=b"other",
            )
        },
    ),
    Mutant(
        "abort-unheard",
        "2.6.14-02 2.7.5-15 2.7.5-aborted 2.7.5-aborted-precedence 2.7.5-08",
        asks={Transfer: so(aborted=False, more=lambda said: said.more and not said.aborted)},
        also="2.6.14 4.4.1",
    ),
    Mutant(
        "outcome-of-what-never-came",
        "2.7.6-range 2.7.6-last",
        {
            Disposition: so(
                lambda said, tap: isinstance(said.state, Accepted),
                last=lambda said: (said.last or said.first) + 5,
            )
        },
        also="2.6.12 4",  # what is on its way is accepted, too
    ),
    Mutant("outcome-changes", "3.4-terminal", {Disposition: twice_decided}, also="2.6 3 4"),
    # --- messages and outcomes
    Mutant(
        "inserts-properties",
        "3.2-inserted 3.2-01 3.2-immutable 3.2-body",
        {Transfer: body(inserted)},
        also="3.2",
    ),
    Mutant("other-octets", "3.2-01 3.2-immutable", {Transfer: body(data_in_other_octets)}, also="3.2"),
    Mutant("header-lost", "3.2-header-once", {Transfer: body(without(HEADER))}, also="3.2 3.3 3.4 4.4"),
    Mutant(
        "annotations-lost",
        "3.2.3-02 3.2.3-01",
        {Transfer: body(without(MESSAGE_ANNOTATIONS))},
        also="3.2 3.4.5 4.4.2",
    ),
    Mutant(
        "never-expires",
        "3.2.1-discarded 3.2.1-expiry",
        asks={Transfer: body(header_with(ttl=None))},
        also="3.2.1 4.4.1",
    ),
    Mutant("ttl-not-reduced", "3.2.1-10", {Transfer: body(header_with(ttl=60_000))}, also="3.2"),
    Mutant(
        "failures-uncounted",
        "3.4.5-02 3.2.1-incremented",
        asks={
            Disposition: so(outcome(Modified), state=lambda said: evolve(said.state, delivery_failed=None))
        },
        also="3.4.5 3.2.1",
    ),
    Mutant(
        "released-counts",
        "3.4.4-01 3.4.4-source",
        asks={Disposition: so(outcome(Released), state=Modified(delivery_failed=True))},
        also="3.4.4 4.4.2",
    ),
    Mutant(
        "undeliverable-here-unheard",
        "3.4.5-03",
        asks={
            Disposition: so(outcome(Modified), state=lambda said: evolve(said.state, undeliverable_here=None))
        },
    ),
    Mutant(
        "annotations-of-modified-unheard",
        "3.4.5-annotations",
        asks={
            Disposition: so(
                outcome(Modified), state=lambda said: evolve(said.state, message_annotations=None)
            )
        },
    ),
    Mutant(
        "rejected-comes-back",
        "3.4.3-source",
        asks={Disposition: so(outcome(Rejected), state=Released())},
        also="3.4.3 2.7.6 3.2",
    ),
    Mutant(
        "accepted-comes-back",
        "3.4.2-retired 3.4.2-no-increment",
        asks={Disposition: so(outcome(Accepted), state=Released())},
        also="3 2.6 2.7 2.8 4",
    ),
    # --- nodes
    Mutant(
        "no-address-of-a-dynamic-source",
        "3.5.3-02 3.5.3-dynamic",
        {Attach: in_source(lambda said, tap: said.source.dynamic, address=None)},
        also="3.5",
    ),
    Mutant(
        "no-address-of-a-dynamic-target",
        "3.5.4-02 3.5.4-dynamic",
        {Attach: in_target(lambda said, tap: said.target.dynamic, address=None)},
        also="3.5",
    ),
    Mutant(
        "node-properties-of-a-static-node",
        "3.5.3-06",
        {Attach: in_source(lambda said, tap: not said.source.dynamic, dynamic_node_properties={"x": 1})},
        also="3.5",
    ),
    Mutant(
        "lifetime-unheard",
        "3.5.10-delete-on-close 3.5.9-lifetime 3.5.11-delete-on-no-links 3.5.12-delete-on-no-messages",
        {Attach: with_policy},
        asks={Attach: without_policy},
        also="3.5",
    ),
    Mutant(
        "browsing-takes",
        "3.5.2-copy 3.5.7-copy",
        {Attach: MOVES[1]},
        asks={Attach: MOVES[0]},
        also="4.4.3 3.5 2.6",
    ),
    Mutant("claims-any-capability", "2.6.3-03", {Attach: claims_wishes}, also="3.5"),
    Mutant(
        "commit-rolls-back",
        "4.5.3-fail 4.3-fail 4.4.4.2-applied",
        asks={Transfer: discharged(False)},
        also="4",
    ),
    Mutant(
        "rollback-commits",
        "4.5.3-fail 4.3-fail 4.4.4.2-not-applied",
        asks={Transfer: discharged(True)},
        also="4",
    ),
    Mutant(
        "txn-id-of-36-octets",
        "4.5.4-length",
        {Disposition: longer_id},
        asks={Transfer: shorter_id, Disposition: shorter_id},
        also="4.3 4.4",
    ),
    Mutant(
        "unknown-id-by-another-name",
        "4.5.8-unknown-id",
        {
            Disposition: so(
                lambda said, tap: (
                    isinstance(said.state, Rejected)
                    and said.state.error is not None
                    and said.state.error.condition == "amqp:transaction:unknown-id"
                ),
                state=Rejected(error=Error(condition=INTERNAL)),
            )
        },
        also="4",
    ),
    Mutant(
        "unknown-id-taken",
        "4.5.8-unknown-id 4.4-requests",
        asks={
            Transfer: so(
                lambda said, tap: within(said, tap) and said.state.txn_id == NEVER_DECLARED, state=None
            )
        },
        also="4",
    ),
    Mutant(
        "posts-at-once",
        "4.4.1-not-available 4.4-state 4.4.4.1-discarded",
        asks={Transfer: so(within, state=None)},
        also="4",
    ),
    Mutant(
        "retires-at-once",
        "4.4.2-outcome 4.4.2-applied 4.4.4.2-not-applied",
        asks={Disposition: so(within, state=lambda said: said.state.outcome)},
        also="4",
    ),
    Mutant(
        "plain-outcome-of-a-post",
        "4.4.1-04 4.4.1-05 4.4.1-informs",
        {Disposition: so(within, state=lambda said: said.state.outcome)},
        also="4",
    ),
    Mutant("acquisition-unheard", "4.4.3-state 4.4.3-properties", asks={Flow: so(properties=None)}, also="4"),
    Mutant(
        "settled-declare-unheard",
        "4.2-04 4.3-settled",
        asks={Transfer: gone(lambda said, tap: at_coordinator(said, tap) and said.settled)},
        also="4",
    ),
    Mutant(
        "capabilities-that-are-none",
        "4.5.1-actual 4.5.7-local",
        {
            Attach: instead(
                lambda said: evolve(
                    said,
                    target=evolve(
                        said.target, capabilities=(Symbol("amqp:local-transactions"), Symbol("x-other"))
                    ),
                ),
                lambda said, tap: isinstance(said.target, Coordinator),
            )
        },
        also="4",
    ),
)
