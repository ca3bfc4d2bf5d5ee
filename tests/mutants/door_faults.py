"""Faults at the doors to nodes: what is made too early, or by one way in and not by another; whose cursors
are, and what is kept.
"""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

DOORS: Final = "tests/amqp_broker/nodes/test_doors.py"
OWNERS: Final = "tests/amqp_broker/test_cursor_owners.py"
CURSORS: Final = "amqp_broker/retained/cursors.py"

FAULTS: Final = (
    Mutant(
        "a queue is made for a range that it cannot have",
        "amqp_broker/retained/reading.py",
        "_check_range(self.name, start, request.until, Bounds(0, 0))",
        "pass",
        (f"{DOORS}::test_a_refused_source_makes_nothing",),
    ),
    Mutant(
        "messages that are no half messages come through the relay to a queue for half messages",
        "amqp_broker/nodes/queues.py",
        "        site = self._queues.nodes.site(principal, self.name, SEND)\n        site.check_messages()\n",
        "        site = self._queues.nodes.site(principal, self.name, SEND)\n",
        (f"{DOORS}::test_a_queue_for_half_messages_takes_no_others",),
    ),
    Mutant(
        "a late reply makes a queue",
        "amqp_broker/queues.py",
        "        if name.startswith(TEMPORARY_PREFIX):\n",
        "        if False:\n",
        (f"{DOORS}::test_a_late_reply_to_a_dynamic_node_makes_nothing",),
    ),
    Mutant(
        "what comes behind a message whose queue is being made is forgotten",
        "amqp_broker/nodes/relay.py",
        "        self.on_deliveries(deliveries)\n",
        "        self.on_deliveries(deliveries[:1])\n",
        (f"{DOORS}::test_a_relay_makes_queues_on_first_use_and_keeps_the_order",),
    ),
    Mutant(
        "who may only browse reads on with the cursor of another",
        CURSORS,
        "        self.check_owner(name, user.principal)\n        other =",
        "        other =",
        (f"{OWNERS}::test_others_can_do_nothing_with_a_cursor",),
    ),
    Mutant(
        "who may only browse forgets the cursor of another",
        CURSORS,
        "        self._check(self._cursors.check_owner, self.name, self.principal)\n",
        "",
        (f"{OWNERS}::test_others_can_do_nothing_with_a_cursor",),
    ),
    Mutant(
        "an administrator who moves a cursor takes it over",
        CURSORS,
        "self.belongs_to = cursors.owner(self.name) or self.principal.rule_name",
        "self.belongs_to = self.principal.rule_name",
        (f"{OWNERS}::test_an_administrator_can_and_does_not_take_it_over",),
    ),
    Mutant(
        "bodies of what policy rolled back are kept without a bound",
        "persistence/half_table.py",
        "        if not self._keep_bytes or excess <= 0:\n",
        "        if excess <= 0 or self._keep_bytes:\n",
        ("tests/persistence/test_half_kept_bytes.py::test_the_oldest_bodies_go_beyond_the_bound[disk]",),
    ),
)
