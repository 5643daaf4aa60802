"""The context of a CLI command: global options, a client, and the output.

Commands go to the daemon over HTTP if there is one, else to the database in this process. The
responses are the same.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from urllib.parse import quote

import typer

from rota.app.environment import CommandEnvironment, read_environment
from rota.cli.display import Column, Display
from rota.errors import NotFound, RotaError, Unavailable, shown

if TYPE_CHECKING:
    from rota.app.settings import Settings
    from rota.cli.local import MissingHome
    from rota.cli.remote import HttpClient
    from rota.store.store import Store

Answer = TypeVar("Answer")
Record = dict[str, Any]
REMOVE = object()
"""Value of a field to remove, sent as null; a field that is None is not sent."""

MAIN = "main"
MAX_NAMES = 1_000
AGAIN_SECONDS = 1.0
"""Delay before a daemon that stopped answering is contacted again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalOptions:
    """Options that are accepted anywhere on the command line."""

    home: str | None = None
    store: str | None = None
    url: str | None = None
    as_json: bool = False
    debug: bool = False


class CommandClient(Protocol):
    """Executes commands of the catalogue, in the daemon or in this process."""

    def call(self, method: str, path: str, body: Record, *, dry_run: bool = False) -> Record:
        """Return the response, which is empty after a dry run."""

    def fetch(self, run: int, name: str) -> Iterator[bytes]:
        """Yield the bytes of an artifact."""

    def close(self) -> None:
        """Close connections and the database."""


