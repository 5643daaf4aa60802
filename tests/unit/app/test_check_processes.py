"""What evaluates the checks of a process is one: its doors, mailboxes and attempts share seats."""

from rota.app.composition import probes_of
from rota.app.settings import Settings


def test_all_of_a_process_evaluate_in_the_same_seats(tmp_path):
    ours = Settings(home=tmp_path, store="memory:")
    assert probes_of(ours) is probes_of(Settings(home=tmp_path, store="memory:"))
    assert probes_of(ours) is not probes_of(Settings(home=tmp_path / "other", store="memory:"))
