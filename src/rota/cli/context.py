"""What a command has: global options, a client, and the output.

A command asks for what the catalogue offers, as any client does: the daemon over HTTP when there is
one, or else the database itself, in this process. The answers are the same.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from urllib.parse import quote

import typer

from rota.app.environment import CommandEnvironment, read_environment
from rota.cli.display import Display
from rota.errors import NotFound, RotaError, Unavailable, shown

if TYPE_CHECKING:
    from rota.app.settings import Settings
    from rota.cli.local import MissingHome
    from rota.cli.remote import HttpClient
    from rota.store.store import Store

Answer = TypeVar("Answer")
Record = dict[str, Any]
NO_MORE = object()
"""What a command says of something that is to be taken away; nothing at all leaves it as it is."""

MAIN = "main"
MOST_NAMES = 1_000
AGAIN_SECONDS = 1.0
"""How long after a daemon has gone silent it is looked for again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalOptions:
    """The options that may stand anywhere on the line."""

    home: str | None = None
    store: str | None = None
    url: str | None = None
    as_json: bool = False
    debug: bool = False


class CommandClient(Protocol):
    """Carries out a command of the catalogue, wherever that is."""

    def call(self, method: str, path: str, said: Record, *, dry_run: bool = False) -> Record:
        """Return the answer, which is empty for a rehearsal that went well."""

    def fetch(self, run: int, name: str) -> Iterator[bytes]:
        """Yield the bytes of an artifact."""

    def close(self) -> None:
        """Let go of what is held."""


