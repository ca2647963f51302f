"""The jars that the report needs for S3: those of deploy/spark/s3.pom.xml, which its README lists."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import pyspark

SPARK = Path(__file__).parents[3] / "deploy" / "spark"
POM = "{http://maven.apache.org/POM/4.0.0}"


def versions() -> dict[str, str]:
    found = ET.parse(SPARK / "s3.pom.xml").iter(f"{POM}dependency")
    return {f"{each.findtext(f'{POM}groupId')}:{each.findtext(f'{POM}artifactId')}": _version(each) for each in found}


def _version(dependency: ET.Element) -> str:
    return dependency.findtext(f"{POM}version") or ""


def test_s3a_is_of_the_version_of_hadoop_that_pyspark_brings() -> None:
    (bundled,) = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar")
    assert bundled.name == f"hadoop-client-api-{versions()['org.apache.hadoop:hadoop-aws']}.jar"


def test_the_readme_lists_the_versions() -> None:
    text = (SPARK / "README.md").read_text(encoding="utf-8")
    hadoop = versions()["org.apache.hadoop:hadoop-aws"]
    assert f"| PySpark | {pyspark.__version__} | brings Hadoop {hadoop} |" in text
    for artifact, version in versions().items():
        assert f"| `{artifact}` | {version} |" in text
