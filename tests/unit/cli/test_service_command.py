"""`rota service`: the files it writes, the words it says to the service manager."""

import os
import plistlib
import shutil
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from rota.cli.installation import ServiceUnit, launchd_plist, says_the_same, systemd_unit

SERVICE = ServiceUnit(
    words=["/opt/my rota/bin/rota", "up"],
    home=Path('/home/ann/100% "mine" $HOME'),
    usual=False,
    drain=timedelta(seconds=30),
    store="postgresql://ann:pa%ss@db/rota",
    path="/home/ann/.local/bin:/50%/$HOME:/usr/bin",
)
UNIT = r"""# Made by `rota service install`, which makes it anew.
[Unit]
Description=Rota, the duty roster for agents (/home/ann/100%% "mine" $HOME)
StartLimitIntervalSec=0

[Service]
Type=exec
ExecStart="/opt/my rota/bin/rota" "up"
Environment="ROTA_HOME=/home/ann/100%% \"mine\" $HOME"
Environment="ROTA_STORE=postgresql://ann:pa%%ss@db/rota"
Environment="PATH=/home/ann/.local/bin:/50%%/$HOME:/usr/bin"
Restart=on-failure
RestartSec=2
RestartPreventExitStatus=2
KillMode=process
KillSignal=SIGTERM
TimeoutStopSec=50
Delegate=yes
DelegateSubgroup=rota.leaf
UMask=0077

[Install]
WantedBy=default.target
"""
MANAGER = """#!/bin/sh
echo "$@" >> "$0.said"
case "$*" in
  *is-active*) test -e "$0.active" ;;
  *" start "*) touch "$0.active" ;;
  *" stop "*) rm -f "$0.active" ;;
esac
"""


def test_the_unit_ends_the_daemon_alone_and_gives_it_its_control_group():
    assert systemd_unit(SERVICE) == UNIT


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is missing")
def test_systemd_understands_the_unit(tmp_path):
    program = tmp_path / "a rota $HOME %h" / "rota"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    service = ServiceUnit(
        words=[str(program), "up"], home=SERVICE.home, usual=True, drain=SERVICE.drain
    )
    file = tmp_path / "rota.service"
    file.write_text(systemd_unit(service))
    words = ["systemd-analyze", "--user", "verify", "--man=no", str(file)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if "Failed to initialize manager" in done.stderr or "Failed to connect" in done.stderr:
        pytest.skip("systemd cannot look at user units here: " + done.stderr.strip()[:80])
    assert (done.returncode, done.stderr) == (0, "")


def test_the_agent_of_launchd_says_the_same():
    facts = plistlib.loads(launchd_plist(SERVICE).encode())
    assert facts["ProgramArguments"] == ["/opt/my rota/bin/rota", "up"]
    assert facts["EnvironmentVariables"]["ROTA_HOME"] == '/home/ann/100% "mine" $HOME'
    assert facts["EnvironmentVariables"]["PATH"] == SERVICE.path
    assert facts["AbandonProcessGroup"] is True
    assert facts["KeepAlive"] == {"SuccessfulExit": False}
    assert facts["ExitTimeOut"] == 50
    assert facts["Label"].startswith("org.rota.rota-")


def test_each_home_has_a_service_of_its_own():
    def name(home, usual=False):
        return ServiceUnit(words=[], home=Path(home), usual=usual, drain=SERVICE.drain).name

    assert name("/home/ann/.rota", usual=True) == "rota"
    assert name("/a/work") != name("/b/work")
    assert all(c.isalnum() or c == "-" for c in name("/srv/größe ../x y"))


@pytest.fixture
def manager(tmp_path, monkeypatch):
    """A systemctl that writes down what it is told, in a home of its own."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("systemctl", "journalctl"):
        (tools / name).write_text(MANAGER)
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(sys, "platform", "linux")
    return tools / "systemctl.said"


def test_a_service_is_installed_started_looked_at_and_stopped(rota, manager, tmp_path):
    assert rota("service", "status").code == 1
    assert "rota service install" in rota.refused("service", "start", code=6)
    rota.ok("service", "install")
    (file,) = (tmp_path / ".config/systemd/user").iterdir()
    assert f'Environment="ROTA_HOME={rota.home}"' in file.read_text()
    assert file.stat().st_mode & 0o077 == 0
    unit = file.name
    assert manager.read_text().splitlines() == ["--user daemon-reload", f"--user enable {unit}"]
    assert rota("service", "status").code == 1
    rota.ok("service", "start")
    assert rota.json("service", "status") == {
        "file": str(file),
        "installed": True,
        "current": True,
        "running": True,
    }
    rota.ok("service", "logs", "-n", "5")
    said = manager.with_name("journalctl.said").read_text()
    assert f"--unit {unit}" in said
    assert "--lines 5" in said
    rota.ok("service", "stop")
    assert rota("service", "status", "--json").json["running"] is False
    rota.ok("service", "install")
    assert [path.name for path in file.parent.iterdir()] == [unit]


def test_a_rehearsal_shows_the_file_and_writes_nothing(rota, manager, tmp_path):
    shown = rota.ok("service", "install", "--dry-run")
    assert "KillMode=process" in shown.out
    assert "Would run: systemctl --user daemon-reload" in shown.err
    for manager_name, word in (("systemd", "Delegate=yes"), ("launchd", "AbandonProcessGroup")):
        told = rota.json("service", "install", "--dry-run", "--manager", manager_name)
        assert word in told["text"]
    assert not (tmp_path / ".config").exists()
    assert not manager.exists()


def test_another_manager_is_refused(rota, manager):
    assert "systemd or launchd" in rota.refused("service", "install", "--manager", "upstart")


def test_what_the_manager_refuses_is_told(rota, manager):
    rota.ok("service", "install")
    manager.with_name("systemctl").write_text("#!/bin/sh\nexit 1\n")
    answer = rota("service", "start")
    assert answer.code == 6
    assert "failed" in answer.err


@pytest.mark.parametrize("text", [systemd_unit, launchd_plist])
def test_another_path_alone_makes_no_other_service(text):
    assert says_the_same(text(SERVICE), text(replace(SERVICE, path="/usr/bin")))
    assert not says_the_same(text(SERVICE), text(replace(SERVICE, store=None)))
    assert not says_the_same(text(SERVICE), text(replace(SERVICE, path=None)))


@pytest.mark.parametrize("name", ["systemd", "launchd"])
def test_the_service_has_the_path_of_the_shell_that_installs_it(rota, manager, monkeypatch, name):
    monkeypatch.setenv("PATH", f"/opt/node/bin:{os.environ['PATH']}")
    shown = rota.ok("service", "install", "--dry-run", "--manager", name)
    assert os.environ["PATH"] in shown.out


def test_a_service_that_another_shell_has_installed_is_current(rota, manager, monkeypatch):
    rota.ok("service", "install")
    rota.ok("service", "start")
    monkeypatch.setenv("PATH", f"/opt/node/bin:{os.environ['PATH']}")
    assert rota.json("service", "status")["current"] is True
