"""The page about the live scheduler: what it tells a reader to type prints what it says."""

import contextlib
import io
import re
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "live-scheduler.md").read_text(encoding="utf-8")


def test_every_block_of_python_prints_what_the_page_says(tmp_path: Path) -> None:
    names: dict[str, object] = {}
    printed, compared = "", 0
    with contextlib.chdir(tmp_path):
        for kind, text in re.findall(r"```(\w+)\n(.*?)```", PAGE, re.DOTALL):
            if kind == "python":
                with contextlib.redirect_stdout(io.StringIO()) as out:
                    exec(text, names)
                printed = out.getvalue()
            elif kind == "text":
                assert printed == text
                compared += 1
    assert compared == 3
