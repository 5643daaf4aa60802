"""JSON of strangers: one object, small, plain and said once; the rest is refused at little cost."""

from __future__ import annotations

import time

import pytest

from rota.agent_api.mailbox.folder import CommandRejected, read_command

MIB = 1024 * 1024


def deep(levels):
    return b'{"request_id": "a", "type": "b", "c": ' + b"[" * levels + b"]" * levels + b"}"


BOMBS = {
    "half of it": (b'{"request_id": "a", "type"', "not_json"),
    "nothing": (b"", "not_json"),
    "a list": (b"[1]", "not_json"),
    "a depth of 10^5": (b"[" * 100_000, "too_deep"),
    "objects 10^5 deep": (b'{"a":' * 100_000, "too_deep"),
    "17 levels": (deep(16), "too_deep"),
    "many keys": (b"{" + b",".join(b'"%x":1' % n for n in range(MIB // 11)) + b"}", "too_many_values"),
    "many numbers": (b'{"a":[' + b"1," * (MIB // 2 - 10) + b"1]}", "too_many_values"),
    "many lists": (b'{"a":[' + b"[]," * (MIB // 3 - 10) + b"1]}", "too_many_values"),
    "many objects": (b'{"a":[' + b"{}," * (MIB // 3 - 10) + b"1]}", "too_many_values"),
    "many texts": (b'{"a":[' + b'"",' * (MIB // 3 - 10) + b"1]}", "too_many_values"),
    "texts that never end": (b'"a,' * (MIB // 3), "too_many_values"),
    "a key twice": (b'{"request_id": "a", "request_id": "b", "type": "c"}', "duplicate_key"),
    "a number of 4000 digits": (b'{"a": ' + b"9" * 4_000 + b"}", "bad_number"),
    "a number of 10^6 digits": (b'{"a": ' + b"9" * 1_000_000 + b"}", "bad_number"),
    "long numbers": (b'{"a":[' + b",".join([b"9" * 4_200] * 240) + b"]}", "bad_number"),
    "64 bits": (b'{"request_id": "a", "type": "b", "c": 9223372036854775808}', "bad_number"),
    "no number": (b'{"a": NaN}', "bad_number"),
    "infinity": (b'{"a": -Infinity}', "bad_number"),
    "infinity in digits": (b'{"a": 1e999}', "bad_number"),
    "half a surrogate": (rb'{"a": "\ud800"}', "bad_text"),
    "half a surrogate as a key": (rb'{"\udc00": 1}', "bad_text"),
    "bytes that are no text": (b'{"a": "\xff"}', "not_json"),
    "a mark of byte order": (b"\xef\xbb\xbf{}", "not_json"),
    "no id": (b'{"type": "a"}', "bad_request_id"),
    "an id that is a path": (b'{"request_id": "../a", "type": "a"}', "bad_request_id"),
    "an id that is too long": (b'{"request_id": "%s", "type": "a"}' % (b"a" * 65), "bad_request_id"),
    "an id that is a number": (b'{"request_id": 1, "type": "a"}', "bad_request_id"),
    "no type": (b'{"request_id": "a"}', "bad_type"),
    "a type with a line": (b'{"request_id": "a", "type": "a\\nb"}', "bad_type"),
}  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_it_is_refused_once_and_costs_little(name):
    data, code = BOMBS[name]
    spent = []
    for _ in range(3):
        began = time.thread_time()
        with pytest.raises(CommandRejected) as told:
            read_command(data)
        spent.append(time.thread_time() - began)
    assert min(spent) < 0.05
    assert told.value.code == code
    assert len(str(told.value)) < 200


def test_what_is_plain_passes():
    found = read_command(
        '{"request_id": "A-1_b", "type": "send_message", "text": "für, \\ud83d\\ude00", "n": [1, 2.5, null]}'.encode()
    )
    assert found.request_id == "A-1_b"
    assert found.verb == "send_message"
    assert found.fields == {"text": "für, 😀", "n": [1, 2.5, None]}
    assert read_command(deep(15)).verb == "b"


def test_a_long_text_may_have_many_commas_and_quotes():
    text = b'a,\\"b\\",' * (MIB // 16)
    found = read_command(b'{"request_id": "a", "type": "b", "text": "%s"}' % text)
    assert found.fields["text"].count(",") == MIB // 8
