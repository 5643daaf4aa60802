"""Callables named on the command line."""

from __future__ import annotations

import sys
from pathlib import Path

from rota.errors import Invalid
from rota.executors.inprocess.calls import resolve


def look_here(spaces: Path | None = None) -> None:
    """Let modules in the current folder be found, behind all that is installed.

    So no file there takes the place of a module that Rota has yet to load. One of the spaces, where
    programs behind walls may leave what they like, is left out.
    """
    here = Path.cwd()
    if spaces is not None and here.is_relative_to(spaces.resolve()):
        return
    if str(here) not in sys.path:
        sys.path.append(str(here))


def check_call(call: str, *, unchecked: bool) -> None:
    """Refuse a callable that cannot be imported from here, unless that was asked for."""
    module, colon, name = call.partition(":")
    if not (module and colon and name):
        raise Invalid("call", call, "write it as module:function")
    if unchecked:
        return
    look_here()
    advice = "; give --unchecked if only the daemon can import it"
    try:
        resolve(call)
    except Invalid as fault:
        raise Invalid("call", call, fault.advice + advice) from fault
    except Exception as fault:
        reason = f"importing it failed ({type(fault).__name__}: {fault})"
        raise Invalid("call", call, reason + advice) from fault
