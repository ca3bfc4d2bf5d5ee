"""Truthful clients, and the same with a fault: each breaks one promise in its own world.

A table as in events_with_faults.py: addresses, links, transactions and half messages have the name of the
world, all are in one history and one log.
"""

from __future__ import annotations

import itertools

from tests.pipeline.events_with_faults import Expected, Row, findings
from tests.pipeline.truthful_clients import Clients, truthful_clients
from tests.pipeline.truthful_day import World, clock


def all_clients() -> tuple[list[Clients], dict[str, Expected]]:
    """The truthful clients, those of each fault, and what is to be found in each world: kind, key."""
    numbers, ticks = itertools.count(), clock()
    expected = {"truth": Expected()}
    everybody = [truthful_clients("truth", numbers, World("truth", ticks))]
    for name, (plant, *found) in FAULTS.items():
        clients = truthful_clients(name, numbers, World(name, ticks))
        plant(clients)
        expected[name] = findings(found, name)
        everybody.append(clients)
    return everybody, expected


def _never_came(clients: Clients, number: int) -> None:
    """It is nowhere."""
    clients.lose(number)
    clients.drop(number, "browsed", "received", "accept_sent", "settled")


def _half_there(clients: Clients) -> None:
    txn = clients.txn("torn")
    clients.say("declared", txn=txn)
    clients.send(21, txn)
    clients.send(22, txn, stored=False)
    clients.say("commit_sent", txn=txn)
    clients.receive(21)


def _wrong_way_round(clients: Clients) -> None:
    one, other = clients.find(1, "received"), clients.find(2, "received")
    one["order"], other["order"] = other["order"], one["order"]
    for number, line in ((1, one), (2, other)):
        for at, kind in enumerate(("accept_sent", "settled"), 1):
            clients.find(number, kind)["order"] = line["order"] + at


FAULTS: dict[str, Row] = {
    # Accepted, received by nobody, and not in the log.
    "history_lost": (lambda c: _never_came(c, 4), "lost: {w}.queue message-id m4"),
    # Accepted, in the log, and never received though everything was drained.
    "history_not_received": (lambda c: c.drop(4, "received", "accept_sent", "settled"),
        "not-received: {w}.queue message-id m4"),
    # Received, and then neither an outcome nor a second delivery.
    "history_not_removed": (lambda c: c.drop(4, "accept_sent", "settled"),
        "not-removed: {w}.queue message-id m4"),
    # A message that nobody had sent.
    "history_unexpected": (lambda c: c.receive(99), "unexpected: {w}.queue message-id m99"),
    "history_browsed_before_sent": (
        lambda c: c.about(1, "browsed").update(order=c.find(1, "sent")["order"] - 1),
        "seen-before-sent: {w}.queue message-id m1"),
    # Settled, the broker was killed, and it came again.
    "history_came_back": (lambda c: c.receive(4, life=1), "came-back: {w}.queue message-id m4"),
    # Retired in a committed transaction, the broker was killed, and it came again.
    "history_retired_came_back": (lambda c: c.receive(10, life=1), "came-back: {w}.queue message-id m10"),
    # Two outcomes for one message.
    "history_accepted_twice": (lambda c: c.about(3, "accepted"), "accepted-twice: {w}.queue message-id m3"),
    # Its answer never came, and it is stored twice.
    "history_duplicated": (lambda c: c.store(12), "duplicated: {w}.queue message-id m12"),
    # The client was told no, and the broker kept it.
    "history_refused_and_there": (lambda c: c.store(11), "refused-and-there: {w}.queue message-id m11"),
    # One of the two messages of a transaction is nowhere.
    "history_torn": (lambda c: _never_came(c, 7),
        "transaction-torn: transaction {w} good", "lost: {w}.queue message-id m7"),
    # An unanswered transaction, of which one message is there and one is not.
    "history_unanswered_torn": (_half_there,
        "transaction-torn: transaction {w} torn", "fate-unknown: transaction {w} torn"),
    # Told committed after a crash, and nothing of it is there.
    "history_commit_lost": (lambda c: _never_came(c, 9),
        "commit-lost: transaction {w} unanswered", "lost: {w}.queue message-id m9"),
    # Rolled back, and it is there.
    "history_rollback_visible": (lambda c: c.store(8), "rollback-visible: transaction {w} bad"),
    # A browser saw it before its transaction was discharged.
    "history_seen_uncommitted": (
        lambda c: c.lines.append({**c.find(6, "browsed"), "order": c.find(7, "sent")["order"]}),
        "seen-uncommitted: {w}.queue message-id m6"),
    # Accepted, and afterwards told that it was not.
    "history_answers_contradict": (lambda c: c.say("told", txn=c.txn("good"), word="not-committed"),
        "answers-contradict: transaction {w} good"),
    # A discharge with fail was rejected.
    "history_rollback_refused": (lambda c: c.say("discharge_rejected", txn=c.txn("bad")),
        "rollback-refused: transaction {w} bad"),
    # The second message came before the first.
    "history_order": (_wrong_way_round, "order: {w}.queue message-id m1"),
    # Two links of one life were given the same message.
    "history_held_twice": (lambda c: c.lines.append({**c.find(3, "received"), "link": "another"}),
        "held-twice: {w}.queue message-id m3"),
    # More came than the link had allowed.
    "history_beyond_credit": (lambda c: c.lines[0].update(count=5),
        "beyond-credit: link {w}/in of life 0"),
    # Commit and rollback were both accepted.
    "history_half_both": (
        lambda c: c.say("resolve_accepted", group=c.name, half_id="yes", word="rollback"),
        "half-both: group {w} half-id yes"),
    # The put was accepted, and the log knows nothing.
    "history_half_lost": (lambda c: c.say("half_accepted", group=c.name, half_id="third"),
        "half-lost: group {w} half-id third"),
    # The commit was accepted, and the log has a rollback.
    "history_half_commit_lost": (
        lambda c: c.world.find(type="decide", half_id="string:yes")[0].update(outcome="rolled-back"),
        "half-commit-lost: group {w} half-id yes"),
    # The rollback was accepted, and the log has no decision.
    "history_half_rollback_lost": (
        lambda c: c.world.events.remove(c.world.find(type="decide", half_id="string:no")[0]),
        "half-rollback-lost: group {w} half-id no"),
}  # fmt: skip
