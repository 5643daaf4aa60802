"""What a task's spec says: agent, site, program."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import Any

from rota.errors import Invalid, NotPermitted
from rota.model.agents import AgentSpec, OutputFormat, PromptInput, SessionContext
from rota.model.programs import NetworkAccess, SharedFolder, Site
from rota.model.spaces import SpaceRole
from rota.model.tasks import Task, TaskKind

SESSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,199}")
WISHES = (
    "model",
    "fallback_models",
    "tools",
    "denied_tools",
    "thinking",
    "permission_mode",
    "max_turns",
    "context",
    "envelope",
    "previous_result",
    "answers",
    "phrases",
    "prompt_by",
    "output",
)
"""What a record may say beside the agent, its instructions and the words of a program."""
CHEAPER = "cheaper_model"
"""What a record calls the model that a run may go on with when its budget is used up."""


def read_agent_spec(spec: Mapping[str, Any], instructions: str | None = None) -> AgentSpec:
    """Return everything a record leaves to its agent, with other instructions if there are any."""
    own = str(spec.get("instructions", ""))
    return AgentSpec(
        instructions=own if instructions is None else instructions,
        model=spec.get("model"),
        fallback_models=tuple(spec.get("fallback_models") or ()),
        tools=None if spec.get("tools") is None else tuple(spec["tools"]),
        denied_tools=tuple(spec.get("denied_tools") or ()),
        thinking=spec.get("thinking"),
        permission_mode=spec.get("permission_mode"),
        max_turns=spec.get("max_turns"),
        context=read_session_context(spec),
        envelope=spec.get("envelope"),
        previous_result=bool(spec.get("previous_result", False)),
        program=tuple(spec.get("command") or ()),
        prompt_by=PromptInput(spec.get("prompt_by") or PromptInput.STDIN),
        output=OutputFormat(spec.get("output") or OutputFormat.TEXT),
    )


def read_session_context(spec: Mapping[str, Any]) -> SessionContext:
    """Return which session a record wants its runs to go on in."""
    return SessionContext(spec.get("context") or SessionContext.ISOLATED)


def is_in_conversation(task: Task) -> bool:
    """Whether the runs of a task go on in the session of their thread, one after the other."""
    return task.kind is TaskKind.AGENT and read_session_context(task.spec) is SessionContext.GROUP


def is_session(name: str) -> bool:
    """Whether a session that an agent has told can be given back to it among its words."""
    return SESSION.fullmatch(name) is not None


PROCESS, SANDBOX, CONTAINER, TMUX = "process", "sandbox", "container", "tmux"
EXECUTORS = (PROCESS, SANDBOX, CONTAINER, TMUX)
WALLED = (SANDBOX, CONTAINER)
USUAL = {SpaceRole.MAIN: PROCESS, SpaceRole.MEMBER: SANDBOX}
FIELDS = ("executor", "image", "isolate", "mounts", "network")
"""What a task says about its site; naming an executor says all of it anew."""
BOUNDS = ("memory_mib", "processes", "cpus")
"""How much of the machine its programs may use."""
TYPES: Mapping[str, tuple[type, ...]] = {
    "executor": (str,),
    "image": (str,),
    "isolate": (bool,),
    "mounts": (list, tuple),
    "network": (str, NetworkAccess),
    "memory_mib": (int,),
    "processes": (int,),
    "cpus": (int, float),
}
MIN_CPUS, MOST_CPUS = 0.01, 1024.0
MODES = {"": False, "ro": False, "rw": True}


def site_of(spec: Mapping[str, Any], role: SpaceRole) -> Site:
    """Return where a task of a space of that role runs; a member's only behind walls."""
    _check_types(spec)
    executor = str(spec.get("executor") or USUAL[role])
    if executor not in EXECUTORS:
        raise Invalid("executor", executor, f"there are {', '.join(EXECUTORS)}")
    image, mounts, network = spec.get("image"), spec.get("mounts"), spec.get("network")
    isolated = _isolated(executor, spec.get("isolate"), role)
    if executor == CONTAINER and image is None:
        raise Invalid("image", "", "a container needs one: name it by digest, repository@sha256:…")
    if executor != CONTAINER and image is not None:
        raise Invalid("image", image, f"goes with {CONTAINER}, not with {executor}")
    for field, said in (("mounts", ", ".join(mounts or ())), ("network", network)):
        if said and not isolated:
            advice = "goes with walls: choose sandbox or container, or tmux with isolate"
            raise Invalid(field, said, advice)
    if network == NetworkAccess.OPEN and role is not SpaceRole.MAIN:
        raise NotPermitted("programs of member spaces have no open network: choose none or outlet")
    return Site(
        executor=executor,
        isolated=isolated,
        image=image,
        mounts=_shares(mounts or ()),
        network=NetworkAccess(network or NetworkAccess.NONE),
    )


