"""Links between the pages lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "bench" / "README.md"])
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
CODE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, in the form that GitHub gives them."""
    headings = HEADING.findall(CODE.sub("", page.read_text()))
    return {re.sub(r"[^\w\- ]", "", head).strip().lower().replace(" ", "-") for head in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_page_and_a_heading(page):
    for link in LINK.findall(CODE.sub("", page.read_text())):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target), link


def test_every_decision_is_in_the_list_of_decisions():
    folder = ROOT / "docs" / "decisions"
    listed = LINK.findall((folder / "README.md").read_text())
    assert sorted(listed) == sorted(
        path.name for path in folder.glob("*.md") if path.name != "README.md"
    )


def test_every_page_named_in_the_source_exists():
    named = {
        name
        for path in (ROOT / "src").rglob("*.py")
        for name in re.findall(r"docs/[a-z/-]+\.md", path.read_text())
    }
    assert named
    assert {name for name in named if not (ROOT / name).exists()} == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_of_the_source_named_on_a_page_exists(page):
    text = page.read_text()
    named = re.findall(r"`((?:[a-z_]+/)+[a-z0-9_]+\.(?:py|sql))`", text)
    named += re.findall(r"`(tests/[a-z0-9_/.]+)`", text)
    roots = [ROOT, ROOT / "src", ROOT / "src" / "rota"]
    assert [name for name in named if not any((root / name).exists() for root in roots)] == []
