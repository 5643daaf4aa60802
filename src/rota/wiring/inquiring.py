"""From settings to what answers SQL."""

from __future__ import annotations

from pathlib import Path

from rota.errors import SqlRefused
from rota.model.inquiries import Inquiry, Table
from rota.ports.inquirer import Inquirer
from rota.wiring.settings import Settings

IN_MEMORY = "a store in memory cannot be asked in SQL: use a file or PostgreSQL"
NO_ROLE = (
    "SQL is off: run what `rota sql role` prints in the database, then set sql_url to that role"
)


class NoInquirer:
    """Refuses, where there is nothing that can be asked safely."""

    def __init__(self, why: str) -> None:
        self._why = why

    async def ask(self, inquiry: Inquiry) -> Table:  # noqa: ARG002 - the port's shape
        """Say why not."""
        raise SqlRefused(self._why)

    async def close(self) -> None:
        """Nothing to let go of."""


def inquirer_of(settings: Settings) -> Inquirer:
    """Return what answers SQL about the store that settings name; nothing is opened yet."""
    if settings.store == "memory:":
        return NoInquirer(IN_MEMORY)
    if settings.store.startswith("sqlite:///"):
        from rota.stores.sqlite.inquiry import FileInquirer  # noqa: PLC0415 - the driver is heavy

        path = Path(settings.store.removeprefix("sqlite:///")).expanduser()
        return FileInquirer(str(path.absolute()))
    if settings.sql_url is None:
        return NoInquirer(NO_ROLE)
    from rota.stores.postgres.inquiry import RoleInquirer  # noqa: PLC0415

    return RoleInquirer(settings.store, settings.sql_url)


def sql_role_ddl(role: str | None = None) -> str:
    """Return what an administrator of PostgreSQL runs to switch SQL on."""
    from rota.stores.postgres.sql_role import ROLE, role_ddl  # noqa: PLC0415

    return role_ddl(role or ROLE)
