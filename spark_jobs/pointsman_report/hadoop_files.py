"""The few file operations a run needs, on any file system Hadoop knows."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

_BUFFER = 65_536


@dataclass(frozen=True, slots=True)
class RawFile:
    """A file of raw history as it lies there."""

    path: str
    modified_at: datetime
    size: int


def absolute(path: str) -> str:
    """Name a local path so that it means the same whatever Hadoop takes for the working directory."""
    return path if "://" in path or path.startswith("file:") else str(Path(path).absolute())


class Files:
    """Lists, makes, moves and deletes files."""

    def __init__(self, spark: SparkSession) -> None:
        # PySpark has no public way to list or move files on the paths that it reads.
        self._jvm: Any = spark._jvm  # noqa: SLF001
        self._configuration = spark._jsc.hadoopConfiguration()  # noqa: SLF001

    def _path(self, path: str) -> tuple[Any, Any]:
        hadoop_path = self._jvm.org.apache.hadoop.fs.Path(path)
        return hadoop_path, hadoop_path.getFileSystem(self._configuration)

    def exists(self, path: str) -> bool:
        hadoop_path, system = self._path(path)
        return bool(system.exists(hadoop_path))

    def local(self, path: str) -> Path | None:
        """Return the path as Python opens it, if it lies on this machine."""
        hadoop_path, system = self._path(path)
        return Path(hadoop_path.toUri().getPath()) if system.getUri().getScheme() == "file" else None

    def walk(self, path: str) -> Iterator[RawFile]:
        """List the files below a folder."""
        if local := self.local(path):
            yield from local_files(local)
            return
        hadoop_path, system = self._path(path)
        found = system.listFiles(hadoop_path, True)
        while found.hasNext():
            status = found.next()
            yield RawFile(status.getPath().toString(), _instant(status.getModificationTime()), status.getLen())

    def names_in(self, path: str) -> set[str]:
        """Names in a folder; none if it is not there."""
        if local := self.local(path):
            return set(os.listdir(local)) if local.exists() else set()
        if not self.exists(path):
            return set()
        hadoop_path, system = self._path(path)
        return {status.getPath().getName() for status in system.listStatus(hadoop_path)}

    def make(self, path: str) -> None:
        hadoop_path, system = self._path(path)
        if not system.mkdirs(hadoop_path):
            raise OSError(f"could not make the folder {path}")

    def delete(self, path: str) -> None:
        hadoop_path, system = self._path(path)
        system.delete(hadoop_path, True)

    def move(self, source: str, target: str) -> None:
        source_path, system = self._path(source)
        target_path, _ = self._path(target)
        if not system.rename(source_path, target_path):
            raise OSError(f"could not move {source} to {target}")

    def create(self, path: str, text: str) -> None:
        """Write a new file; an error if there is one already."""
        hadoop_path, system = self._path(path)
        stream = system.create(hadoop_path, False)
        try:
            stream.write(bytearray(text.encode()))
            stream.hsync()
        finally:
            stream.close()

    def write(self, path: str, text: str) -> None:
        """Write a file so that a reader finds the old text or the new one, whole."""
        folder, _, name = path.rpartition("/")
        unfinished = f"{folder}/.{name}.tmp"
        self.delete(unfinished)
        self.create(unfinished, text)
        if (local := self.local(path)) and (source := self.local(unfinished)):
            source.replace(local)
            return
        self.delete(path)
        self.move(unfinished, path)

    def text(self, path: str) -> str | None:
        """Read a small file; None if it is not there."""
        hadoop_path, system = self._path(path)
        if not system.exists(hadoop_path):
            return None
        stream = system.open(hadoop_path)
        try:
            return bytes(stream.readAllBytes()).decode(errors="replace")
        finally:
            stream.close()

    def modified_at(self, path: str) -> datetime:
        hadoop_path, system = self._path(path)
        return _instant(system.getFileStatus(hadoop_path).getModificationTime())

    def gzip_fault(self, path: str) -> str | None:
        """Say why a gzip cannot be read to its end; None if it can.

        It is unpacked by the code that Spark will read it with, at some hundred MB a second: a file of history holds
        64 MiB at most.
        """
        hadoop_path, system = self._path(path)
        codecs = self._jvm.org.apache.hadoop.io.compress.CompressionCodecFactory(self._configuration)
        nowhere = self._jvm.java.io.OutputStream.nullOutputStream()
        try:
            stream = codecs.getCodec(hadoop_path).createInputStream(system.open(hadoop_path))
            self._jvm.org.apache.hadoop.io.IOUtils.copyBytes(stream, nowhere, _BUFFER, True)
        except Py4JJavaError as error:
            fault = error.java_exception
            if fault.getClass().getName() == "java.io.FileNotFoundException":
                raise
            return str(fault.getMessage() or fault.getClass().getSimpleName()).splitlines()[0]
        return None


def _instant(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1_000, tz=UTC)


def _unless_gone(error: OSError) -> None:
    """A folder that may not be listed is a fault, not an empty one."""
    if not isinstance(error, FileNotFoundError):
        raise error


def local_files(folder: Path) -> Iterator[RawFile]:
    """As Hadoop would list it, without five calls of another process for each file."""
    for parent, _, names in os.walk(folder, followlinks=True, onerror=_unless_gone):
        for name in names:
            path = Path(parent, name)
            try:
                status = path.stat()
            except FileNotFoundError:
                # A name server has packed or removed it just now.
                continue
            yield RawFile(f"file:{path}", _instant(status.st_mtime_ns // 1_000_000), status.st_size)
