"""Distributions in a folder: a package and the metadata that an installer would write."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def write_distribution(
    folder: Path, name: str, modules: Mapping[str, str], points: Mapping[str, Mapping[str, str]]
) -> None:
    """Write a distribution to a folder that is on the path: its modules and its entry points."""
    for module, text in modules.items():
        (folder / f"{module}.py").write_text(text, encoding="utf-8")
    info = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8"
    )
    lines = []
    for group, named in points.items():
        lines += [f"[{group}]", *(f"{point} = {value}" for point, value in named.items()), ""]
    (info / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")
