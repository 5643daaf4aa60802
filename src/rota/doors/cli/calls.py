"""Callables named on the command line."""

from __future__ import annotations

import sys
from pathlib import Path

from rota.errors import Invalid
from rota.executors.inprocess.calls import resolve


def look_here() -> None:
    """Let modules in the current folder be found, as `python -m` would."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)


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
