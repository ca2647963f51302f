"""Which callers share a flight, and which must not."""

from __future__ import annotations

import asyncio

from pointsman_client.aio import SingleFlight


async def test_a_rerun_gets_the_result_of_a_flight_that_began_later() -> None:
    flights: SingleFlight[int] = SingleFlight()
    landed, begun = asyncio.Event(), 0

    async def fly() -> int:
        nonlocal begun
        begun += 1
        number = begun
        await landed.wait()
        return number

    first = asyncio.create_task(flights.do("orders", fly))
    await asyncio.sleep(0)
    joined = asyncio.create_task(flights.do("orders", fly))
    reruns = [asyncio.create_task(flights.rerun("orders", fly)) for _ in range(2)]
    await asyncio.sleep(0)
    assert begun == 1
    landed.set()

    assert [await first, await joined] == [1, 1]
    assert [await task for task in reruns] == [2, 2]
    assert begun == 2
