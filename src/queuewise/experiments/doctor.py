"""Whether an installation works: versions, cores, compile cache, and a simulation held against an exact result.

With one context and one server every policy serves the same pair, and the queue is a Geo/Geo/1 queue, whose stationary
law is known in closed form (WISE, equation (78)). So one short simulation checks arrivals, service, a contextual policy
with its estimator, the oracle and the statistics against a number that none of them was made from. Likewise two parallel queues
under SED: the simulation against the stationary law of their Markov chain.
"""

from __future__ import annotations

import math
import platform
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from typing import Any

import numpy as np

from .. import _compile, dispatch
from .._version import VERSION
from ..runs.runner import default_workers
from ..scheduling import loop
from ..scheduling.contexts import table_law
from ..scheduling.policies import wise
from ..scheduling.simulate import simulate
from ..scheduling.systems import System
from .report import Table, short

_PACKAGES = ("numpy", "scipy", "numba", "pyarrow", "matplotlib", "crick", "typer", "rich", "scikit-learn")
#: What ``queuewise serve`` needs beside these: the extra ``serve``, as it is in pyproject.toml.
SERVICE = ("aiohttp", "httptools", "prometheus-client", "pydantic", "PyYAML", "starlette", "uvicorn") + (
    () if sys.platform == "win32" else ("uvloop",)
)
_MISSING = "not installed"
_ARRIVAL_RATE, _SUCCESS = 0.5, 0.75
#: Rounds of a run, of which the first are left out (the queue begins empty, not in its stationary law), and runs.
_ROUNDS, _WARM_UP, _RUNS = 2500, 500, 160
#: Standard errors that the mean may lie from the exact one: a sound installation fails once in two million times.
_MOST_DEVIATIONS = 5.0


@dataclass(frozen=True)
class Report:
    """What :func:`examine` found. Queue lengths are in jobs; `deviations` is in standard errors."""

    versions: dict[str, str]
    service: dict[str, str]
    machine: str
    cores: int
    cache_folder: str
    loaded_here: bool
    loaded_next: bool
    measured: float
    standard_error: float
    exact: float
    deviations: float
    as_oracle: bool
    routed_deviations: float
    seconds: float

    @property
    def lacking(self) -> list[str]:
        """Packages that the service needs and that are not installed. Without it all else works, so this is no illness."""
        return [name for name, found in self.service.items() if found == _MISSING]

    @property
    def exact_agrees(self) -> bool:
        """Whether the simulated means are close enough to the exact ones."""
        return max(abs(self.deviations), abs(self.routed_deviations)) <= _MOST_DEVIATIONS

    @property
    def healthy(self) -> bool:
        """Whether everything works as it should."""
        return self.exact_agrees and self.as_oracle and self.loaded_next

    @property
    def sentence(self) -> str:
        """All of it in one sentence."""
        if self.healthy:
            return f"All is well ({self.seconds:.0f} s)."
        wrong = []
        if not self.exact_agrees:
            wrong.append("the simulated queue is not the one that theory gives")
        if not self.as_oracle:
            wrong.append("a policy without a choice differs from the oracle")
        if not self.loaded_next:
            wrong.append("compiled code is not found again by the next process, so every start compiles anew")
        return "Not all is well: " + "; ".join(wrong) + "."

    def tables(self) -> list[Table]:
        """For a person to read."""
        cache = "found" if self.loaded_here else "compiled now"
        rows = [
            ("queue in simulation", f"{short(self.measured)} ± {short(self.standard_error)} jobs"),
            ("queue in theory", f"{short(self.exact)} jobs, {self.deviations:+.1f} standard errors away"),
            ("two queues under SED", f"{self.routed_deviations:+.1f} standard errors from their exact law"),
            ("within 5 standard errors", _yes(self.exact_agrees)),
            ("policy without a choice equals the oracle", _yes(self.as_oracle)),
        ]
        return [
            Table("Versions", ("package", "version"), (*self.versions.items(), *self.service.items())),
            Table(
                "Machine",
                ("", ""),
                (
                    ("machine", self.machine),
                    ("cores for this process", str(self.cores)),
                    ("compiled code is kept in", self.cache_folder),
                    ("compiled code in this process", cache),
                    ("found by the next process", _yes(self.loaded_next)),
                    (
                        "queuewise serve can run",
                        _yes(False) + f": the extra serve lacks {', '.join(self.lacking)}"
                        if self.lacking
                        else _yes(True),
                    ),
                ),
                wide=(1,),
            ),
            Table("Self-check: a Geo/Geo/1 queue, and two parallel queues", ("", ""), tuple(rows), wide=(1,)),
        ]

    def as_json(self) -> dict[str, Any]:
        """For a machine to read."""
        return {
            "healthy": self.healthy,
            "versions": self.versions,
            "serve": {"installed": not self.lacking, "versions": self.service},
            "machine": self.machine,
            "cores": self.cores,
            "compile_cache": {
                "folder": self.cache_folder,
                "found_by_this_process": self.loaded_here,
                "found_by_next_process": self.loaded_next,
            },
            "self_check": {
                "measured": self.measured,
                "standard_error": self.standard_error,
                "exact": self.exact,
                "deviations": self.deviations,
                "routed_deviations": self.routed_deviations,
                "agrees": self.exact_agrees,
                "policy_equals_oracle": self.as_oracle,
            },
            "seconds": self.seconds,
            "conclusion": self.sentence,
        }


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def geo_geo_1_mean(arrival_rate: float, success: float) -> float:
    """Mean stationary queue length of one server in slotted time: the sum of P(Q >= q) over q (WISE, equation (78))."""
    ratio = (1.0 - success) * arrival_rate / (success * (1.0 - arrival_rate))
    return arrival_rate / success / (1.0 - ratio)


