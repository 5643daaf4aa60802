"""Entry point of `rota`.

Help comes from a cache of rendered pages, so that it loads next to nothing. Everything else is run
by `command_line`.

Exit codes are those of `rota.commands.errors`; `rota verify` exits with 1 only if something does
not hold.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rota.cli.help_pages import COMPLETE, find_page, hoist

VERSION = frozenset({"--version", "-V"})


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    given = list(sys.argv[1:] if argv is None else argv)
    front, words = hoist(given)
    page = None if given[:1] == [COMPLETE] else find_page(words, _render)
    if page is not None:
        sys.stdout.write(page)
        return 0
    if words[:1] and words[0] in VERSION:
        from importlib.metadata import version  # noqa: PLC0415 - slow to load

        sys.stdout.write(f"rota {version('rota')}\n")
        return 0
    from rota.cli.terminal_filter import visible_output  # noqa: PLC0415 - help needs none of it

    with visible_output():
        return _complete(given[1:]) if given[:1] == [COMPLETE] else _run(front, words)


def _render(command: str) -> dict[str, str]:
    from rota.cli.command_line import render_pages  # noqa: PLC0415 - slow to load

    return render_pages(command)


def _run(front: Sequence[str], words: Sequence[str]) -> int:
    """Run a command, or report that it does not exist."""
    from rota.cli.help_pages import USAGE, refusal, report_error  # noqa: PLC0415

    refused = refusal(words, _render, cached=True)
    if refused is not None:
        return report_error({"code": "usage", "message": refused}, USAGE, as_json="--json" in front)
    from rota.cli.command_line import run_command  # noqa: PLC0415

    return run_command(front, words)


def _complete(words: list[str]) -> int:
    """Write completions; errors are silent."""
    from rota.cli.help_pages import candidates  # noqa: PLC0415

    try:
        found = candidates(words, _render)
    except Exception:  # noqa: BLE001 - a shell shows no errors while completing
        return 1
    sys.stdout.write("".join(f"{word}\n" for word in found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
