"""One error instead of a group: that there are nurseries inside of us is no matter of the caller's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from amqp_broker.client.errors import Gone
from amqp_broker.exit_status import leaves


@contextmanager
def one_error() -> Iterator[None]:
    """Raises what a group holds when it is one error, or one connection's end as several tasks saw it; other
    groups pass as they are.
    """
    try:
        yield
    except BaseExceptionGroup as group:
        found = list(leaves(group))
        if len(found) != 1 and not all(isinstance(error, Gone) for error in found):
            raise
        raise found[0] from found[0].__cause__
