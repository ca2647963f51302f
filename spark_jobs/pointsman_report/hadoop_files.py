"""File operations on any file system that Hadoop supports."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

_BUFFER = 65_536
_OBJECT_STORES = ("s3a",)
_IF_ABSENT = "fs.option.create.conditional.overwrite"
_IF_ETAG = "fs.option.create.conditional.overwrite.etag"


@dataclass(frozen=True, slots=True)
class RawFile:
    """A file of raw history."""

    path: str
    modified_at: datetime
    size: int


def absolute(path: str) -> str:
    """Return a local path as absolute: Hadoop may use another working directory."""
    return path if "://" in path or path.startswith("file:") else str(Path(path).absolute())


class Files:
    """Lists, makes, moves and deletes files."""

    def __init__(self, spark: SparkSession) -> None:
        # PySpark has no public way to list or move files on the paths that it reads.
        jvm: Any = spark._jvm  # noqa: SLF001
        self._jvm = jvm
        self._to_path = jvm.org.apache.hadoop.fs.Path
        self._configuration = spark._jsc.hadoopConfiguration()  # noqa: SLF001

    def _path(self, path: str) -> tuple[Any, Any]:
        hadoop_path = self._to_path(path)
        return hadoop_path, hadoop_path.getFileSystem(self._configuration)

    def exists(self, path: str) -> bool:
        hadoop_path, system = self._path(path)
        return bool(system.exists(hadoop_path))

    def local(self, path: str) -> Path | None:
        """Return the path for Python's own file functions if it is local, else None."""
        if path.startswith("/") and self._is_local_by_default:
            return Path(path)
        hadoop_path, system = self._path(path)
        return Path(hadoop_path.toUri().getPath()) if system.getUri().getScheme() == "file" else None

    @cached_property
    def _is_local_by_default(self) -> bool:
        """Whether paths without a scheme are local; Java is asked once, and not for each of thousands of folders."""
        _, system = self._path("/")
        return bool(system.getUri().getScheme() == "file")

    def is_object_store(self, path: str) -> bool:
        """Return whether a file appears there complete, by one request, and folders cannot be moved."""
        _, system = self._path(path)
        return system.getUri().getScheme() in _OBJECT_STORES

    def walk_if_any(self, path: str) -> Iterator[RawFile]:
        """List the files below a folder that may not exist."""
        return self.walk(path) if self.exists(path) else iter(())

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
        """Return the names in a folder; empty if it does not exist."""
        if local := self.local(path):
            return set(os.listdir(local)) if local.exists() else set()
        if not self.exists(path):
            return set()
        hadoop_path, system = self._path(path)
        return {status.getPath().getName() for status in system.listStatus(hadoop_path)}

    def make(self, path: str) -> None:
        hadoop_path, system = self._path(path)
        if not system.mkdirs(hadoop_path):
            raise OSError(f"cannot create the folder {path}")

    def delete(self, path: str) -> None:
        hadoop_path, system = self._path(path)
        system.delete(hadoop_path, True)

    def move(self, source: str, target: str) -> None:
        if (local := self.local(source)) and (local_target := self.local(target)):
            try:
                local.rename(local_target)
            except OSError:
                # A folder linked to another disk, for example: Hadoop copies it, or fails.
                pass
            else:
                return
        source_path, system = self._path(source)
        target_path, _ = self._path(target)
        if not system.rename(source_path, target_path):
            raise OSError(f"cannot move {source} to {target}")

    def create(self, path: str, text: str) -> None:
        """Write a new file; fail if it exists."""
        if self.is_object_store(path):
            self.put(path, text, replaces=None)
            return
        hadoop_path, system = self._path(path)
        stream = system.create(hadoop_path, False)
        try:
            stream.write(bytearray(text.encode()))
            stream.hsync()
        finally:
            stream.close()

    def put(self, path: str, text: str, *, replaces: str | None) -> None:
        """Write an object if it is still the one with this tag, or if there is none. Only for object stores.

        Raises:
            Py4JJavaError: it is not, or the store cannot be reached.
        """
        hadoop_path, system = self._path(path)
        builder = system.createFile(hadoop_path).overwrite(True)
        builder = builder.must(_IF_ABSENT, True) if replaces is None else builder.must(_IF_ETAG, replaces)
        stream = builder.build()
        # Nothing is written before the stream is closed.
        stream.write(bytearray(text.encode()))
        stream.close()

    def etag(self, path: str) -> str | None:
        """Return the tag of an object's content; None if there is no object. Only for object stores."""
        hadoop_path, system = self._path(path)
        return str(system.getFileStatus(hadoop_path).getEtag()) if system.exists(hadoop_path) else None

    def write(self, path: str, text: str) -> None:
        """Replace a file atomically: a reader sees either the old or the new text."""
        if self.is_object_store(path):
            hadoop_path, system = self._path(path)
            stream = system.create(hadoop_path, True)
            stream.write(bytearray(text.encode()))
            stream.close()
            return
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
        """Read a small file; None if it does not exist."""
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
        """Return why a gzip cannot be read to its end; None if it can.

        It is unpacked by the code that Spark uses, at some hundred MB per second; a history file has at most 64 MiB.
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


def _unless_removed(error: OSError) -> None:
    """Ignore folders removed in the meantime; any other error is raised, not treated as an empty folder."""
    if not isinstance(error, FileNotFoundError):
        raise error


def local_files(folder: Path) -> Iterator[RawFile]:
    """List files as Hadoop does, without its five calls to the JVM per file."""
    for parent, _, names in os.walk(folder, followlinks=True, onerror=_unless_removed):
        for name in names:
            path = Path(parent, name)
            try:
                status = path.stat()
            except FileNotFoundError:
                # A name server has compressed or removed it in the meantime.
                continue
            yield RawFile(f"file:{path}", _instant(status.st_mtime_ns // 1_000_000), status.st_size)
