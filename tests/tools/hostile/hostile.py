"""A program that attacks the executor it runs in, and tells as JSON which attacks worked.

Needs nothing but the standard library of Python 3. Every bomb is bounded here as well. It refuses
to start with rights over the whole machine, where an attack that works hurts everybody.
Usage: hostile.py FACTS.json [ATTACK...]
"""

from __future__ import annotations

import json
import sys
import time

sys.path.append(__file__.rpartition("/")[0])

import hostile_to_host
import hostile_to_kernel

LONGEST = 20.0
WHOLE_MACHINE = "4294967295"
ATTACKS = hostile_to_host.ATTACKS | hostile_to_kernel.ATTACKS


def in_the_open():
    """Say whether a working attack would hit the whole machine: rights in its first namespace."""
    with open("/proc/self/status") as file:
        status = dict(line.split(":", 1) for line in file)
    with open("/proc/self/uid_map") as file:
        first = file.read().split()[2] == WHOLE_MACHINE
    return first and int(status["CapEff"], 16) != 0


def main():
    if in_the_open():
        sys.exit("hostile.py: not with rights over the whole machine; run it behind walls")
    with open(sys.argv[1]) as file:
        facts = json.load(file)
    worked, stumbled = {}, {}
    for name in sys.argv[2:] or ATTACKS:
        begun = time.monotonic()
        try:
            worked[name] = ATTACKS[name](facts)
        except OSError as fault:
            stumbled[name] = repr(fault)
        if time.monotonic() - begun > LONGEST:
            worked[name] = "it took too long"
    print(json.dumps({"worked": worked, "stumbled": stumbled}))


if __name__ == "__main__":
    main()
