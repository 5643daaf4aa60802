"""What a file that people send may be called, and what it is taken for."""

from __future__ import annotations

import unicodedata
from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.errors import Invalid
from rota.rules.messages import check_distinct_names, file_name, media_type, mimetype_of


@pytest.mark.parametrize(
    "name",
    ["a.png", "Screenshot 2026-01-01 at 9.41.00\u202fAM.png", ".hidden", "-rf", "日本.txt", "a  b",
     "<b>&\"'.txt", "...", "x" * 120, "é" * 120],
)  # fmt: skip
def test_what_people_call_files_is_a_name(name):
    assert file_name(name) == name


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "a/b", "/etc/passwd", "..\\x", "a\0b", "a\nb", "a\x1b[2Jb", "a\x7f", "a\u202eb",
     "a\u2066b", "a\u200bb", " ", " a", "a ", "\u00a0", "a\ud800", "a\u2028b", "x" * 121,
     "日" * 100, "a\ue000", "a\uffff"],
)  # fmt: skip
def test_what_no_name_is_is_refused(name):
    with pytest.raises(Invalid):
        file_name(name)


def test_a_name_has_one_form():
    assert file_name(unicodedata.normalize("NFD", "é.txt")) == "é.txt"


@given(st.text(max_size=200))
def test_a_name_stays_in_its_folder_and_fits_there(name):
    try:
        usual = file_name(name)
    except Invalid:
        return
    assert PurePosixPath("/box", usual).parent == PurePosixPath("/box")
    assert len(usual.encode()) <= 255
    assert "\n" not in usual


def test_two_files_have_names_that_nobody_mistakes():
    check_distinct_names(["a.png", "b.png", "ss"])
    for names in (["a.png", "A.PNG"], ["straße", "STRASSE"], ["ﬁ", "fi"]):
        with pytest.raises(Invalid, match="distinct names"):
            check_distinct_names(names)


@pytest.mark.parametrize(
    ("name", "said", "found"),
    [("a.PNG", None, "image/png"), ("a.webp", None, "image/webp"), ("a", None, None),
     ("a.tar.gz", None, "application/gzip"), ("a.png", "text/Plain", "text/plain"),
     ("notes.md", None, "text/markdown"), ("data:text/html,x", None, None), ("a.exe9", None, None),
     ("song.ogg", None, "audio/ogg")],
)  # fmt: skip
def test_what_a_file_is_was_said_or_is_told_by_its_name(name, said, found):
    assert mimetype_of(name, said) == (found or "application/octet-stream")


@pytest.mark.parametrize("said", ["", "png", "image/", "/png", "a/b/c", "a b/c", "text/plain; x=y",
                                  "text/<b>", "x" * 70 + "/a", 'a/"b"', "ä/b"])  # fmt: skip
def test_what_is_no_type_is_refused(said):
    with pytest.raises(Invalid, match="image/png"):
        mimetype_of("a.png", said)


def test_a_medium_is_one_of_four():
    kinds = [media_type(f"{kind}/x") for kind in ("image", "audio", "video", "text", "application")]
    assert kinds == ["image", "audio", "video", "document", "document"]
