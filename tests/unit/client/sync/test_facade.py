"""Ctrl-C while a call of the facade waits, also when the signal did not wake the thread that waits."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import asyncio, signal, threading
from pointsman_client.sync.facade import Facade

class Nothing:
    async def start(self): pass
    async def close(self): pass

class Waiting(Facade):
    def wait(self):
        async def for_ever():
            threading.Timer(0.2, interrupt).start()
            await asyncio.Event().wait()
        self._wait(for_ever)

def interrupt():
    # To this thread: the main one learns of it when it next runs an instruction.
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)

with Waiting(Nothing(), call_timeout_seconds=60.0) as waiting:
    try:
        waiting.wait()
    except KeyboardInterrupt:
        print("interrupted")
"""


def test_a_wait_without_end_is_interrupted_by_a_signal_that_another_thread_got() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=20, check=False, start_new_session=True
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "interrupted\n", "")
