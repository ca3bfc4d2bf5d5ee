"""Seeded faults that keep each conformance scenario of part 4 honest: outcomes, acquisitions."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant, scenarios
from tests.mutants.rule_faults import EFFECTS, SERVICE, TABLE

FAULTS: Final = (
    Mutant(
        "posts are made available backwards",
        SERVICE,
        "        for posting in ended.postings:\n",
        "        for posting in reversed(ended.postings):\n",
        scenarios("4.4.1/in-order"),
        "one commit",
    ),
    Mutant(
        "any half sent delivery hinders a commit",
        TABLE,
        "        if not request.fail and txn_id in partial_txn_ids:\n",
        "        if not request.fail and partial_txn_ids:\n",
        scenarios("4.4.1/partial-elsewhere"),
        "6",
    ),
    Mutant(
        "a plain post joins a live transaction",
        "amqp_broker/nodes/queue_sink.py",
        "        if transaction is not None:\n            self.transactions.post(",
        "        transaction = transaction or next(iter(self.transactions._table.live()), None)\n"
        "        if transaction is not None:\n"
        "            self.transactions.post(",
        scenarios("4.4.1/plain-beside"),
        "visibility",
    ),
    Mutant(
        "the provisional outcome is what the sender says",
        SERVICE,
        "                state = TransactionalState(txn_id=transaction.txn_id, outcome=ACCEPTED)\n"
        "                link.settle(deliveries[:count], state)\n",
        "                link.settle(deliveries[:count], deliveries[0].state)\n",
        scenarios("4.4.1/state-outcome-ignored"),
        "7",
    ),
    Mutant(
        "modified changes nothing in a transaction",
        "amqp_broker/nodes/queue_source.py",
        "            self._change(items, outcome)\n",
        "            pass\n",
        scenarios("4.4.2/modified", "4.4.3/commit-returns"),
        "outcomes",
    ),
    Mutant(
        "outcomes that are not offered are taken in a transaction",
        "amqp_broker/nodes/queue_source.py",
        "OUTCOMES[type(outcome)] not in self.outcomes:",
        "(OUTCOMES[type(outcome)] not in self.outcomes and type(state) is not TransactionalState):",
        scenarios("4.4.2/outcome-not-offered"),
        "outcomes",
    ),
    Mutant(
        "plain outcomes of others are lost beside a transaction",
        "amqp_broker/nodes/queue_source.py",
        "            deliveries = self.transactions.dispose_plainly(",
        "            deliveries = [] and self.transactions.dispose_plainly(",
        scenarios("4.4.2/plain-beside"),
        "outcomes",
    ),
    Mutant(
        "an outcome for a range is for its first delivery",
        SERVICE,
        "            consumer, table.dispose(consumer, deliveries, state, settled,",
        "            consumer, table.dispose(consumer, deliveries[:1], state, settled,",
        scenarios("4.4.2/range"),
        "outcomes",
    ),
    Mutant(
        "rejected gives back",
        EFFECTS,
        "    Rejected: Given.REMOVES,",
        "    Rejected: Given.RETURNS,",
        scenarios("4.4.2/rejected", "4.4.3/commit"),
        "outcomes",
    ),
    Mutant(
        "released and modified remove",
        EFFECTS,
        "    Released: Given.RETURNS,\n    Modified: Given.RETURNS,",
        "    Released: Given.REMOVES,\n    Modified: Given.REMOVES,",
        scenarios("4.4.2/released", "4.4.2/modified", "4.4.3/commit-returns", "4.4.2/undeliverable-here"),
        "outcomes",
    ),
    Mutant(
        "a commit gives back what was accepted",
        SERVICE,
        "            consumer.queue.retire(records_of(work))\n",
        "            consumer.give_back(records_of(work), RELEASED)\n",
        scenarios("4.3/transform", "4.4.2/accepted", "4.4.2/second", "4.4.3/commit"),
        "outcomes",
    ),
    Mutant(
        "what was acquired and accepted stays acquired",
        EFFECTS,
        "        Given.REMOVES: (\n            ((Effect.RETIRE, True), (Effect.RELEASE, True)),",
        "        Given.REMOVES: (\n            ((Effect.KEEP_HELD, False), (Effect.RELEASE, True)),",
        scenarios("4.4.3/commit"),
        "outcomes",
    ),
    Mutant(
        "what was rolled back belongs to its transaction for ever",
        TABLE,
        "            del self._held[item]\n",
        "            pass\n",
        scenarios("4.4.2/rollback-then-again", "4.4.2/rollback-stays-acquired", "4.4.2/second"),
        "9",
    ),
    Mutant(
        "settled without an outcome is nothing",
        TABLE,
        "            outcome = default if settled else None\n",
        "            outcome = None\n",
        scenarios("4.4.2/settled-without-outcome"),
        "outcomes",
    ),
    Mutant(
        "a transaction retires on one link only",
        TABLE,
        "        outcome: Any = state.outcome\n",
        "        outcome: Any = state.outcome\n"
        "        if transaction.held and next(iter(transaction.held.values())).consumer is not consumer:\n"
        "            return disposed\n",
        scenarios("4.4.2/several-links", "4.4.2/several-sessions"),
        "outcomes",
    ),
    Mutant(
        "the end of a transaction reaches the first of its links only",
        SERVICE,
        "            self._do(work)\n            consumers",
        "            if work.consumer is ended.works[0].consumer:\n"
        "                self._do(work)\n            consumers",
        scenarios("4.4.3/several-links"),
        "10",
    ),
    Mutant(
        "undeliverable-here is ignored in a transaction",
        "amqp_broker/nodes/queue_source.py",
        "            if state.undeliverable_here:\n",
        "            if False:\n",
        scenarios("4.4.2/undeliverable-here"),
        "outcomes",
    ),
    Mutant(
        "outcomes beyond the limits are forgotten",
        TABLE,
        "            transaction.fail(self._too_much(transaction))\n        if settled:",
        "            pass\n        if settled:",
        scenarios("4.4.2/too-many-retired"),
        "limits",
    ),
    Mutant(
        "acquisitions have no limit",
        TABLE,
        "            if not self._fits(transaction, count + 1, size):\n                break\n",
        "",
        scenarios("4.4.3/too-many-acquired"),
        "limits",
    ),
    Mutant(
        "a flow's transaction is that of one send",
        SERVICE,
        "        taken, deliveries = link.send_in(records[:room], state)\n",
        "        taken, deliveries = link.send_in(records[:room], state)\n"
        "        table._acquiring.pop(consumer, None)\n",
        scenarios("4.4.3/arrives-later"),
        "11",
    ),
    Mutant(
        "a drain in a transaction is not answered",
        "amqp_broker/nodes/queue_source.py",
        "        if link.drain and link.credit > 0 and not self.pending and",
        "        if link.drain and link.credit > 0 and not self.transactions.acquires(self) and",
        scenarios("4.4.3/drain"),
        "11",
    ),
    Mutant(
        "a commit aborts what is half sent",
        SERVICE,
        "            elif work.effect is Effect.RELEASE:\n                for item in work.items:",
        "            elif True:\n                for item in work.items:",
        scenarios("4.4.3/half-sent-commit"),
        "order",
    ),
    Mutant(
        "the first flow's transaction stays",
        TABLE,
        "            self._acquiring[consumer] = self.find(txn_id)",
        "            self._acquiring.setdefault(consumer, self.find(txn_id))",
        scenarios("4.4.3/two-transactions-on-a-link"),
        "11",
    ),
    Mutant(
        "an empty map of properties leaves the acquisition",
        "links/sender_link.py",
        "        if properties is not None:\n            self._tell_flow",
        "        if properties:\n            self._tell_flow",
        scenarios("4.4.3/more-credit"),
        "11",
    ),
    Mutant(
        "a rollback retires what was acquired",
        SERVICE,
        "        elif work.effect is Effect.RELEASE:\n"
        "            self._release(consumer, work)\n",
        "        elif work.effect is Effect.RELEASE:\n            consumer.queue.retire(records_of(work))\n",
        scenarios(
            "4.4.3/turn-by-turn",
            "4.4.3/two-controllers",
            "4.4.3/rollback",
            "4.1/acquired-comes-back",
            "4.4.3/rollback-in-place",
        ),
        "10",
    ),
    Mutant(
        "released comes back counted",
        "amqp_broker/nodes/queue_source.py",
        "            changed(record)\n            self.queue.give_back((record,))\n",
        "            record.delivery_count += 1\n"
        "            changed(record)\n"
        "            self.queue.give_back((record,))\n",
        scenarios("4.4.2/released"),
        "outcomes",
    ),
    Mutant(
        "a control link has to wish for something",
        "amqp_broker/nodes/coordinator.py",
        "        attachment.answer = coordinator_answer()\n",
        "        if not attachment.attach.target.capabilities:\n"
        "            raise NodeRefused('amqp:not-implemented', 'x')\n"
        "        attachment.answer = coordinator_answer()\n",
        scenarios("4.5.1/no-wish"),
        "requests",
    ),
    Mutant(
        "a coordinator as the target of a receiver is taken",
        "amqp_broker/nodes/attaching.py",
        "    if isinstance(attach.target, Coordinator):\n        raise",
        "    if False:\n        raise",
        scenarios("4.5.1/other-direction"),
        "requests",
    ),
    Mutant(
        "two control links have one owner",
        TABLE,
        "        transaction = Transaction(txn_id, self.connection, control,",
        "        control = next((one.control for one in self._live.values()), control)\n"
        "        transaction = Transaction(txn_id, self.connection, control,",
        scenarios("4.2/two-control-links"),
        "foreign control link",
    ),
    Mutant(
        "another connection's discharge rolls back",
        SERVICE,
        "        found = self._table.discharge(link, request,",
        "        entry = self._nodes.live_transactions._entries.get(request.txn_id)\n"
        "        if entry is not None and entry[1] is not self:\n"
        "            entry[1].force_rollback(request.txn_id, 'somebody else')\n"
        "        found = self._table.discharge(link, request,",
        scenarios("4.3/foreign-connection"),
        "foreign control link",
    ),
)
