"""The optional build of the hot modules with mypyc: `AMQP_BROKER_COMPILE=1 pip wheel .`; else pure Python.

Which modules are compiled stands in one place, `[tool.amqp_broker] compiled` of pyproject.toml.
"""

from __future__ import annotations

import os
import sys
import tomllib
from pathlib import Path

from setuptools import setup

HERE = Path(__file__).resolve().parent
PROJECT = tomllib.loads((HERE / "pyproject.toml").read_text())
COMPILE = os.environ.get("AMQP_BROKER_COMPILE") == "1"
# What the compiled modules share must not be installed as a second top-level name.
SHARED_PART = "amqp_broker.compiled"


def link_rooms() -> None:
    """An sdist carries the rooms, but not the links to them below amqp_broker/."""
    for package, folder in PROJECT["tool"]["setuptools"]["package-dir"].items():
        link = HERE / package.replace(".", "/")
        if not link.exists():
            link.symlink_to(Path("..") / folder)


def extensions() -> list[object]:
    """What mypyc makes of the listed modules; nothing while a frontend only asks for build requirements."""
    if not COMPILE:
        return []
    try:
        from mypyc.build import mypycify
    except ImportError:
        if "egg_info" in sys.argv:
            return []
        raise
    link_rooms()  # the compiler must see a module under its installed name
    modules = PROJECT["tool"]["amqp_broker"]["compiled"]
    paths = [f"{module.replace('.', '/')}.py" for module in modules]
    # Other modules' types are followed but not judged, and what only the shell imports need not be installed.
    options = ["--follow-imports=silent", "--ignore-missing-imports"]
    return list(mypycify([*options, *paths], group_name=SHARED_PART, opt_level="3", debug_level="0"))


setup(ext_modules=extensions())
