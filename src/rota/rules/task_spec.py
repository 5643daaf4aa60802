"""Parsing and validation of a task's spec: agent, site, program."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rota.errors import Invalid, NotPermitted
from rota.model.agents import AgentSpec, OutputFormat, PromptInput, SessionMode
from rota.model.executors import ExecutorRegistry, Isolation
from rota.model.programs import NetworkAccess, SharedFolder, Site
from rota.model.spaces import SpaceRole
from rota.model.tasks import Task, TaskKind

SESSION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,199}")
AGENT_FIELDS = (
    "model",
    "fallback_models",
    "tools",
    "denied_tools",
    "thinking",
    "permission_mode",
    "max_turns",
    "session",
    "envelope",
    "previous_result",
    "answers",
    "phrases",
    "prompt_by",
    "output",
)
"""Fields of a spec for agents, besides agent, instructions and program."""
CHEAPER_MODEL = "cheaper_model"
"""Field of a spec: the model with which a run may continue when its budget is used up."""


def read_agent_spec(spec: Mapping[str, Any], instructions: str | None = None) -> AgentSpec:
    """Return the agent spec of a task, optionally with other instructions."""
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
        session=read_session_mode(spec),
        envelope=spec.get("envelope"),
        previous_result=bool(spec.get("previous_result", False)),
        program=tuple(spec.get("command") or ()),
        prompt_by=PromptInput(spec.get("prompt_by") or PromptInput.STDIN),
        output=OutputFormat(spec.get("output") or OutputFormat.TEXT),
    )


def read_session_mode(spec: Mapping[str, Any]) -> SessionMode:
    """Return which session the runs of a task continue."""
    return SessionMode(spec.get("session") or SessionMode.ISOLATED)


def is_in_conversation(task: Task) -> bool:
    """Whether the runs of a task continue the session of their thread, one after the other."""
    return task.kind is TaskKind.AGENT and read_session_mode(task.spec) is SessionMode.SHARED


def is_session_id(name: str) -> bool:
    """Whether an agent's session id is safe to pass to it as an argument."""
    return SESSION_ID.fullmatch(name) is not None


SITE_FIELDS = ("executor", "image", "isolate", "mounts", "network")
"""Fields of a spec for the site; setting `executor` replaces all of them."""
LIMIT_FIELDS = ("memory_mib", "processes", "cpus")
"""Fields of a spec for resource limits."""
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
MIN_CPUS, MAX_CPUS = 0.01, 1024.0
MODES = {"": False, "ro": False, "rw": True}


def site_of(spec: Mapping[str, Any], role: SpaceRole, executors: ExecutorRegistry) -> Site:
    """Return the site of a task in a space of that role; members are always isolated."""
    _check_types(spec)
    executor = str(spec.get("executor") or executors.default(role))
    offered = executors.named(executor)
    image, mounts, network = spec.get("image"), spec.get("mounts"), spec.get("network")
    isolated = _isolated(executor, executors, spec.get("isolate"), role)
    if offered.image and image is None:
        advice = f"{executor} needs an image by digest, repository@sha256:…"
        raise Invalid("image", "", advice)
    if not offered.image and image is not None:
        raise Invalid("image", image, f"the executor {executor} takes no image: omit it")
    for field, value in (("mounts", ", ".join(mounts or ())), ("network", network)):
        if value and not isolated:
            advice = f"needs isolation: choose {executors.isolating()}, with isolate if optional"
            raise Invalid(field, value, advice)
    if network == NetworkAccess.OPEN and role is not SpaceRole.MAIN:
        raise NotPermitted("programs of member spaces have no open network: choose none or egress")
    return Site(
        executor=executor,
        isolated=isolated,
        image=image,
        mounts=_read_mounts(mounts or ()),
        network=NetworkAccess(network or NetworkAccess.NONE),
        own_network=offered.own_network,
    )


