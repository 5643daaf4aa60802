"""The contract suites find what breaks a port."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from rota.executors.process.executor import ProcessExecutor
from rota.keeper.build import Interpreter
from rota.model.notifications import Delivery, DeliveryState
from rota.ports.channel import ChannelRefused
from rota.ports.executor import MissingRequirement
from rota.testing import RecordingChannel
from rota.testing.channel_contract import ChannelContract
from rota.testing.executor_contract import ExecutorBench, ExecutorContract, Site

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
DELIVERY = Delivery(
    id=1, run_id=1, channel="test", target="", body="hello", dedupe_key="1", tries=1,
    state=DeliveryState.SENDING, available_at=NOW, created_at=NOW, sent_at=None, error=None,
)  # fmt: skip


class Slow(RecordingChannel):
    async def send(self, delivery):
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise OSError("the connection was reset") from None


def test_a_channel_that_refuses_plain_messages_is_found():
    channel = RecordingChannel(errors=[ChannelRefused("busy")])
    with pytest.raises(AssertionError):
        ChannelContract().test_a_message_is_accepted(channel, DELIVERY)


def test_a_refusal_without_a_reason_is_found():
    channel = RecordingChannel(errors=[ChannelRefused("")])
    with pytest.raises(pytest.fail.Exception, match="says why"):
        ChannelContract().test_any_text_is_accepted_or_refused(channel, DELIVERY, "x")


def test_an_error_that_is_no_refusal_is_found():
    channel = RecordingChannel(errors=[ValueError("too long")])
    with pytest.raises(ValueError, match="too long"):
        ChannelContract().test_any_text_is_accepted_or_refused(channel, DELIVERY, "x" * 100)


def test_a_cancelled_message_that_becomes_an_error_is_found():
    with pytest.raises(AssertionError):
        ChannelContract().test_sending_can_be_cancelled(Slow(), DELIVERY)


def test_a_name_with_a_colon_is_found():
    with pytest.raises(AssertionError):
        ChannelContract().test_its_name_can_stand_before_a_colon(RecordingChannel("a:b"))


class Plain(ProcessExecutor):
    def __init__(self):
        super().__init__(Interpreter.running(), hierarchy=None, certain_kill=True)


class Leaky(Plain):
    """Puts the environment on the command line, and its own into the program's."""

    def wrap(self, command, room):
        spec = super().wrap(command, room)
        words = [f"{name}={value}" for name, value in spec.command.env.items()]
        argv = ["/usr/bin/env", *words, "ROTA_TEST_CANARY=singing", *spec.command.argv]
        return replace(spec, command=replace(spec.command, argv=argv))


class Open(Plain):
    """Claims an isolation that it does not have."""

    def wrap(self, command, room):
        return super().wrap(command, replace(room, isolated=False))


class Vague(Plain):
    def check(self):
        return [MissingRequirement("something", "", "", needed=False)]


class Deaf(Plain):
    """Reports success whatever the program does, without its input."""

    def wrap(self, command, room):
        spec = super().wrap(command, room)
        argv = ["/bin/sh", "-c", '"$@"; exit 0', "sh", *spec.command.argv]
        return replace(spec, command=replace(spec.command, argv=argv, stdin=b""))


@pytest.fixture
def site(request, tmp_path):
    bench = ExecutorBench(tmp_path)
    yield Site(request.param(), bench, None)
    bench.close()


CONTRACT = ExecutorContract()


@pytest.mark.parametrize("site", [Leaky], indirect=True)
def test_values_on_a_command_line_are_found(site):
    with pytest.raises(AssertionError):
        CONTRACT.test_no_value_of_the_environment_is_on_a_command_line(site, isolated=False)


@pytest.mark.parametrize("site", [Leaky], indirect=True)
def test_a_foreign_environment_is_found(site, monkeypatch):
    with pytest.raises(AssertionError):
        CONTRACT.test_the_environment_of_this_process_stays_here(site, monkeypatch, isolated=False)


@pytest.mark.parametrize("site", [Open], indirect=True)
def test_an_isolation_that_is_only_claimed_is_found(site, tmp_path):
    with pytest.raises(AssertionError):
        CONTRACT.test_isolation_is_kept_or_refused(site, tmp_path)
    with pytest.raises(AssertionError):
        CONTRACT.test_an_isolated_program_does_not_see_its_own_state(site)


@pytest.mark.parametrize("site", [Deaf], indirect=True)
def test_a_lost_exit_code_is_found(site):
    for case in (
        CONTRACT.test_arguments_environment_input_folder_and_exit_code_arrive,
        CONTRACT.test_a_program_that_kills_itself_is_no_success,
        CONTRACT.test_a_program_that_does_not_exist_fails_with_its_name,
    ):
        with pytest.raises(AssertionError):
            case(site, isolated=False)


def test_a_missing_thing_without_a_remedy_is_found():
    with pytest.raises(AssertionError):
        CONTRACT.test_what_is_missing_is_named_with_a_remedy(Vague())
