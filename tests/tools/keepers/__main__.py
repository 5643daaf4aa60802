"""Kill keepers for real: `python -m tests.tools.keepers --kills 1000`."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

from rota.ports.executor import ProcessTreeMode
from tests.tools.keepers.attempts import NOBODY, python_for_everybody
from tests.tools.keepers.kills import Killing, Result

KILLS_A_ROUND = 100
SECONDS_A_ROUND = 120.0
TREES = {
    "both": [ProcessTreeMode.PIDNS, ProcessTreeMode.GUARD],
    "pidns": [ProcessTreeMode.PIDNS],
    "guard": [ProcessTreeMode.GUARD],
}


def play(
    seed: int, kills: int, trees: list[ProcessTreeMode], seconds: float, *, nobody: bool
) -> Result:
    """Play one round in a home of its own, which stays if something was wrong."""
    home = Path(tempfile.mkdtemp(prefix=f"rota-kills-{seed}-"))
    if nobody:
        os.chown(home, NOBODY, NOBODY)
    result = Killing(home, seed, trees, nobody=nobody).run(kills, seconds)
    if not result.faults:
        shutil.rmtree(home)
    return result


def main() -> int:
    """Play rounds until there were enough kills; 1 if anything was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.tools.keepers")
    parser.add_argument("--kills", type=int, default=KILLS_A_ROUND, help="how many in all")
    parser.add_argument("--seed", type=int, default=1, help="of the first round")
    parser.add_argument("--tree", choices=TREES, default="both")
    parser.add_argument("--nobody", action="store_true", help="run as nobody, if this is root")
    parser.add_argument("--seconds", type=float, default=3600.0, help="begin no round after them")
    wanted = parser.parse_args()
    if wanted.nobody and not python_for_everybody():
        parser.error("there is no Python of this version that another user may run")
    done = wrong = 0
    seed, deadline = wanted.seed, time.monotonic() + wanted.seconds
    while done < wanted.kills and time.monotonic() < deadline:
        kills = min(KILLS_A_ROUND, wanted.kills - done)
        trees = TREES[wanted.tree]
        result = play(seed, kills, trees, SECONDS_A_ROUND, nobody=wanted.nobody)
        sys.stdout.write("".join(f"{line}\n" for line in (result, *result.faults)))
        sys.stdout.flush()
        done, wrong, seed = done + result.kills.total(), wrong + len(result.faults), seed + 1
    sys.stdout.write(f"{done} kills, {wrong} faults.\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
