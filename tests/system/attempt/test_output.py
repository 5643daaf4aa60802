"""What a program writes is seen while it runs: soon, in colour on a terminal, and bounded."""

from __future__ import annotations

import os
import pty
import subprocess
from pathlib import Path

MIB = 1 << 20
FLOOD = 300 * MIB
BOUND = 64 * MIB
"""What a daemon may grow by; it reads 64 MiB of spool and keeps 1 MiB of text."""
FLOODING = f"""
import os
from pathlib import Path
line = (b"x" * 1022) + b"\\n"
left = {FLOOD}
while left > 0:
    left -= os.write(1, line * 64)
print("the end", flush=True)
"""


def resident(pid, field="VmRSS"):
    text = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith(field))


def keepers():
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if (folder / "comm").read_text().startswith("rota-keeper"):
                    found.append(int(folder.name))
            except OSError:
                continue
    return found


def test_output_is_shown_while_the_program_runs(kept):
    number = kept.count(3)
    words = kept.house._command(["logs", str(number), "-f"])
    around = kept.house._environment(kept._extra())
    with subprocess.Popen(words, env=around, stdout=subprocess.PIPE, text=True) as client:
        for line in client.stdout:
            if line == "line 2\n":
                break
        assert kept.run(number)["state"] == "running"
        kept.go()
        assert "finished" in client.stdout.read()
    assert client.returncode == 0


def on_a_terminal(kept, *words):
    """Return what a command writes to a terminal."""
    main, end = pty.openpty()
    command, around = kept.house._command(words), kept.house._environment(kept._extra())
    around.pop("NO_COLOR", None)
    with subprocess.Popen(command, env=around, stdin=end, stdout=end, stderr=end):
        os.close(end)
        seen = b""
        try:
            while part := os.read(main, 65536):
                seen += part
        except OSError:  # the other end is closed
            pass
        finally:
            os.close(main)
    return seen


def test_colours_are_for_terminals_alone(kept):
    (kept.work / "paint.py").write_text(
        "import sys\nprint('\\x1b]0;mine\\x07\\x1b[31mred\\x1b[0m\\x1b[2J')\n"
        "print('\\x1b[33myellow\\x1b[0m', file=sys.stderr)\n"
    )
    kept.create("paint", "python3", "paint.py")
    kept.up()
    number = kept.json("run", "paint")["run"]
    kept.until(number, lambda run: run["state"] == "succeeded")
    shown = on_a_terminal(kept, "logs", str(number))
    assert b"\x1b[31mred\x1b[0m" in shown
    assert b"\x1b[33myellow\x1b[0m" in shown
    assert b"mine" not in shown
    assert b"\x1b[2J" not in shown
    piped = kept.rota("logs", str(number)).stdout
    assert "red" in piped
    assert "\x1b" not in piped
    assert "\x1b[31m" not in kept.rota("run", str(number)).stdout


def test_a_flood_is_bounded_everywhere_and_the_run_ends_right(kept):
    (kept.work / "flood.py").write_text(FLOODING)
    kept.create("flood", "python3", "flood.py")
    daemon = kept.up().process.pid
    before, others = resident(daemon), set(keepers())
    most = {"daemon": 0, "keeper": 0}

    def over(run):
        most["daemon"] = max(most["daemon"], resident(daemon, "VmHWM"))
        for pid in set(keepers()) - others:
            try:
                most["keeper"] = max(most["keeper"], resident(pid, "VmHWM"))
            except (OSError, StopIteration):
                continue
        return run["state"] == "succeeded"

    number = kept.json("run", "flood")["run"]
    run = kept.until(number, over, seconds=120.0)
    assert run["attempts"][0]["ending"]["out_bytes"] > FLOOD
    assert most["daemon"] - before < BOUND, (before, most)
    assert most["keeper"] < 32 * MIB, most
    assert sum(len(part["text"]) for part in run["logs"]) <= 2 * MIB


ASKING = """
import sys, time
from pathlib import Path
print("before", flush=True)
print("Waiting for you... ", end="", flush=True)
while not Path("go").exists():
    time.sleep(0.02)
print("thank you", flush=True)
"""


def test_a_line_that_is_not_whole_is_shown_and_recorded_once_through_a_death(kept):
    (kept.work / "ask.py").write_text(ASKING)
    kept.create("ask", "python3", "ask.py", kept.token)
    kept.up()
    number = kept.json("run", "ask")["run"]

    def is_shown(run):
        return any("Waiting" in part["text"] for part in run["logs"])

    kept.until(number, is_shown)
    kept.kill()
    kept.up()
    words = kept.house._command(["logs", str(number), "-f"])
    around = kept.house._environment(kept._extra())
    with subprocess.Popen(words, env=around, stdout=subprocess.PIPE) as client:
        seen = b""
        while not seen.endswith(b"Waiting for you... "):
            seen += client.stdout.read(1)
        kept.go()
        seen += client.stdout.read()
    assert b"before\nWaiting for you... thank you\n" in seen
    run = kept.until(number, lambda run: run["finished_at"] is not None)
    assert [part["text"] for part in run["logs"]] == ["before", "Waiting for you... ", "thank you"]
    assert run["result"] == "Waiting for you... thank you"
