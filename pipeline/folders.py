"""Files and folders that the pipeline keeps: on this machine, or by a URL on a file system that Hadoop knows.

    folder = folder_of("hdfs://namenode/archive")     # or folder_of("./archive")
    (folder / "archive.json").replace_text("{}")

Both kinds have the same methods. What is on this machine needs neither Java nor Hadoop.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path, PosixPath
from typing import TYPE_CHECKING, BinaryIO, TypeAlias

if TYPE_CHECKING:
    from amqp_broker.pipeline.hadoop_files import HadoopPath


class LocalPath(PosixPath):
    """One file or folder of this machine."""

    def changed_at_s(self) -> float:
        """A Unix time."""
        return self.stat().st_mtime

    def octets(self) -> int:
        """How large the file is."""
        return self.stat().st_size

    def sha256(self) -> str:
        """Of its content, in hexadecimal digits."""
        with self.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def reader(self) -> BinaryIO:
        """The file, to read from any place."""
        return self.open("rb")

    def files(self, ending: str) -> Iterator[LocalPath]:
        """All files below the folder whose names end so."""
        yield from self.rglob(f"*{ending}")

    def replace_text(self, text: str) -> None:
        """Replaces the file: whoever reads sees all of the old text, or all of the new one."""
        new = self.with_name(f"{self.name}.new")
        new.write_text(text, encoding="utf-8")
        os.replace(new, self)

    def remove(self) -> None:
        """Removes a folder with all that it has; harmless where there is none."""
        if self.exists():
            shutil.rmtree(self)


Folder: TypeAlias = "LocalPath | HadoopPath"


def folder_of(text: str | Path) -> Folder:
    """A folder of this machine, or one that a URL names: then the Java of this process's Spark is asked, or
    one is started. Raises NoJava.
    """
    if isinstance(text, Path) or "://" not in text:
        return LocalPath(text)
    from amqp_broker.pipeline.hadoop_files import hadoop_path

    return hadoop_path(text)


def name_within(folder: Folder, path: Folder) -> str:
    """What a path is called from a folder that it is in."""
    return str(path)[len(str(folder)) + 1 :]
