"""What a program behind walls leaves in its folder for a Python of the host to import.

A planted file tells, in a folder that nobody behind walls sees, that it was run.
"""

from __future__ import annotations

import shlex

CODE = """
try:
    open({told!r}, "x").close()
except OSError:
    pass
"""
PROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project.entry-points.pytest11]
planted = "conftest"
[tool.pytest.ini_options]
addopts = "-p planted"
[tool.mypy]
plugins = ["planted.py"]
"""
MODULES = (
    *("sitecustomize", "usercustomize", "conftest", "planted", "backend", "setup", "noxfile"),
    *("rota", "uvloop", "_virtualenv", "json", "os", "asyncio", "socket", "selectors", "signal"),
    *("subprocess", "typing", "resource", "enum", "re", "encodings", "importlib", "ctypes"),
    *("termios", "tty", "pty", "fcntl", "binascii", "ssl", "email", "http", "sqlite3", "apsw"),
)


def planting(canaries):
    """Return a shell script that leaves all of it, and the names of what it leaves."""
    files = {f"{name}.py": CODE.format(told=f"{canaries}/{name}") for name in MODULES}
    files |= {"pyproject.toml": PROJECT, "planted.pth": f"import planted; {canaries}\n"}
    lines = [f"printf %s {shlex.quote(text)} >{name}" for name, text in files.items()]
    return "\n".join(["set -e", *lines]), set(files)
