"""Rows, the printed table, and the file that keeps them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.kit import Value

HEADS = ("measure", "rota", "peer", "raw", "ratio", "target", "met?")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the table; `met` is None where there is nothing to reach."""

    measure: str
    rota: Value | None = None
    peer: Value | None = None
    peer_name: str = ""
    raw: Value | None = None
    ratio: str = ""
    target: str = ""
    met: bool | None = None
    note: str = ""

    def cells(self) -> tuple[str, ...]:
        peer = "" if self.peer is None else f"{self.peer_name} {self.peer}"
        return (
            self.measure,
            str(self.rota or ""),
            peer.strip(),
            str(self.raw or ""),
            self.ratio,
            self.target,
            self.note if self.met is None else "yes" if self.met else "NO",
        )

    def record(self) -> dict[str, Any]:
        values = {
            name: None if value is None else value.record()
            for name, value in (("rota", self.rota), ("peer", self.peer), ("raw", self.raw))
        }
        texts = ("measure", "peer_name", "ratio", "target", "met", "note")
        return {**{name: getattr(self, name) for name in texts}, **values}


def times(mine: Value, theirs: Value) -> float:
    return mine.median / theirs.median


def table(rows: Sequence[Row]) -> str:
    lines = [HEADS, *(row.cells() for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADS))]
    ruled = [lines[0], tuple("-" * width for width in widths), *lines[1:]]
    return "\n".join(
        "| "
        + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        + " |"
        for line in ruled
    )


def keep(path: Path, facts: dict[str, Any], rows: Sequence[Row]) -> None:
    record = {"machine": facts, "rows": [row.record() for row in rows]}
    path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")
