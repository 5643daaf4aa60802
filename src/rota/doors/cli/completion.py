"""`rota completion`: what a shell needs to complete commands, options and task names."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from rota.doors.cli.words import COMPLETE
from rota.errors import Invalid

BASH = f"""\
_rota() {{
    local IFS=$'\\n'
    COMPREPLY=($(rota {COMPLETE} "${{COMP_WORDS[@]:1:COMP_CWORD}}" 2>/dev/null))
    compopt -o nosort 2>/dev/null
    __ltrim_colon_completions "${{COMP_WORDS[COMP_CWORD]}}" 2>/dev/null
}}
complete -o default -F _rota rota
"""
ZSH = f"""\
#compdef rota
_rota() {{
    local -a found
    found=("${{(@f)$(rota {COMPLETE} "${{(@)words[2,CURRENT]}}" 2>/dev/null)}}")
    [[ -n "$found" ]] && compadd -a found || _files
}}
compdef _rota rota
"""
FISH = f"""\
function __rota_complete
    set -l words (commandline -opc) (commandline -ct)
    rota {COMPLETE} $words[2..-1] 2>/dev/null
end
complete -c rota -a '(__rota_complete)'
"""
SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}


def register(app: typer.Typer) -> None:
    """Add this command."""
    app.command("completion")(completion)


def completion(
    shell: Annotated[str, typer.Argument(metavar="SHELL", help="bash, zsh or fish.")],
) -> None:
    """Write a script that lets a shell complete commands, options and names of tasks.

    Example: rota completion bash > ~/.local/share/bash-completion/completions/rota
    """
    if shell not in SCRIPTS:
        raise Invalid("shell", shell, f"choose one of {', '.join(SCRIPTS)}")
    sys.stdout.write(SCRIPTS[shell])
