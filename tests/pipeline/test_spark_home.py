"""Where Spark is started from, with packages made of files, and what is kept in the user's cache for it."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from amqp_broker.pipeline import spark_home as module
from amqp_broker.pipeline.spark_home import ARCHIVES, LINKED, found_by_python, set_spark_home, spark_home
from amqp_broker.pipeline.user_cache import cached_file, kept_links


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pyspark that each Python process finds, with all that an installed one has."""
    folder = tmp_path / "packages" / "pyspark"
    for name in ("bin", "jars", "sbin", "python/lib", "sql"):
        (folder / name).mkdir(parents=True)
    for name in ("bin/spark-submit", "python/lib/pyspark.zip", "python/lib/py4j-1-src.zip", "__init__.py"):
        (folder / name).touch()
    monkeypatch.setenv("PYTHONPATH", str(folder.parent))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv(ARCHIVES, "")  # so that it is as it was afterwards
    monkeypatch.delenv(ARCHIVES)
    return folder


def links_of(home: Path | None) -> dict[str, str]:
    """What is in a folder of links; it is one."""
    assert home is not None
    return {each.name: os.readlink(each) for each in home.iterdir()}


def test_all_but_the_python_of_the_package(package: Path, tmp_path: Path) -> None:
    """In the user's cache, found again; a folder of settings that is put there is linked, too."""
    home = spark_home(package)
    assert links_of(home) == {name: str(package / name) for name in ("bin", "jars", "sbin")}
    assert home is not None and home.is_relative_to(tmp_path / "cache")
    assert spark_home(package) == home
    (package / "conf").mkdir()
    assert set(links_of(spark_home(package))) == set(LINKED)


def test_a_package_that_moved_has_a_folder_of_its_own(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one of the old place leads nowhere: nobody is sent there, and it does not stay."""
    before = spark_home(package)
    moved = package.parent.rename(tmp_path / "elsewhere") / "pyspark"
    monkeypatch.setenv("PYTHONPATH", str(moved.parent))
    assert spark_home(package) is None
    after = spark_home(moved)
    assert after != before and links_of(after)["jars"] == str(moved / "jars")
    assert list((tmp_path / "cache" / "amqp-broker").iterdir()) == [after], "the old one is removed"


def test_spoilt_links_are_made_anew(package: Path) -> None:
    """One that is gone, and one that leads elsewhere."""
    home = spark_home(package)
    assert home is not None
    (home / "bin").unlink()
    (home / "jars").unlink()
    (home / "jars").symlink_to(package / "sql")
    assert spark_home(package) == home
    assert links_of(home) == {name: str(package / name) for name in ("bin", "jars", "sbin")}


def test_a_link_is_never_missing_while_it_is_made_anew(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program may be about to start Spark from there."""
    home = spark_home(package)
    assert home is not None
    (home / "jars").unlink()
    (home / "jars").symlink_to(package / "sql")
    there, make = [], Path.symlink_to

    def making(link: Path, target: Path) -> None:
        there.append(os.path.lexists(home / "jars"))
        make(link, target)

    monkeypatch.setattr(Path, "symlink_to", making)
    spark_home(package)
    assert there == [True] and os.readlink(home / "jars") == str(package / "jars")


def test_programs_that_start_at_once_make_one_folder(package: Path, tmp_path: Path) -> None:
    """Nobody fails, nothing is left over; whoever has been told of the folder finds all of it there."""
    targets, faults = {name: package / name for name in ("bin", "jars", "sbin")}, []
    together = threading.Barrier(8)

    def program() -> None:
        together.wait(10)
        try:
            for number in range(20):
                home = kept_links(f"spark-{number}", targets, tmp_path / "cache")
                if not all((home / name).is_dir() for name in targets):
                    faults.append("a link was missing")
        except OSError as error:
            faults.append(str(error))

    threads = [threading.Thread(target=program) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    homes = list((tmp_path / "cache").iterdir())
    assert len(homes) == 20
    assert all(links_of(home) == {name: str(package / name) for name in targets} for home in homes)


def test_what_cannot_be_kept_is_left_to_spark(package: Path, tmp_path: Path) -> None:
    """A cache that is a file; a file with settings is made for this process only."""
    (tmp_path / "cache").touch()
    assert spark_home(package) is None
    assert cached_file("log4j2", "properties", "a = b").read_text() == "a = b"


def test_spark_finds_its_home_where_the_package_is_no_whole_one(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkout has no jars in its package, pip may have been told to fetch another Spark, and what only
    the path of this process has no worker would find.
    """
    (package / "spark-distribution").mkdir()
    assert spark_home(package) is None
    (package / "spark-distribution").rmdir()
    (package / "bin" / "spark-submit").unlink()
    assert spark_home(package) is None
    (package / "bin" / "spark-submit").touch()
    assert spark_home(package) is not None
    monkeypatch.setenv("PYTHONPATH", os.path.relpath(package.parent))
    assert not found_by_python(package.parent) and spark_home(package) is None


def test_the_environment_names_it(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Instead of another Spark; YARN is told where the zips are, if it has not been told."""
    monkeypatch.setattr(module, "installed_package", lambda: package)
    monkeypatch.setenv("SPARK_HOME", "/elsewhere")
    set_spark_home()
    assert links_of(Path(os.environ["SPARK_HOME"])).keys() == {"bin", "jars", "sbin"}
    zips = package / "python" / "lib"
    assert os.environ[ARCHIVES] == f"{zips / 'py4j-1-src.zip'},{zips / 'pyspark.zip'}"
    monkeypatch.setenv(ARCHIVES, "mine.zip")
    set_spark_home()
    assert os.environ[ARCHIVES] == "mine.zip"
    monkeypatch.setattr(module, "installed_package", lambda: None)
    set_spark_home()
    assert "SPARK_HOME" not in os.environ
