"""Looks over the words of a query before PostgreSQL does.

What a query may read is the business of its role, which sees the views and nothing else of Rota.
But everybody may call PostgreSQL's own functions and read its catalogs, and some of these wait,
lock, signal or tell about others. So every word that calls something has to be on a list, and
words that lead to the catalogs are refused. Where the two could read a query differently (escapes,
dollar quotes, nested comments) it is refused, and what is left over PostgreSQL must understand.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from rota.errors import SqlRefused, shown
from rota.stores.kit.sql_words import NOT_THERE, ONE_QUERY, check_text, plain

_FUNCTIONS = """
    abs age array_agg array_length array_position array_to_string avg bool_and bool_or btrim cbrt
    ceil ceiling char_length coalesce concat concat_ws corr count cume_dist date_bin date_part
    date_trunc decode dense_rank div encode every exp extract first_value floor generate_series
    greatest initcap json_agg json_array_elements json_array_elements_text json_array_length
    json_build_array json_build_object json_each json_each_text json_extract_path
    json_extract_path_text json_object_agg json_object_keys json_strip_nulls json_typeof jsonb_agg
    jsonb_array_elements jsonb_array_elements_text jsonb_array_length jsonb_build_array
    jsonb_build_object jsonb_each jsonb_each_text jsonb_extract_path jsonb_extract_path_text
    jsonb_object_agg jsonb_object_keys jsonb_typeof justify_days justify_hours justify_interval lag
    last_value lead least left length ln log log10 lower ltrim make_date make_interval
    make_timestamp make_timestamptz max md5 min mod mode nth_value ntile nullif octet_length
    overlay percent_rank percentile_cont percentile_disc position power rank regexp_match
    regexp_replace replace reverse right round row_number row_to_json rtrim sign split_part sqrt
    starts_with stddev stddev_pop stddev_samp strpos string_agg string_to_array strip substr
    substring sum to_char to_date to_json to_jsonb to_number to_timestamp translate trim trunc
    unnest upper var_pop var_samp variance width_bucket
"""
FUNCTIONS = frozenset(_FUNCTIONS.split())
_KEYWORDS = """
    all and any array as asc between by case cast cross cube desc distinct else end except exists
    fetch filter from full group having ilike in inner intersect is isnull join lateral left like
    limit materialized natural not notnull null offset on or order outer over partition right
    rollup row rows select sets similar some symmetric then union using values when where window
    with within
"""
KEYWORDS = frozenset(_KEYWORDS.split())
"""Words that may stand before a parenthesis and call nothing."""
TYPES = frozenset(
    {"bit", "char", "decimal", "float", "interval", "numeric", "time", "timestamp", "varchar"}
)
NAMING = frozenset({"with", "recursive", "as"})
"""After these comes a name, and behind it its columns."""
_CLOSED = """
    information_schema public current_catalog current_role current_schema current_user session_user
    user regclass regcollation regconfig regdictionary regnamespace regoper regoperator regproc
    regprocedure regrole regtype
"""
CLOSED = frozenset(_CLOSED.split())
PREFIX = "pg_"

_TOKEN = re.compile(
    r"""
      (?P<space>\s+|--[^\n\r]*|/\*(?:(?!/\*).)*?\*/)
    | (?P<string>'(?:[^']|'')*')
    | (?P<quoted>"(?:[^"]|"")+")
    | (?P<word>[A-Za-z_\u0080-\U0010ffff][A-Za-z0-9_$\u0080-\U0010ffff]*)
    | (?P<param>\$[0-9]+)
    | (?P<number>[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)
    | (?P<sign>[][(),.:+*/<>=~!@\#%^&|?;-])
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)


class Token(NamedTuple):
    """A word, a name in quotes, a sign or a value."""

    kind: str
    text: str
    place: int

    @property
    def name(self) -> str:
        """What PostgreSQL takes a word or a quoted name for; empty for everything else."""
        if self.kind == "word":
            return self.text.lower()
        return self.text[1:-1].replace('""', '"') if self.kind == "quoted" else ""


_EDGE = Token("edge", "", 0)


def look_over(sql: str) -> str:
    """Return a query up to its last semicolon, or refuse it."""
    check_text(sql)
    tokens = list(_tokens(sql))
    while tokens and tokens[-1].text == ";":
        sql = sql[: tokens.pop().place]
    if not tokens:
        raise SqlRefused(plain("it is empty"))
    if any(token.text == ";" for token in tokens if token.kind == "sign"):
        raise SqlRefused(ONE_QUERY)
    before = [_EDGE, *tokens]
    after = [*tokens[1:], _EDGE]
    for left, token, right in zip(before, tokens, after, strict=False):
        if token.name:
            _check(left, token, right)
    return sql


def _check(left: Token, token: Token, right: Token) -> None:
    name = token.name
    if name in CLOSED or name.startswith(PREFIX):
        raise SqlRefused(NOT_THERE)
    if right.text != "(" or right.kind != "sign":
        return
    word = token.kind == "word"
    if left.kind == "word" and left.text.lower() in NAMING:
        return
    if word and name in KEYWORDS | TYPES and left.text != ".":
        return
    if name in FUNCTIONS and left.text != ".":
        return
    raise SqlRefused(plain(f"it may not call {shown(token.text)}"))


def _tokens(sql: str) -> Iterator[Token]:
    place = 0
    last = _EDGE
    while place < len(sql):
        found = _TOKEN.match(sql, place)
        if found is None or found.lastgroup is None:
            raise SqlRefused(plain(f"what begins at {shown(sql[place : place + 20])}"))
        token = Token(found.lastgroup, found.group(), place)
        # E'\'', U&'\0041' and their kind are read by rules of their own.
        if token.kind in {"string", "quoted"} and last.kind == "word":
            raise SqlRefused(plain("put a space before a quote, and write no escapes"))
        if token.kind in {"string", "quoted"} and sql[max(0, place - 2) : place].lower() == "u&":
            raise SqlRefused(plain("write no escapes"))
        place, last = found.end(), token
        if token.kind != "space":
            yield token
