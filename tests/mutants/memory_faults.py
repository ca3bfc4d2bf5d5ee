"""Faults of the budget for memory: what is kept and not given back, who gets all, and who never ends."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

ACCOUNTANT: Final = ("tests/links/test_memory_budget.py",)
WIRE: Final = "tests/amqp_broker/test_memory_budget.py"

FAULTS: Final = (
    Mutant(
        "what left a queue still counts as memory",
        "amqp_broker/queue.py",
        "            if volatile:\n                self._kept.remove(volatile)\n",
        "",
        ("tests/amqp_broker/test_queue.py::test_a_volatile_message_that_grew_is_counted_as_it_is",),
    ),
    Mutant(
        "a transaction that is over still counts as memory",
        "amqp_broker/transactions.py",
        "account.give_back(_kept_bytes(posting.operations, posting.size_bytes))\n",
        "account.give_back(0)\n",
        (f"{WIRE}::test_open_transactions_do_not_fill_the_memory",),
    ),
    Mutant(
        "one connection gets all of the memory",
        "links/memory_budget.py",
        "return used * 2 <= budget.limit_bytes or self.used_bytes + octets <= budget.limit_bytes - used",
        "return used <= budget.limit_bytes",
        ACCOUNTANT,
    ),
    Mutant(
        "relief comes with the first octet",
        "links/memory_budget.py",
        "        if self.pressed and self._roomy(2):\n",
        "        if self.pressed:\n",
        ACCOUNTANT,
    ),
    Mutant(
        "control links get no credit where memory is short",
        "links/receiver_link.py",
        "        if self.keeps_messages and self.session.account.pressed:\n            if attached",
        "        if self.session.account.pressed:\n            if attached",
        ACCOUNTANT,
    ),
    Mutant(
        "what is on its way is taken beyond the budget",
        "amqp_broker/connection.py",
        "            if not self.account.fits(octets):\n                break\n",
        "",
        (f"{WIRE}::test_what_was_on_its_way_is_refused_with_the_name",),
    ),
    Mutant(
        "what is too much is refused before consumers had time",
        "amqp_broker/connection_task.py",
        "        return self._reads_again_at is not None\n",
        "        return False\n",
        (f"{WIRE}::test_reading_waits_before_anything_is_refused",),
    ),
    Mutant(
        "an octet now and then keeps an incomplete delivery for ever",
        "links/connection.py",
        "return min(partial.last_at + limits.partial_idle_s, partial.begun_at + limits.partial_total_s)",
        "return partial.last_at + limits.partial_idle_s",
        ("tests/links/test_receiver_link.py::test_an_incomplete_delivery_has_to_end",),
    ),
    Mutant(
        "copies stay in memory until they are settled",
        "links/sender_link.py",
        "                delivery.message = SentCopy(delivery.message.offset)\n",
        "                pass\n",
        ("tests/links/test_sender_link.py::test_copies_are_forgotten_when_they_are_out",),
    ),
)
