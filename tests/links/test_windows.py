"""Windows and credit as arithmetic (2.5.6, 2.6.7)."""

from hypothesis import given
from hypothesis import strategies as st

from amqp_broker.links.windows import ReceiverCredit, SenderCredit, SessionWindow

serials = st.integers(0, 2**32 - 1)


@given(serials, st.integers(0, 1_000), st.integers(0, 1_000), st.integers(0, 2_000))
def test_the_remote_window_is_counted_from_the_peers_view(
    start: int, sent: int, seen: int, window: int
) -> None:
    """remote-incoming-window = next-incoming-id + incoming-window - next-outgoing-id, also across 2^32."""
    seen = min(seen, sent)
    mine = SessionWindow(100, start)
    mine.begun(0, 5_000)
    mine.sent(sent)
    mine.flow_received((start + seen) % 2**32, window, 0)
    assert mine.remote_incoming_window == window - (sent - seen)
    mine.flow_received(-1, window, 0)
    assert mine.remote_incoming_window == window - sent


@given(serials, st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=30))
def test_window_and_held_never_exceed_the_capacity(start: int, steps: list[tuple[int, int]]) -> None:
    """What was announced and what is in use stay within the capacity, and a renewal is never a stall."""
    mine = SessionWindow(40, 0)
    mine.begun(start, 0)
    held = 0
    for arrived, done in steps:
        arrived = min(arrived, mine.incoming_window)
        mine.received(arrived)
        held += arrived
        held -= min(held, done)
        if mine.renewable(held):
            mine.renew(held)
        assert mine.incoming_window + held <= 40
        assert mine.incoming_window > 0 or held > 0
    assert mine.next_incoming_id >= start


@given(
    st.integers(1, 50),
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30), st.booleans()), max_size=30),
)
def test_credit_keeps_its_promises(target: int, steps: list[tuple[int, int, bool]]) -> None:
    """outstanding + unprocessed within the target, outstanding + unsettled within the limit; never
    stalled.
    """
    credit = ReceiverCredit(20)
    credit.start(2**32 - 10)
    credit.target = target
    credit.grant(credit.room())
    for arrived, done, settle in steps:
        arrived = min(arrived, credit.outstanding)
        credit.received(arrived, arrived)
        credit.unprocessed -= min(credit.unprocessed, done)
        if settle:
            credit.unsettled -= min(credit.unsettled, done)
        if credit.renewable():
            credit.grant(credit.room())
        assert credit.outstanding + credit.unprocessed <= target
        assert credit.outstanding + credit.unsettled <= 20
        assert credit.outstanding or credit.unprocessed or credit.unsettled == 20


@given(serials, st.integers(0, 100), st.integers(0, 100), st.integers(0, 300))
def test_the_senders_credit_follows_the_limit(start: int, sent: int, seen: int, given_credit: int) -> None:
    """link-credit := delivery-count_rcv + link-credit_rcv - delivery-count_snd, and never below zero."""
    seen = min(seen, sent)
    credit = SenderCredit(start)
    credit.credit = sent
    credit.sent(sent)
    credit.flow_received((start + seen) % 2**32, given_credit, False)
    assert credit.credit == max(0, given_credit - (sent - seen))
    before = credit.delivery_count + credit.credit
    credit.drained()
    assert credit.credit == 0 and credit.delivery_count == before


def test_credit_before_the_senders_count_is_known() -> None:
    """2.6.7: credit given before the attach came is counted from the initial delivery-count."""
    credit = ReceiverCredit(100)
    credit.grant(5)
    credit.start(2**32 - 2)
    assert credit.outstanding == credit.acceptable() == 5
    credit.received(5, 0)
    assert credit.outstanding == 0


def test_a_sender_that_advances_is_followed() -> None:
    """2.6.7: drain advances the delivery-count; an old count does not turn it back."""
    credit = ReceiverCredit(100)
    credit.start(0)
    credit.grant(10)
    credit.flow_received(10)
    assert credit.outstanding == 0 and credit.delivery_count == 10
    credit.flow_received(3)
    assert credit.delivery_count == 10
