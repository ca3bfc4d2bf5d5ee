"""Seeded faults that each break one of the standard's rules of transactions (part 4), and what must
notice.
"""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant, scenarios

TABLE: Final = "coordinator/transaction_table.py"
REQUESTS: Final = "coordinator/requests.py"
EFFECTS: Final = "coordinator/effects.py"
SERVICE: Final = "amqp_broker/transactions.py"

TABLE_TESTS: Final = "tests/coordinator/test_transaction_table.py"
WIRE_TESTS: Final = "tests/amqp_broker/test_transactions.py"
RULES_TESTS: Final = "tests/amqp_broker/test_transactions_rules.py"
POSTING_TESTS: Final = "tests/links/test_posting.py"
BOUNDS_TESTS: Final = "tests/amqp_broker/test_transactions_bounds.py"

_CONTROL_LINKS: Final = (
    Mutant(
        "a control link that is detached without being closed keeps its transactions",
        "amqp_broker/connection.py",
        "                sink.on_detached()\n",
        "                event.closed and sink.on_detached()\n",
        scenarios("4.1/control-detached"),
        "1",
    ),
    Mutant(
        "a control link that comes again takes up what was unsettled",
        "links/link.py",
        "                unsettled={} if resumed else None,\n",
        "                unsettled=remote.unsettled if resumed else None,\n",
        scenarios("4.2/not-resumed"),
        "1",
    ),
    Mutant(
        "a settled declare or discharge is done",
        REQUESTS,
        "    if settled:\n",
        "    if settled and state is not None:\n",
        scenarios("4.2/settled-declare", "4.3/settled-discharge"),
        "2",
    ),
    Mutant(
        "a settled declare is rejected, which its sender can't hear",
        REQUESTS,
        "    if isinstance(error, (NotAllowed, ControlLinkTerminated)):\n",
        "    if isinstance(error, ControlLinkTerminated):\n",
        scenarios("4.2/settled-declare"),
        "2",
    ),
    Mutant(
        "a failed request is always rejected",
        REQUESTS,
        "    if not takes_rejected(source):\n",
        "    if source is NotImplemented:\n",
        scenarios("4.2/no-rejected", "4.3/unknown-id-without-rejected"),
        "3",
    ),
    Mutant(
        "a failed request always ends the control link",
        REQUESTS,
        "    return Rejected(error=error.error())\n",
        "    return None\n",
        scenarios("4.5.2/global-id", "4.3/unknown-id"),
        "3",
    ),
    Mutant(
        "a source that names no outcomes excludes rejected",
        "frames/termini.py",
        "    return not outcomes or REJECTED in outcomes\n",
        "    return bool(outcomes) and REJECTED in outcomes\n",
        scenarios("4.2/no-outcomes", "4.2/default-outcome-rejected"),
        "3",
    ),
    Mutant(
        "a rollback while a message is half sent is refused",
        TABLE,
        "        if not request.fail and txn_id in partial_txn_ids:\n",
        "        if txn_id in partial_txn_ids:\n",
        scenarios("4.4.1/partial-rollback"),
        "4",
    ),
    Mutant(
        "what cannot commit cannot be rolled back either",
        TABLE,
        "        if request.fail:\n",
        "        if request.fail and transaction.state is _LIVE:\n",
        scenarios("4.3/fail-of-what-cannot-commit"),
        "4",
    ),
    Mutant(
        "a rollback after the timeout is refused",
        TABLE,
        "        error = None if fail else _again(transaction)\n",
        "        error = _again(transaction)\n",
        (
            f"{TABLE_TESTS}::test_rule_4_discharge_with_fail_always_succeeds",
            f"{BOUNDS_TESTS}::test_every_use_after_the_timeout_says_so",
        ),
        "4",
    ),
    Mutant(
        "nobody hears that a control link is gone",
        "amqp_broker/connection.py",
        "                sink.on_detached()\n",
        "                pass\n",
        scenarios("4.1/control-closed", "4.1/acquired-comes-back"),
        "5",
    ),
    Mutant(
        "the end of a session leaves its transactions",
        "amqp_broker/connection.py",
        "                sink.on_detached()\n",
        "                link.session.writable and sink.on_detached()\n",
        scenarios("4.1/session-ended"),
        "5",
    ),
    Mutant(
        "what a control link that is gone declared is not undone",
        TABLE,
        'its control link was closed (4.1)")\n                ended.append(self._end(transaction, False))\n',
        'its control link was closed (4.1)")\n',
        scenarios("4.1/connection-closed", "4.1/connection-lost", "4.4/cut-anywhere"),
        "5",
    ),
    Mutant(
        "only the first transaction of a control link ends with it",
        TABLE,
        "for transaction in [found for found in self._live.values() if found.control is control]:",
        "for transaction in [found for found in self._live.values() if found.control is control][:1]:",
        (f"{BOUNDS_TESTS}::test_a_closed_control_link_takes_all_of_its_transactions",)
        + scenarios("4.1/several-at-once"),
        "5",
    ),
    Mutant(
        "half sent deliveries of the first session only hinder their commit",
        "links/connection.py",
        "for link in self.partial_links if link.partial is not None]",
        "for link in self.partial_links if link.partial is not None and not link.session.channel]",
        (f"{POSTING_TESTS}::test_incomplete_deliveries_of_all_sessions",),
        "6",
    ),
    Mutant(
        "one delivery may be of two transactions",
        "links/receiver_link.py",
        "    after = txn_id_of(state)\n",
        "    after = before\n",
        (f"{POSTING_TESTS}::test_a_delivery_of_two_transactions_ends_the_link",)
        + scenarios("4.4.1/frames-of-two"),
        "6",
    ),
    Mutant(
        "a half sent delivery does not hinder its commit",
        SERVICE,
        "request, self.connection.engine.partial_txn_ids())",
        "request, ())",
        scenarios("4.4.1/partial"),
        "6",
    ),
    Mutant(
        "an outcome in one transaction for what another holds is ignored",
        TABLE,
        "                foreign = True\n",
        "                foreign = False\n",
        scenarios("4.4.2/two-transactions", "4.4.3/outcome-of-another"),
        "6",
    ),
    Mutant(
        "the other controller pays for a foreign outcome",
        TABLE,
        "                foreign = True\n",
        "                foreign, transaction = True, held.transaction\n",
        scenarios("4.4.2/two-controllers"),
        "6",
    ),
    Mutant(
        "a plain outcome takes a message out of its transaction",
        TABLE,
        "held = self._held.get(item)\n            if held is None:\n                disposed.free",
        "held = None\n            if held is None:\n                disposed.free",
        scenarios("4.4.3/plain-outcome"),
        "6",
    ),
    Mutant(
        "a half sent delivery at discharge is a matter of rejected",
        REQUESTS,
        "    if isinstance(error, (NotAllowed, ControlLinkTerminated)):\n",
        "    if isinstance(error, NotAllowed):\n",
        scenarios("4.4.1/partial"),
        "6",
    ),
    Mutant(
        "a control link is terminated with another condition",
        "coordinator/errors.py",
        "class ControlLinkTerminated(TransactionRollback):\n",
        "class ControlLinkTerminated(NotAllowed):\n",
        scenarios("4.4.1/partial", "4.4.2/two-transactions"),
        "6",
    ),
    Mutant(
        "a control link that was terminated is still heard",
        "amqp_broker/nodes/coordinator.py",
        "            if self.ended:\n                return\n",
        "",
        (
            "tests/amqp_broker/test_transactions.py::test_a_control_link_that_was_terminated_hears_nothing_more",
        ),
        "6",
    ),
    Mutant(
        "global-id is taken for a local transaction",
        REQUESTS,
        "        if value.global_id is not None:\n            raise",
        "        if value.global_id is not None:\n            return Declare()\n            raise",
        scenarios("4.5.2/global-id"),
        "13",
    ),
)

