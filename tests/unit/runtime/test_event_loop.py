"""Code that blocks the event loop is named while it does."""

import logging
import threading

from rota.library.rota import Rota


class Heard(logging.Handler):
    def __init__(self):
        super().__init__()
        self.records = []
        self.blocked = threading.Event()

    def emit(self, record):
        if record.getMessage() == "loop.blocked":
            self.records.append(record)
            self.blocked.set()


async def test_a_task_that_blocks_the_loop_is_named():
    heard = Heard()
    logger = logging.getLogger("rota.runtime.event_loop")
    logger.addHandler(heard)
    rota = Rota("memory:")

    @rota.task("blocker")
    async def blocker(run):
        assert heard.blocked.wait(20)

    try:
        async with rota:
            await rota.enqueue("blocker")
            await rota.work(until_idle=True)
    finally:
        logger.removeHandler(heard)
    assert heard.records[0].task == "blocker"
    assert "blocker" in heard.records[0].trace
