"""The page about the live scheduler: what it tells a reader to type prints what it says."""

from pathlib import Path

from tests.pages import DOCS, typed_in


def test_every_block_of_python_prints_what_the_page_says(tmp_path: Path) -> None:
    _, _, compared = typed_in((DOCS / "live-scheduler.md").read_text(encoding="utf-8"), tmp_path)
    assert compared == 4
