"""A long run keeps its promises on memory and accuracy (minutes: ``make test-slow``)."""

import json
import os
import subprocess
import sys

import pytest

LONG = """
import json
import numpy as np
from queuewise.scheduling import engine, wise_figure_law
from queuewise.scheduling.policies import make
from tests.naive import logistic as naive

rounds = 100_000
system = wise_figure_law(q=0.15, slack=0.05, seed=0)
played = engine.play(make("wise"), engine.shape_of(system, rounds), engine.draw(system, rounds, 1, 0), seed=1)
# VmHWM and not ru_maxrss: that one counts what the parent held when it forked.
peak = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) / 1024
estimate = played.state.estimate
n = int(estimate.distinct[0])
phi, attempts, successes = estimate.features[:, :n].T.copy(), estimate.attempts[0, :n], estimate.successes[0, :n]
counts = np.concatenate([successes, attempts - successes]).astype(int)
phi, outcomes = np.repeat(np.tile(phi, (2, 1)), counts, axis=0), np.repeat(np.repeat([1.0, 0.0], n), counts)
print(json.dumps({
    "mebibytes": peak,
    "reported": float(estimate.certificate[0]),
    "true": float(naive.certificate(estimate.theta, phi, outcomes, 1.0, 10.0)),
    "late_queue": float(played.record.queue_length[-20_000:].mean()),
}))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read in Linux's unit")
def test_a_hundred_thousand_rounds_of_wise_stay_within_a_gibibyte_and_their_certificate() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LONG], env=dict(os.environ), capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout)
    assert found["mebibytes"] <= 1024
    assert found["reported"] <= 1e-8
    assert found["true"] <= 1.1e-8
    assert found["late_queue"] < 50.0  # slack 0.05: stable
