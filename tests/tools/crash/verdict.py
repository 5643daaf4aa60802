"""The verdict: what the outside saw against what the database says; every difference in a sentence.

Nothing acknowledged may be lost, nothing may have happened twice, and nothing may be left open. The
witness notes what was acknowledged and what work really did; the evidence is the database itself.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from rota.model.instants import to_micros
from tests.tools.crash.attempt_requests import judge_approving, judge_speaking
from tests.tools.crash.caller import FILES, GROUP_CAP, SCHEDULES, TASKS
from tests.tools.crash.evidence import Evidence, Rows

Lines = list[dict[str, Any]]

FINISHED = ("succeeded", "failed", "cancelled", "expired")


def judge(lines: Lines, messages: list[str], found: Evidence) -> list[str]:
    """Return everything that is wrong."""
    if found.health != "ok":
        return [f"the database is damaged: {found.health}"]
    case = _Case(lines, messages, found)
    return [
        f"{kind}: {sentence}"
        for kind, check in (
            ("lost", case.lost),
            ("doubled", case.doubled),
            ("stranded", case.stranded),
            ("attempts", case.attempts),
            ("work", case.work),
            ("slots", case.slots),
            ("chain", case.chain),
            ("outbox", case.outbox),
            ("limits", case.limits),
            ("speaking", case.speaking),
            ("files", case.files),
            ("approving", case.approving),
        )
        for sentence in check()
    ]


class _Case:
    def __init__(self, lines: Lines, messages: list[str], found: Evidence) -> None:
        self._lines = lines
        self._messages = Counter(messages)
        self._found = found
        self._runs = {run["id"]: run for run in found["runs"]}
        self._tasks = {task["id"]: task["name"] for task in found["tasks"]}
        self._attempts: dict[int, Rows] = defaultdict(list)
        for attempt in sorted(found["attempts"], key=lambda a: a["number"]):
            self._attempts[attempt["run_id"]].append(attempt)

    def files(self) -> Iterator[str]:
        """A message is there with all its files, or not at all."""
        sent = Counter(file["message_id"] for file in self._found["message_files"])
        for message in self._found["messages"]:
            if sent[message["id"]] != len(FILES):
                yield f"message {message['id']} has {sent[message['id']]} of its files"

    def _said(self, what: str) -> Iterator[dict[str, Any]]:
        return (line for line in self._lines if line["what"] == what)

    def _runs_of(self, task: str) -> Rows:
        return [run for run in self._runs.values() if self._tasks[run["task_id"]] == task]

    def lost(self) -> Iterator[str]:
        """Everything acknowledged is there."""
        for line in self._said("queued"):
            run = self._runs.get(line["run"])
            if run is None:
                yield f"run {line['run']} of {line['task']} was acknowledged and is not there"
            elif (run["key"], self._tasks[run["task_id"]]) != (line["key"], line["task"]):
                yield f"run {line['run']} is not what was acknowledged: {line}"
            elif json.loads(run["payload"]) != {"of": line["key"]}:
                yield f"run {line['run']} has another payload: {run['payload']}"
        for line in self._said("cancelled"):
            state = self._runs[line["run"]]["state"]
            if line["state"] == "cancelled" and state != "cancelled":
                yield f"run {line['run']} was acknowledged as cancelled and is {state}"
        answered = {q["id"] for q in self._found["questions"] if q["answered_at"] is not None}
        for line in self._said("answered"):
            if line["question"] not in answered:
                yield f"the answer to question {line['question']} was acknowledged and is gone"
        yield from self._lost_definitions()
        yield from self._lost_memories()

    def _lost_definitions(self) -> Iterator[str]:
        alive = Counter(t["name"] for t in self._found["tasks"] if t["deleted_at"] is None)
        for name in {line["task"] for line in self._said("defined")} & TASKS.keys():
            if alive[name] != 1:
                yield f"there are {alive[name]} tasks {name}"
        for line in self._said("deleted"):
            if alive[line["task"]]:
                yield f"the task {line['task']} was acknowledged as deleted and is there"
        for line in self._said("unscheduled"):
            if any(s["deleted_at"] is None for s in self._schedules_of(line["task"])):
                yield f"the schedule of {line['task']} was acknowledged as dropped and is there"

    def _lost_memories(self) -> Iterator[str]:
        kept = {(self._tasks[s["task_id"]], s["key"]): s["value"] for s in self._found["state"]}
        seen = {(self._tasks[s["task_id"]], s["item"]) for s in self._found["seen"]}
        for line in self._said("remembered"):
            value = kept.get((line["task"], "kept"))
            if value != json.dumps(line["value"]) or (line["task"], line["item"]) not in seen:
                yield f"what {line['task']} was to remember is gone: {value}"
            if (line["task"], "passing") in kept:
                yield f"what {line['task']} was to forget is there"
        heard = {message["id"] for message in self._found["messages"]}
        for line in self._said("said"):
            if line["message"] not in heard:
                yield f"message {line['message']} of {line['thread']} was acknowledged and is gone"
        revoked = {key["id"] for key in self._found["keys"] if key["revoked_at"] is not None}
        for line in self._said("revoked"):
            if line["key"] not in revoked:
                yield f"key {line['key']} was acknowledged as revoked and is not"
        answers = Counter((r["key"], r["answer"]) for r in self._found["requests"])
        for line in self._said("asked"):
            count = answers[line["key"], line["answer"]]
            if count != 1:
                yield f"the request {line['key']} was made {count} times"

    def _schedules_of(self, task: str) -> Rows:
        return [s for s in self._found["schedules"] if self._tasks[s["task_id"]] == task]

    def doubled(self) -> Iterator[str]:
        """One run for each key and slot, one end for each run, one succeeded attempt."""
        keys = Counter((r["task_id"], r["key"]) for r in self._runs.values() if r["key"])
        slots = Counter((r["schedule_id"], r["slot_key"]) for r in self._runs.values())
        for (owner, key), count in (keys + slots).items():
            if count > 1 and key is not None:
                yield f"{count} runs of {owner} for {key}"
        given: dict[tuple[str, str], set[int]] = defaultdict(set)
        for line in self._said("queued"):
            if line["task"] in TASKS:
                given[line["task"], line["key"]].add(line["run"])
        for key, runs in given.items():
            if len(runs) > 1:
                yield f"{key} was acknowledged as several runs: {sorted(runs)}"
        ends = Counter(e["run_id"] for e in self._found["events"] if e["name"] == "run.settled")
        for run_id, run in self._runs.items():
            if ends[run_id] != (run["state"] in FINISHED):
                yield f"run {run_id} is {run['state']} and has ended {ends[run_id]} times"

    def approving(self) -> Iterator[str]:
        """What was approved is done once."""
        yield from judge_approving(self._found)

    def stranded(self) -> Iterator[str]:
        """Nothing is left open."""
        for run in self._runs.values():
            if run["state"] not in FINISHED:
                yield f"run {run['id']} of {self._tasks[run['task_id']]} is {run['state']}"
        for delivery in self._found["deliveries"]:
            if delivery["state"] in {"pending", "sending"}:
                yield f"delivery {delivery['id']} is {delivery['state']}"
        killed = {line["process"] for line in self._said("died")}
        last = {w["pid"]: w for w in sorted(self._found["workers"], key=lambda w: w["started_at"])}
        for worker in last.values():
            if not worker["fenced"] and worker["pid"] not in killed:
                yield f"the worker {worker['id']} has left and counts as alive"

    def attempts(self) -> Iterator[str]:
        """Attempts are numbered without a gap, and a success is the last of them."""
        for run_id, run in self._runs.items():
            found = self._attempts[run_id]
            numbers = [attempt["number"] for attempt in found]
            if numbers != list(range(1, run["epoch"] + 1)):
                yield f"run {run_id} at epoch {run['epoch']} has the attempts {numbers}"
            outcomes = [attempt["outcome"] for attempt in found]
            if outcomes.count("succeeded") != (run["state"] == "succeeded"):
                yield f"run {run_id} is {run['state']} after {outcomes}"
            if "succeeded" in outcomes[:-1]:
                yield f"run {run_id} went on after its success: {outcomes}"

    def work(self) -> Iterator[str]:
        """Work was done only by attempts on record, once each, and one after the other."""
        begun = Counter((line["run"], line["epoch"]) for line in self._said("begin"))
        ended = Counter((line["run"], line["epoch"]) for line in self._said("end"))
        known = {(a["run_id"], a["number"]): a for a in self._found["attempts"]}
        for which, count in (begun | ended).items():
            if count > 1:
                yield f"attempt {which} was made {count} times"
            if which not in known:
                yield f"attempt {which} was made and is not on record"
        for which, attempt in known.items():
            if attempt["outcome"] == "succeeded" and not (begun[which] and ended[which]):
                yield f"attempt {which} succeeded without having been made"
        newest: dict[int, int] = {}
        for line in self._lines:
            if line["what"] in {"begin", "end"}:
                if line["epoch"] < newest.get(line["run"], 0):
                    yield f"attempt {(line['run'], line['epoch'])} worked on after the next one"
                newest[line["run"]] = max(line["epoch"], newest.get(line["run"], 0))

    def slots(self) -> Iterator[str]:
        """Every slot from a schedule's first to its last is one run or stands in the ledger."""
        dropped = {line["task"]: line["planned"] for line in self._said("unscheduled")}
        for task in SCHEDULES:
            for schedule in self._schedules_of(task):
                yield from self._gaps(schedule, dropped.get(task, 0))

    def _gaps(self, schedule: dict[str, Any], planned: int) -> Iterator[str]:
        mine = [r for r in self._runs.values() if r["schedule_id"] == schedule["id"]]
        seen = Counter(_number(run["slot_key"]) for run in mine)
        for row in self._found["ledger"]:
            if row["schedule_id"] == schedule["id"]:
                span = range(_number(row["first_key"]), _number(row["last_key"]) + 1)
                seen.update(span)
                if len(span) != row["count"]:
                    yield f"ledger row {row['id']} counts {row['count']} of {len(span)} slots"
        last = max(seen, default=0)
        missing = [number for number in range(1, last + 1) if not seen[number]]
        if missing:
            yield f"schedule {schedule['id']} has no trace of its slots {missing}"
        if twice := [number for number, count in seen.items() if count > 1]:
            yield f"schedule {schedule['id']} has its slots {twice} more than once"
        anchor = datetime.fromisoformat(json.loads(schedule["rule"])["anchor"])
        every = to_micros(anchor + SCHEDULES[self._tasks[schedule["task_id"]]]) - to_micros(anchor)
        due = (planned - to_micros(anchor)) // every
        if last < due:
            yield f"schedule {schedule['id']} should have had {due} slots and had {last}"

    def chain(self) -> Iterator[str]:
        """Each end that a successor waits for has one, and no other end has any."""
        followers = Counter(r["upstream_id"] for r in self._runs.values() if r["upstream_id"])
        for upstream, state in (("first", "succeeded"), ("doomed", "failed")):
            for run in self._runs_of(upstream):
                if followers.pop(run["id"], 0) != (run["state"] == state):
                    yield f"run {run['id']} of {upstream} is {run['state']}: wrong successors"
        for run_id, count in followers.items():
            yield f"run {run_id} has {count} successors that nobody wanted"

    def outbox(self) -> Iterator[str]:
        """Each success has its message once, and it was sent once, or maybe once if unknown."""
        deliveries = Counter(d["run_id"] for d in self._found["deliveries"])
        for run in self._runs_of("teller"):
            if deliveries[run["id"]] != (run["state"] == "succeeded"):
                yield f"run {run['id']} is {run['state']} with {deliveries[run['id']]} messages"
        for delivery in self._found["deliveries"]:
            sent = self._messages[delivery["body"]]
            if sent > 1 or (sent == 0 and delivery["state"] == "sent"):
                yield f"delivery {delivery['id']} is {delivery['state']} and was sent {sent} times"

    def limits(self) -> Iterator[str]:
        """A lane never held two runs at work, a group never more than its cap."""
        bounds = {"laned": 1, "capped": GROUP_CAP}
        at_work: dict[str, dict[int, int]] = {task: {} for task in bounds}
        for line in self._lines:
            if line["what"] == "died":
                for runs in at_work.values():
                    for run in [run for run, pid in runs.items() if pid == line["process"]]:
                        del runs[run]
            elif line.get("task") in bounds and line["what"] in {"begin", "end"}:
                runs = at_work[line["task"]]
                if line["what"] == "end":
                    runs.pop(line["run"], None)
                    continue
                runs[line["run"]] = line["pid"]
                if len(runs) > bounds[line["task"]]:
                    yield f"{len(runs)} runs of {line['task']} at work at once: {sorted(runs)}"

    def speaking(self) -> Iterator[str]:
        """What an attempt deferred was done once if it succeeded, and never otherwise."""
        return judge_speaking(self._lines, self._found)


def _number(slot_key: str) -> int:
    return int(slot_key.rpartition(":")[2])
