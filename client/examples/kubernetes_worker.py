"""A consumer under Kubernetes: probes over HTTP, and an end that finishes what it has begun.

::

    python kubernetes_worker.py 127.0.0.1:9876 orders 127.0.0.1:8000
    curl 'http://127.0.0.1:8000/readyz'

On SIGTERM it is not ready any longer, pulls no further messages, finishes those in flight within CLOSE_SECONDS,
commits and leaves the group, whose other members take over its queues. preStop lets traffic over HTTP end first, which
a pure consumer does not need. Of the pod::

    terminationGracePeriodSeconds: 60  # more than preStop and CLOSE_SECONDS together
    containers:
    - name: worker
      args: ["python", "kubernetes_worker.py", "namesrv:9876", "orders", "0.0.0.0:8000"]
      readinessProbe: {httpGet: {path: /readyz, port: 8000}, periodSeconds: 5}
      livenessProbe: {httpGet: {path: /livez, port: 8000}, periodSeconds: 10, failureThreshold: 6}
      lifecycle: {preStop: {sleep: {seconds: 5}}}
"""

import argparse
import asyncio
import signal

from pointsman_client import PushConsumer, ReceivedMessage
from pointsman_client.redis_streams import RedisStreamsTransport

CLOSE_SECONDS = 40.0
"""Half of it is for messages in flight."""
WORK_SECONDS = 3.0


async def work(message: ReceivedMessage) -> None:
    print(f"began {message.body.decode()}", flush=True)
    await asyncio.sleep(WORK_SECONDS)
    print(f"finished {message.body.decode()}", flush=True)


async def main(name_servers: str, topic: str, probes: str) -> None:
    stop = asyncio.Event()
    for each in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(each, stop.set)
    consumer = PushConsumer(
        name_servers,
        group="workers",
        subscriptions=[topic],
        listener=work,
        transport=RedisStreamsTransport,
        close_timeout_seconds=CLOSE_SECONDS,
    )

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readline()
        # /livez: the loop runs. A worker that is not ready is not restarted: that helps no broker that is down.
        problems = consumer.health().problems if b" /readyz " in request else ()
        body = "; ".join(problems).encode()
        status = b"503 Service Unavailable" if problems else b"200 OK"
        writer.write(b"HTTP/1.0 %s\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body))
        await writer.drain()
        writer.close()

    host, _, port = probes.rpartition(":")
    # Probes are answered until the consumer is closed.
    async with await asyncio.start_server(respond, host, int(port)), consumer:
        await stop.wait()
        print("draining", flush=True)
    print("drained", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("name_servers", "topic", "probes"):
        parser.add_argument(name)
    arguments = vars(parser.parse_args())
    asyncio.run(main(**arguments))