def has_own_loopback(site: Site) -> bool:
    """Say whether 127.0.0.1 is not the host's where a task runs: only a socket leads out of there.

    A container has a network of its own even when it is open.
    """
    return site.isolated and (site.executor == CONTAINER or site.network is not NetworkAccess.OPEN)


def _check_types(spec: Mapping[str, Any]) -> None:
    """Refuse what no door has looked at: a run may bring its own work along."""
    for field, kinds in TYPES.items():
        value = spec.get(field)
        if value is not None and type(value) not in kinds:
            raise Invalid(field, value, "say it as `rota task create` takes it")
    for text in spec.get("mounts") or ():
        if not isinstance(text, str):
            raise Invalid("mounts", text, "give the paths of folders")
    if spec.get("network") not in {None, *NetworkAccess}:
        raise Invalid("network", spec["network"], f"there are {', '.join(NetworkAccess)}")


def _isolated(executor: str, wish: bool | None, role: SpaceRole) -> bool:
    if executor == PROCESS:
        if role is not SpaceRole.MAIN:
            raise NotPermitted(
                f"programs of member spaces run behind walls: choose {SANDBOX}, {CONTAINER} or "
                f"{TMUX} instead of {PROCESS}"
            )
        if wish:
            raise Invalid("isolate", wish, f"a {PROCESS} has no walls: choose {SANDBOX}")
        return False
    walled = executor in WALLED or role is not SpaceRole.MAIN
    if walled and wish is False:
        raise Invalid("isolate", wish, "its programs run behind walls in any case: leave it out")
    return walled or bool(wish)


def _shares(said: Sequence[str]) -> tuple[SharedFolder, ...]:
    shares = []
    for text in said:
        path, _, mode = text.partition(":")
        if not path.startswith("/") or posixpath.normpath(path) != path or mode not in MODES:
            advice = "give an absolute path without . and .., with :rw behind it to write there"
            raise Invalid("mounts", text, advice)
        shares.append(SharedFolder(path=path, write=MODES[mode]))
    return tuple(shares)


ADVICE = "name a program on the path, or a file inside the space's folder, without .. in it"
CALL = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", re.ASCII)


def is_call(word: str) -> bool:
    """Whether a program is a function, `module:function`, and not a file."""
    return CALL.fullmatch(word) is not None


def check_script(spec: Mapping[str, Any]) -> None:
    """Refuse what cannot be a script: one line for a shell if it says so, else words."""
    words: Sequence[str] = spec.get("command") or ()
    if not spec.get("shell"):
        check_program(words)
    elif len(words) != 1 or not words[0].strip() or "\0" in words[0]:
        raise Invalid("command", " ".join(words), "give a shell exactly one line")


def check_folder(folder: str) -> None:
    """Refuse a working folder that is not below the space's own."""
    if {"", ".", ".."} & set(folder.split("/")) or "\0" in folder:
        raise Invalid("folder", folder, "name a folder inside the space's, without . and .. in it")


def check_program(words: Sequence[str]) -> None:
    """Refuse a program that lies outside: an absolute path, or one that climbs."""
    program = words[0] if words else ""
    if not program.strip() or program.startswith(("/", "-")) or ".." in program.split("/"):
        raise Invalid("command", program, ADVICE)
    for word in words:
        if "\0" in word:
            raise Invalid("command", word, "leave out NUL characters")


ORIGIN = "rota"

NAMES = {TaskKind.AGENT: "once-agent", TaskKind.SCRIPT: "once-script"}
