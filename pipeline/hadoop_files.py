"""Folders on the file systems that Hadoop knows (hdfs://, s3a://, abfss://, viewfs://, ...), in Python.

    folder = hadoop_path("hdfs://namenode/checkpoints/enrich")     # a Java is started for it, once
    (folder / "metadata").read_text()

A HadoopPath has the methods of a `folders.LocalPath`. Spark itself knows these file systems: a
checkpointLocation, or the folder of a Parquet file, needs nothing of this module. What Hadoop has to know (a
name node, keys of an object store) stands in the core-site.xml of HADOOP_CONF_DIR, jars of a file system that
Spark does not bring along in PYSPARK_SUBMIT_ARGS, as for Spark.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from functools import cache
from typing import Any, cast

from py4j.protocol import Py4JError, Py4JJavaError

_OVERWRITE = "OVERWRITE"


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

    def replace_text(self, text: str) -> None:
        """Replaces the file: whoever reads sees all of the old text, or all of the new one. A new file
        takes its name; an object store, whose files are whole or not there, is written to.
        """
        new = HadoopPath(f"{self._url}.new", self._jvm, self._configuration)
        new.write_bytes(text.encode())
        hadoop = self._jvm.org.apache.hadoop.fs
        how = self._jvm.java.lang.Class.forName("org.apache.hadoop.fs.Options$Rename")
        options = self._jvm.java.lang.reflect.Array.newInstance(how, 1)
        options[0] = self._jvm.java.lang.Enum.valueOf(how, _OVERWRITE)

        def take_the_name(files: Any, path: Any) -> bool:
            try:
                context = hadoop.FileContext.getFileContext(path.toUri(), self._configuration)
            except Py4JJavaError as error:
                if "UnsupportedFileSystemException" not in str(error.java_exception):
                    raise
                return False
            context.rename(hadoop.Path(str(new)), path, options)
            return True

        if not self._try(take_the_name):
            self.write_bytes(text.encode())
            new.remove()

    def octets(self) -> int:
        """How large the file is."""
        return int(self._try(lambda files, path: files.getFileStatus(path).getLen()))

    def sha256(self) -> str:
        """Of its content, in hexadecimal digits."""

        def digest(files: Any, path: Any) -> str:
            stream = files.open(path)
            try:
                return str(self._jvm.org.apache.commons.codec.digest.DigestUtils.sha256Hex(stream))
            finally:
                stream.close()

        return cast(str, self._try(digest))

    def reader(self) -> _Reader:
        """The file, to read from any place."""
        return _Reader(self._try(lambda files, path: files.open(path)), self.octets())

    def files(self, ending: str) -> Iterator[HadoopPath]:
        """All files below the folder whose names end so."""
        for entry in self.iterdir():
            if entry.is_dir():
                yield from entry.files(ending)
            elif entry.name.endswith(ending):
                yield entry

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


class _Reader(io.RawIOBase):
    """One of Hadoop's streams as a file of Python; each read asks the Java."""

    def __init__(self, stream: Any, octets: int) -> None:
        self._stream, self._octets, self._at = stream, octets, 0

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """The place of the next read."""
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._octets}[whence]
        return self._at

    def tell(self) -> int:
        """The place of the next read."""
        return self._at

    def readinto(self, buffer: Any) -> int:
        """Fills the buffer as far as there is something."""
        try:
            self._stream.seek(self._at)
            found = bytes(self._stream.readNBytes(len(buffer)))
        except Py4JError as error:
            raise OSError(str(error)) from None
        buffer[: len(found)] = found
        self._at += len(found)
        return len(found)

    def close(self) -> None:
        """Closes the stream, too."""
        if not self.closed:
            self._stream.close()
        super().close()


def hadoop_path(url: str, spark: Any = None) -> HadoopPath:
    """By the Java of a Spark session: the one given or the one that runs in this process; else by a Java that
    is started for it. Raises NoJava, OSError.
    """
    from pyspark.sql import SparkSession

    spark = spark or SparkSession.getActiveSession()
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
