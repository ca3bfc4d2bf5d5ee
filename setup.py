"""The optional build of the hot modules with mypyc: `AMQP_BROKER_COMPILE=1 pip wheel .`; else pure Python.

Which modules are compiled stands in one place, `[tool.amqp_broker] compiled` of pyproject.toml.
"""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from setuptools import setup
from setuptools.command.build_ext import build_ext

HERE = Path(__file__).resolve().parent
PROJECT = tomllib.loads((HERE / "pyproject.toml").read_text())
COMPILE = os.environ.get("AMQP_BROKER_COMPILE") == "1"
# What the compiled modules share must not be installed as a second top-level name.
SHARED_PART = "amqp_broker.compiled"
C_FILES = "build"


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
    # A C file for each module: one for all of them keeps one core busy, and takes longer at that.
    parts = mypycify(
        [*options, *paths], group_name=SHARED_PART, opt_level="3", debug_level="0", multi_file=True,
        target_dir=C_FILES,
    )  # fmt: skip
    for part in parts:  # what is declared for all of them is in a folder that mypyc does not look in
        part.include_dirs.append(f"{C_FILES}/{SHARED_PART.split('.')[0]}")
    return list(parts)


class OnAllCores(build_ext):
    """setuptools compiles the C files of an extension one after the other, and nearly all are of one."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count()  # the others, which are small

    def build_extensions(self) -> None:
        for part in self.extensions:  # setuptools remembers a folder before it has made it
            for made in (self.get_ext_fullpath(part.name), *(f"{self.build_temp}/{c}" for c in part.sources)):
                Path(made).parent.mkdir(parents=True, exist_ok=True)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            compiled = self.compiler.compile

            def compile_each(sources: Iterable[str], *options: Any, **named: Any) -> list[str]:
                objects = pool.map(lambda source: compiled([source], *options, **named), sources)
                return [made for each in objects for made in each]

            self.compiler.compile = compile_each
            super().build_extensions()


setup(ext_modules=extensions(), cmdclass={"build_ext": OnAllCores})
