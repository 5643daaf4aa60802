"""What a task may ask to be checked, and what the pure checks find."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.errors import Invalid
from rota.model.spaces import SpaceRole
from rota.model.tasks import TaskKind
from rota.rules.checks import (
    CheckedOutcome,
    check_checks,
    check_done,
    checks_in,
    evaluate,
    failure_message,
    findings_to_json,
)
from rota.rules.json_schema import check_schema, schema_errors
from tests.tools.plugins import EXECUTORS


def found(check, result, tools=()):
    (made,) = checks_in({"checks": [check]})
    encoded = None if result is None else json.dumps(result)
    return evaluate(made, CheckedOutcome(encoded, tools))


@pytest.mark.parametrize(
    ("check", "field", "advice"),
    [
        ("min_length", "checks[0]", "write an object"),
        ({}, "checks[0]", "name exactly one of"),
        ({"min_length": 1, "not_like": "x"}, "checks[0]", "name exactly one of"),
        ({"min_length": 1, "contains": "x"}, "checks[0].contains", "does not go with min_length"),
        ({"min_length": 0}, "checks[0].min_length", "from 1"),
        ({"min_length": True}, "checks[0].min_length", "from 1"),
        ({"file_newer": "../etc/passwd"}, "checks[0].file_newer", "without . and .."),
        ({"file_newer": "/etc/passwd"}, "checks[0].file_newer", "without . and .."),
        ({"file_newer": "a\0b"}, "checks[0].file_newer", "name a file"),
        ({"command": "make test"}, "checks[0].command", "as a list"),
        ({"command": ["/bin/sh"]}, "checks[0].command", "on the PATH"),
        ({"command": ["true"], "timeout": "2h"}, "checks[0].timeout", "at most 10 minutes"),
        ({"url": "ftp://example.org"}, "checks[0].url", "begin with http"),
        ({"url": "http://me:pw@example.org"}, "checks[0].url", "leave out names"),
        ({"url": "http://[::1"}, "checks[0].url", "cannot be read"),
        ({"url": "http://a.example", "contains": ""}, "checks[0].url.contains", "write a text"),
        ({"json_schema": {"pattern": "(a+)+$"}}, "checks[0].json_schema", "not supported"),
        ({"json_schema": {"$ref": "http://a"}}, "checks[0].json_schema", "not supported"),
        ({"json_schema": {"type": "thing"}}, "checks[0].json_schema.type", "use one of"),
        (
            {"json_schema": {"items": {"enum": [1] * 3_000}}},
            "checks[0].json_schema",
            "within 1000 parts",
        ),
        (
            {"json_schema": {"anyOf": [{"const": [[0] * 90] * 6}, {"const": [[0] * 90] * 6}]}},
            "checks[0].json_schema",
            "within 1000 parts",
        ),
        (
            {"json_schema": {"properties": {"a" * 201: True}}},
            "checks[0].json_schema.properties",
            "within 200 characters",
        ),
        ({"not_like": "x" * 2_000, "regex": True}, "checks[0].not_like", "at most"),
    ],
)
def test_a_check_that_cannot_be_is_refused_in_one_sentence(check, field, advice):
    with pytest.raises(Invalid) as refused:
        check_done({"checks": [check]}, TaskKind.AGENT)
    assert refused.value.field == field
    assert advice in str(refused.value)
    assert "\n" not in str(refused.value)


def test_callables_have_no_checks_and_scripts_call_no_tools():
    with pytest.raises(Invalid, match="callable"):
        check_checks({"checks": [{"min_length": 1}]}, TaskKind.PYTHON)
    with pytest.raises(Invalid, match="only agents"):
        check_checks({"checks": [{"tool_called": "Write"}]}, TaskKind.SCRIPT)


URL = [{"url": "https://a.example/"}]


@pytest.mark.parametrize(
    ("site", "role", "allowed"),
    [
        ({}, SpaceRole.MAIN, True),
        ({}, SpaceRole.MEMBER, False),
        ({"network": "egress"}, SpaceRole.MEMBER, False),
        ({"executor": "sandbox"}, SpaceRole.MAIN, False),
        ({"executor": "sandbox", "network": "open"}, SpaceRole.MAIN, True),
    ],
)
def test_a_check_carries_nothing_out_from_behind_walls(site, role, allowed):
    try:
        check_done({**site, "checks": URL}, TaskKind.AGENT, role, EXECUTORS)
    except Invalid as refused:
        assert not allowed
        assert "have no open network" in str(refused)
    else:
        assert allowed


@pytest.mark.parametrize(
    ("check", "result", "passed"),
    [
        ({"min_length": 3}, "abc", True),
        ({"min_length": 3}, " ab ", False),
        ({"min_length": 1}, None, False),
        ({"not_like": "I could not"}, "i COULD not do it", False),
        ({"not_like": "I could not"}, "done", True),
    ],
)
def test_what_a_result_says(check, result, passed):
    assert found(check, result).passed is passed


def test_a_tool_must_have_been_called():
    assert found({"tool_called": "Write"}, "x", {"Write", "Read"}).passed
    missing = found({"tool_called": "Write"}, "x", {"Read"})
    assert not missing.passed
    assert "called tools: Read" in missing.evidence


def test_what_speaks_against_a_success_is_told_in_its_first_line():
    findings = [found({"min_length": 3}, "a"), found({"not_like": "b"}, "a")]
    (sentence,) = failure_message(findings).splitlines()
    assert sentence.endswith('failed: min_length "3": the result has 1 characters')
    assert [one["passed"] for one in json.loads(findings_to_json(findings))] == [False, True]
    assert failure_message(findings[1:]) is None


def test_how_many_checks_speak_against_a_success_is_told_before_the_first():
    findings = [found({"min_length": 9}, "a"), found({"not_like": "a"}, "a")]
    first, second = failure_message([*findings, found({"min_length": 1}, "a")]).splitlines()
    assert first.startswith('It reported success, but 2 checks failed: min_length "9": ')
    assert second.startswith('not_like "a": ')


@pytest.mark.parametrize(
    ("schema", "value", "fits"),
    [
        ({"type": "integer"}, 3.0, True),
        ({"type": "integer"}, True, False),
        ({"type": ["null", "string"]}, None, True),
        ({"const": 1}, True, False),
        ({"enum": [[1], {"a": 2}]}, {"a": 2}, True),
        ({"items": {"type": "string"}, "minItems": 1}, [], False),
        ({"items": {"type": "string"}}, ["a", 1], False),
        ({"properties": {"a": {"minimum": 2}}}, {"a": 1}, False),
        ({"properties": {"a": {}}, "additionalProperties": False}, {"b": 1}, False),
        ({"anyOf": [{"type": "string"}, {"maximum": 3}]}, 4, False),
        ({"oneOf": [{"minimum": 1}, {"minimum": 2}]}, 3, False),
        ({"not": {"type": "null"}}, None, False),
        ({"exclusiveMinimum": 1, "maxLength": 2}, 1, False),
        (False, 1, False),
        ({"maxLength": 2}, "äöü", False),
    ],
)
def test_values_are_held_against_the_part_of_json_schema_that_is_kept(schema, value, fits):
    check_schema(schema)
    assert (schema_errors(value, schema) == []) is fits


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(JSON)
def test_whatever_is_given_as_a_check_is_taken_or_refused(value):
    for told_ in ({"checks": value}, {"checks": [value]}, {"gate": value}, {"next_check": value}):
        try:
            check_done(told_, TaskKind.AGENT)
        except Invalid as refused:
            assert refused.advice


def test_a_schema_of_any_depth_is_refused_and_not_followed():
    deep = {}
    for _ in range(5_000):
        deep = {"items": deep}
    with pytest.raises(Invalid, match="levels"):
        check_schema(deep)
