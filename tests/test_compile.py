"""The stale-cache trap does not exist: an edit anywhere is seen, and an unchanged policy is loaded, not compiled."""

import os
import subprocess
import sys
from pathlib import Path

HELPER = "OFFSET = {offset}\n\ndef pick(jobs):\n    return (jobs - 1 + OFFSET) % jobs\n"
RULE = """
import my_helper
from queuewise.scheduling import Policy

def decide(params, state, columns, waiting, stream):
    return waiting.slots[my_helper.pick(waiting.jobs)], 0, 0

def mine():
    return Policy("mine", decide)
"""
PLAY = """
import my_rule, queuewise as qw
from queuewise import _compile
system = qw.scheduling.wise_figure_law(q=0.5, slack=0.05, seed=0)
result = qw.scheduling.simulate(system, [my_rule.mine()], rounds=300, runs=1, seed=1, trace=True)
print(int(result.trace["mine"].job.sum()), _compile.fingerprint(my_rule.decide))
"""


def _play(folder: Path, hash_seed: str) -> list[str]:
    environment = {**os.environ, "PYTHONPATH": str(folder), "QUEUEWISE_CACHE": str(folder), "PYTHONHASHSEED": hash_seed}
    if os.environ.get("PYTHONPATH"):
        environment["PYTHONPATH"] += os.pathsep + os.environ["PYTHONPATH"]
    done = subprocess.run([sys.executable, "-c", PLAY], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_an_edited_helper_is_noticed_and_an_unchanged_one_is_not_compiled_again(tmp_path: Path) -> None:
    (tmp_path / "my_rule.py").write_text(RULE)
    (tmp_path / "my_helper.py").write_text(HELPER.format(offset=0))
    first = _play(tmp_path, "1")
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "kernels").rglob("*.nb?")}
    assert files
    assert _play(tmp_path, "2") == first
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "kernels").rglob("*.nb?")} == files
    (tmp_path / "my_helper.py").write_text(HELPER.format(offset=1))
    edited = _play(tmp_path, "1")
    assert edited[1] != first[1]
    assert edited[0] != first[0]  # the earliest job is served now, not the latest
