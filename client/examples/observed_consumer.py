"""Logs as JSON lines, and traces and metrics by OpenTelemetry: a line of a listener has the trace of its message.

::

    pip install 'pointsman-client[redis,otel]' opentelemetry-sdk
    python observed_consumer.py 127.0.0.1:9876 orders

It sends an order, consumes it, and ends. Spans and metrics are printed here; in production replace the two console
exporters by those of opentelemetry-exporter-otlp.
"""

import argparse
import asyncio
import json
import logging
from datetime import UTC, datetime
from typing import Any

from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter

from pointsman_client import Message, Producer, PushConsumer, ReceivedMessage
from pointsman_client.opentelemetry import OpenTelemetryTracing
from pointsman_client.opentelemetry_metrics import OpenTelemetryMetrics
from pointsman_client.redis_streams import RedisStreamsTransport

logger = logging.getLogger("billing")


class JsonLines(logging.Formatter):
    """A line for each record, those of the library too: its fields, and the trace that it belongs to."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname,
            "logger": record.name,
            "text": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        span = trace.get_current_span().get_span_context()
        if span.is_valid:
            line["trace_id"] = trace.format_trace_id(span.trace_id)
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line)


def set_up() -> None:
    """Called once, before the first producer or consumer is made."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    resource = Resource.create({"service.name": "billing"})
    traces = TracerProvider(resource=resource)
    spans = ConsoleSpanExporter(formatter=lambda span: span.to_json(indent=None) + "\n")
    traces.add_span_processor(BatchSpanProcessor(spans))
    trace.set_tracer_provider(traces)
    exporter = ConsoleMetricExporter(formatter=lambda data: data.to_json(indent=None) + "\n")
    metrics.set_meter_provider(MeterProvider([PeriodicExportingMetricReader(exporter)], resource=resource))


async def main(name_servers: str, topic: str) -> None:
    set_up()
    consumed = asyncio.Event()

    async def bill(message: ReceivedMessage) -> None:
        fields = {"message_id": message.message_id, "keys": message.keys, "attempt": message.reconsume_times + 1}
        logger.info("billed", extra={"fields": fields})
        consumed.set()

    observed: dict[str, Any] = {"tracing_hook": OpenTelemetryTracing(), "metrics_hook": OpenTelemetryMetrics()}
    async with (
        Producer(name_servers, transport=RedisStreamsTransport, **observed) as producer,
        PushConsumer(
            name_servers,
            group="observed",
            subscriptions={topic: "observed"},
            listener=bill,
            transport=RedisStreamsTransport,
            **observed,
        ),
    ):
        with trace.get_tracer("billing").start_as_current_span("order"):
            result = await producer.send(Message(topic, b"4711", tags="observed", keys=("4711",)))
            logger.info("ordered", extra={"fields": {"message_id": result.message_id}})
        await consumed.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("name_servers", "topic"):
        parser.add_argument(name)
    arguments = vars(parser.parse_args())
    asyncio.run(main(**arguments))
