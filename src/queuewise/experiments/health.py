"""``queuewise doctor``: what is installed, and whether it computes what it should."""

from __future__ import annotations

import math
import platform
import time
from typing import Any

import numba
import numpy as np
import pyarrow
import scipy

from .. import _compile
from .._version import VERSION
from ..runs.runner import default_workers
from ..scheduling import simulate, table_law


def examine() -> dict[str, Any]:
    """Versions, threads, the compile cache, and a Geo/Geo/1 queue simulated against WISE (78), within five standard
    errors of its stationary mean."""
    begin = time.perf_counter()
    rate, p, rounds, runs = 0.5, 0.7, 400, 400
    features = np.full((1, 1, 1), math.log(p / (1 - p)))
    system = table_law(features, theta=np.ones(1), arrival_rate=rate, parameter_bound=1.0, feature_bound=1.0)
    queue = simulate(system, ["random"], rounds=rounds, runs=runs, seed=1).queue_length["random"][:, rounds // 2 :]
    means = queue.mean(axis=1)
    exact = rate / p / (1.0 - (1 - p) * rate / (p * (1 - rate)))  # Σ_{q≥1} P(Q ≥ q)
    distance = abs(means.mean() - exact) / (means.std(ddof=1) / math.sqrt(runs))
    return {
        "queuewise": VERSION,
        "python": platform.python_version(),
        "numba": numba.__version__,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "pyarrow": pyarrow.__version__,
        "threads": default_workers(),
        "compile_cache": str(_compile.cache_folder()),
        "compiled_programs": len(list(_compile.cache_folder().glob("*.py"))),
        "self_check": f"mean queue {means.mean():.4f}, exact {exact:.4f}, {distance:.1f} standard errors apart",
        "self_check_passed": bool(distance <= 5.0),
        "self_check_seconds": round(time.perf_counter() - begin, 2),
    }