def site_in(site: Site, executor: str, executors: ExecutorRegistry) -> Site:
    """Return a site in the executor of a running attempt, whatever its task says now.

    Its executor may no longer be installed: an operation that needs it fails and names it.
    """
    offered = executors.known.get(executor)
    if site.executor == executor or offered is None:
        return replace(site, executor=executor)
    image = site.image if offered.image else None
    return replace(site, executor=executor, image=image, own_network=offered.own_network)


def _check_types(spec: Mapping[str, Any]) -> None:
    """Raise Invalid for wrong types: the payload of a one-off run is not validated before."""
    for field, kinds in TYPES.items():
        value = spec.get(field)
        if value is not None and type(value) not in kinds:
            raise Invalid(field, value, "give it as for `rota task create`")
    for text in spec.get("mounts") or ():
        if not isinstance(text, str):
            raise Invalid("mounts", text, "give the paths of folders")
    if spec.get("network") not in {None, *NetworkAccess}:
        raise Invalid("network", spec["network"], f"there are {', '.join(NetworkAccess)}")


def _isolated(
    executor: str, executors: ExecutorRegistry, requested: bool | None, role: SpaceRole
) -> bool:
    offered = executors.named(executor).isolation
    if offered is Isolation.NEVER:
        if role is not SpaceRole.MAIN:
            raise NotPermitted(
                f"programs of member spaces must be isolated: choose {executors.isolating()} "
                f"instead of {executor}"
            )
        if requested:
            advice = f"{executor} does not isolate programs: choose {executors.isolating()}"
            raise Invalid("isolate", requested, advice)
        return False
    isolated = offered is Isolation.ALWAYS or role is not SpaceRole.MAIN
    if isolated and requested is False:
        raise Invalid("isolate", requested, "its programs are always isolated: omit it")
    return isolated or bool(requested)


def _read_mounts(texts: Sequence[str]) -> tuple[SharedFolder, ...]:
    shares = []
    for text in texts:
        path, _, mode = text.partition(":")
        if not path.startswith("/") or posixpath.normpath(path) != path or mode not in MODES:
            advice = "give an absolute path without . and .., followed by :rw if it is writable"
            raise Invalid("mounts", text, advice)
        shares.append(SharedFolder(path=path, write=MODES[mode]))
    return tuple(shares)


ADVICE = "name a program on the PATH, or a file inside the space's folder, without .."
CALL = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", re.ASCII)


def is_call(word: str) -> bool:
    """Whether a program is a Python function, `module:function`, not a file."""
    return CALL.fullmatch(word) is not None


def check_script(spec: Mapping[str, Any]) -> None:
    """Raise Invalid unless a script is an argv, or one line if it is for a shell."""
    argv: Sequence[str] = spec.get("command") or ()
    if not spec.get("shell"):
        check_program(argv)
    elif len(argv) != 1 or not argv[0].strip() or "\0" in argv[0]:
        raise Invalid("command", " ".join(argv), "with a shell, give exactly one line")


def check_folder(folder: str) -> None:
    """Raise Invalid for a working folder that is not below that of the space."""
    if {"", ".", ".."} & set(folder.split("/")) or "\0" in folder:
        raise Invalid("folder", folder, "name a folder inside the space's, without . and .. in it")


def check_program(argv: Sequence[str]) -> None:
    """Raise Invalid for a program outside: an absolute path, or one with `..`."""
    program = argv[0] if argv else ""
    if not program.strip() or program.startswith(("/", "-")) or ".." in program.split("/"):
        raise Invalid("command", program, ADVICE)
    for argument in argv:
        if "\0" in argument:
            raise Invalid("command", argument, "leave out NUL characters")


ONE_OFF_ORIGIN = "rota"

ONE_OFF_NAMES = {TaskKind.AGENT: "once-agent", TaskKind.SCRIPT: "once-script"}


def check_new_name(name: str) -> None:
    """Refuse a new task name that could be an id."""
    if name.isdigit():
        raise Invalid("name", name, "add a letter: a number alone is the id of a task")
