"""What a task asks of an agent against what the agent can do; its environment."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from rota.errors import Invalid
from rota.model.agents import MAX_TURNS, AgentSpec, OutputFormat, PromptInput, SessionContext
from rota.ports.agent import AgentCapabilities, AgentWorkspace, McpServer
from rota.rules.task_spec import is_session_id

MODEL = re.compile(r"[A-Za-z0-9][\w./:@+\[\]-]{0,199}")
TOOL = re.compile(r"[A-Za-z_][^\x00-\x1f\x7f]{0,499}")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
MAX_INSTRUCTIONS = 1024 * 1024


def check(agent: str, abilities: AgentCapabilities, wish: AgentSpec) -> None:
    """Raise Invalid for the first thing wanted that the agent cannot do."""
    _instructions(wish.instructions)
    _models(agent, abilities, wish)
    _tools(agent, abilities, wish)
    _choice(agent, "thinking", wish.thinking, abilities.thinking)
    _choice(agent, "permission_mode", wish.permission_mode, abilities.permission_modes)
    if wish.max_turns is not None:
        _able(agent, "max_turns", wish.max_turns, able=abilities.max_turns)
        if not 0 < wish.max_turns <= MAX_TURNS:
            raise Invalid("max_turns", wish.max_turns, f"write a number from 1 to {MAX_TURNS}")
    if wish.context is SessionContext.GROUP:
        _able(agent, "context", wish.context, able=abilities.resume)
    _program(agent, abilities, wish)


def check_room(agent: str, abilities: AgentCapabilities, room: AgentWorkspace) -> None:
    """Raise Invalid for what an attempt gives its agent and the agent cannot take."""
    if room.session is not None:
        _able(agent, "session", room.session, able=abilities.resume)
        if not is_session_id(room.session):
            raise Invalid("session", room.session, "take the id an agent has told")
    for server in room.servers:
        _able(agent, "servers", server.name, able=abilities.mcp)
        _server(server)


def _instructions(text: str) -> None:
    if not text.strip():
        raise Invalid("instructions", text, "say what the agent shall do")
    if len(text.encode("utf-8", "replace")) > MAX_INSTRUCTIONS:
        raise Invalid("instructions", text, "write at most 1 MiB")
    if "\x00" in text:
        raise Invalid("instructions", text, "leave out NUL characters")


def _models(agent: str, abilities: AgentCapabilities, wish: AgentSpec) -> None:
    if wish.model is not None:
        _able(agent, "model", wish.model, able=abilities.models)
        _fits("model", [wish.model], MODEL, "write the name of a model")
    if wish.fallback_models:
        listed = ", ".join(wish.fallback_models)
        _able(agent, "fallback_models", listed, able=abilities.fallback_models)
        _fits("fallback_models", wish.fallback_models, MODEL, "write names of models")


def _tools(agent: str, abilities: AgentCapabilities, wish: AgentSpec) -> None:
    if wish.tools is not None:
        _able(agent, "tools", ", ".join(wish.tools), able=abilities.tools)
        _fits("tools", wish.tools, TOOL, "write names of tools")
    if wish.denied_tools:
        listed = ", ".join(wish.denied_tools)
        _able(agent, "denied_tools", listed, able=abilities.denied_tools)
        _fits("denied_tools", wish.denied_tools, TOOL, "write names of tools")


def _program(agent: str, abilities: AgentCapabilities, wish: AgentSpec) -> None:
    if abilities.program:
        if not wish.program or not wish.program[0]:
            raise Invalid("command", "", "name the program to run")
        bad = next((word for word in wish.program if "\x00" in word), None)
        if bad is not None:
            raise Invalid("command", bad, "leave out NUL characters")
        _fits("variables", wish.variables, NAME, "write names of variables")
        return
    if wish.program:
        raise Invalid("command", wish.program[0], f"only the agent command takes one, not {agent}")
    if wish.variables:
        raise Invalid("variables", wish.variables[0], f"the agent {agent} chooses them itself")
    if wish.prompt_by is not PromptInput.STDIN:
        raise Invalid("prompt_by", wish.prompt_by, f"the agent {agent} reads its input")
    if wish.output is not OutputFormat.TEXT:
        raise Invalid("output", wish.output, f"the agent {agent} has its own")


def _server(server: McpServer) -> None:
    if not NAME.fullmatch(server.name):
        raise Invalid("servers", server.name, "use letters, digits, - and _")
    if (server.url is None) == (not server.argv):
        raise Invalid("servers", server.name, "give it either an address or a program")


def _able(agent: str, field: str, value: object, *, able: bool) -> None:
    if not able:
        raise Invalid(field, value, f"the agent {agent} has no such choice; leave it out")


def _choice(agent: str, field: str, value: str | None, choices: Sequence[str]) -> None:
    if value is None or value in choices:
        return
    _able(agent, field, value, able=bool(choices))
    raise Invalid(field, value, f"the agent {agent} knows {', '.join(choices)}")


def _fits(field: str, values: Iterable[str], pattern: re.Pattern[str], advice: str) -> None:
    for value in values:
        if not pattern.fullmatch(value):
            raise Invalid(field, value, advice)


PROXIES = frozenset({"HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"})
ANYWHERE = PROXIES | {"TZ", "NO_PROXY", "no_proxy"}
EVERYBODY = ANYWHERE | {
    "PATH", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS",
}  # fmt: skip
"""An image has paths and languages of its own: there they are given only to whom names them."""
SCHEME = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*://)?")
PATH = "/usr/local/bin:/usr/bin:/bin"


def environment(
    room: AgentWorkspace, names: Collection[str], fixed: Mapping[str, str]
) -> dict[str, str]:
    """Return the whole environment; what Rota sets wins over what is offered."""
    everybody = ANYWHERE if room.in_image else EVERYBODY
    chosen = {
        name: _without_login(value) if name in PROXIES else value
        for name, value in room.offered.items()
        if (name in everybody or name in names) and "\x00" not in value
    }
    standard = {} if room.in_image else {"PATH": PATH, "LANG": "C.UTF-8"}
    return {**standard, **chosen, **room.ids, **fixed, "HOME": room.home}


def _without_login(address: str) -> str:
    """Return the address of a proxy without the name and the password that may stand in it."""
    found = SCHEME.match(address)
    scheme = "" if found is None else found[0]
    return scheme + address[len(scheme) :].rpartition("@")[2]
