"""Where a task's programs run: what it says, what its space may, and what is usual."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from typing import Any

from rota.errors import Invalid, NotPermitted
from rota.model.sites import Network, Share, Site
from rota.model.spaces import Role

PROCESS, SANDBOX, CONTAINER, TMUX = "process", "sandbox", "container", "tmux"
EXECUTORS = (PROCESS, SANDBOX, CONTAINER, TMUX)
WALLED = (SANDBOX, CONTAINER)
USUAL = {Role.MAIN: PROCESS, Role.MEMBER: SANDBOX}
FIELDS = ("executor", "image", "isolate", "mounts", "network")
"""What a task says about its site; naming an executor says all of it anew."""
BOUNDS = ("memory_mib", "processes", "cpus")
"""How much of the machine its programs may use."""
TYPES: Mapping[str, tuple[type, ...]] = {
    "executor": (str,),
    "image": (str,),
    "isolate": (bool,),
    "mounts": (list, tuple),
    "network": (str, Network),
    "memory_mib": (int,),
    "processes": (int,),
    "cpus": (int, float),
}
LEAST_CPUS, MOST_CPUS = 0.01, 1024.0
MODES = {"": False, "ro": False, "rw": True}


def site_of(spec: Mapping[str, Any], role: Role) -> Site:
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
    if network == Network.OPEN and role is not Role.MAIN:
        raise NotPermitted("programs of member spaces have no open network: choose none or outlet")
    return Site(
        executor=executor,
        isolated=isolated,
        image=image,
        mounts=_shares(mounts or ()),
        network=Network(network or Network.NONE),
    )


def has_own_loopback(site: Site) -> bool:
    """Say whether 127.0.0.1 is not the host's where a task runs: only a socket leads out of there.

    A container has a network of its own even when it is open.
    """
    return site.isolated and (site.executor == CONTAINER or site.network is not Network.OPEN)


def _check_types(spec: Mapping[str, Any]) -> None:
    """Refuse what no door has looked at: a run may bring its own work along."""
    for field, kinds in TYPES.items():
        value = spec.get(field)
        if value is not None and type(value) not in kinds:
            raise Invalid(field, value, "say it as `rota task create` takes it")
    for text in spec.get("mounts") or ():
        if not isinstance(text, str):
            raise Invalid("mounts", text, "give the paths of folders")
    if spec.get("network") not in {None, *Network}:
        raise Invalid("network", spec["network"], f"there are {', '.join(Network)}")


def _isolated(executor: str, wish: bool | None, role: Role) -> bool:
    if executor == PROCESS:
        if role is not Role.MAIN:
            raise NotPermitted(
                f"programs of member spaces run behind walls: choose {SANDBOX}, {CONTAINER} or "
                f"{TMUX} instead of {PROCESS}"
            )
        if wish:
            raise Invalid("isolate", wish, f"a {PROCESS} has no walls: choose {SANDBOX}")
        return False
    walled = executor in WALLED or role is not Role.MAIN
    if walled and wish is False:
        raise Invalid("isolate", wish, "its programs run behind walls in any case: leave it out")
    return walled or bool(wish)


def _shares(said: Sequence[str]) -> tuple[Share, ...]:
    shares = []
    for text in said:
        path, _, mode = text.partition(":")
        if not path.startswith("/") or posixpath.normpath(path) != path or mode not in MODES:
            advice = "give an absolute path without . and .., with :rw behind it to write there"
            raise Invalid("mounts", text, advice)
        shares.append(Share(path=path, write=MODES[mode]))
    return tuple(shares)
