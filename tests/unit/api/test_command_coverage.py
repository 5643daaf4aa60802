"""Everything the API can do, the command line can do."""

import pytest

from rota.cli.command_line import render_pages
from rota.cli.help_pages import find_page
from rota.commands.catalogue import every_command

WAYS = {
    "list_spaces": "space list",
    "create_space": "space create",
    "change_space": "space set",
    "list_keys": "key list",
    "create_key": "key create",
    "revoke_key": "key revoke",
    "list_secrets": "secret list",
    "put_secret": "secret set",
    "remove_secret": "secret remove",
    "list_tasks": "task list",
    "create_task": "task create",
    "create_thread_task": "add",
    "show_task": "task show",
    "change_task": "task edit",
    "put_task": "apply",
    "delete_task": "task delete",
    "run_task": "task run",
    "enable_task": "task enable",
    "disable_task": "task disable",
    "next_of_task": "task next",
    "backfill_task": "backfill",
    "why_of_task": "why",
    "why_of_run": "why",
    "list_schedules": "schedule list",
    "put_schedule": "task edit",
    "drop_schedule": "task edit",
    "preview_schedule": "next",
    "list_runs": "runs",
    "list_waiting": "questions",
    "create_run": "run",
    "show_run": "logs",
    "cancel_run": "cancel",
    "retry_run": "retry",
    "retry_task": "retry",
    "list_artifacts": "artifacts",
    "answer_run": "answer",
    "show_status": "status",
    "list_workers": "worker list",
    "list_machines": "machine list",
    "list_readings": "machine history",
    "list_heartbeats": "machine agents",
    "list_requests": "requests",
    "list_state": "state list",
    "get_state": "state get",
    "put_state": "state set",
    "drop_state": "state delete",
    "mark_seen": "seen mark",
    "get_seen": "seen show",
    "list_limits": "limit list",
    "set_limit": "limit set",
    "remove_limit": "limit remove",
    "list_preferences": "notify list",
    "set_preference": "notify set",
    "remove_preference": "notify remove",
    "show_task_budget": "budget show",
    "set_task_budget": "budget set",
    "show_space_budget": "budget show",
    "set_space_budget": "budget set",
    "ask_sql": "sql",
    "pause_all": "pause-all",
    "resume_all": "resume-all",
    "stop_daemon": "stop",
    "start_daemon": "start",
    "list_sessions": "session list",
    "search_sessions": "session search",
    "show_session": "session show",
    "archive_session": "session archive",
    "clear_session": "session clear",
    "resume_session": "session resume",
    "list_threads": "thread list",
    "show_thread": "thread show",
    "register_thread": "thread register",
    "cancel_thread": "thread cancel",
    "say": "say",
    "list_messages": "messages",
}

INSIDE = "attempt_requests"
"""The commands that only an attempt may use; it has a way of its own."""


def test_there_is_a_way_to_every_command():
    outside = [command for command in every_command() if command.group != INSIDE]
    assert {command.name for command in outside} == set(WAYS)


@pytest.mark.parametrize("words", sorted(set(WAYS.values())))
def test_each_way_has_a_page_with_an_example(words):
    page = find_page([*words.split(), "--help"], render_pages)
    assert page is not None
    assert page.startswith(f"Usage: rota {words} ")
    assert f"Example: rota {words.replace('task list', 'ls')}" in page
