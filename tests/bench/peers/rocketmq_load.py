"""Loads a broker with ``rocketmq-python-client`` through a proxy; runs in an environment that has it.

Argument: the proxy's address. Each line of its input is ``send TOPIC SECONDS IN_FLIGHT``; see Load.java.
"""

import sys
import threading
import time
from concurrent.futures import Future
from typing import Any

from rocketmq import ClientConfiguration, Credentials, Message, Producer

BODY = bytes(100)


def _message(topic: str) -> Any:
    message = Message()
    message.topic = topic
    message.body = BODY
    return message


def _send(producer: Any, topic: str, seconds: float, in_flight: int) -> None:
    free, lock = threading.Semaphore(in_flight), threading.Lock()
    sent = failed = 0

    def ended(future: Future[Any]) -> None:
        nonlocal sent, failed
        with lock:
            if future.exception() is None:
                sent += 1
            else:
                failed += 1
        free.release()

    cpu, began = time.process_time(), time.monotonic()
    while time.monotonic() - began < seconds:
        free.acquire()
        producer.send_async(_message(topic)).add_done_callback(ended)
    for _ in range(in_flight):
        free.acquire()
    print("measured", sent, failed, time.process_time() - cpu, time.monotonic() - began, flush=True)


def main() -> None:
    producer = Producer(ClientConfiguration(sys.argv[1], Credentials()), ())
    producer.startup()
    for line in sys.stdin:
        _, topic, seconds, in_flight = line.split()
        _send(producer, topic, float(seconds), int(in_flight))
    producer.shutdown()


if __name__ == "__main__":
    main()
