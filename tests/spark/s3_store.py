"""An S3 API on loopback, and what Spark needs to use it: moto's server as a process, S3A's jars from Maven Central."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from pointsman_report.io.day_objects import MANIFEST

ROOT = Path(__file__).parents[2]
POM = ROOT / "deploy" / "spark" / "s3.pom.xml"
MOTO = "moto[server]==5.2.5"
NEWEST = "2026-11-28"
"""Packages of that day at the latest: later ones may break this moto."""
BUCKET = "pointsman"
SETTLED_SECONDS = 3.0
"""More than listings lag in `s3_program`."""
PROGRAM = Path(__file__).with_name("s3_program.py")


@dataclass(frozen=True)
class Store:
    """A running server with one bucket."""

    url: str
    log: Path
    jars: str
    """The class path of S3A."""

    def settings(self) -> dict[str, str]:
        """Return Spark's settings for it."""
        s3a = {
            "endpoint": self.url,
            "endpoint.region": "us-east-1",
            "path.style.access": "true",
            "access.key": "any",
            "secret.key": "any",
        }
        classes = dict.fromkeys(("spark.driver.extraClassPath", "spark.executor.extraClassPath"), self.jars)
        return classes | {f"spark.hadoop.fs.s3a.{name}": value for name, value in s3a.items()}

    def put(self, key: str, content: bytes) -> None:
        self._send("PUT", key, content)

    def get(self, key: str) -> bytes | None:
        try:
            return self._send("GET", key)
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise
            return None

    def upload(self, folder: Path, prefix: str) -> None:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                self.put(f"{prefix}/{path.relative_to(folder)}", path.read_bytes())

    def read(self, warehouse: str, target: Path) -> Path:
        """Copy a warehouse to a disk, as a reader sees it: the files that its manifest names, without a listing."""
        shutil.rmtree(target, ignore_errors=True)
        named = [
            f"{table}/dt={day}/{name}"
            for table, days in json.loads(self.get(f"{warehouse}/{MANIFEST}") or b'{"tables":{}}')["tables"].items()
            for day, files in days.items()
            for name in files["sizes"]
        ]
        for name in ["_warehouse.json", *named]:
            content = self.get(f"{warehouse}/{name}")
            assert content is not None, name
            path = target / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return target

    def keys(self, prefix: str) -> list[str]:
        """Return the names below a prefix, once listings show all that was written."""
        time.sleep(SETTLED_SECONDS)
        found = self._send("GET", f"?list-type=2&prefix={prefix}/").decode()
        assert "<IsTruncated>false" in found
        return sorted(key.removeprefix(f"{prefix}/") for key in re.findall("<Key>(.*?)</Key>", found))

    def requests(self) -> list[str]:
        """Return the method and path of every request yet."""
        return self.log.read_text(encoding="utf-8").splitlines()

    def _send(self, method: str, key: str, content: bytes | None = None) -> bytes:
        # Moto checks no signature, but objects are private; and it waits for more of a binary form.
        headers = {"Authorization": "AWS any:any", "Content-Type": "application/octet-stream"}
        request = urllib.request.Request(f"{self.url}/{BUCKET}/{key}", data=content, method=method, headers=headers)
        with urllib.request.urlopen(request, timeout=60.0) as response:
            return bytes(response.read())


def jars() -> str:
    """Return the class path of S3A, from Maven's cache or from Maven Central. Skips where neither has it."""
    if shutil.which("mvn") is None:
        pytest.skip("needs mvn: install Maven (Debian: apt-get install maven)")
    listing = ROOT / ".build" / "s3-classpath"
    listing.parent.mkdir(exist_ok=True)
    command = [
        "mvn",
        "-q",
        "-B",
        "-Dstyle.color=never",
        "-f",
        str(POM),
        "dependency:build-classpath",
        f"-Dmdep.outputFile={listing}",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = next((line.partition("[ERROR] ")[2] for line in done.stdout.splitlines() if "[ERROR] " in line), "")
        pytest.skip(f"Maven cannot provide {POM.name}: {reason}")
    return listing.read_text(encoding="utf-8").strip()


@contextmanager
def s3_store(folder: Path) -> Iterator[Store]:
    """Run a server with an empty bucket; its process has ended afterwards."""
    found = jars()
    environment, log = ROOT / ".build" / "moto", folder / "requests.log"
    uv, python = Path(sys.executable).with_name("uv"), environment / "bin" / "python"
    subprocess.run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, environment], check=True)
    install = [str(uv), "pip", "install", "--quiet", "--python", str(python), "--exclude-newer", NEWEST, MOTO]
    subprocess.run(install, check=True)
    log.touch()
    plain = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with subprocess.Popen([python, PROGRAM, log], stdout=subprocess.PIPE, text=True, env=plain) as process:
        try:
            assert process.stdout is not None
            store = Store(f"http://127.0.0.1:{process.stdout.readline().strip()}", log, found)
            store.put("", b"")
            yield store
        finally:
            process.terminate()