_WORK: Final = (
    Mutant(
        "a post has no provisional outcome",
        SERVICE,
        "                link.settle(deliveries[:count], state)\n",
        "                pass\n",
        scenarios("4.4.1/provisional", "4.4.1/provisional-at-once"),
        "7",
    ),
    Mutant(
        "the outcome of a post names no transaction",
        SERVICE,
        "                link.settle(deliveries[:count], state)\n",
        "                link.settle(deliveries[:count], state.outcome)\n",
        scenarios("4.4.1/provisional"),
        "7",
    ),
    Mutant(
        "the provisional outcome comes after the answer to the discharge",
        SERVICE,
        "                link.settle(deliveries[:count], state)\n",
        "                token = trio.lowlevel.current_trio_token()\n"
        "                def later(turns):\n"
        "                    turns += transaction.txn_id not in self._table._live\n"
        "                    if turns < 50:\n"
        "                        token.run_sync_soon(later, turns)\n"
        "                    else:\n"
        "                        link.settle(deliveries[:count], state)\n"
        "                        self.connection._wake()\n"
        "                later(0)\n",
        scenarios("4.3/provisional-first"),
        "7",
    ),
    Mutant(
        "a settled post that could not be done is forgotten",
        SERVICE,
        "        self._table.fail(transaction, refusal(link, deliveries, error))\n",
        "        if not any(delivery.settled for delivery in deliveries):\n"
        "            self._table.fail(transaction, refusal(link, deliveries, error))\n",
        scenarios("4.4.4/settled-goes-nowhere", "4.4.1/queue-full-settled"),
        "8",
    ),
    Mutant(
        "what cannot commit is answered with another condition",
        TABLE,
        "        return self._end(transaction, False, _rollback(transaction))\n",
        "        return self._end(transaction, False, TransactionLimitExceeded('full'))\n",
        scenarios("4.4.4/settled-goes-nowhere"),
        "8",
    ),
    Mutant(
        "rollback frees what was retired unsettled",
        EFFECTS,
        "            ((Effect.RETIRE, True), (Effect.KEEP_HELD, False)),\n",
        "            ((Effect.RETIRE, True), (Effect.RELEASE, True)),\n",
        scenarios("4.4.2/rollback-stays-acquired", "4.1/control-closed"),
        "9",
    ),
    Mutant(
        "rollback frees what was given back unsettled",
        EFFECTS,
        "            ((Effect.RETURN, True), (Effect.KEEP_HELD, False)),\n",
        "            ((Effect.RETURN, True), (Effect.RELEASE, True)),\n",
        scenarios("4.4.2/rollback-stays-acquired"),
        "9",
    ),
    Mutant(
        "a settled retirement stays acquired after the rollback",
        EFFECTS,
        "            ((Effect.RETIRE, False), (Effect.APPLY_DEFAULT, False)),\n",
        "            ((Effect.RETIRE, False), (Effect.KEEP_HELD, False)),\n",
        scenarios("4.4.4/default-released", "4.4.4/default-modified"),
        "9",
    ),
    Mutant(
        "a settled retirement is applied although it was rolled back",
        EFFECTS,
        "            ((Effect.RETIRE, False), (Effect.APPLY_DEFAULT, False)),\n",
        "            ((Effect.RETIRE, False), (Effect.RETIRE, False)),\n",
        scenarios("4.4.4/default-released"),
        "9",
    ),
    Mutant(
        "rollback of an acquisition leaves it acquired",
        EFFECTS,
        "            ((Effect.RETIRE, True), (Effect.RELEASE, True)),\n",
        "            ((Effect.RETIRE, True), (Effect.KEEP_HELD, False)),\n",
        scenarios("4.4.3/rollback", "4.1/acquired-comes-back"),
        "10",
    ),
    Mutant(
        "rollback of an acquisition keeps its outcome",
        EFFECTS,
        "            ((Effect.RETURN, True), (Effect.RELEASE, True)),\n",
        "            ((Effect.RETURN, True), (Effect.RETURN, True)),\n",
        ("tests/coordinator/test_effects.py", *scenarios("4.4.3/rollback-in-place")),
        "10",
    ),
    Mutant(
        "what was sent settled is gone although it was rolled back",
        EFFECTS,
        "            ((Effect.RETIRE, False), (Effect.RELEASE, False)),\n"
        "            ((Effect.RETIRE, False), (Effect.RELEASE, False)),\n",
        "            ((Effect.RETIRE, False), (Effect.RETIRE, False)),\n"
        "            ((Effect.RETIRE, False), (Effect.RETIRE, False)),\n",
        scenarios("4.4.3/settled-by-the-broker"),
        "10",
    ),
    Mutant(
        "what was sent settled is gone before its transaction is over",
        "amqp_broker/nodes/queue_source.py",
        "        elif taken and self.settled and not self.browser:\n",
        "        if taken and self.settled and not self.browser:\n",
        (f"{RULES_TESTS}::test_what_was_sent_settled_is_there_until_its_commit",),
        "10",
    ),
    Mutant(
        "a flow that names a transaction is ignored",
        TABLE,
        "        return consumer in self._acquiring\n",
        "        return False\n",
        scenarios("4.4.3/supported", "4.4.3/rollback"),
        "11",
    ),
    Mutant(
        "what is acquired does not name its transaction",
        SERVICE,
        "        taken, deliveries = link.send_in(records[:room], state)\n",
        "        state = None\n        taken, deliveries = link.send_in(records[:room], state)\n",
        scenarios("4.4.3/supported"),
        "11",
    ),
    Mutant(
        "a plain flow ends the acquisition",
        "links/sender_link.py",
        '            self._tell_flow(properties.get("txn-id"))\n',
        '            self._tell_flow(properties.get("txn-id"))\n'
        "        else:\n            self._tell_flow(None)\n",
        scenarios("4.4.3/more-credit"),
        "11",
    ),
    Mutant(
        "a copying link takes a transaction for granted",
        SERVICE,
        "        if txn_id is not None and consumer.browser:\n",
        "        if txn_id is None and consumer.browser:\n",
        scenarios("4.4.3/copying-link"),
        "11",
    ),
    Mutant(
        "the txn-id of a link outlives the discharge",
        TABLE,
        "        for consumer in consumers:\n            del self._acquiring[consumer]\n",
        "",
        scenarios("4.4.3/credit-left-over"),
        "12",
    ),
    Mutant(
        "credit is lost at the discharge",
        SERVICE,
        "            consumer.deliver([])  #",
        "            consumer.link.flow_state.credit = 0  #",
        scenarios("4.4.3/credit-left-over", "4.4.3/credit-left-over-rollback"),
        "12",
    ),
    Mutant(
        "credit that was left at the discharge is not used",
        SERVICE,
        "            consumer.deliver([])  #",
        "            consumer.demand = 0  #",
        scenarios("4.4.3/credit-left-over"),
        "12",
    ),
)

FAULTS: Final = _CONTROL_LINKS + _WORK
