"""What a tool of the host would run later is held, whoever else makes it."""

import os

from rota.keeper.paths import guard_names


def held(folder, names):
    opened = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    made = guard_names(str(folder), opened, names)
    for one in made:
        os.close(one.descriptor)
    os.close(opened)
    return {one.path.removeprefix(f"{folder}/"): one.write for one in made}


def test_what_holds_a_name_holds_it_for_the_next_attempt_too(tmp_path):
    """Whoever is not root can make nothing inside it."""
    names = [".git/hooks", ".git/config", ".envrc"]
    assert held(tmp_path, names) == held(tmp_path, names) == {".git": False, ".envrc": False}
    assert list((tmp_path / ".git").iterdir()) == []


def test_a_repository_stays_writable_but_for_what_git_would_run(tmp_path):
    (tmp_path / ".git").mkdir()
    names = [".git/hooks", ".git/config"]
    assert held(tmp_path, names) == {".git": True, ".git/hooks": False, ".git/config": False}


def test_a_name_that_another_attempt_makes_at_the_same_moment_is_held(tmp_path, monkeypatch):
    make = os.mkdir

    def beaten(name, mode, *, dir_fd):
        make(name, mode, dir_fd=dir_fd)
        make(name, mode, dir_fd=dir_fd)  # as if somebody else had been faster

    monkeypatch.setattr(os, "mkdir", beaten)
    assert held(tmp_path, [".envrc"]) == {".envrc": False}
