"""Every policy of the package that learns can say why it decided as it did, from its state alone."""

import numpy as np
import pytest

from queuewise import growing
from queuewise.scheduling import engine, wise_figure_law
from queuewise.scheduling.policies import REGISTER, make
from queuewise.scheduling.policy import Waiting


@pytest.mark.parametrize("name", sorted(set(REGISTER) - {"random", "fifo_random"}))
def test_a_decision_can_be_explained(name: str) -> None:
    policy = make(name, exploration=0.0) if name == "cqb_eta_2" else make(name)
    system = wise_figure_law(q=0.5, slack=0.05, seed=0, servers=4)
    rounds = 300
    shape, draws = engine.shape_of(system, rounds + 1), engine.draw(system, rounds, 8, 0)
    played = engine.play(policy, shape, draws, seed=8)
    queue, jobs = played.queue, int(played.queue.clock[1])
    assert jobs > 0
    waiting = Waiting(rounds + 1, jobs, queue.slots, -1, queue.allowed, queue.features, queue.truth)
    state = policy.grow_state(played.state, rounds + 10)
    before = {key: array.copy() for key, array in growing.flatten(state).items()}
    stream = np.array([1, 2, 3, 4], dtype=np.uint64)
    with np.errstate(over="ignore"):
        slot, server, reason = policy.decide(played.params, state, played.columns, waiting, stream)
    assert policy.explain is not None
    said = policy.explain(played.params, state, played.columns, waiting, int(slot), int(server))
    if name == "wise":
        low, high = said["interval"]
        assert 0.0 <= low <= high <= 1.0
        assert (slot, server) in said["candidates"]
        assert len(said["candidates"]) + said["eliminated"] == 4 * jobs
        assert "widest" in said["why"]
    elif name.startswith("cqb"):
        pairs = [(int(s), k) for s in queue.slots[:jobs] for k in range(4)]
        best = max(policy.explain(played.params, state, played.columns, waiting, s, k)["index"] for s, k in pairs)
        assert said["index"] == pytest.approx(best, abs=1e-9)
        assert said["index"] == pytest.approx(said["probability"] + said["bonus"])
    elif name == "acqb" and reason == 0:
        assert len(said["sampled_logits"]) == 5
    elif name == "oracle":
        assert said["probability"] == said["best_probability"]
    elif name == "q_ucb" and reason == 0:
        assert np.argmax(said["upper_bound"]) == server
    elif name == "q_ths":
        assert len(said["posterior"]) == 4
    if name not in ("acqb", "wise"):  # those two keep draws, and begin epochs, as they decide
        after = growing.flatten(state)
        assert all(np.array_equal(before[key], after[key]) for key in before if key != "turn")
