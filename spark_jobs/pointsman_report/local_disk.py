"""Hadoop's local file system without a process per folder.

Hadoop starts ``chmod`` for each folder that it makes, unless its native library is installed, which pyspark does not
have. A table has a folder per day: a `backfill` of 547 days started 25,000 processes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CLASS = "pointsman.LocalDisk"
_SOURCE = """
package pointsman;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

public class LocalDisk extends RawLocalFileSystem {
    public void setPermission(Path path, FsPermission permission) throws IOException {
        if (permission.getStickyBit()) {
            super.setPermission(path, permission);
        } else {
            Files.setPosixFilePermissions(
                pathToFile(path).toPath(), PosixFilePermissions.fromString(permission.toString()));
        }
    }
}
"""


def use_local_disk(spark: SparkSession) -> None:
    """Let the tasks of a local session set permissions of files themselves.

    Java compiles the class with the compiler that Spark has for its queries. Hadoop keeps one instance for all local
    paths of a process, so the class need not be found by name later.
    """
    # PySpark has no public way to Hadoop's file systems.
    jvm: Any = spark._jvm  # noqa: SLF001
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.cook(_SOURCE)
    configuration = jvm.org.apache.hadoop.conf.Configuration(spark._jsc.hadoopConfiguration())  # noqa: SLF001
    configuration.setClassLoader(compiler.getClassLoader())
    configuration.set("fs.file.impl", _CLASS)
    local, systems = jvm.java.net.URI("file:///"), jvm.org.apache.hadoop.fs.FileSystem
    # Spark's start has used Hadoop's own; without it, the next one asked for is kept.
    systems.get(local, configuration).close()
    systems.get(local, configuration)
