"""The laws of the rooms, as import-linter contracts, and that they can fail."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import grimp
import pytest
from mypy.graph_utils import strongly_connected_components

from tests.tidy.rooms_contract import RoomsContract
from tests.tidy.sources import ROOT

RULES = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
CONTRACT = RoomsContract(
    name="rooms",
    session_options={"root_packages": ["amqp_broker"]},
    contract_options=next(rules for rules in RULES if rules["type"] == "rooms"),
)

ENGINE = "amqp_broker.links."  # of a connection: one thing in several files, the only one


def test_the_contracts_are_kept() -> None:
    """`lint-imports` is content: layers, siblings, the shell's own imports, doors."""
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("importer", "imported"),
    [
        ("amqp_broker.links.session", "amqp_broker.frames.codec"),
        ("amqp_broker.broker", "amqp_broker.persistence.schema"),
        ("amqp_broker.frames.codec", "amqp_broker.configuration"),
        ("amqp_broker.links", "amqp_broker"),
        ("amqp_broker.broker", "amqp_broker.conformance"),
        ("amqp_broker.coordinator", "amqp_broker.persistence.sqlite"),
        ("amqp_broker.links.session", "amqp_broker.frames.columns"),
        ("amqp_broker.broker", "amqp_broker.frames.columns"),
        ("amqp_broker.links.session", "amqp_broker.frames.generated"),
    ],
)
def test_an_import_around_the_door_is_objected_to(importer: str, imported: str) -> None:
    """Each way around the laws has its sentence."""
    assert CONTRACT.objection(importer, imported)


@pytest.mark.parametrize(
    ("importer", "imported"),
    [
        ("amqp_broker.links.session", "amqp_broker.frames"),
        ("amqp_broker.broker", "amqp_broker.persistence.sqlite"),
        ("amqp_broker.broker", "amqp_broker.links"),
        ("amqp_broker.links.session", "amqp_broker.frames.hot_frames"),
        ("amqp_broker.pipeline.rows", "amqp_broker.frames.columns"),
        ("amqp_broker.frames.codec", "amqp_broker.frames.limits"),
        ("amqp_broker.conformance.runner", "amqp_broker.testing"),
        ("amqp_broker.broker", "trio"),
    ],
)
def test_an_import_through_the_door_is_not(importer: str, imported: str) -> None:
    """What the laws allow stays allowed."""
    assert CONTRACT.objection(importer, imported) is None


def test_no_circle_of_imports_but_the_engine() -> None:
    """A file is read without those that use it: what two need stands below both (imports for types count)."""
    graph = grimp.build_graph("amqp_broker", cache_dir=None)
    edges = {module: list(graph.find_modules_directly_imported_by(module)) for module in graph.modules}
    assert len(edges) > 400
    circles = [sorted(found) for found in strongly_connected_components(set(edges), edges) if len(found) > 1]
    (engine,) = circles
    assert all(module.startswith(ENGINE) for module in engine)
