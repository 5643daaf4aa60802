"""Completion as people have it: real shells, the script installed as the page says, live names."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
import time

import pytest

PATIENCE = 60.0
BEGUN = {
    "rota run ti": "rota run tidy",
    "rota task sho": "rota task show",
    "rota task show te": "rota task show tell-ann",
    "rota task create --execut": "rota task create --executor",
    "rota runs --task ti": "rota runs --task tidy",
    "rota apply pla": "rota apply plans.toml",
}
"""What is typed before the key is pressed, and what stands there afterwards."""
START = {
    "bash": "PS1='$ '\nsource <(rota completion bash)\n",
    "zsh": "autoload -Uz compinit; compinit -u\nsource <(rota completion zsh)\n",
    "zsh, from its folder": "fpath=($HOME $fpath)\nautoload -Uz compinit; compinit -u\n",
}
TELL = {
    "bash": """
bind -x '"\\C-g": printf "%s\\n" "$READLINE_LINE" >"$SAID"'
""",
    "zsh": """
report() { print -r -- "$BUFFER" >"$SAID" }
zle -N report
bindkey '^G' report
""",
}
"""A key that writes the line into a FIFO."""


@pytest.fixture
def typist(house):
    """A house with two tasks, and the environment of somebody who types there."""
    for name in ("tidy", "tell-ann"):
        house.json("task", "create", name, "--call", "rota.samples:hello", "--every", "1h")
    programs = house.folder / "bin"
    programs.mkdir()
    (programs / "rota").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m rota.cli.main "$@"\n')
    (programs / "rota").chmod(0o755)
    (house.folder / "plans.toml").touch()
    told = house._environment({"HOME": str(house.folder), "TERM": "dumb", "PS1": "$ "})
    house.env = told | {
        "PATH": f"{programs}:{told['PATH']}",
        "SAID": str(house.folder / "said"),
        "ZDOTDIR": str(house.folder),
        "XDG_CONFIG_HOME": str(house.folder / "config"),
    }
    return house


def installed(shell):
    return shutil.which(shell) or pytest.skip(f"{shell} is not installed")


@pytest.mark.parametrize("way", list(START))
def test_a_line_is_completed_when_the_key_is_pressed(typist, way):
    shell = way.partition(",")[0]
    program = installed(shell)
    os.mkfifo(typist.env["SAID"])
    if shell == "bash":
        (typist.folder / "start").write_text(START[way] + TELL[shell])
        words = [program, "--noprofile", "--rcfile", str(typist.folder / "start"), "-i"]
    else:
        (typist.folder / ".zshrc").write_text(START[way] + TELL[shell])
        (typist.folder / "_rota").write_text(typist.rota("completion", "zsh").stdout)
        words = [program, "-d", "-i"]
    with Terminal(typist, words) as terminal:
        found = {begun: terminal.completed(begun) for begun in BEGUN}
    assert {begun: line.rstrip() for begun, line in found.items()} == BEGUN, terminal.shown


def test_fish_lists_what_may_come_next(typist):
    program = installed("fish")
    folder = typist.folder / "config" / "fish" / "completions"
    folder.mkdir(parents=True)
    (folder / "rota.fish").write_text(typist.rota("completion", "fish").stdout)

    def listed(line):
        done = subprocess.run(
            [program, "-c", "complete -C $argv[1]", line],
            cwd=typist.folder,
            env=typist.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=True,
        )
        assert done.stderr == ""
        return done.stdout.split()

    for begun, whole in BEGUN.items():
        assert whole.split()[-1] in listed(begun), begun
    assert listed("rota run t") == ["tell-ann", "tidy"], "and no files beside them"
    assert "plans.toml" not in listed("rota ")


class Terminal:
    """A shell on a terminal, and the line that stands in it."""

    def __init__(self, house, words):
        self.said = os.open(house.env["SAID"], os.O_RDWR)  # so that it never ends
        self.shown = b""
        self.pid, self.line = pty.fork()
        if self.pid == 0:
            os.chdir(house.folder)
            os.execve(words[0], words, house.env)  # noqa: S606

    def __enter__(self):
        self.until(b"$ ")
        return self

    def __exit__(self, *_):
        os.write(self.line, b"\x15exit\r")
        try:
            while os.read(self.line, 4096):
                pass
        except OSError:
            pass
        os.close(self.line)
        os.close(self.said)
        os.waitpid(self.pid, 0)

    def until(self, text):
        """Take in what the shell shows until it shows a text."""
        end = time.monotonic() + PATIENCE
        while text not in self.shown:
            ready, _, _ = select.select([self.line], [], [], max(0.0, end - time.monotonic()))
            assert ready, self.shown
            self.shown += os.read(self.line, 4096)

    def completed(self, begun):
        """Type, press the key, and return the line that stands there then."""
        os.write(self.line, b"\x15" + begun.encode() + b"\t\x07")
        told, end = b"", time.monotonic() + PATIENCE
        while not told.endswith(b"\n"):
            left = max(0.0, end - time.monotonic())
            ready, _, _ = select.select([self.said, self.line], [], [], left)
            assert ready, (begun, self.shown)
            if self.line in ready:
                self.shown += os.read(self.line, 4096)
            if self.said in ready:
                told += os.read(self.said, 4096)
        return told.decode()
