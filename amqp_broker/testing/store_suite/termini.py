"""What every store does with termini and their deliveries."""

from __future__ import annotations

from amqp_broker.persistence import (
    DeleteNode,
    ForgetHeld,
    ForgetTerminus,
    ForgetUnsettled,
    KeepHeld,
    KeepTerminus,
    KeepUnsettled,
    NoSuchNode,
    Post,
    Retire,
    Store,
    StoredTerminus,
    Unit,
)
from amqp_broker.persistence.questions import HeldBy, Termini, UnsettledOf
from amqp_broker.testing.store_suite.helpers import do, do_units, messages, new_queue, offsets, store_test


@store_test()
def termini_keep_what_they_were_given(store: Store) -> None:
    """A terminus keeps all fields, the last ones; what is told of it is a copy."""
    one = StoredTerminus(1, "üser", "container", "link", "connection-close", 600)
    two = StoredTerminus(1 << 40, "", "c\x00", "", "link-detach", (1 << 32) - 1, 1 << 50, True, 7)
    do(store, KeepTerminus(two), KeepTerminus(one))
    assert store.ask(Termini()) == [one, two]
    one.ends_at_ms = 5
    store.ask(Termini())[0].ends_at_ms = 6
    assert [each.ends_at_ms for each in store.ask(Termini())] == [0, 1 << 50]
    do(store, KeepTerminus(one), ForgetTerminus(two.number), ForgetTerminus(9))
    assert store.ask(Termini()) == [one]
    store.apply([[ForgetTerminus(1)]])
    store.abandon()
    assert store.ask(Termini()) == [one]


@store_test()
def deliveries_are_kept_until_they_are_settled(store: Store) -> None:
    """The last verb counts, in one group and over several. They go with their terminus."""
    terminus, other = (StoredTerminus(number, "u", "c", "l", "never", 1) for number in (1, 2))
    assert store.ask(UnsettledOf(1)) == {}
    do(store, KeepTerminus(terminus), KeepTerminus(other), KeepUnsettled(1, {b"b": b"B", b"": b"\x00"}))
    do(store, KeepUnsettled(2, {b"b": b"other"}), KeepUnsettled(1, {b"a" * 32: b"", b"b": b"later"}))
    assert store.ask(UnsettledOf(1)) == {b"": b"\x00", b"a" * 32: b"", b"b": b"later"}
    do(store, KeepTerminus(terminus))
    assert len(store.ask(UnsettledOf(1))) == 3
    do(store, ForgetUnsettled(1, [b"", b"b", b"none"]), ForgetUnsettled(7, [b"b"]))
    assert (store.ask(UnsettledOf(1)), store.ask(UnsettledOf(2))) == ({b"a" * 32: b""}, {b"b": b"other"})
    do(store, KeepUnsettled(1, {b"c": b"C"}), ForgetUnsettled(1, [b"c"]))
    do(store, ForgetUnsettled(1, [b"c"]), KeepUnsettled(1, {b"c": b"again"}))
    assert store.ask(UnsettledOf(1)) == {b"a" * 32: b"", b"c": b"again"}
    do(
        store,
        KeepUnsettled(1, {b"d": b"D"}),
        ForgetTerminus(1),
        KeepTerminus(terminus),
        KeepUnsettled(1, {b"c": b"anew"}),
    )
    assert (store.ask(UnsettledOf(1)), len(store.ask(Termini()))) == ({b"c": b"anew"}, 2)
    do(store, ForgetTerminus(1))
    assert (store.ask(UnsettledOf(1)), store.ask(UnsettledOf(2))) == ({}, {b"b": b"other"})


