"""What a tool of the host would run later is held, whoever else makes it."""

import os

from rota.executors.kit.guard import guard


def held(folder, names):
    opened = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    made = guard(str(folder), opened, names)
    for one in made:
        os.close(one.descriptor)
    os.close(opened)
    return {one.path.removeprefix(f"{folder}/"): one.write for one in made}


def test_a_name_that_another_attempt_makes_at_the_same_moment_is_held(tmp_path, monkeypatch):
    make = os.mkdir

    def beaten(name, mode, *, dir_fd):
        make(name, mode, dir_fd=dir_fd)
        make(name, mode, dir_fd=dir_fd)  # as if somebody else had been faster

    monkeypatch.setattr(os, "mkdir", beaten)
    assert held(tmp_path, [".envrc"]) == {".envrc": False}
