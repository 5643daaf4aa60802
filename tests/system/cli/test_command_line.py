from __future__ import annotations


def test_help_answers(house):
    done = house.rota("--help")
    assert done.returncode == 0
    assert done.stdout.startswith("Usage: rota")
    assert not house.home.exists()


def test_a_refusal_is_one_sentence_with_exit_code_two(house):
    done = house.rota("task", "create", "x", "--call", "work:patient", "--cron", "nonsense")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith('rota: --cron "nonsense"')
    assert done.stderr.count("\n") == 1


def test_callables_in_the_working_folder_are_found(house):
    assert house.rota("task", "create", "x", "--call", "work:patient").returncode == 0
    assert house.rota("task", "create", "y", "--call", "work:missing").returncode == 2


def test_output_that_nobody_reads_is_no_fault(house):
    script = "rota --home h next 'every second' -n 1000 | head -1"
    import subprocess
    import sys
    from pathlib import Path

    tools = Path(sys.executable).parent
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; PATH={tools}:$PATH; {script}"],
        cwd=house.folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stderr == ""
