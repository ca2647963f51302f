"""A producer and a consumer in a FastAPI service: started and closed with it, the producer shared by all requests.

::

    pip install 'pointsman-client[redis]' fastapi uvicorn
    NAME_SERVERS=127.0.0.1:9876 uvicorn fastapi_service:app --port 8000
    curl -X POST 'http://127.0.0.1:8000/orders/4711?state=paid'
    curl 'http://127.0.0.1:8000/readyz'
"""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException, Request, Response

from pointsman_client import Message, PointsmanError, Producer, PushConsumer, ReceivedMessage
from pointsman_client.redis_streams import RedisStreamsTransport


async def audit(message: ReceivedMessage) -> None:
    print(f"changed: {message.body!r}")


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
    name_servers = os.environ.get("NAME_SERVERS", "127.0.0.1:9876")
    async with (
        Producer(name_servers, transport=RedisStreamsTransport) as app.state.producer,
        PushConsumer(
            name_servers,
            group="audit",
            subscriptions=["orders"],
            listener=audit,
            transport=RedisStreamsTransport,
        ) as app.state.consumer,
    ):
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/orders/{order}", status_code=202)
async def change_order(order: str, state: str, request: Request) -> dict[str, str]:
    producer: Producer = request.app.state.producer
    try:
        result = await producer.send(Message("orders", f"{order} {state}".encode(), tags=state, keys=(order,)))
    except PointsmanError as error:  # no broker accepted it in time, or the topic is unknown
        raise HTTPException(503, str(error)) from error
    return {"message_id": result.message_id, "queue": f"{result.queue.broker_name}:{result.queue.queue_id}"}


@app.get("/readyz")
async def readyz(request: Request, response: Response) -> list[str]:
    consumer: PushConsumer = request.app.state.consumer
    health = consumer.health()
    response.status_code = 200 if health.is_ready else 503
    return list(health.problems)
