"""A compiled copy of this checkout: `python -m amqp_broker.conformance.load.compiled_tree DIR`.

The shared objects of mypyc land in the copy and never in the tree. It wants a C compiler, mypy and
setuptools.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
LEFT_OUT = (
    "*.so",
    "__pycache__",
    ".git",
    ".venv",
    ".build",
    "build",
    "dist",
    "*.egg-info",
    "*_cache",
    "node_modules",
    "target",
)


def compile_copy(folder: Path) -> Path:
    """Copy the checkout to `folder` and build the listed modules in place there.

    Raises subprocess.CalledProcessError when the build fails.
    """
    ignore = shutil.ignore_patterns(*LEFT_OUT, ".hypothesis")
    shutil.copytree(CHECKOUT, folder, symlinks=True, ignore=ignore, dirs_exist_ok=True)
    environment = {**os.environ, "AMQP_BROKER_COMPILE": "1"}
    command = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
    subprocess.run(command, cwd=folder, env=environment, check=True)
    return folder


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python -m amqp_broker.conformance.load.compiled_tree", description=__doc__
    )
    parser.add_argument("folder", metavar="DIR", type=Path, help="where to make it")
    print(compile_copy(parser.parse_args().folder.resolve()))
