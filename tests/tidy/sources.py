"""The project's own files, read once for all the checks of tests/tidy."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("frames", "links", "persistence", "coordinator", "conformance", "pipeline")
SHIPPED = ("amqp_broker", "pyspark_amqp", *ROOMS)
EVERYTHING = (*SHIPPED, "tests", "examples", "docs", "build_backend", ".ci")
TEXT_SUFFIXES = set(".py .md .toml .c .h .js .go .rs .java .json .xml .cfg .in".split()) | {""}
# Folders that other toolchains fill in a working tree; none of them is ever committed, nor is one with a dot.
FOREIGN = {"__pycache__", "node_modules", "target", "build", "dist", "vendor"}


def walk(folder: Path) -> Iterator[Path]:
    """All files below a folder, without caches, and without following the links to the rooms."""
    for path in sorted(folder.iterdir()):
        if path.is_symlink() or path.name in FOREIGN or path.is_dir() and path.name.startswith("."):
            continue
        if path.is_dir():
            yield from walk(path)
        else:
            yield path


@cache
def text_files() -> dict[str, str]:
    """Every text file of the project by its relative name."""
    paths = [path for path in ROOT.iterdir() if path.is_file() and path.suffix in TEXT_SUFFIXES]
    for name in EVERYTHING:
        if (ROOT / name).is_dir():
            paths += [path for path in walk(ROOT / name) if path.suffix in TEXT_SUFFIXES]
    return {path.relative_to(ROOT).as_posix(): path.read_text(errors="replace") for path in paths}


@cache
def python_files(*folders: str) -> dict[str, str]:
    """Every Python module below the named folders (all of them by default) by its relative name."""
    chosen = folders or EVERYTHING
    return {
        name: text
        for name, text in text_files().items()
        if name.endswith(".py") and (name.split("/")[0] in chosen or "/" not in name and not folders)
    }


@cache
def tree(name: str) -> ast.Module:
    """The syntax tree of one module. It is kept, so the collector of garbage need not look at it."""
    gc.disable()
    try:
        return ast.parse(text_files()[name], name)
    finally:
        gc.freeze()
        gc.enable()


@cache
def functions(name: str) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Every function and method of one module."""
    nodes = ast.walk(tree(name))
    return [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
