"""Seeded faults of reading by offset, cursors, and offsets without holes."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

READING: Final = ("tests/amqp_broker/test_retained_reading.py",)
CURSORS: Final = ("tests/amqp_broker/test_retained_cursors.py",)
DAMAGE: Final = ("tests/amqp_broker/test_retained_damage.py",)
OFFSETS: Final = ("tests/amqp_broker/test_retained_offsets.py",)
NODE: Final = ("tests/amqp_broker/test_retained_node.py",)
MALFORMED: Final = ("tests/amqp_broker/nodes/test_malformed.py",)
OCTETS: Final = (f"{READING[0]}::test_the_bare_message_is_the_same_octets",)

FAULTS: Final = (
    Mutant(
        "what the store refuses keeps its number in a queue that retains",
        "amqp_broker/operations/writer.py",
        "            group.undo()\n            self._leave_out(group, refused)\n",
        "            self._leave_out(group, refused)\n",
        OFFSETS,
    ),
    Mutant(
        "a message that is not durable is not stored by a queue that retains",
        "amqp_broker/records.py",
        "        if not record.durable:\n            record.durable = True\n",
        "        if not record.durable:\n            record.durable = False\n",
        READING,
    ),
    Mutant(
        "a range goes on beyond its end",
        "amqp_broker/retained/source.py",
        "            if record.offset >= until:\n                return records[:count]\n",
        "            if record.offset > until:\n                return records[:count]\n",
        READING,
    ),
    Mutant(
        "a range passes over what is missing in silence",
        "amqp_broker/retained/source.py",
        "                self._gap = (expected, record.offset)\n                return records[:count]\n",
        "                expected = record.offset\n",
        DAMAGE,
    ),
    Mutant(
        "a range that begins below what is kept is taken as what there is",
        "amqp_broker/retained/reading.py",
        "    if start < bounds.first and start < until:\n",
        "    if start < bounds.first and start > until:\n",
        READING,
    ),
    Mutant(
        "an accepted message is settled before the cursor is stored",
        "amqp_broker/retained/source.py",
        "        cursor.moving = True\n",
        "        cursor.moving = True\n        self._answer(answers)\n        answers = []\n",
        CURSORS,
    ),
    Mutant(
        "a cursor moves over a message that was not accepted",
        "amqp_broker/retained/cursors.py",
        "            elif offset > self.offset:\n                self._beyond.add(offset)\n",
        "            elif offset > self.offset:\n                self.offset = offset + 1\n",
        CURSORS,
    ),
    Mutant(
        "damage holds a cursor up for ever",
        "amqp_broker/retained/source.py",
        "                cursor.prefix.skip(expected, record.offset - 1)\n",
        "                pass\n",
        DAMAGE,
    ),
    Mutant(
        "a cursor goes backwards",
        "amqp_broker/retained/cursors.py",
        " if offset > before.get(log, -1)}",
        " if offset >= 0}",
        NODE,
    ),
    Mutant(
        "a detached link keeps its cursors",
        "amqp_broker/retained/node.py",
        "            self._retained.cursors.release(name, user)\n        self._holds.clear()\n",
        "            pass\n        self._holds.clear()\n",
        NODE,
    ),
    Mutant(
        "a reader that waits at the end is not woken",
        "amqp_broker/retained/retained_nodes.py",
        "        for log in list(self._waiting):\n            self._tell(log)\n",
        "        pass\n",
        READING,
    ),
    Mutant(
        "annotations that were there are lost",
        "frames/stamps.py",
        'b"".join((_SECTION, map_head, added, entries))',
        'b"".join((_SECTION, map_head, added, entries[:0]))',
        OCTETS,
    ),
    Mutant(
        "a row that cannot be stamped ends the page",
        "frames/stamps.py",
        "                unchanged.append((place, error.description))\n",
        "                raise ValueError(place) from error\n",
        MALFORMED,
    ),
    Mutant(
        "what is in the sections of a message is not looked at",
        "frames/message_check.py",
        "    Message(body).check()\n",
        "    Message(body).check_sections()\n",
        MALFORMED,
    ),
    Mutant(
        "a layout is believed of another message of its length",
        "frames/message_check.py",
        "                if parts[::2] != layout.constants:\n                    continue\n",
        "",
        ("tests/frames/test_message_check.py",),
    ),
    Mutant(
        "readers use as much time as they like",
        "amqp_broker/page_turns.py",
        "        if self._left_s > 0 or not self._busy or self._share >= 1:\n",
        "        if self._left_s > -1 or not self._busy or self._share >= 1:\n",
        OFFSETS,
    ),
)
