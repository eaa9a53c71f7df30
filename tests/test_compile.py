"""The stale-cache trap does not exist: an edit anywhere is seen, and an unchanged policy is loaded, not compiled."""

import enum
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import NamedTuple

import numba
import numpy as np
import pytest

from queuewise import _compile
from queuewise.scheduling import Policy, engine, wise_figure_law
from queuewise.scheduling.policies import REGISTER, make

HELPER = "OFFSET = {offset}\n\ndef pick(jobs):\n    return (jobs - 1 + OFFSET) % jobs\n"
RULE = """
import my_helper
from queuewise.scheduling import Policy

def decide(params, state, columns, waiting, stream):
    return waiting.slots[my_helper.pick(waiting.jobs)], 0, 0

def mine():
    return Policy("mine", decide)
"""
FROM_RULE = RULE.replace("import my_helper", "from my_helper import pick").replace("my_helper.pick", "pick")
PLAY = """
import my_rule, queuewise as qw
from queuewise import _compile
system = qw.scheduling.wise_figure_law(q=0.5, slack=0.05, seed=0)
result = qw.scheduling.simulate(system, [my_rule.mine()], rounds=300, runs=1, seed=1, trace=True)
print(int(result.trace["mine"].job.sum()), _compile.fingerprint(my_rule.decide))
"""


def _python(folder: Path, hash_seed: str, program: str) -> list[str]:
    environment = {**os.environ, "PYTHONPATH": str(folder), "QUEUEWISE_CACHE": str(folder), "PYTHONHASHSEED": hash_seed}
    environment["PYTHONDONTWRITEBYTECODE"] = "1"  # an edit within one second must not meet an older .pyc
    if os.environ.get("PYTHONPATH"):
        environment["PYTHONPATH"] += os.pathsep + os.environ["PYTHONPATH"]
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.split()


def _kernels(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in (folder / "kernels").rglob("*.nb?")}


@pytest.mark.parametrize("rule", [RULE, FROM_RULE], ids=["import helper", "from helper import"])
def test_an_edited_helper_is_noticed_and_an_unchanged_one_is_not_compiled_again(tmp_path: Path, rule: str) -> None:
    (tmp_path / "my_rule.py").write_text(rule)
    (tmp_path / "my_helper.py").write_text(HELPER.format(offset=0))
    first = _python(tmp_path, "1", PLAY)
    files = _kernels(tmp_path)
    assert files
    assert _python(tmp_path, "2", PLAY) == first
    assert _kernels(tmp_path) == files
    (tmp_path / "my_helper.py").write_text(HELPER.format(offset=1))
    edited = _python(tmp_path, "1", PLAY)
    assert edited[1] != first[1]
    assert edited[0] != first[0]  # the earliest job is served now, not the latest
    (tmp_path / "my_helper.py").write_text(HELPER.format(offset=0))
    assert _python(tmp_path, "1", PLAY) == first  # and the old code is still there for the old source


COUNTING = """
from typing import Any, NamedTuple
import numpy as np
from queuewise.scheduling import Policy

class State(NamedTuple):
    {0}: Any
    {1}: Any

def start(params, shape, stream):
    return State({0}=np.zeros(shape.servers), {1}=np.ones(shape.servers))

def decide(params, state, columns, waiting, stream):
    return waiting.slots[0], int(state.turns[0]) % waiting.allowed.shape[0], 0

def observe(params, state, columns, waiting, ticket, success):
    state.turns[0] += 1.0

def mine():
    return Policy("mine", decide, observe=observe, start=start)
"""


def test_fields_in_another_order_are_another_program_and_a_renamed_file_is_compiled(tmp_path: Path) -> None:
    play = PLAY.replace("['mine'].job", "['mine'].server").replace('["mine"].job', '["mine"].server')
    (tmp_path / "my_rule.py").write_text(COUNTING.format("turns", "spare"))
    before = _python(tmp_path, "1", play)
    (tmp_path / "my_rule.py").write_text(COUNTING.format("spare", "turns"))
    after = _python(tmp_path, "1", play)
    plain = _python(tmp_path, "1", play.replace("trace=True", "trace=True, compiled=False"))
    # The other field begins at 1, so the turns are others; a stale program would go on reading the first place.
    assert after == plain
    assert after[1] != before[1]
    (tmp_path / "renamed.py").write_text(COUNTING.format("spare", "turns"))
    (tmp_path / "my_rule.py").unlink()
    renamed = _python(
        tmp_path, "1", "import warnings; warnings.simplefilter('error')\n" + play.replace("my_rule", "renamed")
    )
    assert renamed[0] == after[0]


