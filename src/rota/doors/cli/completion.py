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
    if declare -F __ltrim_colon_completions >/dev/null; then
        __ltrim_colon_completions "${{COMP_WORDS[COMP_CWORD]}}"
    fi
}}
complete -o default -F _rota rota
"""
ZSH = f"""\
#compdef rota
_rota() {{
    local -a found
    found=("${{(@f)$(rota {COMPLETE} "${{(@)words[2,CURRENT]}}" 2>/dev/null)}}")
    if [[ -n "$found" ]]; then compadd -a found; else _files; fi
}}
if [[ "$funcstack[1]" == _rota ]]; then _rota "$@"; else compdef _rota rota; fi
"""
FISH = f"""\
function __rota_complete
    set -l words (commandline -opc) (commandline -ct)
    set -l found (rota {COMPLETE} $words[2..-1] 2>/dev/null)
    if set -q found[1]
        printf '%s\\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c rota -f -a '(__rota_complete)'
"""
SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}


def register(app: typer.Typer) -> None:
    """Add this command."""
    app.command("completion")(completion)


def completion(
    shell: Annotated[str, typer.Argument(metavar="SHELL", help="bash, zsh or fish.")],
) -> None:
    """Write a script that lets a shell complete commands, options and names of tasks.

    Bash and zsh read it when they start (zsh after compinit), fish has a folder for it.

    Example: rota completion fish > ~/.config/fish/completions/rota.fish
    """
    if shell not in SCRIPTS:
        raise Invalid("shell", shell, f"choose one of {', '.join(SCRIPTS)}")
    sys.stdout.write(SCRIPTS[shell])
