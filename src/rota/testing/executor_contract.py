"""What every executor must do, tried with small shell programs under real keepers.

The programs use /bin/sh and its built-in commands alone, so that they run in any image.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from rota.errors import Unavailable
from rota.model.attempts import ExitReason, ExitRecord
from rota.model.programs import LimitEnforcement, Program, ResourceLimits
from rota.ports.executor import ExecutionSpec, Executor, KeeperSpec
from rota.rules.task_spec import LIMIT_FIELDS
from rota.testing.program_bench import PATIENCE, ProgramBench, ProgramRun

GRACE = 0.3
LOOK_SECONDS = 0.02
HIDING = """
exec 3<>waiting
for number in 1 2 3; do
    ( ( trap "" HUP INT TERM; read line <&3 ) & )
done
trap "" HUP INT TERM
echo hidden
read line <&3
"""
"""Processes that no parent knows and no polite signal ends; each holds the FIFO `waiting` open."""
READING = 'read line <"$1"; echo "end <$line>"\n'


@dataclass(frozen=True, slots=True)
class CompletedProgram:
    """How a program ended, and everything it has written; a terminal mixes both streams."""

    exit: ExitRecord
    output: str


class ExecutorBench:
    """The folders of one attempt after the other, and their programs."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = root / "work"
        self.home = root / "home"
        for path in (self.folder, self.home):
            path.mkdir()
        self.waiting = self.folder / "waiting"
        os.mkfifo(self.waiting)
        self._programs = ProgramBench()

    def spec(self, *, isolated: bool, image: str | None, limits: ResourceLimits) -> ExecutionSpec:
        """Return what a new attempt is given."""
        name = f"test-{secrets.token_hex(6)}"
        state = self.root / name
        state.mkdir(mode=0o700)
        return ExecutionSpec(
            name=name,
            state=str(state),
            folder=str(self.folder),
            home=str(self.home),
            bounds=limits,
            isolated=isolated,
            image=image,
        )

    def start(self, wrapped: KeeperSpec) -> ProgramRun:
        """Start a keeper for what an executor has wrapped."""
        return self._programs.start_spec(wrapped)

    def anyone_waits(self) -> bool:
        """Whether a process holds the FIFO `waiting` open, wherever it runs."""
        try:
            os.close(os.open(self.waiting, os.O_WRONLY | os.O_NONBLOCK))
        except OSError:
            return False
        return True

    def wait_until_nobody_waits(self) -> bool:
        """Wait until no process holds the FIFO; false if one stays."""
        deadline = time.monotonic() + PATIENCE
        while self.anyone_waits():
            if time.monotonic() > deadline:
                return False
            time.sleep(LOOK_SECONDS)
        return True

    def close(self) -> None:
        """End what is left and remove the folders."""
        self._programs.close()
        shutil.rmtree(self.root, ignore_errors=True)


