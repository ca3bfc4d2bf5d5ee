"""What the OASIS Standard of 2012 says otherwise than the working group's text of 2011, as far as rows go.

The XML is the text of 2011; the OASIS Standard is what counts. It has no lower-case `must` and `should` any
more: each became a key word (`RAISED`) or another verb (`DROPPED`, and some of `AMENDED`). Sentences of which
only a part is known to differ are amended in that part. Numbers of sections and ids stay those of 2011.
"""

from __future__ import annotations

import re
from typing import Final

RAISED: Final = frozenset(
    """
    1.2.26-01 1.2.26-02 1.3-01 2.4.1-01 2.4.5-01 2.4.5-02 2.4.5-03 2.4.5-04 2.6.1-02 2.6.7-06 2.6.12-03
    2.6.13-04 2.6.13-05 2.7.1-02 2.7.1-09 2.7.1-10 2.7.5-08 2.7.7-01 2.7.8-01 2.7.9-02 2.8.12-01 2.8.16-01
    2.8.16-02 2.8.18-01 2.8-02 3.2.1-10 3.2.2-01 3.2.3-01 3.2.4-01 3.2.4-06 3.4.5-01 3.4.6-12 3.5.2-02
    3.5.3-06 3.5.3-10 3.5.4-06 3.5.8-01 3.5.9-02 3.5.9-03 4.2-04 4.4.1-01 4.4.1-04 4.4.1-05 4.4.4-06 5.3.1-03
    5.3.2-01 5.3.2-02 5.3.3.1-01 5.3.3.2-03 5.3.3.5-01
    """.split()
)
"""Rows whose lower-case `must` and `should` became capitals, and nothing more."""

DROPPED: Final = frozenset("3.2.1-09 3.2.4-03 3.4.6-01 3.4.6-03 3.4.6-10 4.2-01 5.2.1-01".split())
"""Rows whose word became another verb: they require nothing any more, and no scenario showed them."""

AMENDED: Final[dict[str, tuple[str, str]]] = {
    "1.3-01": (
        "should be treated",
        "MUST be treated",
    ),
    "1.3-mandatory": (
        "controls whether a null element value is permitted in the representation",
        "determines whether a non null value for the field is always encoded",
    ),
    "2.4.1-02": (
        "After sending the open frame each peer must read its partner's open frame and must operate",
        "After sending the open frame and reading its partner's open frame a peer MUST operate",
    ),
    "2.4.5-06": (
        "they should not be sent",
        "they MUST NOT be sent",
    ),
    "2.5.3-01": (
        "If this should happen",
        "If this happens",
    ),
    "2.5.6-03": (
        "of the frame, as well as copy the remote-outgoing-window",
        "of the frame, and it MUST update the remote-outgoing-window",
    ),
    "2.6.7-illegal": (
        "it is illegal to send more messages",
        "a sender MUST NOT send more messages",
    ),
    "3.2-inserted": (
        "one may not be inserted",
        "one MUST NOT be inserted",
    ),
    "3.2.10-01": (
        "On receiving an annotations map containing keys or values which it does not recognize, "
        'and for which the key does not begin with the string "x-opt-" an AMQP container MUST '
        "detach the link with the not-implemented amqp-error",
        "On receiving an annotation key which is not understood, and which does not begin with "
        '"x-opt", the receiving AMQP container MUST detach the link with a not-implemented error',
    ),
    "3.5.3-05": (
        "the Link name and Session-name or client-id",
        "the link name and other available information on the initiator of the request (such as "
        "the remote container-id)",
    ),
    "3.5.4-05": (
        "the Link name and Session-name or client-id",
        "the link name and other available information on the initiator of the request (such as "
        "the remote container-id)",
    ),
    "3.5.9-01": (
        "must be one of the defined lifetime-policies:",
        "MUST be of a type which provides the lifetime-policy archetype. The following standard "
        "lifetime-policies are defined:",
    ),
    "4.2-04": (
        "with an appropriate error",
        "with an amqp:illegal-state error",
    ),
    "4.4.2-03": (
        "should expect",
        "can expect",
    ),
    "4.4.4-06": (
        "no outcome should be associated",
        "an outcome SHOULD NOT be associated",
    ),
    "5.3.1-03": (
        "may contain exactly one",
        "MUST contain exactly one",
    ),
}
"""(what stands in the text of 2011, what stands there in the Standard), by row."""

