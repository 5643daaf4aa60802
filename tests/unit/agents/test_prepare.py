"""What is run for a wish: the words, the environment, the files, and what is refused."""

import json
from dataclasses import replace

import pytest

from rota.agents.claude.agent import ClaudeAgent
from rota.agents.codex.agent import CodexAgent
from rota.agents.command.agent import CommandAgent
from rota.agents.pi.agent import PiAgent
from rota.errors import Invalid
from rota.model.agents import AgentSpec, OutputFormat, PromptInput, SessionMode
from rota.ports.agent import AgentWorkspace, McpServer

AGENTS = {a.name: a for a in (ClaudeAgent(), CodexAgent(), CommandAgent(), PiAgent())}
HELLO = AgentSpec(instructions="say hello")
OWN = {
    "claude": HELLO,
    "codex": HELLO,
    "pi": HELLO,
    "command": replace(HELLO, program=("prog",), variables=("MY_SETTING",)),
}
KEY = "sk-0123456789abcdef"
OFFERED = {
    "PATH": "/opt/bin",
    "ANTHROPIC_API_KEY": KEY,
    "ANTHROPIC_MODEL": "another",
    "OPENAI_API_KEY": KEY,
    "MY_SETTING": "1",
    "ROTA_DATABASE": "postgresql://user:password@host/db",
    "LD_PRELOAD": "/evil.so",
    "NODE_OPTIONS": "--require=/evil.js",
    "AWS_SECRET_ACCESS_KEY": KEY,
    "GITHUB_TOKEN": KEY,
}
ROOM = AgentWorkspace(folder="/attempt", cwd="/work", home="/home/x", offered=OFFERED)
AT_ADDRESS = McpServer(name="rota", url="http://127.0.0.1:1/mcp", headers={"Authorization": KEY})
AS_PROGRAM = McpServer(name="files", argv=("serve", "--all"), env={"FILES_KEY": KEY})


def words(agent, wish=HELLO, room=ROOM):
    return " ".join(AGENTS[agent].prepare(wish, room).command.argv)


CLAUDE = "claude -p --output-format stream-json --verbose --strict-mcp-config"
CHOSEN = (
    "--model opus --fallback-model sonnet,haiku --effort high --permission-mode plan --max-turns 5"
)
GIVEN = "--tools Bash,Read --allowedTools Bash(git *) Bash(ls) Read mcp__rota__ask"
CODEX = "codex exec --json --skip-git-repo-check --color never -c tools.update_plan.enabled=true"
PI = "pi --mode json --print"
LISTING = "--extension /attempt/todos.js"


@pytest.mark.parametrize(
    ("agent", "choices", "expected"),
    [
        ("claude", {}, CLAUDE),
        (
            "claude",
            {
                "model": "opus",
                "fallback_models": ("sonnet", "haiku"),
                "thinking": "high",
                "permission_mode": "plan",
                "max_turns": 5,
            },
            f"{CLAUDE} {CHOSEN}",
        ),
        (
            "claude",
            {
                "tools": ("Bash(git *)", "Bash(ls)", "Read", "mcp__rota__ask"),
                "denied_tools": ("WebFetch",),
            },
            f"{CLAUDE} {GIVEN} --disallowedTools WebFetch",
        ),
        ("claude", {"tools": ()}, f"{CLAUDE} --tools "),
        ("codex", {}, f"{CODEX} -"),
        (
            "codex",
            {"model": "gpt-6", "thinking": "low", "permission_mode": "workspace-write"},
            f'{CODEX} --model gpt-6 --sandbox workspace-write -c model_reasoning_effort="low" -',
        ),
        ("pi", {}, f"{PI} {LISTING}"),
        (
            "pi",
            {"model": "openai/gpt-6:high", "thinking": "off", "tools": ("read", "bash")},
            f"{PI} --model openai/gpt-6:high --thinking off --tools read,bash",
        ),
        ("pi", {"tools": ()}, f"{PI} --no-tools"),
        ("pi", {"tools": ("rota_todos",)}, f"{PI} {LISTING} --tools rota_todos"),
    ],
)
def test_the_words_of_a_wish(agent, choices, expected):
    assert words(agent, replace(HELLO, **choices)) == expected


@pytest.mark.parametrize(
    ("agent", "expected"),
    [
        ("claude", f"{CLAUDE} --resume 7f3a"),
        ("codex", f"{CODEX} resume 7f3a -"),
        ("pi", f"{PI} --session 7f3a {LISTING}"),
    ],
)
def test_the_words_of_a_session(agent, expected):
    assert words(agent, room=replace(ROOM, session="7f3a")) == expected


def test_claude_may_read_what_people_send():
    told = words("claude", room=replace(ROOM, mailbox="/box"))
    assert told == CLAUDE.replace("--strict", "--add-dir /box/in/files --strict")


def test_codex_is_led_to_the_gateway_by_its_words():
    led = replace(ROOM, ids={"OPENAI_BASE_URL": "http://127.0.0.1:7683/openai/v1"})
    address = 'openai_base_url="http://127.0.0.1:7683/openai/v1"'
    assert words("codex", room=led) == f"{CODEX} -c {address} -"


