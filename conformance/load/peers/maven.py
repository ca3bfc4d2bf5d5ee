"""Java programs from Maven's repository: the class path of pinned artifacts."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

import attrs

from amqp_broker.conformance.load.peers.peer import NotThereError, Program

PLUGIN: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:build-classpath"
FETCH_S: Final = 600.0
ANY: Final = "<groupId>*</groupId><artifactId>*</artifactId>"
NOTHING_WITH_IT: Final = f"<exclusions><exclusion>{ANY}</exclusion></exclusions>"


@attrs.frozen
class Artifact:
    """A jar of Maven's repository; `alone` without what it depends on."""

    group: str
    name: str
    version: str
    alone: bool = False


def project_of(artifacts: tuple[Artifact, ...]) -> str:
    """A project (pom.xml) that depends on these and builds nothing."""
    dependencies = "\n".join(
        f"    <dependency><groupId>{escape(artifact.group)}</groupId><artifactId>{escape(artifact.name)}"
        f"</artifactId><version>{escape(artifact.version)}</version>"
        f"{NOTHING_WITH_IT if artifact.alone else ''}</dependency>"
        for artifact in artifacts
    )
    return f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>load</groupId>
  <artifactId>peer</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""


def java_program(
    folder: Path, artifacts: tuple[Artifact, ...], options: tuple[str, ...], command: tuple[str, ...]
) -> Program:
    """`command`, a main class and its arguments, in a Java machine with these options and artifacts.

    Raises NotThereError where Java, Maven or an artifact cannot be had.
    """
    for tool in ("java", "mvn"):
        if shutil.which(tool) is None:
            raise NotThereError(f"{tool} is missing (Debian: openjdk-17-jre-headless, maven)")
    project, found = folder / "pom.xml", folder / "class-path"
    project.write_text(project_of(artifacts))
    fetch = ["mvn", "--batch-mode", "--quiet", "-f", str(project), PLUGIN, f"-Dmdep.outputFile={found}"]
    try:
        fetched = subprocess.run(
            fetch, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=FETCH_S
        )
    except subprocess.TimeoutExpired:
        raise NotThereError(f"Maven took more than {FETCH_S:.0f} s") from None
    if fetched.returncode:
        raise NotThereError(f"Maven has not got it: {fetched.stdout[:500]}")
    return Program(("java", *options, "-cp", found.read_text().strip(), *command))