@store_test()
def message_and_outcome_are_one_unit(store: Store) -> None:
    """A message and the outcome of its delivery are stored both or not at all."""
    queue_id = new_queue(store)
    do(store, KeepTerminus(StoredTerminus(1, "u", "c", "l", "never", 1)))
    units: list[Unit] = [
        [Post(queue_id, messages(number, 1)), KeepUnsettled(1, {b"%d" % number: b"ok"})]
        for number in range(2)
    ]
    store.apply(units)
    store.abandon()
    assert (offsets(store, queue_id), store.ask(UnsettledOf(1))) == ([], {})
    refused: Unit = [KeepUnsettled(1, {b"refused": b"ok"}), Post(queue_id + 5, messages(0, 1))]
    errors = do_units(store, [*units, refused])
    assert [type(error) for error in errors] == [type(None)] * 2 + [NoSuchNode]
    assert (offsets(store, queue_id), store.ask(UnsettledOf(1))) == ([0, 1], {b"0": b"ok", b"1": b"ok"})


@store_test()
def messages_are_held_until_they_are_forgotten(store: Store) -> None:
    """By one terminus at a time: the last verb counts, in one group and over several. They go with their
    terminus, or their queue.
    """
    first, second = new_queue(store, "first"), new_queue(store, "second")
    for number in (1, 2):
        do(store, KeepTerminus(StoredTerminus(number, "u", "c", "l", "never", 1, sends=True)))
    assert store.ask(HeldBy(1)) == {}
    do(store, Post(first, messages(0, 5)), Post(second, messages(0, 5)))
    do(store, KeepHeld(1, second, {1: b"x"}), KeepHeld(1, first, {4: b"b", 2: b"a"}))
    assert list(store.ask(HeldBy(1)).items()) == [(b"a", (first, 2)), (b"b", (first, 4)), (b"x", (second, 1))]
    do(store, KeepHeld(2, first, {2: b"a", 3: b""}), ForgetHeld(1, first, [2, 4, 9]))
    assert store.ask(HeldBy(1)) == {b"x": (second, 1)}
    do(store, ForgetHeld(1, first, [2]))
    assert store.ask(HeldBy(2)) == {b"a": (first, 2), b"": (first, 3)}
    do(store, ForgetHeld(2, first, [3]), KeepHeld(1, first, {3: b"c"}), ForgetHeld(2, first, [3]))
    do(store, KeepHeld(2, first, {4: b"d"}), ForgetHeld(2, first, [4]))
    assert (store.ask(HeldBy(1)), store.ask(HeldBy(2))) == (
        {b"c": (first, 3), b"x": (second, 1)}, {b"a": (first, 2)},
    )  # fmt: skip
    terminus = StoredTerminus(1, "u", "c", "l", "never", 1, sends=True, attachments=2)
    again: Unit = [ForgetTerminus(1), KeepTerminus(terminus), KeepHeld(1, second, {1: b"y"})]
    do(store, KeepHeld(1, second, {0: b"z"}), *again)
    assert store.ask(HeldBy(1)) == {b"y": (second, 1)}
    do(store, DeleteNode(second))
    assert (store.ask(HeldBy(1)), len(store.ask(HeldBy(2)))) == ({}, 1)
    do(store, ForgetTerminus(2))
    assert store.ask(HeldBy(2)) == {}


@store_test()
def a_message_leaves_with_who_holds_it(store: Store) -> None:
    """A message and the row of who holds it go in one unit, or stay."""
    queue_id = new_queue(store)
    do(store, KeepTerminus(StoredTerminus(1, "u", "c", "l", "never", 1, sends=True)))
    do(store, Post(queue_id, messages(0, 2)), KeepHeld(1, queue_id, {0: b"a", 1: b"b"}))
    leaves: Unit = [Retire(queue_id, 0, 0), ForgetHeld(1, queue_id, [0])]
    store.apply([leaves])
    store.abandon()
    assert (offsets(store, queue_id), len(store.ask(HeldBy(1)))) == ([0, 1], 2)
    do(store, *leaves)
    assert (offsets(store, queue_id), store.ask(HeldBy(1))) == ([1], {b"b": (queue_id, 1)})
