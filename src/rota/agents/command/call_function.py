"""Calls one function: what a script `module:function` runs, by any Python and with nothing else.

Words: MODULE:FUNCTION RESULT-FILE WORD... It is given what stands on the input, as JSON, and what
it returns is the result.
"""

import importlib
import json
import sys
from typing import Any


def main() -> None:
    """Call what the words name; whatever it raises ends the script."""
    entry, result, *words = sys.argv[1:]
    module, _, name = entry.partition(":")
    sys.path[0] = ""  # modules are found where the script works
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