def _one_context() -> System:
    return table_law([[[1.0]]], [[_SUCCESS]], arrival_rate=_ARRIVAL_RATE, name="one context, one server")


def found_on_disk() -> bool:
    """Play one round of ``wise`` and say whether its machine code came from the compile cache."""
    policy = wise()
    simulate(_one_context(), policies=[policy], rounds=1, runs=1, workers=1)
    program = _compile.program(loop.run, policy.functions)
    return bool(sum(program.stats.cache_hits.values()) > 0)


def _found_by_next_process() -> bool:
    command = [sys.executable, "-c", f"from {__name__} import found_on_disk; print(found_on_disk())"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return answer.stdout.strip() == "True"


def _routed_deviations() -> float:
    """Two parallel queues under SED: how many standard errors the simulated number in system lies from the exact one."""
    system = dispatch.System(arrival_rate=2.0, service_rates=[1, 2])
    result = dispatch.simulate(system, "sed", arrivals=20_000, runs=24, seed=20260, warm_up=0.1)
    number = result.mean_number_in_system("sed")
    exact = dispatch.exact.stationary(system, "sed").mean_number
    return (number.mean - exact) / (number.sd / math.sqrt(number.runs))


def examine(runs: int = _RUNS) -> Report:
    """Look at the installation and run the self-check: about ten seconds, more where nothing is compiled yet."""
    begun = time.monotonic()
    here = found_on_disk()
    result = simulate(_one_context(), policies=["wise"], rounds=_ROUNDS, runs=runs, seed=20260)
    queue = result.queue_length["wise"]
    per_run = queue[:, _WARM_UP:].mean(axis=1)
    mean, error = float(per_run.mean()), float(per_run.std(ddof=1)) / math.sqrt(runs)
    exact = geo_geo_1_mean(_ARRIVAL_RATE, _SUCCESS)
    return Report(
        versions={"queuewise": VERSION, "python": platform.python_version(), **_versions(_PACKAGES)},
        service=_versions(SERVICE),
        machine=f"{platform.system()} {platform.machine()}",
        cores=default_workers(),
        cache_folder=str(_compile.cache_folder()),
        loaded_here=here,
        loaded_next=_found_by_next_process(),
        measured=mean,
        standard_error=error,
        exact=exact,
        deviations=(mean - exact) / error,
        as_oracle=bool(np.array_equal(queue, result.oracle_queue_length)),
        routed_deviations=_routed_deviations(),
        seconds=time.monotonic() - begun,
    )


def _versions(packages: Iterable[str]) -> dict[str, str]:
    found = {}
    for package in packages:
        try:
            found[package] = installed_version(package)
        except PackageNotFoundError:
            found[package] = _MISSING
    return found
