"""Calls one function: the program of a script `module:function`; needs only Python.

Arguments: MODULE:FUNCTION RESULT-FILE ARGUMENT... The function gets the JSON on stdin, and what it
returns is the result.
"""

import importlib
import json
import sys
from typing import Any


def main() -> None:
    """Call the function; an exception ends the script."""
    entry, result, *words = sys.argv[1:]
    module, _, name = entry.partition(":")
    sys.path[0] = ""  # import modules from the working folder
    sys.argv = [entry, *words]
    function: Any = importlib.import_module(module)
    for part in name.split("."):
        function = getattr(function, part)
    given = function(json.load(sys.stdin))
    if given is not None:
        with open(result, "w", encoding="utf-8") as file:  # noqa: PTH123
            json.dump(given, file)


if __name__ == "__main__":
    main()
