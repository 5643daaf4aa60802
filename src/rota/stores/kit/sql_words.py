"""What a person is told about a query; nothing here quotes a row."""

from __future__ import annotations

from rota.errors import SqlRefused, shown
from rota.model.inquiries import SECONDS

TOO_LONG = f"the query took longer than {SECONDS:.0f} s and was stopped: ask for less"
FAILED = (
    "the query failed while it was answered: check its types and functions, "
    "and that it needs no more than a little memory"
)
NOT_THERE = (
    "the query asks for something that is not to be had: "
    "one SELECT over the documented views is, see the reference of SQL"
)
ONE_QUERY = "there is more than one statement: ask one query at a time"


def plain(fault: str) -> str:
    """Return a sentence about the query itself."""
    return f"the query cannot be understood: {fault}"


def about(fault: str) -> str:
    """Return what a database said about the words of a query, at most a line of it."""
    return plain(shown(fault.partition("\n")[0]).strip('"'))


def check_text(sql: str) -> None:
    """Refuse what is no text to a database, before each of them makes something else of it."""
    if "\x00" in sql or any("\ud800" <= character <= "\udfff" for character in sql):
        raise SqlRefused(plain("it holds characters that no text can hold"))
