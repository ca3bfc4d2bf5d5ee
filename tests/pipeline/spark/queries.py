"""Streaming queries to their end, on a machine that is busy with other things.

Where a query reads from a source in Python, Spark starts a Python process for it and waits ten seconds for
its first word; no setting changes that. It comes before anything of the query has run: no batch is planned,
nothing of ours has been asked for. That, and only that, is no failure of what is tested, and the query is
started again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pyspark.errors import StreamingQueryException

STARTS: Final = 3
GAVE_UP: Final = "Python worker failed to connect back"
NOTHING_RAN: Final = "Current State: INITIALIZING"


def gave_up(said: str) -> bool:
    """Whether this is how Spark says that it did not wait for the first process of a query."""
    return GAVE_UP in said and NOTHING_RAN in said


def run_to_end(start: Callable[[], Any]) -> Any:
    """The query that `start` starts, when it has ended. Raises StreamingQueryException when it failed, or
    when Spark gave up at each of its starts.
    """
    for _ in range(STARTS - 1):
        query = start()
        try:
            query.awaitTermination()
            return query
        except StreamingQueryException as error:
            if not gave_up(str(error)) or query.recentProgress:
                raise
            print("Spark did not wait for its Python process: the query is started again", flush=True)
    query = start()
    query.awaitTermination()
    return query
