"""What an operator may write into gateway.toml, and what a program is told of it."""

from __future__ import annotations

import asyncio

import pytest

from rota.errors import Invalid
from rota.gateway.client import AttemptGateway
from rota.gateway.config import MIB, read_config
from rota.rules.effects import WriteScope
from rota.rules.redaction import Redactor

OWN = """
requests = 5
mebibytes = 7

[secrets]
github = "file:/run/secrets/github"
openai = "env:TEAM_KEY"

[upstreams.github]
url = "https://api.github.com/"
header = "Authorization: token {secret}"
allow = ["GET /repos/**"]
headers = ["X-GitHub-Api-Version"]
spaces = ["ann"]
variables = { GITHUB_TOKEN = "{token}", GITHUB_API_URL = "{url}/x" }

[upstreams.anthropic]
url = "http://127.0.0.1:8080/base"
local = true
"""


def plan_of(tmp_path, text, **environment):
    path = tmp_path / "gateway.toml"
    path.write_text(text)
    path.chmod(0o600)
    return read_config(path, environment)


def test_a_plan_is_read_with_the_known_providers_in_it(tmp_path):
    plan = plan_of(tmp_path, OWN, ANTHROPIC_API_KEY="sk-from-env")
    known = {upstream.name: upstream for upstream in plan.upstreams}
    assert set(known) == {"anthropic", "openai", "github"}
    assert (plan.requests, plan.bytes) == (5, 7 * MIB)
    assert plan.sources == {
        "anthropic": "env:ANTHROPIC_API_KEY",
        "github": "file:/run/secrets/github",
        "openai": "env:TEAM_KEY",
    }
    github = known["github"].with_secret("ghp-1")
    assert github.headers == (("authorization", "token ghp-1"),)
    assert github.passed == ("x-github-api-version",)
    assert known["anthropic"].with_secret("k").base == "/base"
    assert ("POST", "/v1/messages") in known["anthropic"].allow
    assert "ghp-1" not in repr(github)
    assert (github.is_write("POST"), github.is_write("GET")) == (True, False)
    assert not known["anthropic"].with_secret("k").is_write("POST")


def test_without_a_file_the_known_providers_are_there(tmp_path):
    plan = read_config(tmp_path / "none.toml", {})
    assert [upstream.name for upstream in plan.upstreams] == ["anthropic", "openai"]
    assert plan.sources == {}
    with pytest.raises(Invalid):
        read_config(tmp_path / "none.toml", {}, must_exist=True)


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("http://127.0.0.1:11434/v1", True),
        ("http://localhost:1/v1/", True),
        ("https://eu.api.com", False),
    ],
)
def test_the_environment_may_name_another_place_of_a_known_provider(tmp_path, url, local):
    plan = read_config(tmp_path / "none.toml", {"OPENAI_BASE_URL": url})
    openai = plan.upstreams[1]
    assert (openai.local, openai.base) == (local, "")


@pytest.mark.parametrize(
    "text",
    [
        "nonsense = 1",
        "requests = 0",
        "requests = true",
        "mebibytes = 'x'",
        "not toml",
        "[secrets]\nx = 'plain-value'",
        "[secrets]\nx = 'file:relative'",
        "[secrets]\n'X Y' = 'env:A'",
        "secrets = 3",
        "upstreams = []",
        "[upstreams.x]\nurl = 'https://a.b'",
        "[upstreams.x]\nallow = []",
        "[upstreams.x]\nurl = 'http://a.b'\nallow = []",
        "[upstreams.x]\nurl = 'https://10.0.0.1'\nallow = []",
        "[upstreams.x]\nurl = 'https://a.b'\nallow = ['GET']",
        "[upstreams.x]\nurl = 'https://a.b'\nallow = [1]",
        "[upstreams.x]\nurl = 'https://a.b'\nallow = []\nheader = 'x-key: none'",
        "[upstreams.x]\nurl = 'https://a.b'\nallow = []\nheader = 'x key: {secret}'",
        "[upstreams.x]\nurl = 'https://a.b'\nallow = []\nheader = \"x: {secret}\\r\\ny: z\"",
        "[upstreams.x]\nurl = 'https://a.b'\nallow = []\nheaders = ['Authorization']",
        "[upstreams.x]\nurl = 'https://a.b'\nallow = []\nheaders = ['cookie']",
        "[upstreams.x]\nurl = 'https://a.b'\nallow = []\nvariables = { PATH = '{url}' }",
        "[upstreams.x]\nurl = 'https://a.b'\nallow = []\nvariables = { LD_PRELOAD = '{url}' }",
        "[upstreams.x]\nurl = 'https://a.b'\nallow = []\nmore = 1",
        "[upstreams.'x/y']\nurl = 'https://a.b'\nallow = []",
    ],
)
def test_what_is_wrong_is_told_in_a_sentence(tmp_path, text):
    with pytest.raises(Invalid):
        plan_of(tmp_path, text)