class ExecutorContract:
    """For an `executor`: a fixture that may use the folder `attempt_root`.

    The folders that programs see lie in `attempt_root`. Override the fixtures `isolated` with
    False for an executor without isolation, and `image` for one that needs an image. Where
    something that the executor needs is missing, its tests are skipped.
    """

    timeout_seconds = 2.0
    """In how long a program surely starts; the test of timeouts waits for so long."""

    @pytest.fixture
    def attempt_root(self) -> Iterator[Path]:
        """Return a folder whose path is short enough for the sockets in it."""
        with tempfile.TemporaryDirectory(prefix="rota-", ignore_cleanup_errors=True) as folder:
            yield Path(folder).resolve()

    @pytest.fixture
    def isolated(self) -> bool:
        """Return whether its programs are to be isolated."""
        return True

    @pytest.fixture
    def image(self) -> str | None:
        """Return the image that its programs run in."""
        return None

    @pytest.fixture
    def bench(self, attempt_root: Path, executor: Executor) -> Iterator[ExecutorBench]:
        """Return folders for attempts, unless the executor cannot be used here."""
        missing = [each for each in executor.check() if each.needed]
        if missing:
            pytest.skip(f"no {executor.name} here: {missing[0]}")
        made = ExecutorBench(attempt_root)
        yield made
        made.close()

    @pytest.fixture
    def site(self, executor: Executor, bench: ExecutorBench, image: str | None) -> Site:
        """Return the executor with everything it is given."""
        return Site(executor, bench, image)

    def test_what_is_missing_is_named_with_a_remedy(self, executor: Executor) -> None:
        for each in executor.check():
            assert each.what
            assert each.where
            assert each.remedy

    def test_limits_are_named_with_who_they_hold_for(
        self, executor: Executor, *, isolated: bool
    ) -> None:
        held = executor.holds(isolated=isolated)
        assert set(held) <= set(LIMIT_FIELDS)
        assert set(held.values()) <= set(LimitEnforcement)

    def test_wrapping_decides_alike_and_starts_nothing(self, site: Site, *, isolated: bool) -> None:
        spec = site.spec(isolated=isolated)
        command = site.shell("echo started >started")
        first = site.executor.wrap(command, spec)
        assert site.executor.wrap(command, spec) == first
        assert first.name == spec.name
        assert not (site.bench.folder / "started").exists()

    def test_no_value_of_the_environment_is_on_a_command_line(
        self, site: Site, *, isolated: bool
    ) -> None:
        command = site.shell(":", env={"KEY": "open-sesame"})
        wrapped = site.executor.wrap(command, site.spec(isolated=isolated))
        assert not any("open-sesame" in word for word in wrapped.command.argv)

    def test_arguments_environment_input_folder_and_exit_code_arrive(
        self, site: Site, *, isolated: bool
    ) -> None:
        text = 'read line; echo "<$1> <$A> <$line> <$HOME>"; echo written >file; exit 7'
        done = site.run(text, "a  $b 'c'", env={"A": "x y"}, stdin=b"typed\n", isolated=isolated)
        assert f"<a  $b 'c'> <x y> <typed> <{site.bench.home}>" in done.output
        assert (done.exit.reason, done.exit.code) == (ExitReason.EXITED, 7)
        assert (site.bench.folder / "file").read_text() == "written\n"

    def test_both_streams_are_recorded(self, site: Site, *, isolated: bool) -> None:
        done = site.run("echo to-out; echo to-err >&2", isolated=isolated)
        assert {"to-out", "to-err"} <= set(done.output.split())

    def test_the_environment_of_this_process_stays_here(
        self, site: Site, monkeypatch: pytest.MonkeyPatch, *, isolated: bool
    ) -> None:
        monkeypatch.setenv("ROTA_TEST_CANARY", "singing")
        done = site.run("export -p; echo end", isolated=isolated)
        assert "end" in done.output
        assert "CANARY" not in done.output

    def test_a_program_that_does_not_exist_fails_with_its_name(
        self, site: Site, *, isolated: bool
    ) -> None:
        command = Program(argv=("/nonexistent/program",), cwd=str(site.bench.folder))
        done = site.finish(command, isolated=isolated)
        assert done.exit.code != 0
        assert "/nonexistent/program" in done.output + done.exit.detail

    def test_a_program_that_kills_itself_is_no_success(self, site: Site, *, isolated: bool) -> None:
        done = site.run("kill -9 $$", isolated=isolated)
        assert done.exit.code != 0
        assert done.exit.signal == signal.SIGKILL or done.exit.code == 128 + signal.SIGKILL

    def test_a_timeout_ends_every_process(self, site: Site, *, isolated: bool) -> None:
        limits = ResourceLimits(hard_seconds=self.timeout_seconds, grace_seconds=GRACE)
        done = site.run(HIDING, isolated=isolated, limits=limits)
        assert "hidden" in done.output
        assert done.exit.reason is ExitReason.HARD_TIMEOUT
        assert site.bench.wait_until_nobody_waits()

    def test_a_cancelled_program_leaves_no_process(self, site: Site, *, isolated: bool) -> None:
        run, wrapped = site.hidden(isolated=isolated)
        run.cancel(GRACE)
        assert run.ending().reason is ExitReason.CANCELLED
        site.sweep(wrapped)
        assert site.bench.wait_until_nobody_waits()

    def test_a_killed_keeper_leaves_no_process(self, site: Site, *, isolated: bool) -> None:
        run, wrapped = site.hidden(isolated=isolated)
        os.kill(run.pid, signal.SIGKILL)
        assert run.ending().reason in {ExitReason.LOST_KEEPER_DIED, ExitReason.LOST_UNSWEPT}
        site.sweep(wrapped)
        assert site.bench.wait_until_nobody_waits()

    def test_sweeping_needs_the_name_alone_and_may_be_repeated(
        self, site: Site, *, isolated: bool
    ) -> None:
        spec = site.spec(isolated=isolated)
        for _ in range(2):
            site.sweep(KeeperSpec(name=spec.name, command=Program(argv=())))

    def test_isolation_is_kept_or_refused(self, site: Site, attempt_root: Path) -> None:
        secret = attempt_root / "secret"
        secret.write_text("hidden-from-programs\n")
        try:
            done = site.run(READING + 'echo changed >"$1"', str(secret), isolated=True)
        except Unavailable:
            return
        assert "end <>" in done.output
        assert secret.read_text() == "hidden-from-programs\n"

    def test_an_isolated_program_does_not_see_its_own_state(self, site: Site) -> None:
        spec = site.spec(isolated=True)
        (Path(spec.state) / "orders").write_text("hidden-from-programs\n")
        try:
            wrapped = site.executor.wrap(site.shell(READING, f"{spec.state}/orders"), spec)
        except Unavailable:
            return
        assert "end <>" in site.complete(wrapped).output


