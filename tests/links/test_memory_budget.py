"""The accountant: what is taken is given back, nobody gets all, who holds much waits first. And what an
engine does with that: credit and windows are not given again.
"""

from __future__ import annotations

import random

import pytest

from amqp_broker.frames import Flow
from amqp_broker.links import Account, Holdings, MemoryBudget, no_memory
from amqp_broker.links.memory_budget import CACHE_PART, PRESSED_PART
from amqp_broker.links.session import PRESSED_WINDOW
from tests.links.pair import of_type
from tests.links.raw_peer import RawPeer, attached, deliveries, transfer

LIMIT = 1 << 20
HALF = LIMIT // 2
PART = LIMIT // PRESSED_PART


class Waiting:
    """An account, and how often it was told that there is room again."""

    def __init__(self, budget: MemoryBudget) -> None:
        self.relieved = 0
        self.account = Account(budget, self._relief)

    def _relief(self) -> None:
        self.relieved += 1


def test_nobody_gives_back_what_it_has_not() -> None:
    """An octet that is given back twice is our own bug."""
    budget = MemoryBudget(LIMIT)
    Account(budget).hold(100)
    with pytest.raises(AssertionError):
        Account(budget).give_back(1)


def test_half_of_it_is_for_whoever_comes() -> None:
    """One account alone gets exactly half of the budget."""
    account = Account(MemoryBudget(LIMIT))
    assert account.take(HALF)
    assert not account.take(1)


