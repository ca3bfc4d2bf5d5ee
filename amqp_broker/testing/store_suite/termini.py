"""What every store does with termini and their deliveries."""

from __future__ import annotations

from amqp_broker.persistence import (
    ForgetTerminus,
    ForgetUnsettled,
    KeepTerminus,
    KeepUnsettled,
    NoSuchNode,
    Post,
    Store,
    StoredTerminus,
    Unit,
)
from amqp_broker.persistence.questions import Termini, UnsettledOf
from amqp_broker.testing.store_suite.helpers import do, do_units, messages, new_queue, offsets, store_test


@store_test()
def termini_keep_what_they_were_given(store: Store) -> None:
    """A terminus keeps all fields, the last ones; what is told of it is a copy."""
    one = StoredTerminus(1, "üser", "container", "link", "connection-close", 600)
    two = StoredTerminus(1 << 40, "", "c\x00", "", "link-detach", (1 << 32) - 1, 1 << 50)
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
