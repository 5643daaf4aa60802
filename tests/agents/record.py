"""`python -m tests.agents.record`: record the real agents' streams for the golden tests.

Whatever differs from run to run or tells of a machine is replaced. With `--reread` nothing is run:
the recorded streams are read again, to see in a diff what a change of a reader does.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from pathlib import Path

from rota.model.agents import ProcessExit
from tests.agents.cases import WISHES, Case, cases
from tests.agents.driving import Place, Told, drive, read
from tests.tools.providers import Provider
from tests.unit.agents.golden import FOLDER, described, load_exit

FIXED = [
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), None),
    (re.compile(r"127\.0\.0\.1:\d+"), "127.0.0.1:1"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z"), "2026-01-01T00:00:00.000Z"),
    (re.compile(r'"timestamp":\d+'), '"timestamp":0'),
    (re.compile(r'"(\w+_ms|retry_delay_ms)":[\d.]+'), r'"\1":0'),
    (re.compile(r"/cc-socks/\d+"), "/cc-socks/1"),
]
LISTS = "slash_commands|terminal_slash_commands|skills|capabilities|agents|plugins|tools"


def normal(text: str, place: Path) -> str:
    """Return printed text with everything replaced that differs from run to run."""
    text = text.replace(str(place), "/place").replace(str(place).replace("/", "-"), "-place")
    known: dict[str, str] = {}
    for pattern, fixed in FIXED:
        if fixed is None:
            text = pattern.sub(
                lambda found: known.setdefault(
                    found[0], f"00000000-0000-4000-8000-{len(known) + 1:012}"
                ),
                text,
            )
        else:
            text = pattern.sub(fixed, text)
    text = re.sub(rf'"({LISTS})":\[[^\]]*\]', r'"\1":[]', text)
    return re.sub(r'"/tmp/[^"]*"', '"/place/other"', text)


def write(case: Case, told: Told, end: dict[str, object], stream: str) -> None:
    name = f"{case.agent}-{case.name}"
    (FOLDER / f"{name}.jsonl").write_text(stream)
    about = {"agent": case.agent, "session": case.session, "exit": end, **described(told)}
    (FOLDER / f"{name}.json").write_text(json.dumps(about, indent=1, ensure_ascii=False) + "\n")


def record(case: Case) -> None:
    with tempfile.TemporaryDirectory() as folder, Provider(*case.script) as provider:
        place = Path(folder)
        told = {"session": case.session, "more": case.more}
        first = drive(case.agent, Place(place), provider, case.wish, **told)
        both = b"\n".join([*first.lines, b"\x1e", first.end.stderr_tail]).decode()
        stream, _, stderr = normal(both, place).partition("\x1e\n")
    end = {"code": first.end.code, "signal": first.end.signal, "stderr": stderr}
    write(case, reread(case, stream, end), end, stream)


def reread(case: Case, stream: str, end: dict[str, object]) -> Told:
    exit_: ProcessExit = load_exit(end)
    lines = stream.encode().splitlines()
    return read(case.agent, lines, exit_, WISHES[case.agent], resumed=case.session)


def main() -> int:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for case in cases():
        if "--reread" not in sys.argv:
            record(case)
            continue
        name = f"{case.agent}-{case.name}"
        stream = (FOLDER / f"{name}.jsonl").read_text()
        end = json.loads((FOLDER / f"{name}.json").read_text())["exit"]
        write(case, reread(case, stream, end), end, stream)
    return 0


if __name__ == "__main__":
    sys.exit(main())
