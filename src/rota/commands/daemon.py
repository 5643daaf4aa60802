"""Pausing everything; stopping and starting the work of a daemon."""

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
    """The state of the daemon: `working`, `stopping`, `stopped`, `starting` or `ending`."""

    state: str


def _pause(pauses: Pauses) -> PauseResponse:
    since = maybe_instant(paused_since(pauses))
    return PauseResponse(paused=since is not None, paused_since=since)


@command("POST", "/v1/pause-all", KeyScope.ADMIN)
async def pause_all(context: RequestContext, request: EmptyRequest) -> PauseResponse:  # noqa: ARG001
    """Pause all work, in every process that uses the database.

    No run starts; running ones continue. Slots that come due meanwhile are skipped.
    """
    context.record(_pause, store_plans.pause_all)
    return _pause(await pause(context.store, context.caller))


@command("POST", "/v1/resume-all", KeyScope.ADMIN)
async def resume_all(context: RequestContext, request: EmptyRequest) -> PauseResponse:  # noqa: ARG001
    """Resume work, from now on."""
    context.record(_pause, store_plans.resume_all)
    return _pause(await resume(context.store, context.caller))


@command("POST", "/v1/stop", KeyScope.ADMIN)
async def stop_daemon(context: RequestContext, request: EmptyRequest) -> DaemonResponse:  # noqa: ARG001
    """Stop the work of this daemon: it claims no more runs and waits for the running ones.

    The API remains available; `/v1/status` shows the state.
    """
    daemon = _daemon(context)
    await context.store.write(record_request)
    log.info("daemon.stop_requested", extra={"by": context.caller.id})
    daemon.stop()
    return DaemonResponse(state=daemon.state)


@command("POST", "/v1/start", KeyScope.ADMIN)
async def start_daemon(context: RequestContext, request: EmptyRequest) -> DaemonResponse:  # noqa: ARG001
    """Start the work of this daemon again, after an earlier stop has ended."""
    daemon = _daemon(context)
    await context.store.write(record_request)
    log.info("daemon.start_requested", extra={"by": context.caller.id})
    daemon.start()
    return DaemonResponse(state=daemon.state)


def _daemon(context: RequestContext) -> DaemonControl:
    check_main(context.caller)
    if context.app.daemon is None:
        message = "this process runs no daemon: start `rota up`"
        raise Conflict(message)
    return context.app.daemon
