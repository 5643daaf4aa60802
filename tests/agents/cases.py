"""What the stub answers, and what must be read of it, for every agent."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from rota.model.agents import AgentErrorKind, AgentSpec
from tests.tools.providers import Cut, Refusal, Slow, Text, Tool, Word

HELLO = AgentSpec(instructions="say hello")
TOOLS = {
    "claude": Tool("Bash", {"command": "echo 42", "description": "count"}),
    "codex": Tool("exec_command", {"cmd": "echo 42"}),
    "pi": Tool("bash", {"command": "echo 42"}),
}
PLANS = {
    "claude": (
        Tool("TodoWrite", {"todos": [{"content": "no such tool", "status": "completed"}]}),
        Tool("TaskCreate", {"subject": "read the mail", "description": "all of it"}),
        Tool("TaskCreate", {"subject": "answer it", "description": "politely"}),
        Tool("TaskUpdate", {"taskId": "3", "status": "completed"}),
        Tool("TaskUpdate", {"taskId": "1", "status": "completed"}),
        Tool("TaskUpdate", {"taskId": "2", "status": "in_progress"}),
        Tool("TaskUpdate", {"taskId": "2", "status": "completed"}),
    ),
    "codex": tuple(
        Tool(
            "update_plan",
            {
                "plan": [
                    {"step": "read the mail", "status": first},
                    {"step": "answer it", "status": second},
                ]
            },
        )
        for first, second in (
            ("in_progress", "pending"),
            ("completed", "in_progress"),
            ("completed", "completed"),
        )
    ),
    "pi": tuple(
        Tool(
            "rota_todos",
            {
                "todos": [
                    {"content": "read the mail", "status": first},
                    {"content": "answer it", "status": second},
                ]
            },
        )
        for first, second in (
            ("in_progress", "pending"),
            ("completed", "no such status"),
            ("completed", "in_progress"),
            ("completed", "completed"),
        )
    ),
}
"""How an agent is made to tell how far it is."""
TODOS = Tool(
    "TodoWrite",
    {
        "todos": [
            {"content": "read the mail", "status": "completed", "activeForm": "reading"},
            {"content": "answer it", "status": "in_progress", "activeForm": "answering"},
        ]
    },
)
PERCENTS = {"claude": (0, 50, 50, 100), "codex": (0, 50, 100, 100), "pi": (0, 50, 100)}
WISHES = {
    "claude": AgentSpec(
        instructions="say hello",
        model="claude-opus-5-5",
        fallback_models=("sonnet",),
        tools=("Bash(echo *)", "Read"),
        denied_tools=("WebFetch",),
        thinking="low",
        permission_mode="dontAsk",
        max_turns=3,
    ),
    "codex": AgentSpec(
        instructions="say hello",
        model="stub-model",
        thinking="low",
        permission_mode="danger-full-access",
    ),
    "pi": AgentSpec(
        instructions="say hello", model="stub/stub-model", tools=("bash",), thinking="off"
    ),
}


@dataclass(frozen=True)
class Case:
    """One conversation with the stub."""

    agent: str
    name: str
    script: tuple[Word, ...]
    wish: AgentSpec
    text: str = ""
    fault: AgentErrorKind | None = None
    tools: int = 0
    percents: tuple[float, ...] = ()
    session: str | None = None
    more: str = ""
    lines: list[str] = field(default_factory=list)


def cases() -> list[Case]:
    return [case for agent in TOOLS for case in of_agent(agent)]


def of_agent(agent: str) -> list[Case]:
    wish = WISHES[agent]
    refusals = {
        "401": (Refusal(401, "authentication_error", "invalid key"), AgentErrorKind.AUTHENTICATION),
        "429": (Refusal(429, "rate_limit_error", "too many requests"), AgentErrorKind.RATE_LIMIT),
        "529": (Refusal(529, "overloaded_error", "Overloaded"), AgentErrorKind.OVERLOAD),
        "quota": (QUOTA[agent], AgentErrorKind.BILLING),
        "too-long": (TOO_LONG[agent], AgentErrorKind.CONTEXT_TOO_LONG),
        "no-model": (Refusal(404, "model_not_found", "model: nope"), AgentErrorKind.UNKNOWN_MODEL),
    }
    told = [
        Case(agent, "text", (Text("hello there"),), wish, "hello there"),
        Case(agent, "tool", (TOOLS[agent], Text("it is 42")), wish, "it is 42", tools=1),
        Case(agent, "banner", (Text("API Error: 500 oops"),), wish, fault=AgentErrorKind.OVERLOAD),
        Case(agent, "question", (Text(QUESTION),), wish),
        Case(
            agent,
            "lost-session",
            (Text("hello"),),
            wish,
            fault=AgentErrorKind.SESSION_LOST,
            session="00000000-0000-4000-8000-000000000000",
        ),
    ]
    freely = replace(wish, tools=None, max_turns=None)
    words = (*PLANS[agent], Text("done"))
    told.append(Case(agent, "progress", words, freely, "done", percents=PERCENTS[agent]))
    if agent != "pi":  # which takes the half for the whole
        told.append(Case(agent, "cut", (Cut("hello there"),), wish, fault=AgentErrorKind.NETWORK))
    if agent == "pi":
        words = (Slow("the first"), Text("the second"))
        told.append(Case(agent, "steered", words, wish, "the first\n\nthe second", more="go on"))
    if agent == "claude":
        named, words = replace(wish, tools=("TodoWrite",)), (TODOS, Text("done"))
        told.append(Case(agent, "todos", words, named, "done", percents=(50,)))
        told.append(
            Case(agent, "turns", (TOOLS[agent],), wish, fault=AgentErrorKind.TURNS, tools=3)
        )
    for name, (refusal, fault) in refusals.items():
        told.append(Case(agent, name, (refusal,), wish, fault=fault))
    return told


QUESTION = (
    'I need to know.\n{"rota": "question", "text": "Which colour?", "options": ["red", "blue"]}'
)
NO_CREDIT = "Your credit balance is too low to access the API."
NO_QUOTA = "You exceeded your current quota, please check your plan and billing details."
QUOTA = {
    "claude": Refusal(400, "invalid_request_error", NO_CREDIT),
    "codex": Refusal(429, "insufficient_quota", NO_QUOTA),
    "pi": Refusal(429, "insufficient_quota", NO_QUOTA),
}
LONG = "prompt is too long: 210000 tokens > 200000 maximum"
WIDE = "This model's maximum context length is 100 tokens."
TOO_LONG = {
    "claude": Refusal(400, "invalid_request_error", LONG),
    "codex": Refusal(400, "context_length_exceeded", WIDE),
    "pi": Refusal(400, "context_length_exceeded", WIDE),
}
