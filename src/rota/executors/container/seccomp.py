"""The seccomp profile in the format of container engines."""

from __future__ import annotations

import errno
import json

from rota.executors.shared.syscalls import FAMILIES, FORBIDDEN, NEW_NAMESPACES, TERMINAL_REQUESTS

ARCHITECTURES = {"x86_64": "SCMP_ARCH_X86_64", "aarch64": "SCMP_ARCH_AARCH64"}
LOW_HALF = 0xFFFFFFFF


def profile(machine: str) -> str:
    """Return the profile for an architecture."""
    return json.dumps(
        {
            "defaultAction": "SCMP_ACT_ALLOW",
            "architectures": [ARCHITECTURES[machine]],
            "syscalls": [
                _errno_rule(sorted(FORBIDDEN), errno.EPERM),
                _errno_rule(["clone3"], errno.ENOSYS),
                *(
                    _errno_rule(["ioctl"], errno.EPERM, _masked_argument(1, LOW_HALF, request))
                    for request in TERMINAL_REQUESTS.values()
                ),
                *(
                    _errno_rule(["clone"], errno.EPERM, _masked_argument(0, 1 << bit, 1 << bit))
                    for bit in range(NEW_NAMESPACES.bit_length())
                    if NEW_NAMESPACES >> bit & 1
                ),
                *(
                    _errno_rule(["socket", "socketpair"], errno.EAFNOSUPPORT, compared)
                    for compared in _families()
                ),
            ],
        }
    )


def _families() -> list[dict[str, object]]:
    last = max(FAMILIES.values())
    below = [n for n in range(last) if n not in FAMILIES.values()]
    above: dict[str, object] = {"index": 0, "value": last, "op": "SCMP_CMP_GT"}
    return [*({"index": 0, "value": n, "op": "SCMP_CMP_EQ"} for n in below), above]


def _masked_argument(index: int, mask: int, value: int) -> dict[str, object]:
    return {"index": index, "value": mask, "valueTwo": value, "op": "SCMP_CMP_MASKED_EQ"}


def _errno_rule(names: list[str], error: int, *compared: dict[str, object]) -> dict[str, object]:
    made: dict[str, object] = {"names": names, "action": "SCMP_ACT_ERRNO", "errnoRet": error}
    return {**made, "args": list(compared)} if compared else made
