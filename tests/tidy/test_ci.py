"""A whole run of `.ci/run`: each step once, some beside others, no failure is lost. Steps are stand-ins."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.tidy.sources import text_files

PROGRAM: Final = text_files()[".ci/run"]
STEPS: Final = re.findall(r"^step_(\w+)\(\) \{", PROGRAM, re.MULTILINE)
LISTS: Final = {
    name: steps.split()
    for name, steps in re.findall(r"^(alone|computing|waiting)=\(([^)]*)\)$", PROGRAM, re.MULTILINE)
}
STAND_IN: Final = r"step_\1() {\n    echo does \1\n    eval ${DOES_\1:-true}\n}\n"
PATIENCE_S: Final = 60


def whole_run(folder: Path, *steps: str, **does: str) -> tuple[int, list[str]]:
    """Its status and what it says; `does`: what a step does, besides saying its name."""
    program = re.sub(r"^step_(\w+)\(\) \{.*?^\}\n", STAND_IN, PROGRAM, flags=re.MULTILINE | re.DOTALL)
    program = re.sub(r"^(need\w*)\(\) \{.*?^\}\n", r"\1() { :; }\n", program, flags=re.MULTILINE | re.DOTALL)
    path = folder / ".ci" / "run"
    path.parent.mkdir()
    path.write_text(program.replace(".venv/bin/pip", "true"))
    path.chmod(0o755)
    done = subprocess.run(
        [path, *steps], env=os.environ | {f"DOES_{step}": what for step, what in does.items()},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=False, timeout=PATIENCE_S,
    )  # fmt: skip
    return done.returncode, done.stdout.splitlines()


def done_in(said: list[str]) -> list[str]:
    """The steps that it began, in the order of their output."""
    return [line.removeprefix("does ") for line in said if line.startswith("does ")]


def test_each_step_is_in_one_list() -> None:
    """What is in none would be run by nobody who asks for all."""
    assert len(STEPS) > 10 and len(LISTS) == 3
    assert sorted(sum(LISTS.values(), [])) == sorted(STEPS)


def test_all_of_them_are_run(tmp_path: Path) -> None:
    """What runs beside is told in one piece when it has ended; the last line but one says all is well."""
    status, said = whole_run(tmp_path)
    assert status == 0, said
    done = done_in(said)
    at = done.index(LISTS["waiting"][0])
    assert done[at : at + len(LISTS["waiting"])] == LISTS["waiting"] and at > len(LISTS["alone"])
    assert [step for step in done if step not in LISTS["waiting"]] == [*LISTS["alone"], *LISTS["computing"]]
    assert re.fullmatch(r"all steps passed in \d+ s", said[-2])
    assert sum(line.startswith("all steps passed") for line in said) == 1


@pytest.mark.parametrize("step", STEPS)
def test_a_failure_is_the_whole_run_s(tmp_path: Path, step: str) -> None:
    """Wherever it is: what the step said is shown, nothing follows it in its list, and all that runs ends."""
    others = {"clients": "sleep 600"} if step in LISTS["computing"] else {}
    status, said = whole_run(tmp_path, **others, **{step: "false"})
    assert status != 0, said
    (steps,) = [steps for steps in LISTS.values() if step in steps]
    assert [each for each in done_in(said) if each in steps] == steps[: steps.index(step) + 1]
    assert not [line for line in said if line.startswith("all steps passed")]


def test_steps_that_are_named_are_run_one_by_one(tmp_path: Path) -> None:
    """In their order, and nothing beside them."""
    status, said = whole_run(tmp_path, "kills", "static")
    assert status == 0 and done_in(said) == ["kills", "static"]
    assert re.fullmatch(r"all steps passed in \d+ s", said[-2])