def test_above_half_an_account_gets_no_more_than_is_left() -> None:
    """Each greedy account ends at half of what the ones before it left, so that something always is."""
    budget = MemoryBudget(LIMIT)
    for share in (2, 4, 8, 16):
        greedy = Account(budget)
        while greedy.take(1_024):
            pass
        assert abs(greedy.used_bytes - LIMIT // share) <= 2_048
    assert Account(budget).take(1_024), "small needs are met"


def test_what_has_to_be_is_held_whatever_is_left() -> None:
    """Then nothing is taken until it is given back."""
    budget = MemoryBudget(LIMIT)
    account, other = Account(budget), Account(budget)
    account.hold(2 * LIMIT)
    assert not other.take(1)
    account.give_back(2 * LIMIT)
    assert other.take(1)


def test_an_account_is_pressed_before_it_gets_nothing() -> None:
    """A sixteenth of the budget is left to it then: for what is on its way."""
    waiting = Waiting(MemoryBudget(LIMIT))
    account = waiting.account
    while not account.pressed:
        assert account.take(1_024)
    assert abs(account.used_bytes - (HALF - PART)) <= LIMIT // 128
    assert account.fits(PART - LIMIT // 128)


def test_relief_comes_with_twice_the_room() -> None:
    """An account at the edge does not stop and go with each message."""
    waiting = Waiting(MemoryBudget(LIMIT))
    account = waiting.account
    account.hold(HALF)
    assert account.pressed
    account.give_back(PART + PART // 2)
    assert account.pressed and not waiting.relieved
    account.give_back(PART // 2 + LIMIT // 128)
    assert not account.pressed and waiting.relieved == 1


def test_what_others_give_back_relieves() -> None:
    """Without a word of the one that waits, and as soon as there is enough."""
    budget = MemoryBudget(LIMIT)
    other = Account(budget)
    waiting = Waiting(budget)
    other.hold(HALF)
    waiting.account.hold(LIMIT // 4)
    assert waiting.account.pressed
    while other.used_bytes and waiting.account.pressed:
        other.give_back(64)
    assert waiting.relieved == 1
    assert waiting.account.used_bytes + 2 * PART <= LIMIT - budget.used_bytes


def test_a_refusal_that_leaves_room_for_others_presses_nobody() -> None:
    """What is too large to be taken at once is refused; less still comes."""
    waiting = Waiting(MemoryBudget(LIMIT))
    assert not waiting.account.take(LIMIT)
    assert not waiting.account.pressed


def test_the_first_that_is_pressed_is_told_and_the_last() -> None:
    """One word for the log when the budget is reached, and one when that is over."""
    budget = MemoryBudget(LIMIT)
    told: list[bool] = []
    budget.on_pressure = told.append
    first, second = Waiting(budget).account, Waiting(budget).account
    first.hold(HALF)
    second.hold(LIMIT // 4)
    assert told == [True]
    first.give_back(HALF)
    second.give_back(LIMIT // 4)
    assert told == [True, False]


def test_who_cannot_wait_is_never_pressed() -> None:
    """The broker's own accounts, and those of connections that are gone."""
    budget = MemoryBudget(LIMIT)
    budget.cache.hold(LIMIT)
    gone = Waiting(budget)
    gone.account.hold(1)
    assert gone.account.pressed and not budget.cache.pressed
    gone.account.close()
    gone.account.hold(1)
    assert not gone.account.pressed and not budget.pressed
    gone.account.give_back(2)
    assert not gone.relieved


def test_exhausted_is_who_holds_much_of_what_is_gone() -> None:
    """Who holds little gets nothing then, but nobody waits for it."""
    budget = MemoryBudget(LIMIT)
    much, little = Account(budget), Account(budget)
    much.hold(LIMIT)
    little.hold(1)
    assert much.exhausted and not little.exhausted


def test_copies_of_what_is_on_disk_have_a_quarter() -> None:
    """The cache is full at a quarter of the budget, and everything nearly used when a sixteenth is left."""
    budget = MemoryBudget(LIMIT)
    budget.cache.hold(LIMIT // CACHE_PART - 1)
    assert not budget.cache_full()
    budget.cache.hold(1)
    assert budget.cache_full() and not budget.nearly_used()
    budget.cache.hold(LIMIT - PART - LIMIT // CACHE_PART)
    assert budget.nearly_used()


def test_a_place_gives_back_what_it_keeps_for_each() -> None:
    """First in, first out; all of it in the end, and no more."""
    budget = MemoryBudget(LIMIT)
    left, right = Account(budget), Account(budget)
    place = Holdings()
    place.add(left, 100)
    place.add(right, 50)
    place.add(left, 0)
    place.remove(120)
    assert (left.used_bytes, right.used_bytes, place.used_bytes) == (0, 30, 30)
    with pytest.raises(AssertionError):
        place.remove(31)
    place.clear()
    assert budget.used_bytes == 0


def test_a_storm_ends_at_zero() -> None:
    """Accounts take, hold, and give back at random, in places and by themselves: the sums always agree, who
    is pressed is relieved when there is room, and in the end nothing is left.
    """
    for seed in range(50):
        dice = random.Random(seed)
        budget = MemoryBudget(dice.randint(1_000, LIMIT))
        waiting = [Waiting(budget) for _ in range(5)]
        places = [Holdings() for _ in range(3)]
        own = [0] * len(waiting)
        for _ in range(400):
            at = dice.randrange(len(waiting))
            octets = dice.randint(0, budget.limit_bytes // 4)
            match dice.randrange(4):
                case 0:
                    own[at] += octets if waiting[at].account.take(octets) else 0
                case 1:
                    dice.choice(places).add(waiting[at].account, octets)
                case 2:
                    back = dice.randint(0, own[at])
                    own[at] -= back
                    waiting[at].account.give_back(back)
                case _:
                    place = dice.choice(places)
                    place.remove(dice.randint(0, place.used_bytes))
            assert budget.used_bytes == sum(each.account.used_bytes for each in waiting)
            assert budget.used_bytes == sum(own) + sum(place.used_bytes for place in places)
        for place in places:
            place.clear()
        for each, octets in zip(waiting, own, strict=True):
            each.account.give_back(octets)
        assert budget.used_bytes == 0 and not budget.pressed, f"seed {seed}"


def test_a_refusal_names_the_setting() -> None:
    """With what there is, what is left, and what the connection holds."""
    account = Account(MemoryBudget(LIMIT))
    account.hold(7)
    text = no_memory(account, "delivery 3")
    assert text.startswith("no memory for delivery 3: of the 1048576 octets")
    assert "limits.memory_bytes" in text and "1048569 are left" in text and text.endswith("holds 7")


# --- an engine


def pressed_peer() -> tuple[RawPeer, Account]:
    """A peer whose account is pressed, with a link whose messages are kept."""
    budget = MemoryBudget(LIMIT)
    account = Account(budget, lambda: None)
    peer, link = attached(peer=RawPeer(account=account))
    link.keeps_messages = True
    peer.heard()
    account.hold(HALF)
    assert account.pressed
    return peer, account


def test_credit_is_taken_back_and_given_again() -> None:
    """A link whose messages are kept gets no credit while its account is pressed, and loses what it has with
    the next message; what is on its way is taken. Relief gives all of it again.
    """
    peer, account = pressed_peer()
    (delivery,) = deliveries(peer.say(transfer(0), b"x"))
    link = peer.server.hot.run_link
    assert link is not None
    link.settle([delivery], None)
    link.processed(1)
    assert [flow.link_credit for flow in of_type(peer.heard(), Flow)] == [0]
    assert len(deliveries(peer.say(transfer(1), b"on its way"))) == 1
    link.processed(1)
    link.set_credit(7)
    assert not of_type(peer.heard(), Flow)
    account.give_back(HALF)
    peer.server.relieved()
    assert [flow.link_credit for flow in of_type(peer.heard(), Flow)] == [7]


def test_a_larger_budget_relieves_who_waits_and_a_smaller_one_holds() -> None:
    """From then on it is as one that was made so, with what is used."""
    budget = MemoryBudget(LIMIT)
    waiting = Waiting(budget)
    waiting.account.hold(LIMIT // 2)
    assert waiting.account.pressed
    budget.resize(4 * LIMIT)
    assert (waiting.account.pressed, waiting.relieved) == (False, 1)
    assert waiting.account.take(LIMIT)
    budget.resize(LIMIT)
    assert (budget.used_bytes, budget.nearly_used()) == (LIMIT // 2 + LIMIT, True)
    assert not waiting.account.take(1)
    assert waiting.account.pressed
    waiting.account.give_back(LIMIT // 2 + LIMIT)
    assert (budget.left_bytes(), waiting.account.pressed) == (LIMIT, False)


def test_requests_keep_their_credit() -> None:
    """A link whose messages are not kept, as a control link, goes on: a discharge is always heard."""
    peer, _ = pressed_peer()
    peer.attach_sender(1, "control")
    peer.heard()
    link = peer.server.sessions[0].output_links[1]
    for number in range(20):
        (delivery,) = deliveries(peer.say(transfer(number, handle=1), b"x"))
        link.settle([delivery], None)  # type: ignore[attr-defined]
        link.processed(1)  # type: ignore[attr-defined]
    assert of_type(peer.heard(), Flow)[-1].link_credit > 0


def test_the_session_window_is_small_and_never_closed() -> None:
    """While the account is pressed a window is renewed to a few frames only, and to all of it afterwards."""
    peer, account = pressed_peer()
    session = peer.server.sessions[0]
    window = session.window
    window.received(window.incoming_window - 2)
    session.renew_window()
    assert window.incoming_window == PRESSED_WINDOW
    account.give_back(HALF)
    peer.server.relieved()
    assert window.incoming_window == window.capacity
