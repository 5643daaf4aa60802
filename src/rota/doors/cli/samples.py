"""The sample tasks of `rota up --samples`."""

from __future__ import annotations

from datetime import timedelta

from rota.flow.define.schedules import Wish
from rota.flow.define.tasks import put_task
from rota.model.tasks import After, Policy, Retry
from rota.ports.store import Store
from rota.rules.permission import LOCAL

PLAIN = Policy(metered=False)
TRIED_TWICE = Policy(metered=False, retry=Retry(attempts=2, base=timedelta(seconds=1)))


async def create_samples(store: Store) -> None:
    """Create the sample tasks, unless there are tasks already."""
    if await store.list_tasks(None):
        return
    for name, call, title, every, policy in (
        ("hello", "hello", "Says hello", "2s", PLAIN),
        ("count", "count_words", "Counts words, in a thread", "5s", PLAIN),
        ("flaky", "flaky", "Fails once, then succeeds", "8s", TRIED_TWICE),
    ):
        await put_task(
            store,
            LOCAL,
            name,
            title=title,
            route="python",
            spec={"call": f"rota.samples:{call}"},
            policy=policy,
            wish=Wish(every=every),
        )
    await put_task(
        store,
        LOCAL,
        "summary",
        title="Tells what count returned",
        route="python",
        spec={"call": "rota.samples:summary"},
        policy=PLAIN,
        after=After(task="count"),
    )