class Site:
    """An executor on a bench: short words for what the contract does."""

    def __init__(self, executor: Executor, bench: ExecutorBench, image: str | None) -> None:
        self.executor = executor
        self.bench = bench
        self._image = image

    def spec(self, *, isolated: bool, limits: ResourceLimits | None = None) -> ExecutionSpec:
        """Return what a new attempt is given."""
        bounds = limits or ResourceLimits(grace_seconds=GRACE)
        return self.bench.spec(isolated=isolated, image=self._image, limits=bounds)

    def shell(
        self,
        text: str,
        *words: str,
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
    ) -> Program:
        """Return a shell that runs a text in the working folder."""
        argv = ("/bin/sh", "-c", text, "sh", *words)
        return Program(argv=argv, env=env or {}, cwd=str(self.bench.folder), stdin=stdin)

    def run(
        self,
        text: str,
        *words: str,
        isolated: bool,
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        limits: ResourceLimits | None = None,
    ) -> CompletedProgram:
        """Run a text in a shell to its end."""
        command = self.shell(text, *words, env=env, stdin=stdin)
        return self.finish(command, isolated=isolated, limits=limits)

    def finish(
        self, command: Program, *, isolated: bool, limits: ResourceLimits | None = None
    ) -> CompletedProgram:
        """Run a program to its end."""
        return self.complete(
            self.executor.wrap(command, self.spec(isolated=isolated, limits=limits))
        )

    def complete(self, wrapped: KeeperSpec) -> CompletedProgram:
        """Run what was wrapped to its end, and clean up behind it."""
        run = self.bench.start(wrapped)
        ending = run.ending()
        self.sweep(wrapped)
        output = (run.out() + b"\n" + run.out("err")).decode(errors="replace")
        return CompletedProgram(ending, output)

    def hidden(self, *, isolated: bool) -> tuple[ProgramRun, KeeperSpec]:
        """Start a program whose processes hide; return once they do."""
        wrapped = self.executor.wrap(self.shell(HIDING), self.spec(isolated=isolated))
        run = self.bench.start(wrapped)
        run.says(b"hidden")
        assert self.bench.anyone_waits()
        return run, wrapped

    def sweep(self, wrapped: KeeperSpec) -> None:
        """Clean up until nothing is left."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                self.executor.sweep(wrapped)
            except Unavailable:
                if time.monotonic() > deadline:
                    raise
                time.sleep(LOOK_SECONDS)
            else:
                return
