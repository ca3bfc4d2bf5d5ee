"""What the compiler of hot modules (mypyc) has to be told, also where it is not installed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr as mypyc_attr
else:

    def mypyc_attr(**_):
        """Means nothing where nothing is compiled."""
        return lambda decorated: decorated
