"""Where programs can run here, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rota.wiring.sites import Tried


def executor_records(tried: Sequence[Tried]) -> list[dict[str, object]]:
    """Return what is known of each executor."""
    return [
        {
            "name": each.executor.name,
            "available": each.available,
            "certain_kill": each.executor.certain_kill,
            "missing": [
                {
                    "what": one.what,
                    "where": one.where,
                    "to_do": one.remedy,
                    "needed": one.needed,
                }
                for one in each.missing
            ],
        }
        for each in tried
    ]


def executor_lines(tried: Sequence[Tried]) -> Iterator[str]:
    """Yield for each executor whether it can be had, and what to do where it cannot.

    What several lack is told once, below them.
    """
    if tried:
        yield "Programs can run in:"
    lacking: dict[str, list[str]] = {}
    for each in tried:
        for one in each.missing:
            words = f"{'needs' if one.needed else 'without'} {one}"
            lacking.setdefault(words, []).append(each.executor.name)
    for each in tried:
        name = each.executor.name
        if each.available:
            unless = (
                "" if each.executor.certain_kill else ", unless a keeper and its guard are killed"
            )
            yield f"  ✓ {name:<9}  every stop is certain{unless}"
        else:
            yield f"  ✗ {name:<9}  cannot be had here"
        own = [words for words, names in lacking.items() if names == [each.executor.name]]
        yield from (f"      {words}" for words in own)
    for words, names in lacking.items():
        if len(names) > 1:
            yield f"  {', '.join(names)}: {words}"
