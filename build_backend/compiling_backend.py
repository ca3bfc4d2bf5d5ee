"""setuptools' build backend, which asks for the compiler only when something is to be compiled."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import (
    build_editable,
    build_sdist,
    build_wheel,
    get_requires_for_build_sdist,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

Settings = Mapping[str, Any] | None
# mypyc comes with mypy; the types of attrs come with attrs.
COMPILER = ["mypy>=1.13", "attrs>=24.2"]


def compiler_requirements() -> list[str]:
    """Nothing for the pure wheel."""
    return COMPILER if os.environ.get("AMQP_BROKER_COMPILE") == "1" else []


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    """What setuptools wants (PEP 517), and the compiler when it is asked for."""
    return [*build_meta.get_requires_for_build_wheel(config_settings), *compiler_requirements()]


def get_requires_for_build_editable(config_settings: Settings = None) -> list[str]:
    """The same for an editable install (PEP 660)."""
    return [*build_meta.get_requires_for_build_editable(config_settings), *compiler_requirements()]
