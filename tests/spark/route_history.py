"""A night of two name servers and a topic, written as raw history, and the sources that a query may read."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from pointsman_report.io import History, SparkPast, Warehouse
from pointsman_report.schemas import TABLES
from tests.spark.histories import MIDNIGHT, NameServer, Row, broker, moment, write_history

TOPIC = 'orders "of" {all}'
"""Characters with a special meaning in JSON and JSON paths."""
A, A_SLAVE, B, OTHER = broker("a"), broker("a", broker_id=1), broker("b"), broker("x")
FIRST, LAST = MIDNIGHT.date() - timedelta(days=1), MIDNIGHT.date()
NIGHT = 3 * 3_600.0
"""When it happened, in seconds of the day."""


def rows() -> list[Row]:
    """b is lost at NIGHT and back ten minutes later; a shut down gracefully and its slave remained."""
    servers = [NameServer(node=f"ns{n}:9876").start(moment(3_600 * 20, day=-1)) for n in (1, 2)]
    for late, server in enumerate(servers):
        for about in (A, A_SLAVE, B, OTHER):
            server.say("REGISTERED", moment(3_600 * 20 + 5, day=-1), about, data_version="0.0.1")
            _topics(server, about, -3_600.0)
        server.say("NAMESRV_ALIVE", moment(-30))
        server.say(
            "MAINTENANCE_ON", moment(NIGHT - 600), _group("a"), reason="ADMIN", detail={"note": "disk", "by": "me"}
        )
        server.say("UNREGISTERED", moment(NIGHT - 500), A, reason="SHUTDOWN", interval_ms=4_000)
        server.say("EXPIRED", moment(NIGHT + 2 * late), B, reason="SILENCE", interval_ms=121_000 + 1_000 * late)
        server.say("EXPIRED", moment(NIGHT), OTHER, reason="SILENCE", interval_ms=121_000)
        server.say("REGISTERED", moment(NIGHT + 600 + late), B, data_version="0.0.1")
        _topics(server, B, NIGHT + 600 + late)
        server.say("NAMESRV_ALIVE", moment(NIGHT + 3_600))
    servers[1].say("TOPICS", moment(NIGHT + 3_700), B, data_version="0.0.2", detail={"part": "?", "topics": [7]})
    return [row for server in servers for row in server.rows]


def _group(name: str) -> Row:
    return {"cluster": "c1", "broker_name": name, "broker_id": None}


def _topics(server: NameServer, about: Row, at: float) -> None:
    """A set in two parts; the topic is in the second, except on the one broker that lacks it."""
    own = {} if about is OTHER else {TOPIC: [4, 8, 6, 0]}
    for part, topics in ((1, {"unrelated": [1, 1, 6, 0]}), (2, own)):
        detail: dict[str, Any] = {"part": part, "parts": 2, "full": True, "topics": topics, "removed": []}
        server.say("TOPICS", moment(at), about, data_version="0.0.1", detail=detail)


def files(spark: SparkSession, folder: Path) -> SparkPast:
    return SparkPast(history=History(spark, [str(write_history(folder / "history", rows()))]))


def tables(spark: SparkSession, folder: Path) -> SparkPast:
    """A warehouse with the same rows and an incident."""
    warehouse = Warehouse(spark, str(folder / "warehouse"))
    warehouse.stage("registration_events", files(spark, folder).events(FIRST, LAST))
    incident = {
        "dt": LAST,
        "incident_id": "i-1",
        "cluster": "c1",
        "scope": "zone",
        "scope_name": "z1",
        "from_at": moment(NIGHT),
        "brokers": 3,
    }
    schema = TABLES["incidents"].schema
    incidents = [tuple(incident.get(name) for name in schema.names)]
    warehouse.stage("incidents", spark.createDataFrame(incidents, schema))
    warehouse.publish(first_day=FIRST, last_day=LAST)
    return SparkPast(warehouse=Warehouse(spark, str(folder / "warehouse")))
