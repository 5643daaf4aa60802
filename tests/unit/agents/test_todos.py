"""The lists that agents keep of their work: how far they are."""

import json

import pytest

from rota.agents.claude.reader import ClaudeReader
from rota.agents.pi.agent import PiAgent
from rota.agents.shared.reader import MAX_TODOS
from rota.model.agents import AgentProgress, AgentSpec, AgentToolCall
from rota.ports.agent import AgentWorkspace


@pytest.fixture
def reader():
    return ClaudeReader()


def call(reader, name, given, *, result=None, error=False, inner=None):
    """Return what is said when a tool is called, and when its result comes."""
    use = {"type": "tool_use", "id": "t", "name": name, "input": given}
    back = {"type": "tool_result", "tool_use_id": "t", "is_error": error}
    records = [
        {"type": "assistant", "message": {"content": [use]}},
        {"type": "user", "message": {"content": [back]}, "tool_use_result": result or {}},
    ]
    told = [json.dumps({**record, "parent_tool_use_id": inner}).encode() for record in records]
    return [said for line in told for said in reader.feed(line)]


def todos(*statuses):
    return {"todos": [{"content": f"do {status}", "status": status} for status in statuses]}


def test_a_list_tells_how_far_it_is_and_what_comes_now(reader):
    told = call(reader, "TodoWrite", todos("completed", "in_progress", "pending", "pending"))
    assert told == [AgentProgress(percent=25.0, message="do in_progress")]


def test_a_call_that_was_refused_tells_nothing(reader):
    assert call(reader, "TodoWrite", todos("completed"), error=True) == []
    assert call(reader, "TaskUpdate", {"taskId": "1"}, result={"success": False}) == []


def test_tasks_are_counted_as_they_are_made_changed_and_deleted(reader):
    for task in ("1", "2", "3"):
        call(reader, "TaskCreate", {"subject": f"do {task}"}, result={"task": {"id": task}})
    done = {"success": True}
    first = call(reader, "TaskUpdate", {"taskId": "1", "status": "completed"}, result=done)
    second = call(reader, "TaskUpdate", {"taskId": "2", "status": "in_progress"}, result=done)
    third = call(reader, "TaskUpdate", {"taskId": "3", "status": "deleted"}, result=done)
    assert [*first, *second, *third] == [
        AgentProgress(percent=pytest.approx(33.3, abs=0.1)),
        AgentProgress(percent=pytest.approx(33.3, abs=0.1), message="do 2"),
        AgentProgress(percent=50.0, message="do 2"),
    ]


def test_what_is_not_changed_is_not_told_again(reader):
    call(reader, "TodoWrite", todos("completed", "pending"))
    assert call(reader, "TodoWrite", todos("completed", "pending")) == []


def test_a_resumed_session_is_counted_from_what_it_lists(reader):
    tasks = [{"id": str(nth), "subject": "x", "status": "completed"} for nth in range(3)]
    tasks.append({"id": "3", "subject": "the last", "status": "in_progress"})
    told = call(reader, "TaskList", {}, result={"tasks": tasks})
    assert told == [AgentProgress(percent=75.0, message="the last")]


def test_the_list_of_a_helper_is_not_how_far_the_agent_is(reader):
    (told,) = call(reader, "TodoWrite", todos("completed"), inner="toolu_7")
    assert isinstance(told, AgentToolCall)


def used(reader, given, *, tool="rota_todos", error=False):
    """Return what is said when pi uses a tool, and when that ends; refused, it says why."""
    result = {"content": [], "details": {} if error else given}
    named = {"toolCallId": "c", "toolName": tool}
    records = [
        {"type": "tool_execution_start", **named, "args": given},
        {"type": "tool_execution_end", **named, "result": result, "isError": error},
    ]
    return [said for record in records for said in reader.feed(json.dumps(record).encode())]


@pytest.fixture
def pi():
    return PiAgent().reader(AgentSpec(), AgentWorkspace(folder="/", cwd="/", home="/"))


def test_pi_tells_how_far_it_is_by_the_tool_that_it_is_given(pi):
    assert used(pi, todos("completed", "in_progress")) == [
        AgentProgress(percent=50.0, message="do in_progress")
    ]
    assert used(pi, todos("completed", "in_progress")) == []
    assert used(pi, todos("completed", "completed")) == [AgentProgress(percent=100.0)]


def test_what_pi_was_not_allowed_to_write_down_tells_nothing(pi):
    assert used(pi, todos("completed"), error=True) == []
    assert used(pi, {}) == []
    assert used(pi, {"todos": "all of it"}) == []


def test_the_list_of_another_tool_is_not_how_far_pi_is(pi):
    (told,) = used(pi, todos("completed"), tool="todo")
    assert isinstance(told, AgentToolCall)


def test_a_list_without_an_end_is_counted_to_a_bound(pi):
    statuses = ["completed"] * MAX_TODOS + ["pending"] * MAX_TODOS
    given = {"todos": [{"status": status} for status in statuses]}
    assert used(pi, given) == [AgentProgress(percent=100.0)]