def test_a_file_that_others_write_is_not_believed(tmp_path):
    path = tmp_path / "gateway.toml"
    path.write_text("")
    path.chmod(0o622)
    with pytest.raises(Invalid, match="chmod"):
        read_config(path, {})


class Gateway:
    """What a daemon has of a gateway, without a process."""

    def token(self, run, epoch):
        return f"sk-rota-{run}.{epoch}"

    def port(self):
        return 4000

    async def grant(self, name, token, **said):
        self.permitted = name

    def mark_started(self, name):
        self.begun = name

    def socket_path(self, name):
        return f"/doors/{name}"


SCOPE = WriteScope(1, "run 3", None)


def ways(plan, secrets, inside=7683):
    return AttemptGateway(Gateway(), plan, lambda: secrets, Redactor(secrets), inside)


@pytest.fixture
def plan(tmp_path):
    return plan_of(tmp_path, OWN)


def test_behind_walls_a_program_is_told_of_its_own_loopback(plan):
    known = ways(plan, {"anthropic": "sk-ant-real-1", "github": "ghp-real-22"})
    told = known.environment("3-2", (3, 2), "ann", {}, SCOPE, own_loopback=True)
    assert told == {
        "ROTA_GATEWAY_URL": "http://127.0.0.1:7683",
        "ROTA_GATEWAY_TOKEN": "sk-rota-3.2",
        "ANTHROPIC_BASE_URL": "http://127.0.0.1:7683/anthropic",
        "ANTHROPIC_API_KEY": "sk-rota-3.2",
        "GITHUB_API_URL": "http://127.0.0.1:7683/github/x",
        "GITHUB_TOKEN": "sk-rota-3.2",
    }
    assert "GITHUB_TOKEN" not in known.environment(
        "3-2", (3, 2), "bob", {}, SCOPE, own_loopback=True
    )


@pytest.mark.parametrize(
    ("allow", "more", "writes"),
    [
        ('"GET /repos/**"', "", False),
        ('"GET /repos/**", "POST /repos/*/*/issues"', "", True),
        ('"POST /v1/search"', "effects = false", False),
    ],
)
def test_who_could_write_to_somewhere_outside_is_noted_before_it_begins(
    tmp_path, allow, more, writes
):
    text = f'[upstreams.github]\nurl = "https://api.github.com"\nallow = [{allow}]\n{more}\n'
    known = ways(plan_of(tmp_path, text), {"anthropic": "sk-ant-real-1", "github": "ghp-real-22"})
    known.environment("3-2", (3, 2), "ann", {}, SCOPE, own_loopback=True)
    assert known.can_write("3-2") is writes
    assert asyncio.run(known.admit("3-2", (3, 2), "/exit", own_loopback=True)) == "/doors/3-2"
    assert hasattr(known._gateway, "begun") is writes


def test_without_walls_whoever_has_a_key_keeps_it(plan):
    known = ways(plan, {"anthropic": "sk-ant-real-1"})
    told = known.environment("3-2", (3, 2), "main", {}, SCOPE, own_loopback=False)
    assert told["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:4000/anthropic"
    offered = {"ANTHROPIC_API_KEY": "sk-ant-real-1"}
    assert known.environment("3-2", (3, 2), "main", offered, SCOPE, own_loopback=False) == {}
    assert known.filter_environment(offered, isolated=False) == offered


def test_with_nothing_to_reach_nothing_is_told(plan):
    assert ways(plan, {}).environment("3-2", (3, 2), "ann", {}, SCOPE, own_loopback=True) == {}
    unusable = {"anthropic": "two\nlines of it"}
    assert (
        ways(plan, unusable).environment("3-2", (3, 2), "ann", {}, SCOPE, own_loopback=True) == {}
    )


def test_an_egress_socket_of_the_operators_takes_the_place_of_the_gateway_behind_walls(plan):
    known = ways(plan, {"anthropic": "sk-ant-real-1"}, inside=None)
    offered = {"ANTHROPIC_API_KEY": "sk-ant-real-1"}
    assert known.environment("3-2", (3, 2), "ann", offered, SCOPE, own_loopback=True) == {}
    assert known.filter_environment(offered, isolated=True) == offered


def test_c1_behind_walls_nothing_is_offered_that_is_or_seems_a_secret(plan):
    known = ways(plan, {"anthropic": "sk-ant-real-1"})
    fine = {"PATH": "/bin", "LANG": "C", "TZ": "UTC", "HTTP_PROXY": "http://proxy:3128"}
    wrong = {
        "ANTHROPIC_API_KEY": "x", "GEMINI_API_KEY": "y", "AWS_SECRET_ACCESS_KEY": "z",
        "ANTHROPIC_AUTH_TOKEN": "t", "ANTHROPIC_CUSTOM_HEADERS": "h", "MY_PASSWORD": "p",
        "HTTPS_PROXY": "http://user:pw@proxy:3128", "TMPDIR": "/tmp/c2stYW50LXJlYWwtMQ==",
    }  # fmt: skip
    assert known.filter_environment({**fine, **wrong}, isolated=True) == fine
