"""Renders the help pages from the commands: `python -m rota.doors.cli.rendering`."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path

from rota.doors.cli.app import MODULES, build_app
from rota.doors.cli.words import PAGES, page_name


def render_pages() -> Iterator[tuple[str, str]]:
    """Yield the name and the text of every help page."""
    app = build_app()
    yield page_name([]), _help([])
    groups = {group.name: group.typer_instance for group in app.registered_groups}
    for name in MODULES:
        yield page_name([name]), _help([name])
        group = groups.get(name)
        for info in group.registered_commands if group is not None else ():
            verb = str(info.name or getattr(info.callback, "__name__", ""))
            yield page_name([name, verb]), _help([name, verb])


def _help(words: list[str]) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        build_app()(args=[*words, "--help"], prog_name="rota", standalone_mode=False)
    return out.getvalue()


def write_pages(folder: Path) -> None:
    """Write every page to a folder and take away those that no command has any more."""
    folder.mkdir(exist_ok=True)
    pages = dict(render_pages())
    for old in folder.glob("*.txt"):
        if old.name not in pages:
            old.unlink()
    for name, text in pages.items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write_pages(Path(PAGES))
