"""Every channel keeps the contract of its port."""

from __future__ import annotations

import pytest

from rota.channels.log.channel import LogChannel
from rota.testing import RecordingChannel
from rota.testing.channel_contract import ChannelContract


@pytest.fixture(params=[LogChannel, RecordingChannel])
def channel(request):
    return request.param()


class TestChannels(ChannelContract):
    pass
