"""The attacks of one member with two keys, and of strangers without any: each a process of its own.

An attack goes on until an instant or until it has sent as much as it may, and returns how often it
was answered with what. Attackers are nice, because on a small machine they would otherwise take
from the daemon what on other machines they could not: its processor.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from http.client import HTTPConnection, HTTPException
from typing import Any, NamedTuple

NICE = 10
PATIENCE = 30.0
BIG = 750_000
JSON = "application/json"


class Target(NamedTuple):
    """A daemon, two keys of one member, one of its keys that may only look, and for how long."""

    port: int
    keys: tuple[str, str]
    reader: str
    until: float

    def goes_on(self) -> bool:
        """Whether there is still time."""
        return time.monotonic() < self.until


Told = Counter[str]


def ask(port: int, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    """Ask on a connection of its own; a header is named as `Rota_Dry_Run=…`."""
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    if data is not None:
        sent["Content-Type"] = JSON
    connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        connection.request(method, path, data, sent)
        answer = connection.getresponse()
        text = answer.read()
    finally:
        connection.close()
    return answer.status, json.loads(text) if text.startswith(b"{") else None


def bearer(key: str) -> dict[str, str]:
    """Return the header that shows a key."""
    return {"Authorization": f"Bearer {key}"}


def each(target: Target, most: int, pause: float) -> Iterator[int]:
    """Count what may be sent, with a pause before each."""
    for n in range(most):
        if not target.goes_on():
            return
        yield n
        time.sleep(pause)


def tried(told: Told, *asked: Any, **headers: str) -> None:
    """Ask and count the answer; whoever is hung up on comes again."""
    try:
        told[str(ask(*asked, **headers)[0])] += 1
    except (OSError, HTTPException) as fault:
        told[type(fault).__name__] += 1


def idle_connections(target: Target) -> Told:
    """Hold 2,000 connections without a key, a third of them with half a head."""
    told: Told = Counter()
    wires: list[socket.socket] = []
    for n in each(target, 4_000, 0.002):
        wire = socket.create_connection(("127.0.0.1", target.port), PATIENCE)
        if n % 3 == 0:
            wire.sendall(b"GET /v1/tasks HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ")
        wires.append(wire)
        told["opened"] += 1
        if len(wires) > 2_000:
            wires.pop(0).close()
    while target.goes_on():
        time.sleep(0.1)
    return told


def known_connections(target: Target) -> Told:
    """Hold 1,000 connections that have shown a key once."""
    told: Told = Counter()
    head = f"GET /v1/tasks?limit=1 HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {target.reader}"
    wires = []
    for _ in each(target, 1_000, 0.01):
        wire = socket.create_connection(("127.0.0.1", target.port), PATIENCE)
        wire.sendall(f"{head}\r\n\r\n".encode())
        wires.append(wire)
        told["opened"] += 1
    while target.goes_on():
        time.sleep(0.1)
    return told


def big_bodies(target: Target) -> Told:
    """Send bodies of 750 KB that are refused: without a key, with one too small, and full."""
    told: Told = Counter()
    unknown = json.dumps({f"k{n}": 1 for n in range(BIG // 12)}).encode()
    values = b'{"payload":[' + b",".join([b"{}"] * (BIG // 3)) + b"]}"
    crowd = (
        b'{"name":"x","instructions":"' + b"x" * BIG + b'","checks":[' + b"{}," * 9_000 + b"{}]}"
    )
    for n in each(target, 400, 0.02):
        body = (unknown, values, crowd)[n % 3]
        shown = ({}, bearer(target.reader), bearer(target.keys[0]), bearer(target.keys[1]))[n % 4]
        tried(told, target.port, "POST", "/v1/tasks", body, **shown)
    return told


def held_bodies(target: Target) -> Told:
    """Begin bodies and never end them."""
    told: Told = Counter()
    wires = []
    head = (
        "POST /v1/tasks HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {target.keys[0]}\r\nContent-Length: {BIG}\r\n\r\n{{"
    )
    for _ in each(target, 800, 0.02):
        wire = socket.create_connection(("127.0.0.1", target.port), PATIENCE)
        wire.sendall(head.encode())
        wires.append(wire)
        told["begun"] += 1
    while target.goes_on():
        time.sleep(0.1)
    return told


def checks(target: Target) -> Told:
    """Dry runs of tasks whose schemas and patterns cost much."""
    told: Told = Counter()
    classes = "".join(f"[{chr(n)}-\\uffff]" for n in range(33, 130))
    wide = [{"json_schema": {"items": {"enum": [1] * 3_000 + [0]}}}]
    deep = [{"json_schema": {"enum": list(range(900))}}]
    many = [{"not_like": f"(?i){classes}{n}", "regex": True} for n in range(20)]
    for n in each(target, 200, 0.1):
        task = {"name": f"check{n}", "instructions": "Look.", "checks": (wide, deep, many)[n % 3]}
        shown = bearer(target.keys[n % 2])
        tried(told, target.port, "POST", "/v1/tasks", task, **shown, Rota_Dry_Run="true")
    return told


def answers(target: Target) -> Told:
    """Agents whose answer is 80,000 newlines."""
    told: Told = Counter()
    shown = bearer(target.keys[0])
    command = ["python3", "-c", "print('{' + '\\n' * 80000)"]
    task = {"name": "chatter", "instructions": "Look.", "agent": "command", "command": command}
    tried(told, target.port, "POST", "/v1/tasks", task, **shown)
    for _ in each(target, 20, 1.0):
        tried(told, target.port, "POST", "/v1/tasks/chatter/run-now", {}, **shown)
    return told


def origins(target: Target) -> Told:
    """Headers that cannot be read, with a key and without."""
    told: Told = Counter()
    for n in each(target, 2_000, 0.01):
        shown = bearer(target.keys[0]) if n % 2 else {}
        tried(told, target.port, "GET", "/v1/tasks", None, Origin="http://[", **shown)
    return told


def creation(target: Target) -> Told:
    """Make tasks, schedules and runs without end."""
    told: Told = Counter()
    for n in each(target, 3_000, 0.005):
        shown = bearer(target.keys[n % 2])
        wish = {"name": f"mass{n}", "instructions": "Look.", "schedule": {"every": "1h"}}
        if n % 3:
            tried(told, target.port, "POST", "/v1/tasks/mass0/run-now", {}, **shown)
        else:
            tried(told, target.port, "POST", "/v1/tasks", wish, **shown)
    return told


def streams(target: Target) -> Told:
    """Take every seat for events, with two keys of one space."""
    told: Told = Counter()
    wires = []
    for n in each(target, 1_200, 0.01):
        wire = socket.create_connection(("127.0.0.1", target.port), PATIENCE)
        key = target.keys[n % 2]
        head = f"GET /v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {key}\r\n\r\n"
        wire.sendall(head.encode())
        try:
            status = wire.recv(64)[9:12].decode()
        except OSError as fault:
            status = type(fault).__name__
        told[status or "closed"] += 1
        if status == "200":
            wires.append(wire)
    while target.goes_on():
        time.sleep(0.1)
    return told


ATTACKS: tuple[Callable[[Target], Told], ...] = (
    idle_connections, known_connections, big_bodies, held_bodies, checks, answers, origins,
    creation, streams,
)  # fmt: skip


def carry_out(number: int, target: Target) -> Told:
    """Carry out one attack."""
    os.nice(NICE)
    return ATTACKS[number](target)
