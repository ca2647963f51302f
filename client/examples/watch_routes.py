"""Print the route of a topic, and each change of it as it happens, until Ctrl-C.

::

    python watch_routes.py 127.0.0.1:9876 orders
"""

import argparse
import asyncio
import contextlib

from pointsman_client import NameServerClient


async def main(name_servers: str, topic: str) -> None:
    async with NameServerClient(name_servers) as client:
        async for change in client.route_changes(topic):
            if change.new is None:
                print(f"{topic} has no route")
                continue
            for broker in change.new.broker_datas:
                replicas = ", ".join(f"{each.broker_id}: {each.addr} {each.state}" for each in broker.replicas)
                print(f"{broker.cluster}/{broker.broker_name} {{{replicas}}}{' (stale)' if change.new.stale else ''}")
            print("--")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("name_servers", "topic"):
        parser.add_argument(name)
    arguments = vars(parser.parse_args())
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(**arguments))