class CliContext:
    """Serves one command."""

    def __init__(self, asked: typer.Context | GlobalOptions, *, makes: bool = False) -> None:
        """Serve the command of a context, or whoever closes the desk.

        A command that `makes` something makes the home and the database, too; for every other one
        they must be there.
        """
        self._makes = makes
        found = asked if isinstance(asked, GlobalOptions) else asked.obj
        self.invocation = found if isinstance(found, GlobalOptions) else GlobalOptions()
        self.out = Display(as_json=self.invocation.as_json)
        self._clerks: list[CommandClient] = []
        if not isinstance(asked, GlobalOptions):
            asked.call_on_close(self.close)

    def call(
        self,
        method: str,
        path: str,
        said: Record | None = None,
        *,
        dry_run: bool = False,
        here: bool = False,
    ) -> Record:
        """Have one command carried out and return its record.

        A rehearsal is told at once and ends the command line. `here` asks for this process, unless
        an address was given: some things may not be named over a wire.
        """
        answer = self.rehearsed(method, path, said, dry_run=dry_run, here=here)
        if dry_run:
            self.out.record({"dry_run": True})
            self.out.line("It would be done; nothing was changed.")
            raise typer.Exit(0)
        return answer

    def rehearsed(
        self,
        method: str,
        path: str,
        said: Record | None = None,
        *,
        dry_run: bool,
        here: bool = False,
    ) -> Record:
        """Have one command of several carried out, or rehearsed: then its record is empty."""
        clerk = self._here if here and self.url is None else self._clerk
        told = {name: value for name, value in (said or {}).items() if value is not None}
        plain = {name: None if value is NO_MORE else value for name, value in told.items()}
        return clerk.call(method, path, plain, dry_run=dry_run)

    def fetch(self, run: int, name: str) -> Iterator[bytes]:
        """Yield the bytes of an artifact, from wherever it is."""
        return self._clerk.fetch(run, name)

    def task(
        self,
        method: str,
        task: str,
        rest: str = "",
        said: Record | None = None,
        *,
        dry_run: bool = False,
        here: bool = False,
        noun: str = "tasks",
    ) -> Record:
        """Have a command carried out on a task, or what it has of a noun, by its id or its name."""
        space = (said or {}).get("space")
        try:
            path = f"/v1/{noun}/{quote(self.reference(task, space), safe='')}{rest}"
            return self.call(method, path, said, dry_run=dry_run, here=here)
        except RotaError as fault:
            raise self.better(fault, task, space) from None

    def reference(self, task: str, space: str | None) -> str:
        """Return what stands for a task in a path, where a slash would part it."""
        if "/" not in task:
            return task
        found = self.call("GET", "/v1/tasks", {"name": task, "space": space})["tasks"]
        own = [one for one in found if space or one["space"] == self.home_space]
        if not own:
            raise NotFound("task", task, "see `rota task list`")
        return str(own[0]["id"])

    def better(self, fault: RotaError, task: str, space: str | None) -> RotaError:
        """Return a fault about a task that does not exist, with those that may have been meant."""
        if fault.code != "not_found" or not str(fault).startswith(f"no task {shown(task)}"):
            return fault

        known = self.call("GET", "/v1/tasks", {"limit": MOST_NAMES})["tasks"]
        advice = advice_for(task, space or self.home_space, known)
        return NotFound("task", task, advice) if advice else fault

    @cached_property
    def zones(self) -> dict[str, str]:
        """The spaces that may be seen, with their time zones."""
        found = self.call("GET", "/v1/spaces")["spaces"]
        return {space["name"]: space["timezone"] for space in found}

    @cached_property
    def home_space(self) -> str:
        """The space of whoever asks."""
        return MAIN if MAIN in self.zones or not self.zones else next(iter(self.zones))

    def zone(self, space: str | None = None) -> str:
        """Return the zone in which times of a space are told."""
        return self.zones.get(space or self.home_space, "UTC")

    @cached_property
    def around(self) -> CommandEnvironment:
        """The variables of this command line."""
        return read_environment(self.invocation.home)

    @property
    def url(self) -> str | None:
        """The address of a daemon, if one was given."""
        return self.invocation.url or self.around.url

    def daemon(self) -> HttpClient | None:
        """Return the daemon to ask, if there is one; a database that was named is meant itself."""
        from rota.cli.remote import HttpClient, find_daemon, is_near, read_key  # noqa: PLC0415

        around = self.around
        if self.url is not None:
            key = around.key or (read_key(around.home) if is_near(self.url) else None)
            return HttpClient(self.url, key)
        if self.invocation.store is not None or around.store is not None:
            return None
        return find_daemon(around.home, around.key)

    @cached_property
    def _clerk(self) -> CommandClient:
        found = self.daemon()
        return self._here if found is None else self._kept(found)

    def ask_anew(self) -> HttpClient | None:
        """Return the daemon, which may have come back elsewhere, and ask it from now on."""
        found = self.daemon()
        if found is not None:
            self.__dict__.pop("_clerk", None)
        return found

    @cached_property
    def _here(self) -> CommandClient:
        from rota.cli.local import (  # noqa: PLC0415 - slow to load
            EmptyHome,
            LocalClient,
        )

        settings = self.settings()
        lost = None if self._makes else self.absence(settings)
        if lost is None:
            return self._kept(LocalClient(settings))
        if lost.named:
            raise Unavailable(lost.sentence)
        return self._kept(EmptyHome(settings, lost.sentence))

    def _kept(self, clerk: CommandClient) -> CommandClient:
        self._clerks.append(clerk)
        return clerk

    def close(self) -> None:
        """Let go of whoever was asked."""
        while self._clerks:
            self._clerks.pop().close()

    def settings(self, **typed: object) -> Settings:
        """Read the settings; what was typed wins."""
        from rota.app.settings import load_settings  # noqa: PLC0415 - slow to load

        return load_settings(self.invocation.home, self.invocation.store, **typed)

    def absence(self, settings: Settings) -> MissingHome | None:
        """Return what settings name and is not there."""
        from rota.cli.local import find_absence  # noqa: PLC0415 - slow to load

        return find_absence(settings, home=self.invocation.home, store=self.invocation.store)

    def look(self, work: Callable[[Store], Awaitable[Answer]]) -> Answer:
        """Do one piece of work that reads, on a store that nothing can be written to."""
        import asyncio  # noqa: PLC0415 - slow to load

        from rota.app.composition import open_store_read_only  # noqa: PLC0415

        settings = self.settings()

        async def session() -> Answer:
            async with open_store_read_only(settings) as store:
                return await work(store)

        return asyncio.run(session())


MOST_GUESSES = 3


def advice_for(name: str, space: str, known: Iterable[dict[str, Any]]) -> str | None:
    """Return what to say about a task that is not in a space, given all that may be seen."""
    tasks = list(known)
    elsewhere = sorted(task["space"] for task in tasks if task["name"] == name)
    if elsewhere:
        return f"there is one in {' and in '.join(elsewhere)}: say which with --space"
    own = [task["name"] for task in tasks if task["space"] == space]
    lower = name.lower()
    close = [one for one in own if one.lower().startswith(lower)] if name else []
    close = close or get_close_matches(name, own, MOST_GUESSES)
    if not close:
        return None
    return f"did you mean {' or '.join(close[:MOST_GUESSES])}?"
