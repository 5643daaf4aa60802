"""A program against the public API that must type-check."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from rota.executors.inprocess.run_context import RunContext
from rota.library.rota import Rota
from rota.model.ids import RunId
from rota.model.runs import Run
from rota.model.spaces import Limit, LimitScope
from rota.model.tasks import CatchUp, Retry
from rota.runtime.worker import RunFailure


def noticed(failure: RunFailure) -> None:
    print(failure.task, failure.error)


rota = Rota(
    "sqlite:///typed.db",
    slots=10,
    limits=[Limit(scope=LimitScope.GROUP, key="api", rate=10, period=timedelta(minutes=1))],
    on_failure=noticed,
)


@rota.task("report", retry=Retry(attempts=3), timeout="10m", catch_up=CatchUp(cap=3))
async def report(run: RunContext) -> dict[str, object]:
    answer: str = await run.ask("Go on?", options=("yes", "no"))
    run.send(answer, to="log:me")
    return {"payload": run.payload, "planned": str(run.slot_at)}


@rota.task("load", after="report", on="any")
def load(run: RunContext) -> None:
    print(run.attempt, run.key, run.task)


async def main() -> None:
    async with rota:
        run_id: RunId = await rota.enqueue("report", {"day": "today"}, key="today")
        ids: list[RunId] = await rota.enqueue_many("report", [1, 2, 3], priority=5)
        await rota.enqueue("load", at=datetime(2027, 1, 1, tzinfo=UTC))
        await rota.schedule("report", cron="0 7 * * mon-fri", timezone="Europe/Berlin")
        await rota.schedule("report", name="often", every=timedelta(minutes=5), jitter="10s")
        await rota.work(until_idle=True)
        run: Run = await rota.run(run_id)
        print(run.state, ids, [question.options for question in await rota.questions(run_id)])


with rota.blocking() as blocking:
    first: RunId = blocking.enqueue("report")
    blocking.work(until_idle=True)
