"""Where Spark is started from: what it calls SPARK_HOME.

Spark puts `SPARK_HOME/python/lib/pyspark.zip` first on the path of each Python process that it starts, and
modules of a zip are compiled anew by each of them: a second of processor time before a process says a word,
on a busy machine more than the ten seconds that Spark waits for that word, by no setting longer. An installed
package is on the path anyway, compiled. So its SPARK_HOME is a folder in the user's cache with links to what
Spark looks for in the package, all but `python`. Only YARN wants the zips: it sends them to its nodes.
"""

from __future__ import annotations

import os
import site
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from amqp_broker.pipeline.user_cache import kept_links

LINKED: Final = ("bin", "conf", "jars", "sbin")
"""What Spark looks for in its home: programs, settings that a user may have put there, classes."""
NEEDED: Final = ("bin/spark-submit", "jars")
OTHER: Final = "spark-distribution"
"""In the package: another Spark, which pip was told to fetch, and which pyspark prefers."""
ARCHIVES: Final = "PYSPARK_ARCHIVES_PATH"
"""Names the zips to YARN, which looks for them in SPARK_HOME otherwise."""


def set_spark_home() -> None:
    """Sets SPARK_HOME, and ARCHIVES where it is not set, for the Spark that this process starts."""
    # A Spark of another version may be named by the shell's settings.
    os.environ.pop("SPARK_HOME", None)
    package = installed_package()
    links = spark_home(package) if package is not None else None
    if package is not None and links is not None:
        os.environ["SPARK_HOME"] = str(links)
        zips = sorted((package / "python" / "lib").glob("*.zip"))
        os.environ.setdefault(ARCHIVES, ",".join(map(str, zips)))


def installed_package() -> Path | None:
    """The folder of the pyspark that this Python imports, None where there is none."""
    found = find_spec("pyspark")
    return None if found is None or found.origin is None else Path(found.origin).absolute().parent


def spark_home(package: Path) -> Path | None:
    """The folder of links for this package, in the user's cache. None where Spark has to find its home by
    itself: not every Python process finds the package, it has no Spark in it, or the folder cannot be made.
    """
    if (package / OTHER).exists() or not all((package / name).exists() for name in NEEDED):
        return None
    if not found_by_python(package.parent):
        return None
    targets = {name: package / name for name in LINKED if (package / name).exists()}
    try:
        return kept_links("spark", targets)
    except OSError:
        return None


def found_by_python(folder: Path) -> bool:
    """Whether each process of this Python finds modules of the folder, wherever it is started."""
    return folder.resolve() in {Path(each).resolve() for each in _everywhere()}


def _everywhere() -> Iterable[str]:
    yield from site.getsitepackages()
    if site.ENABLE_USER_SITE:
        yield site.getusersitepackages()
    yield from filter(os.path.isabs, os.environ.get("PYTHONPATH", "").split(os.pathsep))