@pytest.mark.parametrize(
    ("agent", "names"),
    [
        ("claude", {"ANTHROPIC_API_KEY", "AWS_SECRET_ACCESS_KEY"}),
        ("codex", {"OPENAI_API_KEY"}),
        ("pi", {"ANTHROPIC_API_KEY", "OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY"}),
        ("command", {"MY_SETTING"}),
    ],
)
def test_an_agent_sees_what_it_needs_and_nothing_else(agent, names):
    env = AGENTS[agent].prepare(OWN[agent], ROOM).command.env
    assert set(env) & set(OFFERED) == {"PATH", *names}
    assert env["HOME"] == "/home/x"
    assert env["PATH"] == "/opt/bin"


@pytest.mark.parametrize("agent", AGENTS)
def test_paths_and_languages_of_the_host_do_not_stand_for_those_of_an_image(agent):
    host = {"LANG": "de_DE.UTF-8", "SSL_CERT_FILE": "/etc/own.pem", "TZ": "Europe/Berlin"}
    room = replace(ROOM, in_image=True, offered={"PATH": "/opt/bin", "TMPDIR": "/x", **host})
    env = AGENTS[agent].prepare(OWN[agent], room).command.env
    assert {*room.offered} & {*env} == {"TZ"}


def test_a_program_in_an_image_is_given_a_path_of_the_host_if_its_task_names_it():
    room = replace(ROOM, in_image=True)
    wish = replace(OWN["command"], variables=("PATH",))
    assert AGENTS["command"].prepare(wish, room).command.env["PATH"] == "/opt/bin"


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("http://proxy.example:3128", "http://proxy.example:3128"),
        ("http://ann:hunter2@proxy.example:3128/", "http://proxy.example:3128/"),
        ("ann:hunter2@proxy.example:3128", "proxy.example:3128"),
        ("socks5h://ann:p/a@s://hunter2@proxy.example", "socks5h://proxy.example"),
        ("", ""),
    ],
)
@pytest.mark.parametrize("name", ["HTTP_PROXY", "https_proxy"])
@pytest.mark.parametrize("agent", AGENTS)
def test_a_program_is_told_of_a_proxy_and_not_of_its_password(agent, name, address, told):
    room = replace(ROOM, offered={name: address, "NO_PROXY": "a@b,10.0.0.0/8"})
    env = AGENTS[agent].prepare(OWN[agent], room).command.env
    assert (env[name], env["NO_PROXY"]) == (told, "a@b,10.0.0.0/8")


@pytest.mark.parametrize(
    ("tools", "by_tasks"), [(None, True), (("Read",), True), (("Read", "TodoWrite"), False)]
)
def test_claude_may_keep_a_list_of_its_work_in_the_way_its_task_names(tools, by_tasks):
    env = AGENTS["claude"].prepare(replace(HELLO, tools=tools), ROOM).command.env
    assert env["CLAUDE_CODE_ENABLE_TODO_TOOLS"] == "1"
    assert env.get("CLAUDE_CODE_ENABLE_TASKS", "1") == ("1" if by_tasks else "0")


@pytest.mark.parametrize("agent", AGENTS)
def test_an_agent_is_told_of_its_run_and_cannot_be_given_another_home(agent):
    room = replace(ROOM, ids={"ROTA_RUN_ID": "7", "HOME": "/root"}, offered={"HOME": "/root"})
    env = AGENTS[agent].prepare(OWN[agent], room).command.env
    assert env["ROTA_RUN_ID"] == "7"
    assert env["HOME"] == "/home/x"
    assert env["PATH"]


@pytest.mark.parametrize("agent", AGENTS)
def test_the_instructions_are_no_word_unless_asked(agent):
    command = AGENTS[agent].prepare(replace(OWN[agent], instructions="--évil"), ROOM).command
    assert command.stdin == "--évil".encode()
    assert "--évil" not in command.argv
    assert command.cwd == "/work"


@pytest.mark.parametrize("agent", ["claude", "codex"])
def test_no_secret_of_a_tool_server_is_among_the_words(agent):
    room = replace(ROOM, servers=(AT_ADDRESS, AS_PROGRAM))
    assert KEY not in words(agent, room=room)


@pytest.mark.parametrize(
    ("tools", "told"),
    [(None, "--allowedTools mcp__rota"), ((), ""), (("Read",), "--allowedTools Read")],
)
def test_claude_may_use_the_desk_unless_its_task_names_its_tools(tools, told):
    room = replace(ROOM, servers=(AT_ADDRESS,))
    argv = " ".join(AGENTS["claude"].prepare(replace(HELLO, tools=tools), room).command.argv)
    assert told in argv
    assert ("--allowedTools" in argv) == bool(told)


