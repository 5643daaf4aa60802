"""The forms that keeper and daemon write for each other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.keeper.protocol import from_lines, pack, replace_file, seal, to_lines, unpack, unseal

KEYS = st.text("abcxyz_", min_size=1).map(str.encode)
VALUES = st.binary().filter(lambda value: b"\0" not in value)


@given(st.lists(st.tuples(KEYS, VALUES)))
def test_what_is_packed_comes_back_in_its_order(pairs):
    assert unpack(pack(pairs)) == pairs


@given(st.dictionaries(st.text("abc", min_size=1), st.text("az 09:"), min_size=1), st.binary())
def test_facts_and_what_lies_behind_them_come_back(facts, rest):
    assert from_lines(to_lines(facts) + rest) == (facts, rest)


def test_a_fact_cannot_begin_a_line_of_its_own():
    facts, rest = from_lines(to_lines({"detail": "a\n\nreason exited", "reason": "lost"}))
    assert facts == {"detail": "a  reason exited", "reason": "lost"}
    assert rest == b""


@given(st.integers(0, 2**63), st.integers(0, 2**31))
def test_a_sealed_record_comes_back(first, second):
    record = seal(first, second)
    assert len(record) == 128
    assert unseal(record) == [str(first), str(second)]


@given(st.integers(0, 127), st.integers(1, 255))
def test_a_record_in_which_one_byte_differs_is_none(at, by):
    record = bytearray(seal(1_234_567_890, 42))
    record[at] ^= by
    assert unseal(bytes(record)) in ([], ["1234567890", "42"])


@pytest.mark.parametrize("spoilt", [b"", b"\0" * 128, b" " * 128, seal(1, 2)[:5]])
def test_a_spoilt_record_is_none(spoilt):
    assert unseal(spoilt) == []


def test_a_file_is_put_in_its_place_whole(tmp_path):
    path = tmp_path / "file"
    replace_file(str(path), b"one")
    replace_file(str(path), b"two")
    assert path.read_bytes() == b"two"
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
