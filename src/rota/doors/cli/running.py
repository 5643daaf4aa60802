"""Runs one command and tells what went wrong in one sentence."""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Sequence

import typer
from typer.exceptions import TyperException

from rota.doors.cli.app import build_app
from rota.errors import Invalid, Refused, RotaError

DONE = 0
UNAVAILABLE = 1
REFUSED = 2
INTERRUPTED = 130
FINDING = frozenset({"verify"})
"""Commands that exit with 1 for what they found, and so with 2 for everything else."""


def run_command(front: Sequence[str], words: Sequence[str]) -> int:
    """Run the command that words name, with the options that may stand anywhere in front."""
    as_json, debug = "--json" in front, "--debug" in front
    command = words[0] if words else ""
    not_done = REFUSED if command in FINDING else UNAVAILABLE
    app = build_app(command)
    try:
        code = app(args=[*front, *words], prog_name="rota", standalone_mode=False)
    except TyperException as fault:
        return _tell(fault.format_message().rstrip("."), "usage", REFUSED, as_json=as_json)
    except typer.Exit as ending:
        return ending.exit_code
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except Refused as fault:
        field = fault.field if isinstance(fault, Invalid) else None
        return _tell(str(fault), fault.code, REFUSED, field=field, as_json=as_json)
    except RotaError as fault:
        return _tell(str(fault), fault.code, not_done, as_json=as_json)
    except Exception as fault:  # noqa: BLE001 - the last word of the program
        if debug:
            traceback.print_exc()
        sentence = f"unexpected: {type(fault).__name__}: {_first_line(fault)}"
        advice = "" if debug else "; run it again with --debug to see where"
        return _tell(sentence + advice, "unexpected", not_done, as_json=as_json)
    return code if isinstance(code, int) else DONE


def _first_line(fault: BaseException) -> str:
    return str(fault).partition("\n")[0]


def _tell(
    sentence: str, code: str, exit_code: int, *, field: str | None = None, as_json: bool
) -> int:
    if as_json:
        error: dict[str, str] = {"code": code, "message": sentence}
        if field is not None:
            error["field"] = field
        sys.stderr.write(json.dumps({"error": error}, ensure_ascii=False) + "\n")
    else:
        sys.stderr.write(f"rota: {sentence}\n")
    return exit_code
