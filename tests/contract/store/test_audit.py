"""Keys, audit entries, attempts as callers, and what tasks remember."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from rota.errors import Conflict, DryRunRolledBack, Fenced, NotFound, Stale
from rota.model.audit import AttemptIdentity, KeptAnswer, NewAuditEntry
from rota.model.instants import maybe_micros, to_micros
from rota.model.keys import KeyScope, NewKey
from rota.model.runs import Lease
from rota.model.spaces import SpaceRole
from rota.model.tasks import NewTask, Retry, TaskKind
from rota.model.views import TaskFilter
from rota.store.audit import (
    find_attempt_identity,
    find_audit_entry,
    list_audit_entries,
    record_answer,
    record_request,
)
from rota.store.keys import add_key, find_key, list_keys, revoke_key, touch_keys
from rota.store.plans import promote_delayed
from rota.store.settlement import disable_task, enqueue
from rota.store.store import HookedStore, RequestAudit, Store
from rota.store.tasks import (
    count_state,
    drop_schedule,
    drop_state,
    find_task,
    get_seen,
    get_state,
    list_state,
    mark_seen,
    put_state,
    put_task,
    set_space,
)
from rota.store.views import count_runs, find_tasks
from rota.store.workers import prune_runs
from tests.tools.store_bench import Bench, failed

# keys, audit entries and memory

FAR = 2**62


def _audited(store: Store, entry: NewAuditEntry) -> HookedStore:
    return HookedStore(store, RequestAudit(store, entry))


class TestKeys:
    """Keys are kept as digests and found by them."""

    async def _add(self, bench: Bench, digest: str = "d1", space: str = "main") -> int:
        owner = await bench.space(space)
        key = await bench.store.write(
            add_key,
            NewKey(
                space_id=owner.id,
                name="one",
                prefix="rota_1",
                digest=digest,
                role=SpaceRole.MEMBER,
                scopes=frozenset({KeyScope.READ}),
                created_by="ann",
                expires_at=5,
            ),
        )
        assert (key.space, key.name, key.prefix, key.created_by) == (space, "one", "rota_1", "ann")
        assert key.scopes == {KeyScope.READ}
        assert key.used_at is None
        assert key.revoked_at is None
        return key.id

    async def test_a_key_is_found_by_its_digest(self, bench: Bench) -> None:
        key_id = await self._add(bench)
        found = await bench.store.read(find_key, "d1")
        assert found is not None
        assert found.id == key_id
        assert maybe_micros(found.expires_at) == 5
        assert await bench.store.read(find_key, "d2") is None

    async def test_keys_are_listed_by_space(self, bench: Bench) -> None:
        first, second = await self._add(bench), await self._add(bench, "d2", "guests")
        guests = await bench.space("guests")
        assert [key.id for key in await bench.store.read(list_keys, None)] == [first, second]
        assert [key.id for key in await bench.store.read(list_keys, guests.id)] == [second]

    async def test_a_revoked_key_stays_revoked(self, bench: Bench) -> None:
        key_id = await self._add(bench)
        heard: list[str] = []
        bench.store.subscribe(heard.append)
        await bench.store.write(revoke_key, key_id)
        (key,) = await bench.store.read(list_keys, None)
        bench.clock.advance(seconds=5)
        await bench.store.write(revoke_key, key_id)
        assert (await bench.store.read(list_keys, None))[0].revoked_at == key.revoked_at is not None
        assert "keys" in heard

    async def test_the_last_use_never_moves_back(self, bench: Bench) -> None:
        key_id = await self._add(bench)
        for at in (7, 3):
            await bench.store.write(touch_keys, {key_id: at})
        (key,) = await bench.store.read(list_keys, None)
        assert key.used_at is not None
        assert to_micros(key.used_at) == 7


class TestAudit:
    """A change and the word of who asked for it are one transaction."""

    def _request(self, **more: Any) -> NewAuditEntry:
        about = {"task": "job"}
        return NewAuditEntry(caller="key:1", space="main", command="put_state", about=about, **more)

    @pytest.mark.parametrize("key", [None, "k"])
    async def test_the_first_change_carries_the_request(
        self, bench: Bench, key: str | None
    ) -> None:
        task = await bench.task()
        audit = RequestAudit(bench.store, self._request(key=key, digest=key))
        store = HookedStore(bench.store, audit)
        assert await store.read(find_task, task.space_id, task.name) == task
        assert await bench.store.read(list_audit_entries, None, FAR, 10) == []
        await store.write(put_state, task.id, "a", "1", "ann")
        await store.write(put_state, task.id, "b", "2", "ann")
        (kept,) = await bench.store.read(list_audit_entries, None, FAR, 10)
        assert audit.request_id == (None if key is None else kept.id)
        assert (kept.caller, kept.about) == ("key:1", {"task": "job"})

    async def test_a_run_and_its_request_are_there_together(self, bench: Bench) -> None:
        task = await bench.task()
        audit = RequestAudit(bench.store, self._request())
        store = HookedStore(bench.store, audit)
        ((queued,),) = await store.write(enqueue, [bench.batch(task, [1])])
        assert len(await bench.store.read(list_audit_entries, None, FAR, 10)) == 1
        await bench.worker("w1")
        assert await bench.claim_ids() == [queued.run_id]

    async def test_requests_that_come_together_are_all_written_down(self, bench: Bench) -> None:
        task = await bench.task()
        stores = [_audited(bench.store, self._request()) for _ in range(20)]
        asked = [
            store.write(enqueue, [bench.batch(task, [number])])
            for number, store in enumerate(stores)
        ]
        queued = [run.run_id for ((run,),) in await asyncio.gather(*asked)]
        assert len(await bench.store.read(list_audit_entries, None, FAR, 100)) == 20
        for number, run_id in enumerate(queued):
            assert (await bench.run(run_id)).payload == str(number)

    @pytest.mark.parametrize("key", [None, "k"])
    async def test_a_rehearsed_run_is_not_there(self, bench: Bench, key: str | None) -> None:
        task = await bench.task()
        audit = RequestAudit(bench.store, self._request(key=key, digest=key, rehearsal=True))
        store = HookedStore(bench.store, audit)
        with pytest.raises(DryRunRolledBack):
            await store.write(enqueue, [bench.batch(task, [1])])
        assert await bench.store.read(list_audit_entries, None, FAR, 10) == []
        assert await bench.store.read(count_runs, task.id) == {}

    @pytest.mark.parametrize("key", [None, "k"])
    async def test_what_is_refused_leaves_no_request(self, bench: Bench, key: str | None) -> None:
        await bench.task()
        audit = RequestAudit(bench.store, self._request(key=key, digest=key))
        store = HookedStore(bench.store, audit)
        with pytest.raises(NotFound):
            await store.write(set_space, "nowhere", "UTC")
        assert audit.request_id is None
        assert await bench.store.read(list_audit_entries, None, FAR, 10) == []

    async def test_a_key_is_used_once_by_a_caller(self, bench: Bench) -> None:
        task = await bench.task()
        first = _audited(bench.store, self._request(key="k", digest="x"))
        await first.write(put_state, task.id, "a", "1", "ann")
        second = _audited(bench.store, self._request(key="k", digest="x"))
        with pytest.raises(Conflict):
            await second.write(put_state, task.id, "a", "2", "ann")
        kept = await bench.store.read(get_state, task.id, "a")
        assert kept is not None
        assert kept.value == "1"
        found = await bench.store.read(find_audit_entry, "key:1", "k")
        assert found is not None
        assert (found.digest, found.status, found.answer) == ("x", None, None)
        assert await bench.store.read(find_audit_entry, "key:2", "k") is None

    async def test_a_request_is_written_down_that_changes_nothing_here(self, bench: Bench) -> None:
        audit = RequestAudit(bench.store, self._request(key="k", digest="x"))
        store = HookedStore(bench.store, audit)
        await store.write(record_request)
        found = await bench.store.read(find_audit_entry, "key:1", "k")
        assert found is not None
        assert found.id == audit.request_id

    async def test_an_answer_is_kept_once(self, bench: Bench) -> None:
        task = await bench.task()
        audit = RequestAudit(bench.store, self._request(key="k", digest="x"))
        store = HookedStore(bench.store, audit)
        await store.write(put_state, task.id, "a", "1", "ann")
        assert audit.request_id is not None
        await bench.store.write(record_answer, audit.request_id, 200, "yes")
        await bench.store.write(record_answer, audit.request_id, 500, "no")
        found = await bench.store.read(find_audit_entry, "key:1", "k")
        assert found is not None
        assert (found.status, found.answer) == (200, "yes")

    async def test_an_answer_goes_with_the_change_that_it_tells_of(self, bench: Bench) -> None:
        task = await bench.task()
        audit = RequestAudit(bench.store, self._request(key="k", digest="x"))
        store = HookedStore(bench.store, audit)

        async def told(within: Store, done: Any) -> KeptAnswer:
            found = await within.read(get_state, task.id, "a")
            assert found is not None
            return KeptAnswer(200, f"{done.key}={found.value}")

        audit.keep_answer([put_state], told)
        await store.write(put_state, task.id, "a", "1", "ann")
        assert audit.answered
        found = await bench.store.read(find_audit_entry, "key:1", "k")
        assert found is not None
        assert (found.id, found.status, found.answer) == (audit.request_id, 200, "a=1")

    async def test_what_comes_before_the_change_is_no_part_of_the_request(
        self, bench: Bench
    ) -> None:
        task = await bench.task()
        audit = RequestAudit(bench.store, self._request(key="k", digest="x"))
        store = HookedStore(bench.store, audit)

        async def told(_within: Store, _done: object) -> KeptAnswer:
            return KeptAnswer(None, "yes")

        audit.keep_answer([mark_seen], told)
        await store.write(put_state, task.id, "a", "1", "ann")
        assert audit.request_id is None
        assert await bench.store.read(list_audit_entries, None, FAR, 10) == []
        await store.write(mark_seen, task.id, [("mail", "1", "null")])
        found = await bench.store.read(find_audit_entry, "key:1", "k")
        assert found is not None
        assert (found.status, found.answer, audit.answered) == (None, "yes", False)
        await bench.store.write(record_answer, found.id, 201, "all of it")
        found = await bench.store.read(find_audit_entry, "key:1", "k")
        assert found is not None
        assert (found.status, found.answer) == (201, "all of it")

    async def test_a_change_that_comes_to_nothing_is_taken_back_with_its_request(
        self, bench: Bench
    ) -> None:
        task = await bench.task()
        await bench.store.write(put_state, task.id, "a", "1", "ann")
        audit = RequestAudit(bench.store, self._request(key="k", digest="x"))
        store = HookedStore(bench.store, audit)

        async def told(_within: Store, gone: object) -> KeptAnswer | None:
            return KeptAnswer(200, "gone") if gone else None

        audit.keep_answer([drop_state], told)
        assert not await store.write(drop_state, task.id, "b")
        assert audit.request_id is None
        assert await bench.store.read(list_audit_entries, None, FAR, 10) == []
        assert await store.write(drop_state, task.id, "a")
        assert audit.answered

    async def test_an_answer_that_refuses_takes_its_change_back(self, bench: Bench) -> None:
        task = await bench.task()
        audit = RequestAudit(bench.store, self._request(key="k", digest="x"))
        store = HookedStore(bench.store, audit)

        async def told(_within: Store, _done: object) -> KeptAnswer:
            message = "it is refused"
            raise Conflict(message)

        audit.keep_answer([put_state], told)
        with pytest.raises(Conflict):
            await store.write(put_state, task.id, "a", "1", "ann")
        assert await bench.store.read(get_state, task.id, "a") is None
        assert await bench.store.read(list_audit_entries, None, FAR, 10) == []

    async def test_a_rehearsal_changes_nothing(self, bench: Bench) -> None:
        task = await bench.task()
        audit = RequestAudit(bench.store, self._request(rehearsal=True))
        store = HookedStore(bench.store, audit)
        with pytest.raises(DryRunRolledBack):
            await store.write(put_state, task.id, "a", "1", "ann")
        assert await bench.store.read(get_state, task.id, "a") is None
        assert await bench.store.read(list_audit_entries, None, FAR, 10) == []

    async def test_requests_are_listed_newest_first_and_leave_with_retention(
        self, bench: Bench
    ) -> None:
        task = await bench.task()
        for key in "abc":
            await _audited(bench.store, self._request()).write(put_state, task.id, key, "1", "ann")
        found = await bench.store.read(list_audit_entries, "main", FAR, 2)
        assert [one.id for one in found] == sorted((one.id for one in found), reverse=True)
        rest = await bench.store.read(list_audit_entries, "main", found[-1].id, 2)
        assert len(found) + len(rest) == 3
        assert await bench.store.read(list_audit_entries, "guests", FAR, 2) == []
        bench.clock.advance(hours=1)
        await bench.store.write(prune_runs, bench.store.now(), 1_000)
        assert await bench.store.read(list_audit_entries, None, FAR, 10) == []


class TestMemory:
    """Tasks remember values under keys, and items they have seen."""

    async def test_a_value_is_replaced_and_forgotten(self, bench: Bench) -> None:
        task, other = await bench.task(), await bench.task("other")
        for value in ("1", '{"a": "é"}'):
            await bench.store.write(put_state, task.id, "k", value, "ann")
        found = await bench.store.read(get_state, task.id, "k")
        assert found is not None
        assert (found.value, found.updated_by) == ('{"a": "é"}', "ann")
        assert await bench.store.read(get_state, other.id, "k") is None
        assert await bench.store.read(count_state, task.id) == 1
        assert await bench.store.write(drop_state, task.id, "k")
        assert not await bench.store.write(drop_state, task.id, "k")

    async def test_values_are_listed_in_pages(self, bench: Bench) -> None:
        task = await bench.task()
        for key in ("b", "a", "C"):
            await bench.store.write(put_state, task.id, key, "1", "ann")
        first = await bench.store.read(list_state, task.id, "", 2)
        rest = await bench.store.read(list_state, task.id, first[-1].key, 2)
        assert [value.key for value in [*first, *rest]] == ["C", "a", "b"]

    async def test_an_item_is_counted_and_keeps_its_first_time(self, bench: Bench) -> None:
        task = await bench.task()
        items = [("mail", "2", "null"), ("mail", "1", "{}"), ("feed", "1", "null")]
        first = await bench.store.write(mark_seen, task.id, items)
        assert [(s.provider, s.item, s.count) for s in first] == [
            ("mail", "2", 1),
            ("mail", "1", 1),
            ("feed", "1", 1),
        ]
        bench.clock.advance(seconds=3)
        (again,) = await bench.store.write(mark_seen, task.id, [("mail", "1", "7")])
        assert (again.count, again.first_at, again.data) == (2, first[1].first_at, "7")
        assert again.last_at > again.first_at
        assert await bench.store.read(get_seen, task.id, "mail", "1") == again
        assert await bench.store.read(get_seen, task.id, "mail", "3") is None


class TestTaskList:
    """Tasks are listed by what is asked for, in pages."""

    async def test_filters_and_pages(self, bench: Bench) -> None:
        main, guests = await bench.space(), await bench.space("guests")
        made = [
            await bench.store.write(
                put_task,
                NewTask(
                    space_id=main.id if n % 2 else guests.id,
                    name=f"job-{n}",
                    title="The Report" if n < 2 else "",
                    kind=TaskKind.AGENT if n < 3 else TaskKind.PYTHON,
                    route="agent",
                    thread="cli:default" if n == 1 else None,
                ),
                None,
            )
            for n in range(5)
        ]
        ids = [task.id for task in made]
        await bench.store.write(disable_task, made[4], "no", None, ())

        async def listed(**wanted: Any) -> list[int]:
            found = await bench.store.read(find_tasks, TaskFilter(**wanted))
            return [ids.index(task.id) for task, _ in found]

        assert await listed() == [4, 3, 2, 1, 0]
        assert await listed(limit=2) == [4, 3]
        assert await listed(before=ids[3]) == [2, 1, 0]
        assert await listed(space_id=main.id) == [3, 1]
        assert await listed(kind=TaskKind.PYTHON) == [4, 3]
        assert await listed(enabled=False) == [4]
        assert await listed(words="the rep") == [1, 0]
        assert await listed(words="JOB-3") == [3]
        assert await listed(name="job-2") == [2]
        assert await listed(thread="cli:default") == [1]

    async def test_a_task_is_listed_once_with_all_its_schedules(self, bench: Bench) -> None:
        one, two, three = [await bench.task(name) for name in ("one", "two", "three")]
        first, second, gone = [
            await bench.schedule(two, bench.every("1h"), name=name) for name in ("z", "a", "gone")
        ]
        last = await bench.schedule(three, bench.every("1h"))
        await bench.store.write(drop_schedule, gone)
        listed = [(three, [last]), (two, [first, second]), (one, [])]
        assert await bench.store.read(find_tasks, TaskFilter()) == listed
        assert await bench.store.read(find_tasks, TaskFilter(limit=2)) == listed[:2]

    async def test_a_thread_belongs_to_one_space(self, bench: Bench) -> None:
        main, guests = await bench.space(), await bench.space("guests")
        mine = NewTask(space_id=main.id, name="a", route="agent", thread="telegram:chat:1")
        theirs = NewTask(space_id=guests.id, name="a", route="agent", thread="telegram:chat:1")
        assert (await bench.store.write(put_task, mine, None)).thread == "telegram:chat:1"
        with pytest.raises(NotFound):
            await bench.store.write(put_task, theirs, None)

    async def test_only_what_was_seen_is_changed(self, bench: Bench) -> None:
        task = await bench.task()
        owner = await bench.space()
        stood = to_micros(task.updated_at)
        change = NewTask(space_id=owner.id, name="job", route=task.route, title="a", stood=stood)
        await bench.store.write(put_task, change, None)
        again = NewTask(space_id=owner.id, name="job", route=task.route, title="b", stood=stood)
        with pytest.raises(Stale):
            await bench.store.write(put_task, again, None)


# attempts as callers


class TestCallers:
    """What is asked on behalf of an attempt is done while it goes on, and never after."""

    async def _running(self, bench: Bench, **policy: Any) -> Lease:
        task = await bench.task(**policy)
        await bench.store.write(enqueue, [bench.batch(task, [1])])
        await bench.worker("w1", timedelta(days=1))
        return await bench.claim_one()

    def _behalf(self, bench: Bench, lease: Lease, epoch: int, **more: Any) -> HookedStore:
        request = NewAuditEntry(
            caller=f"attempt:{lease.run_id}.{epoch}",
            space="main",
            command="put_state",
            held=(lease.run_id, epoch),
            **more,
        )
        return HookedStore(bench.store, RequestAudit(bench.store, request))

    async def test_an_attempt_that_goes_on_is_known(self, bench: Bench) -> None:
        lease = await self._running(bench)
        held = await bench.store.read(find_attempt_identity, lease.run_id, lease.epoch)
        assert held == AttemptIdentity(
            run_id=lease.run_id,
            epoch=lease.epoch,
            task_id=lease.task_id,
            task="job",
            thread=None,
            space="main",
        )
        assert await bench.store.read(find_attempt_identity, lease.run_id, lease.epoch + 1) is None
        assert await bench.store.read(find_attempt_identity, lease.run_id, lease.epoch - 1) is None
        await bench.end(lease)
        assert await bench.store.read(find_attempt_identity, lease.run_id, lease.epoch) is None

    @pytest.mark.parametrize("key", [None, "k"])
    async def test_a_stale_epoch_changes_nothing(self, bench: Bench, key: str | None) -> None:
        lease = await self._running(bench, retry=Retry(attempts=2))
        early = self._behalf(bench, lease, lease.epoch, key=key, digest=key)
        await early.write(put_state, lease.task_id, "a", "1", "ann")
        await bench.end(lease, failed())
        bench.clock.advance(hours=1)
        await bench.store.write(promote_delayed, 10)
        again = await bench.claim_one()
        assert (again.run_id, again.epoch) == (lease.run_id, lease.epoch + 1)
        late = self._behalf(bench, lease, lease.epoch, key=key and "l", digest=key)
        with pytest.raises(Fenced):
            await late.write(put_state, lease.task_id, "a", "2", "ann")
        with pytest.raises(Fenced):
            await late.write(enqueue, [bench.batch(await bench.task(), [2])])
        kept = await bench.store.read(get_state, lease.task_id, "a")
        assert kept is not None
        assert kept.value == "1"
        assert len(await bench.store.read(list_audit_entries, None, FAR, 10)) == 1
        assert await bench.store.read(count_runs, lease.task_id) == {"running": 1}

    async def test_the_second_change_of_a_request_is_fenced_too(self, bench: Bench) -> None:
        lease = await self._running(bench)
        store = self._behalf(bench, lease, lease.epoch)
        await store.write(put_state, lease.task_id, "a", "1", "ann")
        await store.write(put_state, lease.task_id, "b", "1", "ann")
        await bench.end(lease)
        with pytest.raises(Fenced):
            await store.write(put_state, lease.task_id, "c", "1", "ann")
        found = await bench.store.read(list_state, lease.task_id, "", 9)
        assert [value.key for value in found] == ["a", "b"]

    async def test_an_end_and_a_change_never_pass_each_other(self, bench: Bench) -> None:
        lease = await self._running(bench)
        store = self._behalf(bench, lease, lease.epoch)

        async def change() -> bool:
            try:
                await store.write(put_state, lease.task_id, "a", "1", "ann")
            except Fenced:
                return False
            return True

        changed, _ = await asyncio.gather(change(), bench.end(lease))
        assert (await bench.store.read(get_state, lease.task_id, "a") is not None) == changed
        assert len(await bench.store.read(list_audit_entries, None, FAR, 10)) == int(changed)
