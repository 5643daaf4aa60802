"""Look at a pane, and type into it. What comes out of it is data, never to be trusted."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from dataclasses import dataclass

from rota.errors import NotFound, NotPermitted, Unavailable
from rota.executors.kit.executor import SEARCH_PATH
from rota.executors.tmux.files import SESSION, SOCKET
from rota.model.texts import clean

PATIENCE = 5.0
BUFFER = "rota"
LONGEST_CAPTURE = 16_000


@dataclass(frozen=True, slots=True)
class Pane:
    """The pane of one attempt, by its state folder."""

    state: str
    search_path: str = SEARCH_PATH

    @property
    def there(self) -> bool:
        """Whether there is a pane; raises NotPermitted if it is another user's."""
        try:
            facts = os.lstat(f"{self.state}/{SOCKET}")
        except (FileNotFoundError, NotADirectoryError):
            return False
        except PermissionError:
            facts = None
        if facts is None or facts.st_uid != os.geteuid():
            raise NotPermitted("the pane is another user's: ask as the user that runs Rota")
        return stat.S_ISSOCK(facts.st_mode)

    def attach_argv(self, *, typing: bool = False) -> list[str]:
        """Return what shows the living pane in a terminal; keys reach it only when `typing`."""
        words = self._words("attach-session", "-t", SESSION)
        return words if typing else [*words, "-r"]

    def lives(self) -> bool:
        """Whether the pane goes on."""
        return not self._ask("has-session", "-t", SESSION).returncode

    def capture(self) -> str:
        """Return what the pane shows now as safe text, cut at its end; nothing once it is gone."""
        done = self._ask("capture-pane", "-p", "-t", SESSION)
        if done.returncode:
            return ""
        return clean(done.stdout.decode(errors="replace")).rstrip()[:LONGEST_CAPTURE]

    def send(self, text: str, *, enter: bool = True) -> None:
        """Type text as if it were pasted: no key, no escape sequence, no command of tmux's."""
        plain = "".join(c for c in text if c in "\n\t" or c.isprintable())
        self._must("load-buffer", "-b", BUFFER, "-", given=plain.encode())
        self._must("paste-buffer", "-d", "-p", "-b", BUFFER, "-t", SESSION)
        if enter:
            self._must("send-keys", "-t", SESSION, "Enter")

    def _words(self, *words: str) -> list[str]:
        tmux = shutil.which("tmux", path=self.search_path)
        if not tmux:
            raise Unavailable("tmux is not installed here: install the package tmux")
        return [tmux, "-N", "-S", f"{self.state}/{SOCKET}", "-f", "/dev/null", *words]

    def _ask(self, *words: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        try:
            return subprocess.run(  # noqa: S603
                self._words(*words),
                input=given,
                capture_output=True,
                env={"PATH": self.search_path, "LANG": "C.UTF-8"},
                timeout=PATIENCE,
                check=False,
            )
        except subprocess.TimeoutExpired as fault:
            raise Unavailable("the pane does not answer: try again, or cancel the run") from fault

    def _must(self, *words: str, given: bytes = b"") -> None:
        if self._ask(*words, given=given).returncode:
            raise NotFound("pane", self.state, "the program has ended")
