"""`rota check`: are the settings right? Nothing is started, created or changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from datetime import timedelta
from pathlib import Path

import typer

from rota.doors.cli.desk import Desk
from rota.timing.durations import format_duration
from rota.wiring.addresses import hidden_password
from rota.wiring.settings import FILE_NAME, Settings, read_settings, unknown_variables


def register(app: typer.Typer) -> None:
    """Add this command."""
    app.command("check")(check)


def check(context: typer.Context) -> None:
    """Read the settings and say everything that is wrong with them.

    Exits with 2 if something is wrong.

    Example: rota check
    """
    desk = Desk(context)
    settings, faults = read_settings(desk.invocation.home, desk.invocation.store)
    warnings = [f"{name} is not a setting and has no effect" for name in unknown_variables()]
    shown = {} if settings is None else _shown(settings)
    desk.out.record({"ok": not faults, "faults": faults, "warnings": warnings, "settings": shown})
    for warning in warnings:
        desk.out.line(f"Note: {warning}.")
    if settings is None:
        desk.out.line(f"{len(faults)} wrong in the settings:")
        for fault in faults:
            desk.out.line(f"  {fault}")
        raise typer.Exit(2)
    there = "read" if settings.file.exists() else "not there, defaults hold"
    desk.out.line(f"The settings are right ({FILE_NAME}: {there}).")
    desk.out.pairs(
        [
            (name, f"{_written(value)}{'  (set)' if name in settings.given else ''}")
            for name, value in shown.items()
        ]
    )


def _shown(settings: Settings) -> dict[str, str | int | bool]:
    values = {f.name: getattr(settings, f.name) for f in fields(settings) if f.name != "given"}
    return {name: _plain(value) for name, value in values.items()}


def _written(value: str | int | bool) -> str:
    """Return a value as it stands in the file."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _plain(value: object) -> str | int | bool:
    if isinstance(value, timedelta):
        return format_duration(value) if value else "0s"
    if isinstance(value, Path):
        return str(value)
    if value is None or isinstance(value, (tuple, Mapping)):
        return ", ".join(value or ())
    return (
        hidden_password(value)
        if isinstance(value, str)
        else bool(value)
        if isinstance(value, bool)
        else int(str(value))
    )
