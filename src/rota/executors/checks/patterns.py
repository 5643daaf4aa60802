"""Matching in a process of its own: a pattern that never ends is ended, and blocks nobody."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress

from rota.executors.kit.executor import Interpreter

SECONDS = 2.0
PROGRAM = """
import json, re, resource, sys
resource.setrlimit(resource.RLIMIT_CPU, (5, 5))
resource.setrlimit(resource.RLIMIT_AS, (1 << 29, 1 << 29))
pattern, text = json.load(sys.stdin)
print("yes" if re.search(pattern, text) else "no")
"""
ANSWERS = {b"yes\n": True, b"no\n": False}


async def matches(pattern: str, text: str, seconds: float = SECONDS) -> bool | None:
    """Whether a pattern is found in a text; None if that took too long or went wrong.

    The process ends by itself should this one die: it has a few seconds of a processor.
    """
    program = Interpreter.running().program
    pipe, nowhere = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    child = await asyncio.create_subprocess_exec(
        program, "-I", "-S", "-c", PROGRAM, stdin=pipe, stdout=pipe, stderr=nowhere, env={}
    )
    try:
        async with asyncio.timeout(seconds):
            out, _ = await child.communicate(json.dumps([pattern, text]).encode())
    except TimeoutError:
        return None
    finally:
        if child.returncode is None:
            with suppress(ProcessLookupError):
                child.kill()
            await child.wait()
    return ANSWERS.get(out)
