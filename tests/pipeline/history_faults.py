"""The faults of histories: each breaks one promise in its own world and says what must be found."""

from __future__ import annotations

from tests.pipeline.history_with_faults import Clients, Expected, fault


@fault
def history_lost(clients: Clients) -> Expected:
    """Accepted, received by nobody, and not in the log."""
    clients.lose(4)
    clients.drop(4, "received", "accept_sent", "settled")
    return {("lost", clients.key(4))}


@fault
def history_not_received(clients: Clients) -> Expected:
    """Accepted, in the log, and never received though everything was drained."""
    clients.drop(4, "received", "accept_sent", "settled")
    return {("not-received", clients.key(4))}


@fault
def history_not_removed(clients: Clients) -> Expected:
    """Received, and then neither an outcome nor a second delivery."""
    clients.drop(4, "accept_sent", "settled")
    return {("not-removed", clients.key(4))}


@fault
def history_unexpected(clients: Clients) -> Expected:
    """A message that nobody had sent."""
    clients.receive(99)
    return {("unexpected", clients.key(99))}


@fault
def history_seen_before_sent(clients: Clients) -> Expected:
    """Browsed before it was sent."""
    clients.about(1, "browsed")["order"] = clients.find(1, "sent")["order"] - 1
    return {("seen-before-sent", clients.key(1))}


@fault
def history_came_back(clients: Clients) -> Expected:
    """Settled, the broker was killed, and it came again."""
    clients.receive(4, life=1)
    return {("came-back", clients.key(4))}


@fault
def history_retired_came_back(clients: Clients) -> Expected:
    """Retired in a committed transaction, the broker was killed, and it came again."""
    clients.receive(10, life=1)
    return {("came-back", clients.key(10))}


@fault
def history_accepted_twice(clients: Clients) -> Expected:
    """Two outcomes for one message."""
    clients.about(3, "accepted")
    return {("accepted-twice", clients.key(3))}


@fault
def history_duplicated(clients: Clients) -> Expected:
    """Its answer never came, and it is stored twice."""
    clients.world.put("queue", message_id=clients.message(12))
    return {("duplicated", clients.key(12))}


@fault
def history_refused_and_there(clients: Clients) -> Expected:
    """The client was told no, and the broker kept it."""
    clients.world.put("queue", message_id=clients.message(11))
    return {("refused-and-there", clients.key(11))}


@fault
def history_torn(clients: Clients) -> Expected:
    """One of the two messages of a transaction is nowhere."""
    clients.lose(7)
    clients.drop(7, "browsed", "received", "accept_sent", "settled")
    return {("transaction-torn", f"transaction {clients.txn('good')}"), ("lost", clients.key(7))}


@fault
def history_unanswered_torn(clients: Clients) -> Expected:
    """An unanswered transaction, of which one message is there and one is not."""
    txn = clients.txn("torn")
    clients.say("declared", txn=txn)
    clients.send(21, txn)
    clients.send(22, txn, stored=False)
    clients.say("commit_sent", txn=txn)
    clients.receive(21)
    return {("transaction-torn", f"transaction {txn}"), ("fate-unknown", f"transaction {txn}")}


@fault
def history_commit_lost(clients: Clients) -> Expected:
    """Told committed after a crash, and nothing of it is there."""
    clients.lose(9)
    clients.drop(9, "browsed", "received", "accept_sent", "settled")
    return {("commit-lost", f"transaction {clients.txn('unanswered')}"), ("lost", clients.key(9))}


@fault
def history_rollback_visible(clients: Clients) -> Expected:
    """Rolled back, and it is there."""
    clients.world.put("queue", message_id=clients.message(8))
    return {("rollback-visible", f"transaction {clients.txn('bad')}")}


@fault
def history_seen_uncommitted(clients: Clients) -> Expected:
    """A browser saw it before its transaction was discharged."""
    clients.lines.append({**clients.find(6, "browsed"), "order": clients.find(7, "sent")["order"]})
    return {("seen-uncommitted", clients.key(6))}


@fault
def history_answers_contradict(clients: Clients) -> Expected:
    """Accepted, and afterwards told that it was not."""
    clients.say("told", txn=clients.txn("good"), word="not-committed")
    return {("answers-contradict", f"transaction {clients.txn('good')}")}


@fault
def history_rollback_refused(clients: Clients) -> Expected:
    """A discharge with fail was rejected."""
    clients.say("discharge_rejected", txn=clients.txn("bad"))
    return {("rollback-refused", f"transaction {clients.txn('bad')}")}


@fault
def history_order(clients: Clients) -> Expected:
    """The second message came before the first."""
    one, other = clients.find(1, "received"), clients.find(2, "received")
    one["order"], other["order"] = other["order"], one["order"]
    for number, line in ((1, one), (2, other)):
        for at, kind in enumerate(("accept_sent", "settled"), 1):
            clients.find(number, kind)["order"] = line["order"] + at
    return {("order", clients.key(1))}


@fault
def history_held_twice(clients: Clients) -> Expected:
    """Two links of one life were given the same message."""
    clients.lines.append({**clients.find(3, "received"), "link": "another"})
    return {("held-twice", clients.key(3))}


@fault
def history_beyond_credit(clients: Clients) -> Expected:
    """More came than the link had allowed."""
    clients.lines[0]["count"] = 5
    return {("beyond-credit", f"link {clients.name}/in of life 0")}


def _half(kind: str, clients: Clients, half_id: str) -> tuple[str, str]:
    return kind, f"group {clients.name} half-id {half_id}"


@fault
def history_half_both(clients: Clients) -> Expected:
    """Commit and rollback were both accepted."""
    clients.say("resolve_accepted", group=clients.name, half_id="yes", word="rollback")
    return {_half("half-both", clients, "yes")}


@fault
def history_half_lost(clients: Clients) -> Expected:
    """The put was accepted, and the log knows nothing."""
    clients.say("half_accepted", group=clients.name, half_id="third")
    return {_half("half-lost", clients, "third")}


@fault
def history_half_commit_lost(clients: Clients) -> Expected:
    """The commit was accepted, and the log has a rollback."""
    for event in clients.world.find(type="decide", half_id="string:yes"):
        event["outcome"] = "rolled-back"
    return {_half("half-commit-lost", clients, "yes")}


@fault
def history_half_rollback_lost(clients: Clients) -> Expected:
    """The rollback was accepted, and the log has no decision."""
    clients.world.events.remove(clients.world.find(type="decide", half_id="string:no")[0])
    return {_half("half-rollback-lost", clients, "no")}
