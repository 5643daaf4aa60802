"""The files by which a service manager keeps `rota up` running, as text."""

from __future__ import annotations

import hashlib
import plistlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

NAME = "rota"
LABEL = "org.rota"
STOP_SLACK = timedelta(seconds=20)
"""Beyond the drain, before a service manager may kill: what ended has to be written down."""
_PATH = re.compile(r'(Environment="PATH=|<key>PATH</key>\s*<string>).*')
USAGE = 2
"""The exit code of settings that are wrong: starting again will not mend them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """One daemon that is kept running: the words that start it, and where it lives."""

    words: Sequence[str]
    home: Path
    usual: bool
    drain: timedelta
    store: str | None = None
    path: str | None = None

    @property
    def name(self) -> str:
        """Its name to a service manager; a home of one's own makes a service of its own."""
        if self.usual:
            return NAME
        short = re.sub(r"[^A-Za-z0-9]+", "-", self.home.name).strip("-") or "home"
        return f"{NAME}-{short}-{hashlib.sha256(str(self.home).encode()).hexdigest()[:6]}"

    @property
    def label(self) -> str:
        """Its name on macOS."""
        return f"{LABEL}.{self.name}"

    @property
    def log(self) -> Path:
        """Where its log goes on macOS, which has no journal."""
        return self.home / "rota.log"

    @property
    def environment(self) -> dict[str, str]:
        """What it is told beside its settings file."""
        told = {"ROTA_HOME": str(self.home), "ROTA_STORE": self.store, "PATH": self.path}
        return {name: value for name, value in told.items() if value is not None}

    @property
    def stop_seconds(self) -> int:
        """How long it may take to stop."""
        return int((self.drain + STOP_SLACK).total_seconds())


def systemd_unit(service: Service) -> str:
    """Return a user unit.

    A stop ends the daemon and nothing else: what it started is handed over, not killed. Delegate
    gives it the right to part its own control group, where it bounds what it starts; it stands in a
    leaf of that group itself (an older systemd than 254 does not know that word and passes it by).
    """
    start = " ".join(_word(word, command=True) for word in service.words)
    environment = "\n".join(
        f"Environment={_word(f'{name}={value}')}" for name, value in service.environment.items()
    )
    return f"""\
# Made by `rota service install`, which makes it anew.
[Unit]
Description=Rota, the duty roster for agents ({_plain(str(service.home))})
StartLimitIntervalSec=0

[Service]
Type=exec
ExecStart={start}
{environment}
Restart=on-failure
RestartSec=2
RestartPreventExitStatus={USAGE}
KillMode=process
KillSignal=SIGTERM
TimeoutStopSec={service.stop_seconds}
Delegate=yes
DelegateSubgroup=rota.leaf
UMask=0077

[Install]
WantedBy=default.target
"""


def launchd_plist(service: Service) -> str:
    """Return an agent for launchd; AbandonProcessGroup is its word for ending the daemon alone."""
    facts = {
        "Label": service.label,
        "ProgramArguments": list(service.words),
        "EnvironmentVariables": service.environment,
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "ThrottleInterval": 2,
        "AbandonProcessGroup": True,
        "ExitTimeOut": service.stop_seconds,
        "Umask": 0o077,
        "StandardOutPath": str(service.log),
        "StandardErrorPath": str(service.log),
    }
    return plistlib.dumps(facts, sort_keys=False).decode()


def says_the_same(one: str, other: str) -> bool:
    """Tell whether two files are the same but for the PATH: that is of the shell that wrote it."""
    return _PATH.sub(r"\1", one) == _PATH.sub(r"\1", other)


def _word(text: str, *, command: bool = False) -> str:
    """Return a word as systemd reads it back: `%` begins a specifier, `$` a variable."""
    text = _plain(text.replace("\\", "\\\\").replace('"', '\\"'))
    return f'"{text.replace("$", "$$") if command else text}"'


def _plain(text: str) -> str:
    return text.replace("%", "%%").replace("\n", " ")
