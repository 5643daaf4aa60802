"""A mailbox on disk, and a post office that serves it."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path

import pytest

from rota.agent_api.dispatcher import RateLimiter
from rota.agent_api.mailbox.folder import Mailbox
from rota.agent_api.mailbox.manager import MailboxManager
from rota.agent_api.mailbox.processor import BURST
from rota.keeper.workspace import make_mailbox
from rota.model.attempts import KeptAttempt
from rota.rules.redaction import Redactor
from tests.unit.attempt.keeper_home_fake import assignment

PATIENCE = 10.0
CANARY = "sk-canary-0f3a91"


class Folder:
    """A mailbox as the program in it sees it."""

    def __init__(self, path):
        self.path = Path(path)
        self.out = self.path / "out"
        self.replies = self.path / "in" / "replies"
        self.messages = self.path / "in" / "messages"

    def put(self, name, content):
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        aside = self.out / f"{name}.tmp"
        aside.write_bytes(data)
        aside.rename(self.out / f"{name}.json")

    def command(self, request_id, verb, **fields):
        self.put(request_id.lower(), {"request_id": request_id, "type": verb, **fields})

    def reply(self, name):
        return json.loads((self.replies / f"{name}.json").read_text())

    def shown(self, name):
        return json.loads((self.path / "in" / name).read_text())

    def left(self):
        return sorted(os.listdir(os.fsencode(self.out)))  # noqa: PTH208 - names in bytes


@pytest.fixture
def folder(tmp_path):
    return Folder(make_mailbox(tmp_path / "1-1", "abcdef12"))


@pytest.fixture
def box(folder):
    made = Mailbox(str(folder.path))
    yield made
    made.close()


class Notebook:
    """A desk with one page: a note is written once, however often its request comes."""

    def __init__(self):
        self.notes = []
        self.known = {}
        self.asked = []
        self.free = asyncio.Event()
        self.free.set()
        self.begun = asyncio.Event()

    async def serve(self, held, verb, fields, request_id):
        self.asked.append((held, verb, dict(fields), request_id))
        if verb == "list_tasks":
            return {"ok": True, "tasks": [{"name": held.task}], "next": None}
        if verb == "over":
            return {"ok": False, "error": {"code": "fenced", "message": "the attempt is over"}}
        if verb != "note":
            return {"ok": False, "error": {"code": "not_found", "message": f"no verb {verb}"}}
        known = self.known.get((held.name, request_id))
        if known is None:
            self.notes.append((held.run_id, fields.get("text")))
            known = self.known[held.name, request_id] = {"ok": True, "note": len(self.notes)}
        self.begun.set()
        await self.free.wait()
        return known


class Office:
    """A post office, its desk, and the programs that it has stopped."""

    def __init__(self, desk, home):
        self.bench = desk
        self.home = home
        self.notebook = Notebook()
        self.stopped = []
        self.acknowledged = []
        self.first, self.count = None, 0
        self.post = self.another()

    def another(self):
        async def acknowledged(held, number):
            self.acknowledged.append((held.run_id, number))

        pace = RateLimiter(burst=BURST)
        return MailboxManager(
            self.notebook, self.bench.store, self.home, acknowledged, pace=pace,
            redactor=Redactor({"canary": CANARY}),
        )  # fmt: skip

    async def opened(self, name="job", *, post=None):
        """Return the mailbox of a run that has just begun."""
        self.first = self.first or await assignment(self.bench)
        lease = self.first.lease._replace(run_id=self.first.lease.run_id + self.count)
        given = self.first._replace(lease=lease)
        self.count += 1
        kept = KeptAttempt(
            run_id=lease.run_id, epoch=lease.epoch, home="here", nonce=f"{lease.run_id:016x}",
            boot="boot", executor="process",
        )  # fmt: skip
        folder = Folder(make_mailbox(self.home / f"{lease.run_id}-{lease.epoch}", kept.nonce[:8]))
        folder.given, folder.kept = given, kept
        await self.open(folder, post or self.post)
        return folder

    async def open(self, folder, post=None):
        post = post or self.post
        await post.open(folder.given, folder.kept, str(folder.path), self.stopped.append)

    async def answered(self, folder, name):
        """Wait for the reply to a request, and return it."""
        await until((folder.replies / f"{name}.json").exists)
        return folder.reply(name)

    def errors(self):
        files = sorted((self.home / "errors").glob("*"))
        return [json.loads(file.read_text()) for file in files]


@pytest.fixture
def office(desk, tmp_path, runner):
    made = Office(desk, tmp_path)
    yield made

    async def shut():
        made.post.shut()
        await asyncio.sleep(0)

    runner.run(shut())


async def until(true):
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, "nothing happened"
        await asyncio.sleep(0.002)
