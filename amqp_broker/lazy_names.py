"""Public names of a package that are loaded when they are used (PEP 562)."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def lazy_names(
    package: str, modules: Mapping[str, tuple[str, ...]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and the `__dir__` of a package, and from which modules of `amqp_broker` its names
    come.
    """
    homes = {name: module for module, names in modules.items() for name in names}
    known = vars(sys.modules[package])

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = known[name] = getattr(importlib.import_module(f"amqp_broker.{homes[name]}"), name)
        return value

    return load, lambda: sorted({*known, *known["__all__"]})
