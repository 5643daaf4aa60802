"""Runs one command and tells what went wrong in one sentence."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence

import typer
from typer.exceptions import TyperException
from typer.main import get_command

from rota.doors.cli.app import as_typed, build_app
from rota.doors.cli.misspelt import USAGE, tell
from rota.doors.cli.refusals import as_typed_there
from rota.doors.kit.faults import DONE, FAILED, INTERRUPTED, fault_record, told
from rota.errors import RotaError

FINDING = frozenset({"verify"})
"""Commands that exit with 1 for what they found, and so with 2 for what is unexpected."""


def run_command(front: Sequence[str], words: Sequence[str]) -> int:
    """Run the command that words name, with the options that may stand anywhere in front."""
    as_json, debug = "--json" in front, "--debug" in front
    command = words[0] if words else ""
    line = as_typed(get_command(build_app(command)))
    try:
        code = line(args=[*front, *words], prog_name="rota", standalone_mode=False)
    except TyperException as fault:
        return tell(_error("usage", _sentence(fault)), USAGE, as_json=as_json)
    except typer.Exit as ending:
        return ending.exit_code
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except RotaError as fault:
        error = fault_record(fault)["error"]
        field = getattr(fault, "field", None)
        if field is not None:
            error["field"] = field
        if field is not None and not as_json:
            error["message"] = as_typed_there(error["message"], field, words)
        return tell(error, getattr(fault, "exit_code", told(fault).exit_code), as_json=as_json)
    except Exception as fault:  # noqa: BLE001 - the last word of the program
        if debug:
            traceback.print_exc()
        advice = "" if debug else "; run it again with --debug to see where"
        sentence = f"unexpected: {type(fault).__name__}: {_first_line(fault)}{advice}"
        not_done = USAGE if command in FINDING else FAILED
        return tell(_error("unexpected", sentence), not_done, as_json=as_json)
    return code if isinstance(code, int) else DONE


def _sentence(fault: TyperException) -> str:
    text = fault.format_message().rstrip(".").replace(". Did you", ": did you")
    return text[:1].lower() + text[1:]


def _first_line(fault: BaseException) -> str:
    return str(fault).partition("\n")[0]


def _error(code: str, sentence: str) -> dict[str, str]:
    return {"code": code, "message": sentence}
