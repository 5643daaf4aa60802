"""The coding agent pi: its words and its environment."""

from __future__ import annotations

from collections.abc import Iterator

from rota.agents.kit import asking
from rota.agents.kit.environment import environment
from rota.agents.pi import steered, todos
from rota.model.messages import ThreadMessage
from rota.model.programs import Command
from rota.model.wishes import Wish
from rota.ports.agent import Abilities, File, Prepared, Room

FIXED = {"PI_OFFLINE": "1", "PI_TELEMETRY": "0"}
VARIABLES = frozenset(
    {
        "ANTHROPIC_API_KEY", "ANTHROPIC_OAUTH_TOKEN", "AZURE_OPENAI_API_KEY",
        "AZURE_OPENAI_BASE_URL", "CEREBRAS_API_KEY", "DEEPSEEK_API_KEY", "FIREWORKS_API_KEY",
        "GEMINI_API_KEY", "GROQ_API_KEY", "KIMI_API_KEY", "MINIMAX_API_KEY", "MISTRAL_API_KEY",
        "MOONSHOT_API_KEY", "OPENAI_API_KEY", "OPENROUTER_API_KEY", "XAI_API_KEY", "ZAI_API_KEY",
        "AWS_REGION", "AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY",
        "AWS_BEARER_TOKEN_BEDROCK", "PI_CODING_AGENT_DIR", "PI_CODING_AGENT_SESSION_DIR",
    }
)  # fmt: skip


class PiAgent:
    """Runs pi without a terminal; a model is written `provider/name`."""

    name = "pi"
    abilities = Abilities(
        models=True,
        tools=True,
        thinking=("off", "minimal", "low", "medium", "high", "xhigh"),
        resume=True,
        envelope=True,
        variables=VARIABLES,
    )

    def check(self, wish: Wish) -> None:
        """Refuse what pi cannot do."""
        asking.check(self.name, self.abilities, wish)

    def prepare(self, wish: Wish, room: Room) -> Prepared:
        """Return the program, and the tool by which it keeps a list of its work."""
        self.check(wish)
        asking.check_room(self.name, self.abilities, room)
        command = Command(
            argv=tuple(_words(wish, room)),
            env=environment(room, VARIABLES, FIXED),
            cwd=room.cwd,
            stdin=_input(wish.instructions, room),
            keep_stdin_open=room.steered,
        )
        listing = File(name=todos.EXTENSION, content=todos.extension())
        return Prepared(command=command, files=(listing,) if _keeps_todos(wish) else ())

    def reader(self, _wish: Wish, room: Room, /) -> steered.SteeredPiReader:
        """Return a reader of its stream."""
        return steered.SteeredPiReader(room.redactor)

    def steers(self, _wish: Wish, /) -> bool:
        """Return that it takes messages while it works."""
        return True

    def line(self, message: ThreadMessage, files: str | None = None) -> bytes:
        """Return a message as a line of its input."""
        return steered.line(message, files)

    def message_in(self, line: bytes) -> int | None:
        """Return the id of the message that a line of its input is."""
        return steered.message_in(line)


def _input(prompt: str, room: Room) -> bytes:
    return steered.opening(prompt) if room.steered else prompt.encode("utf-8", "replace")


def _words(wish: Wish, room: Room) -> Iterator[str]:
    yield room.program or "pi"
    yield from ("--mode", "rpc") if room.steered else ("--mode", "json", "--print")
    if room.session:
        yield from ("--session", room.session)
    if wish.model:
        yield from ("--model", wish.model)
    if wish.thinking:
        yield from ("--thinking", wish.thinking)
    if _keeps_todos(wish):
        yield from ("--extension", f"{room.folder}/{todos.EXTENSION}")
    if wish.tools:
        yield from ("--tools", ",".join(wish.tools))
    elif wish.tools is not None:
        yield "--no-tools"


def _keeps_todos(wish: Wish) -> bool:
    return wish.tools is None or todos.TOOL in wish.tools