def test_fingerprints_of_all_policies_are_the_same_in_every_process(tmp_path: Path) -> None:
    program = textwrap.dedent("""
        from queuewise import _compile
        from queuewise.scheduling import loop
        from queuewise.scheduling.policies import REGISTER, make
        for name in sorted(REGISTER):
            print(_compile.fingerprint(loop.run, *make(name).functions.values()))
    """)
    one, other = (_python(tmp_path, seed, program) for seed in ("1", "2"))
    assert one == other
    assert len(set(one)) == len(REGISTER)


def test_a_policy_of_a_script_is_not_kept_on_disk(tmp_path: Path) -> None:
    """Another process could not find its module."""
    program = RULE.replace("import my_helper\n", HELPER.format(offset=0)).replace("my_helper.pick", "pick") + (
        PLAY.replace("my_rule, ", "").replace("my_rule.", "")
    )
    assert len(_python(tmp_path, "1", program)) == 2
    # The oracle of the same run is kept: one program, an index and its code.
    assert len(_kernels(tmp_path)) == 2


# --- what a fingerprint sees -----------------------------------------------------------------------------------------
def _made(source: str, **names):
    """The function f of a source text, in a module of its own."""
    module: dict = {"__name__": "users", "np": np, "numba": numba, "NamedTuple": NamedTuple, "enum": enum, **names}
    exec(textwrap.dedent(source), module)
    return module["f"]


CALLS = "def f(x):\n    return g(x)\n"
EDITS = {
    "body": ("def f(x):\n    return x + {0}\n", 1, 2),
    "type of a constant": ("def f(x):\n    return x * {0}\n", "2", "2.0"),
    "sign of zero": ("def f(x):\n    return x * {0}\n", "0.0", "-0.0"),
    "order of operations": ("def f(x):\n    return {0}\n", "x - 1", "1 - x"),
    "helper": ("def g(x):\n    return x + {0}\n" + CALLS, 1, 2),
    "helper of a helper": ("def h(x):\n    return x + {0}\n\ndef g(x):\n    return h(x)\n" + CALLS, 1, 2),
    "global constant": ("K = {0}\ndef f(x):\n    return x * K\n", 1, 2),
    "global constant of a helper": ("K = {0}\ndef g(x):\n    return x * K\n" + CALLS, 1, 2),
    "global tuple": ("K = (1, {0})\ndef f(x):\n    return x * K[1]\n", 1, 2),
    "global array": ("K = np.array([1.0, {0}])\ndef f(x):\n    return x * K[1]\n", "1.0", "1.0 + 1e-12"),
    "inside a large global array": ("K = np.zeros(5000)\nK[2500] = {0}\ndef f(x):\n    return x * K[2500]\n", 1, 2),
    "array in a global tuple": ("K = (np.array([{0}]),)\ndef f(x):\n    return x * K[0][0]\n", "1.0", "1.0 + 1e-12"),
    "default": ("def g(x, k={0}):\n    return x * k\n" + CALLS, 1, 2),
    "nested function": ("def f(x):\n    def h(y):\n        return y * {0}\n    return h(x)\n", 1, 2),
    "inside a comprehension": ("K = {0}\ndef f(x):\n    return [K * y for y in range(3)][x]\n", 1, 2),
    "builtin hidden by a function": ("{0}\ndef f(x):\n    return max(x, 0)\n", "", "def max(a, b):\n    return a\n"),
    "order of fields that are read by name": (
        "class S(NamedTuple):\n    {0}: int\n    {1}: int\ndef f(x):\n    return x.a\n",
        ("a", "b"),
        ("b", "a"),
    ),
    "fields of a named tuple": ("class S(NamedTuple):\n    {0}: int\ndef f(x):\n    return S(x)\n", "a", "b"),
    "compiled helper": ("@numba.njit\ndef g(x):\n    return x + {0}\n" + CALLS, 1, 2),
    "options of a compiled helper": ("@numba.njit({0})\ndef g(x):\n    return x / 3\n" + CALLS, "", "fastmath=True"),
    "vectorised helper": ("@numba.vectorize\ndef g(x):\n    return x + {0}\n" + CALLS, 1, 2),
}


@pytest.mark.parametrize("edit", EDITS)
def test_a_fingerprint_changes_with(edit: str) -> None:
    source, before, after = EDITS[edit]
    values = [value if isinstance(value, tuple) else (value,) for value in (before, before, after)]
    one, again, other = (_made(source.format(*value)) for value in values)
    assert _compile.fingerprint(one) == _compile.fingerprint(again)
    assert _compile.fingerprint(one) != _compile.fingerprint(other)