def test_claude_finds_its_tool_servers_in_a_file():
    prepared = AGENTS["claude"].prepare(HELLO, replace(ROOM, servers=(AT_ADDRESS, AS_PROGRAM)))
    assert "--mcp-config /attempt/mcp.json" in " ".join(prepared.command.argv)
    assert prepared.command.env["ENABLE_TOOL_SEARCH"] == "false"
    (file,) = prepared.files
    assert json.loads(file.content) == {
        "mcpServers": {
            "rota": {
                "type": "http",
                "url": "http://127.0.0.1:1/mcp",
                "headers": {"Authorization": KEY},
            },
            "files": {
                "type": "stdio",
                "command": "serve",
                "args": ["--all"],
                "env": {"FILES_KEY": KEY},
            },
        }
    }


@pytest.mark.parametrize(
    ("tools", "there"), [(None, True), (("rota_todos",), True), (("read",), False), ((), False)]
)
def test_pi_finds_the_tool_for_its_list_where_its_task_lets_it(tools, there):
    files = AGENTS["pi"].prepare(replace(HELLO, tools=tools), ROOM).files
    assert [file.name for file in files] == (["todos.js"] if there else [])
    assert all(b'"name": "rota_todos"' in file.content for file in files)


def test_codex_finds_its_tool_servers_in_its_words_and_their_secrets_in_its_environment():
    command = (
        AGENTS["codex"].prepare(HELLO, replace(ROOM, servers=(AT_ADDRESS, AS_PROGRAM))).command
    )
    assert [word for word in command.argv if word.startswith("mcp_servers")] == [
        'mcp_servers.rota.url="http://127.0.0.1:1/mcp"',
        'mcp_servers.rota.env_http_headers={"Authorization"="ROTA_MCP_ROTA_AUTHORIZATION"}',
        'mcp_servers.files.command="serve"',
        'mcp_servers.files.args=["--all"]',
        'mcp_servers.files.env_vars=["FILES_KEY"]',
    ]
    assert command.env["ROTA_MCP_ROTA_AUTHORIZATION"] == KEY
    assert command.env["FILES_KEY"] == KEY


def test_only_an_isolated_claude_is_told_that_it_may_do_anything():
    claude = AGENTS["claude"]
    assert "IS_SANDBOX" not in claude.prepare(HELLO, ROOM).command.env
    assert claude.prepare(HELLO, replace(ROOM, isolated=True)).command.env["IS_SANDBOX"] == "1"


REFUSED = [
    ("claude", "instructions", {"instructions": "\n"}),
    ("claude", "model", {"model": "--dangerously-skip-permissions"}),
    ("claude", "model", {"model": "a b"}),
    ("claude", "fallback_models", {"fallback_models": ("-x",)}),
    ("claude", "tools", {"tools": ("--add-dir",)}),
    ("claude", "tools", {"tools": ("Bash\n",)}),
    ("claude", "denied_tools", {"denied_tools": ("",)}),
    ("claude", "thinking", {"thinking": "hard"}),
    ("claude", "permission_mode", {"permission_mode": "default"}),
    ("claude", "max_turns", {"max_turns": 0}),
    ("claude", "command", {"program": ("sh",)}),
    ("claude", "output", {"output": OutputFormat.LINES}),
    ("claude", "prompt_by", {"prompt_by": PromptInput.ARGV}),
    ("codex", "fallback_models", {"fallback_models": ("a",)}),
    ("codex", "tools", {"tools": ("shell",)}),
    ("codex", "denied_tools", {"denied_tools": ("shell",)}),
    ("codex", "permission_mode", {"permission_mode": "plan"}),
    ("codex", "max_turns", {"max_turns": 3}),
    ("pi", "permission_mode", {"permission_mode": "plan"}),
    ("pi", "denied_tools", {"denied_tools": ("bash",)}),
    ("pi", "variables", {"variables": ("HOME",)}),
]


@pytest.mark.parametrize(("agent", "field", "choices"), REFUSED)
def test_what_an_agent_cannot_do_is_refused_by_its_field(agent, field, choices):
    with pytest.raises(Invalid) as refused:
        AGENTS[agent].check(replace(HELLO, **choices))
    assert refused.value.field == field


def test_a_refusal_says_what_there_is():
    with pytest.raises(Invalid, match="the agent codex supports none, minimal, low"):
        AGENTS["codex"].check(replace(HELLO, thinking="max"))


@pytest.mark.parametrize(
    ("agent", "field", "changes"),
    [
        ("claude", "session", {"session": "-rf"}),
        ("codex", "session", {"session": "a b"}),
        ("pi", "servers", {"servers": (AT_ADDRESS,)}),
        ("claude", "servers", {"servers": (McpServer(name="a.b", url="http://x"),)}),
        ("claude", "servers", {"servers": (McpServer(name="a"),)}),
        ("codex", "servers", {"servers": (McpServer(name="a", url="x", argv=("y",)),)}),
    ],
)
def test_a_room_that_does_not_fit_is_refused(agent, field, changes):
    with pytest.raises(Invalid) as refused:
        AGENTS[agent].prepare(HELLO, replace(ROOM, **changes))
    assert refused.value.field == field


@pytest.mark.parametrize("agent", AGENTS)
def test_every_agent_can_go_on_with_a_session(agent):
    AGENTS[agent].check(replace(OWN[agent], session=SessionMode.SHARED))