ADDED: Final = (
    (
        "2.4.5-any-channel",
        "2.4.5",
        "Idle Time-out of a Connection",
        "Implementations MUST be prepared to handle empty frames arriving on any valid channel, "
        "though implementations SHOULD use channel 0 when sending empty frames, and MUST use "
        "channel 0 if a maximum channel number has not yet been negotiated.",
    ),
    (
        "2.5-one-session",
        "2.5",
        "Sessions",
        "A link MUST NOT be attached to more than one session at a time.",
    ),
    (
        "2.7.1-desired",
        "2.7.1",
        "open: desired-capabilities",
        "The sender MUST NOT attempt to use any capabilities it did not declare in the "
        "desired-capabilities field.",
    ),
    (
        "2.7.3-snd-settle-mode",
        "2.7.3",
        "attach: snd-settle-mode",
        "The sender SHOULD respect the receiver's desired settlement mode if the receiver "
        "initiates the attach exchange and the sender supports the desired mode.",
    ),
    (
        "2.7.3-rcv-settle-mode",
        "2.7.3",
        "attach: rcv-settle-mode",
        "The receiver SHOULD respect the sender's desired settlement mode if the sender initiates"
        " the attach exchange and the receiver supports the desired mode.",
    ),
    (
        "2.7.3-incomplete",
        "2.7.3",
        "attach: incomplete-unsettled",
        "If this flag is set to true then the endpoints MUST detach and reattach at least once in"
        " order to send new deliveries.",
    ),
    (
        "2.7.4-next-incoming-id",
        "2.7.4",
        "flow: next-incoming-id",
        "This value MUST be set if the peer has received the begin frame for the session, and "
        "MUST NOT be set if it has not.",
    ),
    (
        "2.7.4-echo",
        "2.7.4",
        "flow: echo",
        "If set to true then the receiver SHOULD send its state at the earliest convenient opportunity.",
    ),
    (
        "2.7.4-properties",
        "2.7.4",
        "flow: properties",
        "When the handle field is not set, this field MUST NOT be set.",
    ),
    (
        "2.7.5-same-tag",
        "2.7.5",
        "transfer: delivery-tag",
        "It is an error if the delivery-tag on a continuation transfer differs from the "
        "delivery-tag on the first transfer of a delivery.",
    ),
    (
        "2.7.5-same-format",
        "2.7.5",
        "transfer: message-format",
        "It is an error if the message-format on a continuation transfer differs from the "
        "message-format on the first transfer of a delivery.",
    ),
    (
        "3.2.2-rejected",
        "3.2.2",
        "delivery-annotations",
        'Any values associated with the "rejected" key MUST be of type error.',
    ),
)
"""Sentences of the Standard without counterpart in the text of 2011: (id, section, title, sentence)."""


def sentence_of_2012(row_id: str, sentence: str) -> str | None:
    """The row's sentence in the OASIS Standard; None for one that requires nothing there. Raises
    AssertionError when the amended words do not stand in it.
    """
    if row_id in DROPPED:
        return None
    if row_id in AMENDED:
        old, new = AMENDED[row_id]
        assert old in sentence, f"{row_id} does not say {old!r}"
        sentence = sentence.replace(old, new)
    if row_id in RAISED:
        sentence = re.sub(r"\b(must|should)\b( not\b)?", lambda found: found.group(0).upper(), sentence)
    return sentence
