"""Bounds of the codec: each one a named constant with its unit, its reason and its neighbours.

No peer can make the decoder recurse deeper, build more, or wait for more than these say.
"""

from typing import Final

DEPTH_MAX: Final = 32
"""Nested compounds, arrays and descriptors in one value. Real messages use below ten; the interpreter allows
1,000.
"""

ZERO_WIDTH_ELEMENTS_MAX: Final = 256
"""Elements of an array whose constructor has no data (null, true, uint0, ...): nothing in the bytes bounds
them.
"""

UUID_HASH_COLLISIONS_MAX: Final = 16
"""Uuid keys of one map whose hashes collide. Two random ones never do; 30,000 chosen ones cost minutes."""

PERFORMATIVE_NODES_MAX: Final = 1_024
"""Values in one performative. An open, attach or flow of real clients has below a hundred."""

SECTION_NODES_MAX: Final = 65_536
"""Values in one section of a message that is decoded for the broker's own use (annotations, properties)."""

SECTIONS_MAX: Final = 65_536
"""Sections of one message. Nothing else bounds empty ones: five octets each are three million in 16 MiB."""

REPR_CHARACTERS_MAX: Final = 256
"""What a frame, a composite or a value prints of itself: one line of a log."""

DELIVERY_TAG_OCTETS_MAX: Final = 32
"""A delivery-tag may be up to 32 octets of binary data (2.8.7)."""

MIN_MAX_FRAME_SIZE: Final = 512
"""The largest frame that every peer takes, and the largest SASL frame (2.8.19, 5.3.2); octets."""

FRAME_SIZE_MAX: Final = 4_294_967_295
"""What the four octets of SIZE can say (2.3.1)."""

CHANNEL_MAX: Final = 65_535
"""What the two octets of CHANNEL can say (2.3.2)."""

assert ZERO_WIDTH_ELEMENTS_MAX < PERFORMATIVE_NODES_MAX < SECTION_NODES_MAX
assert MIN_MAX_FRAME_SIZE < FRAME_SIZE_MAX
