"""The real agents behind walls, with a key that they never have: the gateway shows it for them."""

from __future__ import annotations

import pytest

from tests.agents.cases import TOOLS
from tests.agents.driving import Place as Folders
from tests.agents.test_through_daemon import (  # noqa: F401 - fixtures
    MEMBER,
    Lodging,
    agent,
    bytecode,
    folder,
    provider,
)
from tests.system.conftest import House
from tests.system.gateway.conftest import sandbox  # noqa: F401 - a fixture
from tests.system.gateway.test_process import Home
from tests.tools.providers import Text as Says

pytestmark = pytest.mark.agents

REAL = "sk-canary-9d41c07fe2b8"
INSIDE = "http://127.0.0.1:7683/openai"


@pytest.fixture
def gated(request, agent, folder, bytecode, provider, sandbox):  # noqa: F811
    made = Lodging(House(folder, bytecode), MEMBER, ())
    made.move_in(agent, provider, folder / "out")
    del made.extra["ROTA_OUTLET"], made.extra["ROTA_OUTLET_PORT"]
    made.extra |= {
        "ANTHROPIC_API_KEY": REAL,
        "OPENAI_API_KEY": REAL,
        "OPENAI_BASE_URL": provider.url,
    }
    if agent == "pi":
        Folders(made.own).settle(agent, made.own, INSIDE)
    if agent == "codex":
        (made.own / ".codex" / "config.toml").unlink()  # its words are enough
    made.json("space", "create", MEMBER)
    try:
        made.up()
        yield made
    finally:
        made.end()
        assert Home(made.house.home, provider).until_gone()


def test_a_real_agent_works_with_a_key_it_never_has(gated, provider):  # noqa: F811
    provider.script.words = (TOOLS[gated.agent], Says("it is 42"))
    gated.make("think")
    run = gated.finish("think")
    assert (run["state"], run["result"]) == ("succeeded", "it is 42"), (run["error"], run["logs"])
    assert provider.script.asked
    assert provider.script.shown == {REAL}
    own = (path for path in gated.own.rglob("*") if path.is_file() and "agents" not in path.parts)
    for path in own:
        assert REAL.encode() not in path.read_bytes(), path
