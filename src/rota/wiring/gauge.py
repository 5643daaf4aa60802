"""How busy this machine is: what Linux tells in /proc, and nothing elsewhere."""

from __future__ import annotations

from pathlib import Path

from rota.model.machines import Load

KIB = 1024
IDLE = slice(3, 5)
"""Where the time stands in which nothing was done, or a disk was waited for."""
TIMES = 8
"""What follows is counted once more for guests."""


class Gauge:
    """Reads the load since it was last read; since the machine's start at first."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._before = (0, 0)

    def __call__(self) -> Load:
        """Return how busy the machine is."""
        memory = self._memory()
        total, available = memory.get("MemTotal"), memory.get("MemAvailable")
        used = None if total is None or available is None else total - available
        return Load(self._cpu_percent(), used, total)

    def _cpu_percent(self) -> float | None:
        words = self._read("stat").partition("\n")[0].split()[1:]
        times = [int(word) for word in words[:TIMES] if word.isdecimal()]
        now = (sum(times), sum(times[IDLE]))
        passed, idle = now[0] - self._before[0], now[1] - self._before[1]
        self._before = now
        return round(100 * (1 - idle / passed), 1) if passed > 0 else None

    def _memory(self) -> dict[str, int]:
        pairs = (line.partition(":") for line in self._read("meminfo").splitlines())
        sizes = ((name, rest.split()) for name, _, rest in pairs)
        return {name: int(rest[0]) * KIB for name, rest in sizes if rest and rest[0].isdecimal()}

    def _read(self, name: str) -> str:
        try:
            return (self._proc / name).read_text()
        except OSError:
            return ""
