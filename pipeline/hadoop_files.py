"""Folders on the file systems that Hadoop knows (hdfs://, s3a://, abfss://, viewfs://, ...), in Python.

    folder = hadoop_path("hdfs://namenode/checkpoints/enrich")     # a Java is started for it, once
    (folder / "metadata").read_text()

As far as the pipeline has a use for it, a HadoopPath is what a pathlib.Path is. Spark itself knows these file
systems: a checkpointLocation, or the folder of a Parquet file, needs nothing of this module. What Hadoop has
to know (a name node, keys of an object store) stands in the core-site.xml of HADOOP_CONF_DIR, jars of a file
system that Spark does not bring along in PYSPARK_SUBMIT_ARGS, as for Spark.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError


class HadoopPath:
    """One file or folder. `jvm` is a view of py4j, `configuration` Hadoop's. Methods raise OSError."""

    def __init__(self, url: str, jvm: Any, configuration: Any) -> None:
        self._url = url.rstrip("/")
        self._jvm = jvm
        self._configuration = configuration

    def __truediv__(self, name: str) -> HadoopPath:
        return HadoopPath(f"{self._url}/{name}", self._jvm, self._configuration)

    def __str__(self) -> str:
        return self._url

    @property
    def name(self) -> str:
        """The last part of it."""
        return self._url.rpartition("/")[2]

    def is_dir(self) -> bool:
        """Whether there is a folder."""
        return bool(
            self._try(lambda files, path: files.exists(path) and files.getFileStatus(path).isDirectory())
        )

    def exists(self) -> bool:
        """Whether there is anything."""
        return bool(self._try(lambda files, path: files.exists(path)))

    def iterdir(self) -> Iterator[HadoopPath]:
        """What the folder has."""
        statuses = self._try(lambda files, path: files.listStatus(path))
        yield from (self / status.getPath().getName() for status in statuses)

    def changed_at_s(self) -> float:
        """A Unix time. Object stores have none for folders: it is 0 there."""
        return float(self._try(lambda files, path: files.getFileStatus(path).getModificationTime())) / 1_000

    def read_text(self, encoding: str = "utf-8") -> str:
        """The content of a file."""
        return self.read_bytes().decode(encoding)

    def read_bytes(self) -> bytes:
        """The content of a file."""

        def read(files: Any, path: Any) -> bytes:
            stream = files.open(path)
            try:
                return bytes(stream.readAllBytes())
            finally:
                stream.close()

        found: bytes = self._try(read)
        return found

    def write_bytes(self, content: bytes) -> None:
        """Replaces the file; its folders are made. Whoever reads sees it whole on an object store; elsewhere
        it grows while it is written: write another name and `rename` it.
        """

        def write(files: Any, path: Any) -> None:
            stream = files.create(path, True)
            try:
                stream.write(content)
            finally:
                stream.close()

        self._try(write)

    def rename(self, target: HadoopPath) -> None:
        """Gives it another name, which nothing has yet."""
        new = self._jvm.org.apache.hadoop.fs.Path(str(target))
        if not self._try(lambda files, path: files.rename(path, new)):
            raise OSError(f"{self}: it was not renamed to {target}: that is there already, or this is not")

    def remove(self) -> None:
        """Removes a file, or a folder with all that it has; harmless where there is none."""
        self._try(lambda files, path: files.delete(path, True))

    def _try(self, act: Any) -> Any:
        try:
            path = self._jvm.org.apache.hadoop.fs.Path(self._url)
            return act(path.getFileSystem(self._configuration), path)
        except Py4JJavaError as error:
            said = str(error.java_exception).splitlines()[0]
            raise OSError(f"{self}: {said}") from None
        except Py4JError as error:
            raise OSError(f"{self}: {error}") from None


def hadoop_path(url: str, spark: Any = None) -> HadoopPath:
    """By the Java of a Spark session, or by one that is started for this process. Raises NoJava, OSError."""
    if spark is not None:
        return HadoopPath(url, spark._jvm, spark._jsc.hadoopConfiguration())
    jvm = _own_jvm()
    return HadoopPath(url, jvm, jvm.org.apache.hadoop.conf.Configuration())


@cache
def _own_jvm() -> Any:
    from pyspark.java_gateway import launch_gateway

    from amqp_broker.pipeline.session import prepare_environment

    prepare_environment()
    return launch_gateway().jvm
