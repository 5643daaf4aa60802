"""How busy a machine is, from what Linux tells; elsewhere nothing is known."""

from rota.model.heartbeats import MachineLoad
from rota.runtime.heartbeats import ProcLoadGauge

MEMORY = "MemTotal:        8192 kB\nMemFree:          100 kB\nMemAvailable:    2048 kB\nOdd: x\n"


def times(busy, idle, waiting=0):
    return f"cpu  {busy} 0 0 {idle} {waiting} 0 0 0 999 999\ncpu0 1 2 3\n"


def test_the_load_is_that_since_the_last_look(tmp_path):
    gauge = ProcLoadGauge(tmp_path)
    (tmp_path / "meminfo").write_text(MEMORY)
    (tmp_path / "stat").write_text(times(100, 300))
    assert gauge() == MachineLoad(25.0, 6144 * 1024, 8192 * 1024)
    (tmp_path / "stat").write_text(times(175, 310, 15))
    assert gauge().cpu_percent == 75.0
    assert gauge().cpu_percent is None, "no time has passed"


def test_what_a_machine_does_not_tell_is_unknown(tmp_path):
    assert ProcLoadGauge(tmp_path)() == MachineLoad(None, None, None)


def test_this_machine_tells_something_or_nothing():
    load = ProcLoadGauge()()
    assert load.cpu_percent is None or 0 <= load.cpu_percent <= 100
    assert (load.memory_bytes is None) == (load.memory_total is None)
