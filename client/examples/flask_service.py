"""A producer and a consumer in a Flask service, with the blocking classes; the producer is shared by all requests.

::

    pip install 'pointsman-client[redis]' flask
    NAME_SERVERS=127.0.0.1:9876 flask --app flask_service run --port 8000
    curl -X POST 'http://127.0.0.1:8000/orders/4711?state=paid'
    curl 'http://127.0.0.1:8000/readyz'

A server with worker processes calls create_app in each of them, unless it loads the application before it forks
(gunicorn's --preload): producers and consumers must be started after the fork.
"""

import atexit
import os

from flask import Flask, request
from flask.typing import ResponseReturnValue

from pointsman_client import Message, PointsmanError, ReceivedMessage
from pointsman_client.redis_streams import RedisStreamsTransport
from pointsman_client.sync import Producer, PushConsumer


def audit(message: ReceivedMessage) -> None:
    print(f"changed: {message.body!r}", flush=True)


def create_app() -> Flask:
    name_servers = os.environ.get("NAME_SERVERS", "127.0.0.1:9876")
    producer = Producer(name_servers, transport=RedisStreamsTransport)
    consumer = PushConsumer(
        name_servers, group="audit", subscriptions=["orders"], listener=audit, transport=RedisStreamsTransport
    )
    for each in (producer, consumer):
        each.start()
        atexit.register(each.close)

    app = Flask(__name__)

    @app.post("/orders/<order>")
    def change_order(order: str) -> ResponseReturnValue:
        state = request.args["state"]
        try:
            result = producer.send(Message("orders", f"{order} {state}".encode(), tags=state, keys=(order,)))
        except PointsmanError as error:  # no broker accepted it in time, or the topic is unknown
            return {"error": str(error)}, 503
        return {"message_id": result.message_id, "queue": f"{result.queue.broker_name}:{result.queue.queue_id}"}, 202

    @app.get("/readyz")
    def readyz() -> ResponseReturnValue:
        health = consumer.health()
        return list(health.problems), 200 if health.is_ready else 503

    return app
