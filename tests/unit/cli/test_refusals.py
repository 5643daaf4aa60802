"""What is refused at a command line is called as it was typed there."""

from __future__ import annotations

import pytest

CALL = ("task", "create", "b", "--call", "rota.samples:hello")


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ((*CALL, "--every", "0s"), '--every "0s": use a length'),
        ((*CALL, "--every=0s"), '--every "0s": use a length'),
        ((*CALL, "--once-at", "yesterday"), '--once-at "yesterday": write a time'),
        ((*CALL, "--overlap", "never"), '--overlap "never": choose one of'),
        ((*CALL, "--catch-up", "never"), '--catch-up "never": choose one of'),
        ((*CALL, "--isolate"), "--isolate: a function runs inside Rota"),
        ((*CALL, "--deliver-to", "x"), '--deliver-to "x": there is no channel'),
        ((*CALL, "--command", "ls"), "give exactly one of"),
    ],
)
def test_a_refusal_names_the_option_that_was_typed(rota, typed, told):
    assert rota.refused(*typed).startswith(told)


def test_programs_are_told_the_field(rota):
    error = rota(*CALL, "--every", "0s", "--json").error
    assert (error["field"], error["message"][:13]) == ("every", 'every "0s": u')


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        (("run", "9" * 24), f'run "{"9" * 24}": give a number of at most 9007199254740991'),
        (("logs", "0"), 'run "0": give a number of at least 1'),
        (("sql", ""), 'sql "": must not be empty'),
        (("answer", "33", ""), 'answer "": must not be empty'),
        ((*CALL, "--every", "9" * 20 + "h"), f'--every "{"9" * 20}h": use at most 100 years'),
    ],
)
@pytest.mark.usefixtures("there")
def test_a_value_is_refused_in_a_sentence_of_rotas_own(rota, typed, told):
    assert rota.refused(*typed).startswith(told)


def test_a_setting_is_refused_in_a_sentence_of_rotas_own(rota, monkeypatch):
    monkeypatch.setenv("ROTA_SLOTS", "abc")
    assert 'slots "abc": give a whole number\n' in rota("check").out


def test_a_setting_that_is_misspelt_is_told_its_name_first(rota):
    rota.home.mkdir()
    (rota.home / "rota.toml").write_text("slotz = 3\n")
    told = 'setting "slotz": unknown setting: did you mean slots? There are store, '
    assert told in rota("check").out
