"""How long a dynamic node is there: its lifetime policy (3.5.10 to 3.5.13). Pure.

                                 the link that made it    any link    messages
    delete-on-close                       x
    delete-on-no-links                    x                   x
    delete-on-no-messages                 x                                x
    delete-on-no-links-or-messages        x                   x            x

The node is deleted when nothing is left of what its policy names. "Definitionally, the lifetime will never be
less than the lifetime of the link which caused its creation" (3.5.9).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from amqp_broker.frames import DeleteOnClose, DeleteOnNoLinks, DeleteOnNoLinksOrMessages, DeleteOnNoMessages

if TYPE_CHECKING:
    from amqp_broker.connection import Sink, Source

_KEPT_BY: Final[dict[type, tuple[bool, bool]]] = {
    DeleteOnClose: (False, False),
    DeleteOnNoLinks: (True, False),
    DeleteOnNoMessages: (False, True),
    DeleteOnNoLinksOrMessages: (True, True),
}
"""Whether other links keep the node, and whether messages do."""


class Lifetime:
    """That of one queue. `policy` is one of the standard's."""

    __slots__ = ("_begun", "_by_links", "_by_messages", "_creator", "_links", "policy")

    def __init__(self, policy: object) -> None:
        self.policy = policy
        self._by_links, self._by_messages = _KEPT_BY[type(policy)]
        self._links: set[Sink | Source] = set()
        self._creator: Sink | Source | None = None
        self._begun = False

    def joined(self, link: Sink | Source) -> None:
        """A link has the node as its source or target; the first is the one that it was made for."""
        if not self._begun:
            self._begun = True
            self._creator = link
        self._links.add(link)

    def left(self, link: Sink | Source) -> None:
        """A link is gone. Harmless when called again."""
        self._links.discard(link)
        if link is self._creator:
            self._creator = None

    def over(self, messages: int) -> bool:
        """Whether nothing keeps a node any more that has so many messages; one under way to it is one."""
        if self._creator is not None or (self._by_links and self._links):
            return False
        return not (self._by_messages and messages)