class CliContext:
    """The context of one command."""

    def __init__(
        self, context: typer.Context | GlobalOptions, *, creates_home: bool = False
    ) -> None:
        """Prepare a command; only one that `creates_home` works where there is none."""
        self._creates_home = creates_home
        options = context if isinstance(context, GlobalOptions) else context.obj
        self.invocation = options if isinstance(options, GlobalOptions) else GlobalOptions()
        self.out = Display(as_json=self.invocation.as_json)
        self._clients: list[CommandClient] = []
        if not isinstance(context, GlobalOptions):
            context.call_on_close(self.close)

    def call(
        self,
        method: str,
        path: str,
        body: Record | None = None,
        *,
        dry_run: bool = False,
        here: bool = False,
    ) -> Record:
        """Execute a command and return its response; a dry run ends the program.

        With `here` it runs in this process unless an address was given: functions, for example,
        cannot be named over the network.
        """
        response = self.try_call(method, path, body, dry_run=dry_run, here=here)
        if dry_run:
            self.out.record({"dry_run": True})
            self.out.line("Dry run: the request is valid, and nothing was changed.")
            raise typer.Exit(0)
        return response

    def try_call(
        self,
        method: str,
        path: str,
        body: Record | None = None,
        *,
        dry_run: bool,
        here: bool = False,
    ) -> Record:
        """Execute one of several commands; the response is empty after a dry run."""
        client = self._local_client if here and self.url is None else self._client
        given = {name: value for name, value in (body or {}).items() if value is not None}
        sent = {name: None if value is REMOVE else value for name, value in given.items()}
        return client.call(method, path, sent, dry_run=dry_run)

    def change(
        self,
        method: str,
        path: str,
        body: Record | None,
        sentence: str,
        *,
        dry_run: bool,
    ) -> Record:
        """Execute a command that changes something, and confirm it by a sentence.

        Names in braces stand for fields of the response.
        """
        response = self.call(method, path, body, dry_run=dry_run)
        self.out.record(response)
        self.out.line(sentence.format(**response))
        return response

    def show_list(
        self,
        found: Record,
        key: str,
        columns: Sequence[Column],
        empty: str,
        *,
        space: str | None = None,
        more: str | None = "--before",
    ) -> None:
        """Write one page of a list, with the option `more` for the next one."""
        self.out.record(found)
        if self.out.as_json:
            return
        zone = self.zone(space) if any(column.is_time for column in columns) else ""
        rows = [[column.text(record, zone) for column in columns] for record in found[key]]
        self.out.table([column.title(zone) for column in columns], rows, empty)
        if more is not None and found.get("next") is not None:
            self.out.talk(f"To see more, use {more} {found['next']}")

    def fetch(self, run: int, name: str) -> Iterator[bytes]:
        """Yield the bytes of an artifact."""
        return self._client.fetch(run, name)

    def task(
        self,
        method: str,
        task: str,
        rest: str = "",
        body: Record | None = None,
        *,
        dry_run: bool = False,
        here: bool = False,
        noun: str = "tasks",
    ) -> Record:
        """Execute a command on a task, or on its part of another noun."""
        space = (body or {}).get("space")
        try:
            path = f"/v1/{noun}/{quote(self.reference(task, space), safe='')}{rest}"
            return self.call(method, path, body, dry_run=dry_run, here=here)
        except RotaError as error:
            raise self.with_suggestion(error, task, space) from None

    def reference(self, task: str, space: str | None) -> str:
        """Return what identifies a task in a path: its id if the name contains a slash."""
        if "/" not in task:
            return task
        found = self.call("GET", "/v1/tasks", {"name": task, "space": space})["tasks"]
        own = [one for one in found if space or one["space"] == self.home_space]
        if not own:
            raise NotFound("task", task, "see `rota task list`")
        return str(own[0]["id"])

    def with_suggestion(self, error: RotaError, task: str, space: str | None) -> RotaError:
        """Return an error about an unknown task, with similar names."""
        if error.code != "not_found" or not str(error).startswith(f"no task {shown(task)}"):
            return error
        known = self.call("GET", "/v1/tasks", {"limit": MAX_NAMES})["tasks"]
        advice = suggest_task(task, space or self.home_space, known)
        return NotFound("task", task, advice) if advice else error

    @cached_property
    def zones(self) -> dict[str, str]:
        """The visible spaces with their time zones."""
        found = self.call("GET", "/v1/spaces")["spaces"]
        return {space["name"]: space["timezone"] for space in found}

    @cached_property
    def home_space(self) -> str:
        """The space of the caller."""
        return MAIN if MAIN in self.zones or not self.zones else next(iter(self.zones))

    def zone(self, space: str | None = None) -> str:
        """Return the time zone of a space."""
        return self.zones.get(space or self.home_space, "UTC")

    @cached_property
    def around(self) -> CommandEnvironment:
        """The environment variables of the command."""
        return read_environment(self.invocation.home)

    @property
    def url(self) -> str | None:
        """The address of a daemon, if one was given."""
        return self.invocation.url or self.around.url

    def daemon(self) -> HttpClient | None:
        """Return the daemon, if there is one; none if a database was named."""
        from rota.cli.remote import HttpClient, find_daemon, is_local, read_key  # noqa: PLC0415

        around = self.around
        if self.url is not None:
            key = around.key or (read_key(around.home) if is_local(self.url) else None)
            return HttpClient(self.url, key)
        if self.invocation.store is not None or around.store is not None:
            return None
        return find_daemon(around.home, around.key)

    @cached_property
    def _client(self) -> CommandClient:
        found = self.daemon()
        return self._local_client if found is None else self._opened(found)

    def reconnect(self) -> HttpClient | None:
        """Find the daemon again, which may have a new address after a restart, and use it."""
        found = self.daemon()
        if found is not None:
            self.__dict__.pop("_client", None)
        return found

    @cached_property
    def _local_client(self) -> CommandClient:
        from rota.cli.local import (  # noqa: PLC0415 - slow to load
            EmptyHome,
            LocalClient,
        )

        settings = self.settings()
        missing = None if self._creates_home else self.absence(settings)
        if missing is None:
            return self._opened(LocalClient(settings))
        if missing.named:
            raise Unavailable(missing.sentence)
        return self._opened(EmptyHome(settings, missing.sentence))

    def _opened(self, client: CommandClient) -> CommandClient:
        self._clients.append(client)
        return client

    def close(self) -> None:
        """Close the clients."""
        while self._clients:
            self._clients.pop().close()

    def settings(self, **typed: object) -> Settings:
        """Read the settings; typed options have priority."""
        from rota.app.settings import load_settings  # noqa: PLC0415 - slow to load

        return load_settings(self.invocation.home, self.invocation.store, **typed)

    def absence(self, settings: Settings) -> MissingHome | None:
        """Return which home or database is missing, if one is."""
        from rota.cli.local import find_absence  # noqa: PLC0415 - slow to load

        return find_absence(settings, home=self.invocation.home, store=self.invocation.store)

    def look(self, work: Callable[[Store], Awaitable[Answer]]) -> Answer:
        """Run a function on the store, opened read-only."""
        import asyncio  # noqa: PLC0415 - slow to load

        from rota.app.composition import open_store_read_only  # noqa: PLC0415

        settings = self.settings()

        async def session() -> Answer:
            async with open_store_read_only(settings) as store:
                return await work(store)

        return asyncio.run(session())


MAX_SUGGESTIONS = 3


def suggest_task(name: str, space: str, known: Iterable[dict[str, Any]]) -> str | None:
    """Return advice about a task that is not in a space, from all visible tasks."""
    tasks = list(known)
    elsewhere = sorted(task["space"] for task in tasks if task["name"] == name)
    if elsewhere:
        return f"there is one in {' and in '.join(elsewhere)}: choose it with --space"
    own = [task["name"] for task in tasks if task["space"] == space]
    lower = name.lower()
    close = [one for one in own if one.lower().startswith(lower)] if name else []
    close = close or get_close_matches(name, own, MAX_SUGGESTIONS)
    if not close:
        return None
    return f"did you mean {' or '.join(close[:MAX_SUGGESTIONS])}?"
