"""A task's own config: a small JSON object in a plain file, or a sentence that says what is wrong."""

import os

import pytest

from rota.errors import Invalid
from rota.keeper.workspace import MAX_CONFIG, read_config, resources_folder


def test_without_a_config_there_is_none(tmp_path):
    assert read_config(tmp_path) is None
    assert read_config(tmp_path / "nowhere") is None


def test_the_first_name_wins(tmp_path):
    (tmp_path / "config.json").write_text('{"a": 1}')
    assert read_config(tmp_path) == '{"a": 1}'
    (tmp_path / "task_config.json").write_text('{"a":\n "\\u0000é"}')
    assert read_config(tmp_path) == '{"a": "\\u0000\\u00e9"}'


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{", b"null", b"\xff", b'{"a": NaN}', b'{"a": 1e999}', b"[" * 50_000,
                b'{"a": "' + b"x" * MAX_CONFIG + b'"}',
                '{"ä": "'.encode() + "é".encode() * (MAX_CONFIG // 3) + b'"}'],
    ids=lambda content: repr(content[:8]),
)  # fmt: skip
def test_what_is_no_small_object_is_refused(tmp_path, content):
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(Invalid, match=r"^config\.json "):
        read_config(tmp_path)


@pytest.mark.timeout(10)
def test_no_link_is_followed_and_no_pipe_waited_for(tmp_path):
    (tmp_path / "secret").write_text('{"secret": 1}')
    (tmp_path / "task_config.json").symlink_to("secret")
    with pytest.raises(Invalid):
        read_config(tmp_path)
    (tmp_path / "task_config.json").unlink()
    os.mkfifo(tmp_path / "task_config.json")
    with pytest.raises(Invalid):
        read_config(tmp_path)


@pytest.mark.parametrize("name", ["a/b", "a/../../b", "a:b", "x" * 128])
def test_the_folder_of_a_task_is_one_step_below_the_others(tmp_path, name):
    assert resources_folder(tmp_path, name).parent == tmp_path / "resources"
    assert resources_folder(tmp_path, name).resolve().parent == tmp_path / "resources"
