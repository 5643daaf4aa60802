"""Checks of a spec against the capabilities of an agent, and the environment of its program."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from rota.errors import Invalid
from rota.model.agents import MAX_TURNS, AgentSpec, OutputFormat, PromptInput, SessionMode
from rota.ports.agent import AgentCapabilities, AgentWorkspace, McpServer
from rota.rules.task_spec import is_session_id

MODEL = re.compile(r"[A-Za-z0-9][\w./:@+\[\]-]{0,199}")
TOOL = re.compile(r"[A-Za-z_][^\x00-\x1f\x7f]{0,499}")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
MAX_INSTRUCTIONS = 1024 * 1024


def check(agent: str, capabilities: AgentCapabilities, spec: AgentSpec) -> None:
    """Raise Invalid for the first field of a spec that the agent does not support."""
    _instructions(spec.instructions)
    _models(agent, capabilities, spec)
    _tools(agent, capabilities, spec)
    _choice(agent, "thinking", spec.thinking, capabilities.thinking)
    _choice(agent, "permission_mode", spec.permission_mode, capabilities.permission_modes)
    if spec.max_turns is not None:
        _require(agent, "max_turns", spec.max_turns, able=capabilities.max_turns)
        if not 0 < spec.max_turns <= MAX_TURNS:
            raise Invalid("max_turns", spec.max_turns, f"write a number from 1 to {MAX_TURNS}")
    if spec.session is SessionMode.SHARED:
        _require(agent, "session", spec.session, able=capabilities.resume)
    _program(agent, capabilities, spec)


def check_workspace(agent: str, capabilities: AgentCapabilities, workspace: AgentWorkspace) -> None:
    """Raise Invalid for what a workspace provides and the agent does not support."""
    if workspace.session is not None:
        _require(agent, "session", workspace.session, able=capabilities.resume)
        if not is_session_id(workspace.session):
            raise Invalid("session", workspace.session, "use an id that the agent has reported")
    for server in workspace.servers:
        _require(agent, "servers", server.name, able=capabilities.mcp)
        _server(server)


def _instructions(text: str) -> None:
    if not text.strip():
        raise Invalid("instructions", text, "write what the agent is to do")
    if len(text.encode("utf-8", "replace")) > MAX_INSTRUCTIONS:
        raise Invalid("instructions", text, "write at most 1 MiB")
    if "\x00" in text:
        raise Invalid("instructions", text, "leave out NUL characters")


def _models(agent: str, capabilities: AgentCapabilities, spec: AgentSpec) -> None:
    if spec.model is not None:
        _require(agent, "model", spec.model, able=capabilities.models)
        _match_all("model", [spec.model], MODEL, "write the name of a model")
    if spec.fallback_models:
        listed = ", ".join(spec.fallback_models)
        _require(agent, "fallback_models", listed, able=capabilities.fallback_models)
        _match_all("fallback_models", spec.fallback_models, MODEL, "write names of models")


def _tools(agent: str, capabilities: AgentCapabilities, spec: AgentSpec) -> None:
    if spec.tools is not None:
        _require(agent, "tools", ", ".join(spec.tools), able=capabilities.tools)
        _match_all("tools", spec.tools, TOOL, "write names of tools")
    if spec.denied_tools:
        listed = ", ".join(spec.denied_tools)
        _require(agent, "denied_tools", listed, able=capabilities.denied_tools)
        _match_all("denied_tools", spec.denied_tools, TOOL, "write names of tools")


def _program(agent: str, capabilities: AgentCapabilities, spec: AgentSpec) -> None:
    if capabilities.program:
        if not spec.program or not spec.program[0]:
            raise Invalid("command", "", "name the program to run")
        bad = next((word for word in spec.program if "\x00" in word), None)
        if bad is not None:
            raise Invalid("command", bad, "leave out NUL characters")
        _match_all("variables", spec.variables, NAME, "write names of variables")
        return
    if spec.program:
        raise Invalid(
            "command", spec.program[0], f"the agent {agent} takes no program: leave it out"
        )
    if spec.variables:
        raise Invalid("variables", spec.variables[0], f"the agent {agent} has a fixed list of them")
    if spec.prompt_by is not PromptInput.STDIN:
        raise Invalid("prompt_by", spec.prompt_by, f"the agent {agent} always reads its input")
    if spec.output is not OutputFormat.TEXT:
        raise Invalid("output", spec.output, f"the agent {agent} has a fixed format")


def _server(server: McpServer) -> None:
    if not NAME.fullmatch(server.name):
        raise Invalid("servers", server.name, "use letters, digits, - and _")
    if (server.url is None) == (not server.argv):
        raise Invalid("servers", server.name, "give either a URL or a program")


def _require(agent: str, field: str, value: object, *, able: bool) -> None:
    if not able:
        raise Invalid(field, value, f"the agent {agent} does not support this; leave it out")


def _choice(agent: str, field: str, value: str | None, choices: Sequence[str]) -> None:
    if value is None or value in choices:
        return
    _require(agent, field, value, able=bool(choices))
    raise Invalid(field, value, f"the agent {agent} supports {', '.join(choices)}")


def _match_all(field: str, values: Iterable[str], pattern: re.Pattern[str], advice: str) -> None:
    for value in values:
        if not pattern.fullmatch(value):
            raise Invalid(field, value, advice)


PROXIES = frozenset({"HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"})
IMAGE_VARIABLES = PROXIES | {"TZ", "NO_PROXY", "no_proxy"}
COMMON_VARIABLES = IMAGE_VARIABLES | {
    "PATH", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS",
}  # fmt: skip
"""Variables for all programs; images have their own PATH and locale, so they get fewer."""
SCHEME = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*://)?")
PATH = "/usr/local/bin:/usr/bin:/bin"


def environment(
    workspace: AgentWorkspace, names: Collection[str], fixed: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment of a program; Rota's own values take precedence."""
    everybody = IMAGE_VARIABLES if workspace.in_image else COMMON_VARIABLES
    chosen = {
        name: _without_login(value) if name in PROXIES else value
        for name, value in workspace.offered.items()
        if (name in everybody or name in names) and "\x00" not in value
    }
    standard = {} if workspace.in_image else {"PATH": PATH, "LANG": "C.UTF-8"}
    return {**standard, **chosen, **workspace.ids, **fixed, "HOME": workspace.home}


def _without_login(address: str) -> str:
    """Return the address of a proxy without user name and password."""
    found = SCHEME.match(address)
    scheme = "" if found is None else found[0]
    return scheme + address[len(scheme) :].rpartition("@")[2]
