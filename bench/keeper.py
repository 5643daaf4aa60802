"""What a keeper costs: `python bench/keeper.py` prints its figures, in milliseconds and MiB."""

import os
import select
import statistics
import time
from pathlib import Path

from rota.executors.kit.keeper.processes import descendants
from rota.executors.kit.keeping import cancel, read_spool
from rota.executors.kit.spec import Tree
from rota.model.programs import Bounds
from rota.testing.keeper.attempts import Attempts

STARTS = 60
KEEPERS = 50
LINES_A_KEEPER = 40
FLOOD = 2 << 30
MIB = 1 << 20
TALKING = "import os, time\nfor n in range(60):\n    time.sleep(0.25)\n    os.write(1, b'%d\\n' % time.monotonic_ns())\ntime.sleep(60)\n"


def percentiles(values):
    ordered = sorted(values)
    return f"p50 {statistics.median(ordered):.2f}  p99 {ordered[int(len(ordered) * 0.99)]:.2f}  max {ordered[-1]:.2f}"


def starts(tree):
    mains, records = [], []
    with Attempts(tree) as attempts:
        for _ in range(STARTS):
            before = time.time_ns()
            attempt = attempts.start(["/usr/bin/date", "+%s%N"])
            attempt.ending()
            records.append((time.time_ns() - before) / 1e6)
            mains.append((int(attempt.out()) - before) / 1e6)
    print(f"{tree:6} start to main            {percentiles(mains)}")
    print(f"{tree:6} start to ending read    {percentiles(records)}")


def pss(pid):
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return (
        next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")) / 1024
    )


def cpu(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(tree):
    with Attempts(tree) as attempts:
        made = [attempts.start(["sleep", "60"]) for _ in range(KEEPERS)]
        pids = [attempt.pids()[:2] for attempt in made]
        keepers, inners = sum(pss(k) for k, _ in pids), sum(pss(i) for _, i in pids)
        before = sum(cpu(pid) for pair in pids for pid in pair)
        time.sleep(5)
        idle = sum(cpu(pid) for pair in pids for pid in pair) - before
        print(
            f"{tree:6} PSS an attempt, {KEEPERS} at once: {(keepers + inners) / KEEPERS:.2f} MiB; CPU idle for 5 s: {idle:.2f} s"
        )
        began = time.monotonic()
        for attempt in made:
            cancel(attempt.folder, 0, 0.2, "enough")
        for attempt in made:
            attempt.ending()
        print(f"{tree:6} cancel of {KEEPERS}, grace 0.2 s: {time.monotonic() - began:.2f} s")


def flood(tree):
    with Attempts(tree) as attempts:
        for name, cap in (("64 MiB kept", 64 * MIB), ("nothing kept", 0)):
            began = time.monotonic()
            attempt = attempts.start(
                ["head", "-c", str(FLOOD), "/dev/zero"], bounds=Bounds(output_bytes=cap)
            )
            keeper, most = attempt.pids()[0], 0
            while not (attempt.folder / "exit").exists():
                try:
                    text = Path(f"/proc/{keeper}/status").read_text()
                except OSError:
                    break
                most = max(
                    [most, *(int(x.split()[1]) for x in text.splitlines() if x.startswith("VmHWM"))]
                )
                time.sleep(0.02)
            assert attempt.ending().out.total == FLOOD
            rate = FLOOD / (time.monotonic() - began) / (1 << 30)
            print(f"{tree:6} flood, {name}: {rate:.2f} GiB/s, keeper at most {most / 1024:.1f} MiB")


def latency(count):
    with Attempts(Tree.AUTO) as attempts:
        made = {}
        for _ in range(count):
            attempt = attempts.start(attempts.python(TALKING))
            made[attempt.identity.name] = [attempt, 0]
        late, poll, deadline = [], select.poll(), time.monotonic() + 25
        poll.register(attempts.wake, select.POLLIN)
        while any(made[name][0].look().pid == 0 for name in made):
            time.sleep(0.05)
        for _ in range(20):  # what was written while everybody started says nothing
            poll.poll(50)
            for name in attempts.wake.names():
                made[name][1] = (made[name][0].folder / "out").stat().st_size
        while len(late) < count * LINES_A_KEEPER and time.monotonic() < deadline:
            poll.poll(1000)
            for name in attempts.wake.names():
                attempt, offset = made[name]
                data = read_spool(attempt.folder, "out", offset, 1 << 16)
                now = time.monotonic_ns()
                late += [(now - int(line)) / 1e6 for line in data.split()]
                made[name][1] = offset + len(data)
        print(f"tail through the FIFO, {count:3} keepers  {percentiles(late)}  ({len(late)} lines)")
        for attempt, _ in made.values():
            attempt.cancel(0.0)
        for attempt, _ in made.values():
            attempt.ending()


if __name__ == "__main__":
    for kind in (Tree.PIDNS, Tree.GUARD):
        starts(kind)
        memory(kind)
        flood(kind)
    latency(1)
    latency(50)
    latency(100)
    assert not descendants(os.getpid()), "somebody survived"
