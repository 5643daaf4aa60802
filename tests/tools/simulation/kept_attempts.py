"""Kept attempts as the checker sees them: what was written, what is on record, and what lives."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NoReturn

from rota.model.attempts import ExitReason, OutputStream
from tests.tools.simulation.coverage import Sometimes
from tests.tools.simulation.database import Change, Row
from tests.tools.simulation.history import Violation
from tests.tools.simulation.machines import SLACK, Home, Keeper
from tests.tools.simulation.picture import Commit, Picture, process_of

OUTPUT = "run.output"
WATCHED = frozenset({"runs", "kept", "homes", "events"})


class KeptJudge:
    """Knows every tree that was ever started, and raises a Violation for a broken promise."""

    def __init__(
        self, sometimes: Sometimes, picture: Picture, reports: dict[tuple[int, int], object]
    ) -> None:
        self.clocks_agree = True
        self.homes: dict[str, Home] = {}
        self.living: Callable[[], set[str]] = set
        self._sometimes = sometimes
        self._picture = picture
        self._reports = reports
        self._trees: defaultdict[int, list[Keeper]] = defaultdict(list)
        self._nonces: set[str] = set()
        self._rows: dict[int, Row] = {}
        self._promises: dict[str, Row] = {}
        self._begun: Counter[tuple[int, int]] = Counter()

    # what happens on the machines

    def started(self, keeper: Keeper) -> None:
        """A tree came to life: the only one of its run, with a name of its own."""
        kept = keeper.kept
        attempt = (kept.run_id, kept.epoch)
        self._begun[attempt] += 1
        if self._begun[attempt] > 1:
            _broken("an attempt begins once", f"run {kept.run_id} epoch {kept.epoch} began twice")
        if kept.nonce in self._nonces:
            _broken("a nonce is never used again", kept.nonce)
        self._nonces.add(kept.nonce)
        for other in self._living(kept.run_id):
            _broken(
                "a run has one living tree",
                f"run {kept.run_id}: attempts {other.kept.epoch} and {kept.epoch}",
            )
        self._trees[kept.run_id].append(keeper)
        self._reports[attempt] = None
        row = self._rows.get(kept.run_id)
        if row is None or (row.epoch, row.nonce) != (kept.epoch, kept.nonce):
            _broken("an attempt is written down before it starts", f"run {kept.run_id}")

    def ended(self, keeper: Keeper) -> None:
        """A tree has ended: what it came to is what its spool says."""
        ending = keeper.ending
        if ending is not None and (ending.reason, ending.code) == (ExitReason.EXITED, 0):
            lines = keeper.spool(OutputStream.OUT).decode().splitlines()
            said = json.dumps(lines[-1]) if lines else None
            self._reports[keeper.kept.run_id, keeper.kept.epoch] = said

    def promised(self, home: Home, until: float) -> None:
        """The store believes in keepers for longer than they can live."""
        row = self._promises.get(home.name)
        if row is None:
            _broken("the store is told before the keepers", home.name)
        believed = self._seconds(row.until)
        if self.clocks_agree and believed < until + SLACK:
            detail = f"{home.name}: until {believed:.3f}, keepers until {until + SLACK:.3f}"
            _broken("a keeper ends before its lease", detail)

    def _seconds(self, micros: int) -> float:
        return micros / 1_000_000 - self.origin

    origin = 0.0
    """The seconds of the world's clock when the history began."""

    def _living(self, run_id: int) -> Iterator[Keeper]:
        """Yield the trees of a run that live, but for orphans, which only a sweep can find."""
        for keeper in self._trees[run_id]:
            if keeper.lives and not keeper.orphaned:
                yield keeper

    # what transactions write

    def committed(self, changes: Mapping[str, Sequence[Change]], commit: Commit) -> None:
        """Judge what a transaction did to runs that are kept."""
        if not changes.keys() & WATCHED:
            return
        for change in changes.get("runs", ()):
            if change.old is not None and change.new is not None:
                self._run(change.old, change.new, commit)
        told = self._told(changes)
        for change in changes.get("kept", ()):
            self._row(change, told, commit)
        for (run_id, stream), lines in told.items():
            _broken("output is recorded with its offset", f"run {run_id} {stream}: {lines[0]!r}")
        for change in changes.get("homes", ()):
            self._promises[change.new.id] = change.new

    def _run(self, old: Row, new: Row, commit: Commit) -> None:
        if (old.state, new.state) == ("running", "running") and old.holder != new.holder:
            self._adopted(old, new, commit)
        if old.state == "running" and new.state != "running":
            for keeper in self._living(new.id):
                _broken(
                    "a run goes on only when its tree is dead",
                    f"run {new.id} e{new.epoch} became {new.state}, {keeper.kept.epoch} lives",
                )
            row = self._rows.get(new.id)
            if row is not None and row.epoch == new.epoch:
                self._ended(old, new, row, commit)

    def _ended(self, old: Row, new: Row, row: Row, commit: Commit) -> None:
        if new.state == "succeeded":
            self._whole(new, row)
        if process_of(old.holder) != commit.process:
            self._sometimes.hit("a kept run is lost because nobody came back for it")

    def _whole(self, run: Row, row: Row) -> None:
        for keeper in self._trees[run.id]:
            if keeper.kept.epoch == run.epoch:
                for stream, at in ((OutputStream.OUT, row.out_at), (OutputStream.ERR, row.err_at)):
                    if at != len(keeper.spool(stream)):
                        detail = f"run {run.id} {stream}: {at} of {len(keeper.spool(stream))}"
                        _broken("everything that was said is on record", detail)

    def _adopted(self, old: Row, new: Row, commit: Commit) -> None:
        row = self._rows.get(new.id)
        holder = self._picture.workers.get(old.holder)
        if row is None or row.epoch != new.epoch or commit.operation != "adopt_attempt":
            _broken("only kept runs are adopted", f"run {new.id} by {commit.operation}")
        if holder is not None and not holder.fenced:
            _broken("only runs of fenced workers are adopted", f"run {new.id} of {old.holder}")
        home = self.homes[row.home].holder
        if home is None or home.name != commit.process or process_of(new.holder) != commit.process:
            _broken("only who has the home adopts", f"run {new.id} by {commit.process}")
        self._sometimes.hit("a kept run is adopted")
        if process_of(old.holder) != commit.process:
            self._sometimes.hit("a kept run is adopted by another process")

    def fenced(self, worker: Row, commit: Commit) -> None:
        """Who has a home knows that whoever had it before is gone, and nothing of others."""
        process = process_of(worker.id)
        if process == commit.process or process not in self.living():
            return
        if not any(process in home.left for home in self.homes.values()):
            _broken("who lives is not fenced", f"{worker.id} by {commit.process}")

    def _told(self, changes: Mapping[str, Sequence[Change]]) -> dict[tuple[int, str], list[str]]:
        told: dict[tuple[int, str], list[str]] = {}
        for change in changes.get("events", ()):
            if change.old is None and change.new.name == OUTPUT:
                data = json.loads(change.new.data)
                lines = told.setdefault((change.new.run_id, data["stream"]), [])
                lines += data["text"].splitlines()
        return told

    def _row(self, change: Change, told: dict[tuple[int, str], list[str]], commit: Commit) -> None:
        old, new = change.old, change.new
        if new is None:
            run = self._picture.runs.get(old.run_id)
            going = run is not None and (run.state, run.epoch) == ("running", old.epoch)
            if going and any(k.kept.epoch == old.epoch for k in self._living(old.run_id)):
                _broken("who lives is not forgotten", f"run {old.run_id} by {commit.operation}")
            del self._rows[old.run_id]
            return
        self._rows[new.run_id] = new
        if old is None or old.nonce != new.nonce:
            if (new.out_at, new.err_at) != (0, 0):
                _broken("an attempt begins unheard", f"run {new.run_id}")
            return
        trees = [tree for tree in self._trees[new.run_id] if tree.kept.nonce == new.nonce]
        for stream, start, end in (
            (OutputStream.OUT, old.out_at, new.out_at),
            (OutputStream.ERR, old.err_at, new.err_at),
        ):
            lines = told.pop((new.run_id, stream.value), [])
            written = trees[0].written(stream)[start:end].decode().splitlines() if trees else []
            if end < start or lines != written:
                detail = f"run {new.run_id} {stream} {start}-{end}: {lines}, not {written}"
                _broken("output is recorded once and in order", detail)

    # when everything is healed

    def left(self) -> Iterator[str]:
        """Say what is left of runs that have ended."""
        for run_id, trees in self._trees.items():
            for keeper in trees:
                if keeper.lives and not keeper.orphaned:
                    yield f"a tree of run {run_id} e{keeper.kept.epoch} lives"
        for row in self._rows.values():
            if self.homes[row.home].holder is not None:
                yield f"run {row.run_id} e{row.epoch} is still kept"


def _broken(rule: str, detail: str) -> NoReturn:
    raise Violation(rule, detail)
