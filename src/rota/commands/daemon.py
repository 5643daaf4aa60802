"""Pause everything; stop and start the work of a daemon."""

from __future__ import annotations

import logging
from datetime import datetime

from rota.commands.catalogue import command
from rota.commands.context import DaemonControl, RequestContext
from rota.commands.responses import EmptyRequest, ResponseModel
from rota.errors import Conflict
from rota.flow.define.spaces import pause_all as pause
from rota.flow.define.spaces import resume_all as resume
from rota.model.instants import maybe_instant
from rota.model.keys import KeyScope
from rota.model.schedules import Pauses, paused_since
from rota.rules.permissions import check_main
from rota.store import plans as store_plans
from rota.store.audit import record_request

log = logging.getLogger(__name__)


class PauseResponse(ResponseModel):
    """Whether everything is paused."""

    paused: bool
    paused_since: datetime | None


class DaemonResponse(ResponseModel):
    """Whether this daemon works: `working`, `stopping`, `stopped`, `starting` or `ending`."""

    state: str


def _pause(pauses: Pauses) -> PauseResponse:
    since = maybe_instant(paused_since(pauses))
    return PauseResponse(paused=since is not None, paused_since=since)


@command("POST", "/v1/pause-all", KeyScope.ADMIN)
async def pause_all(office: RequestContext, asked: EmptyRequest) -> PauseResponse:  # noqa: ARG001
    """Pause everything, in every process on the database.

    Nothing new begins; what runs goes on. Slots that come due are skipped and not caught up.
    """
    office.keep(_pause, store_plans.pause_all)
    return _pause(await pause(office.store, office.caller))


@command("POST", "/v1/resume-all", KeyScope.ADMIN)
async def resume_all(office: RequestContext, asked: EmptyRequest) -> PauseResponse:  # noqa: ARG001
    """Let work begin again, from now on."""
    office.keep(_pause, store_plans.resume_all)
    return _pause(await resume(office.store, office.caller))


@command("POST", "/v1/stop", KeyScope.ADMIN)
async def stop_daemon(office: RequestContext, asked: EmptyRequest) -> DaemonResponse:  # noqa: ARG001
    """Stop the work of this daemon: it takes nothing new and lets what runs end.

    The API stays open; `/v1/status` says when everything has ended.
    """
    daemon = _daemon(office)
    await office.store.write(record_request)
    log.info("daemon.stop_asked", extra={"by": office.caller.id})
    daemon.stop()
    return DaemonResponse(state=daemon.state)


@command("POST", "/v1/start", KeyScope.ADMIN)
async def start_daemon(office: RequestContext, asked: EmptyRequest) -> DaemonResponse:  # noqa: ARG001
    """Let this daemon work again, as soon as an earlier stop has ended."""
    daemon = _daemon(office)
    await office.store.write(record_request)
    log.info("daemon.start_asked", extra={"by": office.caller.id})
    daemon.start()
    return DaemonResponse(state=daemon.state)


def _daemon(office: RequestContext) -> DaemonControl:
    check_main(office.caller)
    if office.app.daemon is None:
        message = "nobody works behind this door: start `rota up`"
        raise Conflict(message)
    return office.app.daemon