def test_a_fingerprint_changes_with_options_and_bindings() -> None:
    def double(x):
        return 2 * x

    def triple(x):
        return 3 * x

    plain = _compile.fingerprint(double)
    marked = _compile.options(fastmath={"contract"})(_made("def f(x):\n    return 2 * x\n"))
    unmarked = _made("def f(x):\n    return 2 * x\n")
    assert _compile.fingerprint(marked) != _compile.fingerprint(unmarked)
    assert _compile.fingerprint(double, triple) != plain
    assert _compile.fingerprint(double, triple) != _compile.fingerprint(triple, double)


def test_comments_names_of_files_and_order_of_definition_change_nothing() -> None:
    one = _made("def g(x):\n    return x + 1\n\ndef f(x):\n    return g(x)\n")
    other = _made("def f(x):\n    # the sum\n    return g(x)\n\n\ndef g(x):\n    return x + 1\n")
    assert _compile.fingerprint(one) == _compile.fingerprint(other)


def test_functions_that_call_themselves_or_each_other_have_a_fingerprint() -> None:
    source = "def g(n):\n    return 0 if n <= 0 else f(n - 1)\n\ndef f(n):\n    return {0} if n <= 0 else g(n - 1)\n"
    assert _compile.fingerprint(_made(source.format(1))) != _compile.fingerprint(_made(source.format(2)))
    factorial = _compile.jit(_made("def f(n):\n    return 1 if n <= 1 else n * f(n - 1)\n"))
    assert factorial(5) == 120


# --- within one process: a notebook -----------------------------------------------------------------------------------
NOTEBOOK = """
OFFSET = 0

def pick(jobs):
    return (jobs - 1 + OFFSET) % jobs

def decide(params, state, columns, waiting, stream):
    return waiting.slots[pick(waiting.jobs)], 0, 0
"""


def _jobs(policy: Policy, compiled: bool) -> int:
    system = wise_figure_law(q=0.5, slack=0.05, seed=0)
    shape, draws = engine.shape_of(system, 200), engine.draw(system, 200, 1, 0)
    return int(engine.play(policy, shape, draws, trace=True, compiled=compiled).record.job.sum())


@pytest.mark.parametrize(
    "edit",
    ["OFFSET = 1", "def pick(jobs):\n    return 0", "def pick(jobs):\n    return jobs // 2"],
    ids=lambda e: e[-20:],
)
def test_an_edit_between_two_runs_of_one_session_is_noticed(edit: str) -> None:
    """A cell that defines a constant or a helper is run again; the cell of the rule is not."""
    cells: dict = {"__name__": "notebook"}
    exec(NOTEBOOK, cells)
    policy = Policy("notebook", cells["decide"])
    before = _jobs(policy, compiled=True)
    assert before == _jobs(policy, compiled=False)
    exec(edit, cells)
    after = _jobs(policy, compiled=False)
    assert after != before
    assert _jobs(policy, compiled=True) == after


def test_a_rule_that_was_mended_is_compiled_again() -> None:
    """What numba refused under a rule's name says nothing about the next function of that name."""
    cells: dict = {"__name__": "notebook"}
    exec("import json\n" + NOTEBOOK.replace("OFFSET) %", "json.loads('0')) %"), cells)
    with pytest.warns(RuntimeWarning, match="plain Python"):
        _jobs(Policy("mended", cells["decide"]), compiled=True)
    exec(NOTEBOOK.replace("OFFSET) %", "3 * OFFSET) %"), cells)
    policy = Policy("mended", cells["decide"])
    _jobs(policy, compiled=True)
    assert len(engine._entry(policy, True).signatures) == 1


def test_one_program_serves_options_names_and_systems_alike() -> None:
    for name in ("cqb_opt", "q_ucb"):
        programs = [
            engine._entry(policy, True) for policy in (make(name), make(name, ties="random"), make(name).named("b"))
        ]
        assert programs[0] is programs[1] is programs[2]
        for servers in (2, 5):
            system = wise_figure_law(q=0.5, slack=0.05, seed=0, servers=servers)
            for options in ({}, {"ties": "random"}):
                draws = engine.draw(system, 50, 1, 0)
                engine.play(make(name, **options), engine.shape_of(system, 50), draws)
        assert len(programs[0].signatures) == 1
