"""What is built holds every room, under one name."""

from __future__ import annotations

import ast
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from functools import cache
from pathlib import Path

import pytest

from tests.tidy.sources import ROOMS, ROOT, SHIPPED, python_files, tree, walk

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
# Spark finds a data source by the prefix of its module's name, so this one cannot live under amqp_broker.
SPARK_MODULE = "pyspark_amqp"
PACKAGES: list[str] = PROJECT["tool"]["setuptools"]["packages"]
FOLDERS: dict[str, str] = PROJECT["tool"]["setuptools"]["package-dir"]


def folder_of(package: str) -> str:
    """The real folder of a package, by the longest prefix that package-dir maps."""
    for prefix in sorted(FOLDERS, key=len, reverse=True):
        if package == prefix or package.startswith(prefix + "."):
            return FOLDERS[prefix] + package[len(prefix) :].replace(".", "/")
    raise AssertionError(f"{package} is in no room")


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> tuple[set[str], set[str]]:
    """The names in a wheel and in an sdist of this tree, built offline from a copy."""
    copy, out = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("out")
    rooms = (path for top in ("build_backend", *SHIPPED) for path in walk(ROOT / top))
    for path in [*ROOT.glob("*.*"), ROOT / "LICENSE", *rooms]:
        if path.is_file() and not path.name.startswith("."):
            target = copy / path.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(copy)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    (wheel,), (sdist,) = out.glob("*.whl"), out.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive, tarfile.open(sdist) as tape:
        return set(archive.namelist()), {name.split("/", 1)[-1] for name in tape.getnames()}


def test_the_package_list_names_every_package() -> None:
    """A folder with an __init__.py that the list forgets would be missing from the wheel, exit status 0."""
    inverse = {folder: package for package, folder in FOLDERS.items()}
    found = set()
    for top in SHIPPED:
        for path in walk(ROOT / top):
            if path.name == "__init__.py":
                parts = path.parent.relative_to(ROOT).parts
                found.add(".".join([inverse[parts[0]], *parts[1:]]))
    assert found == set(PACKAGES)


def test_every_room_is_linked_into_the_package() -> None:
    """Editable installs, pytest and mypy resolve amqp_broker.<room> through a relative symlink."""
    for room in ROOMS:
        link = ROOT / "amqp_broker" / room
        assert link.is_symlink() and link.readlink() == Path("..") / room
        assert link.resolve() == ROOT / room


def test_the_wheel_holds_every_module(distributions: tuple[set[str], set[str]]) -> None:
    """Each Python module of each listed package is in the wheel, under its installed name."""
    wheel, _ = distributions
    for package in PACKAGES:
        for path in (ROOT / folder_of(package)).glob("*.py"):
            assert f"{package.replace('.', '/')}/{path.name}" in wheel


def test_the_wheel_has_no_top_level_name_that_is_in_the_way(distributions: tuple[set[str], set[str]]) -> None:
    """A top-level `frames` or `links` would break users, so nothing but our own two names is installed."""
    wheel, _ = distributions
    assert {name.split("/")[0] for name in wheel if ".dist-info/" not in name} == {
        "amqp_broker", SPARK_MODULE
    }  # fmt: skip


def test_the_wheel_is_pure_and_typed(distributions: tuple[set[str], set[str]]) -> None:
    """The default wheel works everywhere: no compiled module, but py.typed."""
    wheel, _ = distributions
    assert not [name for name in wheel if name.endswith(".so")]
    assert "amqp_broker/py.typed" in wheel


def test_data_files_travel_with_their_packages(distributions: tuple[set[str], set[str]]) -> None:
    """A TOML or SQL file beside a shipped module is read at run time, so the wheel holds it; so are the pages
    and scripts of the console.
    """
    wheel, _ = distributions
    for folder in ("templates", "static"):
        for path in (ROOT / "amqp_broker" / "console" / folder).iterdir():
            assert path.relative_to(ROOT).as_posix() in wheel
    for package in PACKAGES:
        for path in (ROOT / folder_of(package)).iterdir():
            if path.suffix in {".toml", ".sql", ".json"}:
                assert f"{package.replace('.', '/')}/{path.name}" in wheel


def test_the_sdist_builds_and_holds_the_rooms(distributions: tuple[set[str], set[str]]) -> None:
    """The wheel above was built from the sdist; it carries the rooms' real folders and the build script."""
    _, sdist = distributions
    assert {f"{room}/__init__.py" for room in ROOMS} | {"setup.py", "pyproject.toml", "LICENSE"} <= sdist


def file_of(module: str) -> str:
    """The file of a module, by its relative name."""
    package, _, name = module.rpartition(".")
    return f"{folder_of(package)}/{name}.py"


def bases_of(node: ast.ClassDef) -> set[str]:
    """The names of the classes that a class inherits from, without their type arguments."""
    named = [base.value if isinstance(base, ast.Subscript) else base for base in node.bases]
    return {base.id for base in named if isinstance(base, ast.Name)}


@cache
def imported(module: ast.Module) -> set[str]:
    """The names that a module imports from the package."""
    froms = [node for node in ast.walk(module) if isinstance(node, ast.ImportFrom)]
    ours = [node for node in froms if (node.module or "").startswith("amqp_broker")]
    return {alias.name for node in ours for alias in node.names}


def test_what_interpreted_classes_inherit_from_allows_it_where_it_is_compiled() -> None:
    """A compiled class refuses interpreted subclasses at run time, unless it is declared to have some."""
    hot = {file_of(module) for module in PROJECT["tool"]["amqp_broker"]["compiled"]}
    compiled = [node for name in hot for node in tree(name).body if isinstance(node, ast.ClassDef)]
    closed = {
        node.name for node in compiled if "mypyc_attr" not in " ".join(map(ast.unparse, node.decorator_list))
    }
    assert len(closed) > 50
    refused = [
        f"{name}: {node.name}({base})"
        for name in python_files()
        if name not in hot
        if imported(tree(name)) & closed
        for node in ast.walk(tree(name))
        if isinstance(node, ast.ClassDef)
        for base in bases_of(node) & closed & imported(tree(name))
    ]
    assert refused == []


def test_what_is_compiled_awaits_nothing_where_an_exception_is_handled() -> None:
    """Behind an await in a `finally`, compiled code raises whatever its caller handles, if nothing of its
    own; in an `except`, what it handles is seen by who comes next.
    """
    names = [file_of(module) for module in PROJECT["tool"]["amqp_broker"]["compiled"]]
    tries = [(name, node) for name in names for node in ast.walk(tree(name)) if isinstance(node, ast.Try)]
    assert len(tries) > 20
    found = [
        f"{name}:{inner.lineno}"
        for name, node in tries
        for part in [*node.finalbody, *node.handlers]
        for inner in ast.walk(part)
        if isinstance(inner, ast.Await | ast.AsyncWith | ast.AsyncFor)
    ]
    assert found == []


def test_the_tree_holds_nothing_that_was_left_there() -> None:
    """At its top stand the rooms, what is about them, and what builds them: no run's files were committed."""
    command = ["git", "-c", "safe.directory=*", "ls-files"]  # whoever made the clone
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    top = {path.split("/")[0] for path in listed.splitlines()}
    about = {"ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "README.md", "SECURITY.md"}
    builds = {".ci", ".gitignore", "MANIFEST.in", "build_backend", "pyproject.toml", "setup.py"}
    assert top == {*SHIPPED, "docs", "examples", "tests", *about, *builds}
