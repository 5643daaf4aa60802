"""Stand between a store and its callers, for one operation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import ModuleType
from typing import Any

from rota.store.store import Database

METHODS = ("write", "write_lightly", "read")


def intercept(
    store: Any,
    operation: Callable[..., Any],
    around: Callable[..., Awaitable[Any]],
) -> None:
    """Let `around(proceed, *args)` decide what becomes of each call of an operation of a store."""
    for name in METHODS:
        setattr(store, name, _around(getattr(store, name), operation, around))


def _around(
    method: Callable[..., Awaitable[Any]],
    operation: Callable[..., Any],
    around: Callable[..., Awaitable[Any]],
) -> Callable[..., Awaitable[Any]]:
    async def call(called: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        proceed = partial(method, called)
        if called is operation:
            return await around(proceed, *args, **kwargs)
        return await proceed(*args, **kwargs)

    return call


@contextmanager
def intercepted(
    operation: Callable[..., Any], around: Callable[..., Awaitable[Any]]
) -> Iterator[None]:
    """Let `around(database, proceed, *args)` decide about an operation of every database."""
    kept = {name: getattr(Database, name) for name in METHODS}

    def method(name: str) -> Callable[..., Awaitable[Any]]:
        async def call(database: Any, called: Any, *args: Any, **kwargs: Any) -> Any:
            proceed = partial(kept[name], database, called)
            if called is operation:
                return await around(database, proceed, *args, **kwargs)
            return await proceed(*args, **kwargs)

        return call

    for name in METHODS:
        setattr(Database, name, method(name))
    try:
        yield
    finally:
        for name, whole in kept.items():
            setattr(Database, name, whole)


@contextmanager
def replaced_operation(
    module: ModuleType, name: str, operation: Callable[..., Any]
) -> Iterator[None]:
    """Put another operation in the place of one, for every caller and inside its module."""
    whole = getattr(module, name)
    operation.__name__ = whole.__name__

    async def other(database: Any, proceed: Any, *args: Any, **kwargs: Any) -> Any:
        return await proceed.func(database, operation, *args, **kwargs)

    setattr(module, name, operation)
    try:
        with intercepted(whole, other):
            yield
    finally:
        setattr(module, name, whole)
