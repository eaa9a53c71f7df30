"""What CQB-η-2's Section 5 leaves open about its Figure 1, as named parameters, and the other values that are tried."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...fields import number, require_choice, whole
from ...scheduling import presets
from ...scheduling.contexts.uniform import KAPPA_REJECTS
from ...scheduling.policy import Policy

#: A panel's setting: context-wise slack and number of servers.
Setting = tuple[float, int]

ROUNDS = 2000
DIMENSION, ARRIVAL_RATE, KAPPA = 10, 0.7, 50.0
#: τ₂/T.
PHASE_2_END = 0.3
PER_RUN, ONE = "per run", "one for all runs"


@dataclass(frozen=True)
class Choices:
    """What the paper leaves open (or states, where said). The defaults stand in the register of reproductions.

    Attributes
    ----------
    parameter_bound : "norm", "sqrt_d" or float
        S: the norm of the true parameter, √d (which no parameter exceeds), or a number.
    lambda_0 : float
        Ridge of the estimate, and λ₀ of the radius and of V₀.
    initial_design : "lambda_0" or "kappa_lambda_0"
        V₀ = λ₀I, as Algorithm 1 says, or κλ₀I, as the radius reads.
    delta : "1/T", "1/T^4" or float
        Of the radius; the paper states 1/T for its experiments and 1/T⁴ for its theory.
    radius_scale, phase_1_end, acqb_exploration_scale : float
        Stated in the paper: the radius's factor 0.1; τ₁/T = τ/T = 0.2 of CQB-η-2 and CQB-ε, at most τ₂/T = 0.3 here; and
        c₁ = 20.
    pool : int
        Contexts of an instance.
    kappa_rejects : "parameters" or "contexts"
        What an inverse slope above κ rejects; see ``uniform_law``.
    instance : "per run" or "one for all runs"
        Of the paper's way.
    exploration : "slack/4" or float
        η of CQB-η-2's second phase.
    epsilon_exploration : "1/sqrt(T)" or float
        Exploration of CQB-ε after its first τ rounds.
    acqb_samples : int
        Draws of ACQB a round.
    acqb_radius_scale : "radius_scale" or float
        Factor of ACQB's radius.
    ties : "earliest" or "random"
    stable_within : float
        Jobs within which the final regrets for K = 3, 5 and 10 have to lie for "stable in K".
    choice_instances : int
        Instances over which a choice's effect is measured, at most as many as there are fresh instances (and 10
        with ``--quick``); 0 for no table.
    """

    parameter_bound: str | float
    lambda_0: float
    initial_design: str
    delta: str | float
    radius_scale: float
    phase_1_end: float
    acqb_exploration_scale: float
    pool: int
    kappa_rejects: str
    instance: str
    exploration: str | float
    epsilon_exploration: str | float
    acqb_samples: int
    acqb_radius_scale: str | float
    ties: str
    stable_within: float
    choice_instances: int

    @classmethod
    def of(cls, parameters: Mapping[str, Any]) -> Choices:
        """The choices from named parameters. Raises ValueError that names the one that is out of range."""
        given = cls(**parameters)
        for field, words in (
            ("initial_design", ("lambda_0", "kappa_lambda_0")),
            ("kappa_rejects", KAPPA_REJECTS),
            ("instance", (PER_RUN, ONE)),
            ("ties", ("earliest", "random")),
        ):
            require_choice(field, getattr(given, field), words)
        for field in ("lambda_0", "radius_scale", "stable_within"):
            number(vars(given), field, 0.0)
        for field, least in (("pool", 1), ("acqb_samples", 1), ("choice_instances", 0)):
            whole(vars(given), field, least)
        number(vars(given), "phase_1_end", 0.0, PHASE_2_END, strict=False)
        number(vars(given), "acqb_exploration_scale", 0.0, strict=False)
        if given.choice_instances == 1:
            raise ValueError("choice_instances: must be 0 (no table) or at least 2, not 1")
        for field, allowed, low, high in (
            ("parameter_bound", ("norm", "sqrt_d"), 0.0, math.inf),
            ("delta", ("1/T", "1/T^4"), 0.0, 1.0),
            ("acqb_radius_scale", ("radius_scale",), 0.0, math.inf),
        ):
            _word_or_number(vars(given), field, allowed, low, high, strict=True)
        for field, word in (("exploration", "slack/4"), ("epsilon_exploration", "1/sqrt(T)")):
            _word_or_number(vars(given), field, (word,), 0.0, 1.0, strict=False)
        return given

    def law(self, setting: Setting) -> dict[str, Any]:
        """The arguments of ``uniform_law``, but for the seed."""
        slack, servers = setting
        return {
            "dimension": DIMENSION,
            "servers": servers,
            "arrival_rate": ARRIVAL_RATE,
            "slack": slack,
            "kappa": KAPPA,
            "pool": self.pool,
            "kappa_rejects": self.kappa_rejects,
        }

    def policies(self) -> list[Policy]:
        """The five policies."""

        def unless(word: str, value: str | float) -> float | None:
            return None if value == word else float(value)

        bounds = {"norm": None, "sqrt_d": math.sqrt(DIMENSION)}
        deltas = {"1/T": None, "1/T^4": float(ROUNDS) ** -4}
        bound, delta = self.parameter_bound, self.delta
        return presets.cqb_eta_2_figure_1(
            radius_scale=self.radius_scale,
            kappa=KAPPA,
            phase_1_end=float(self.phase_1_end),
            acqb_exploration_scale=self.acqb_exploration_scale,
            ridge=self.lambda_0,
            parameter_bound=bounds[bound] if isinstance(bound, str) else bound,
            initial_design=self.lambda_0 * (KAPPA if self.initial_design == "kappa_lambda_0" else 1.0),
            delta=deltas[delta] if isinstance(delta, str) else delta,
            exploration=unless("slack/4", self.exploration),
            epsilon_exploration=unless("1/sqrt(T)", self.epsilon_exploration),
            acqb_samples=self.acqb_samples,
            acqb_radius_scale=unless("radius_scale", self.acqb_radius_scale),
            ties=self.ties,
        )


#: Other values than the default's, one at a time, and the policy that the choice is about.
VARIATIONS: tuple[tuple[str, Any, str], ...] = (
    ("parameter_bound", "sqrt_d", "cqb_eta_2"),
    ("lambda_0", 0.1, "cqb_eta_2"),
    ("lambda_0", 10.0, "cqb_eta_2"),
    ("initial_design", "kappa_lambda_0", "cqb_eta_2"),
    ("pool", 100, "cqb_eta_2"),
    ("pool", 10_000, "cqb_eta_2"),
    ("kappa_rejects", "contexts", "cqb_eta_2"),
    ("instance", ONE, "cqb_eta_2"),
    ("exploration", 0.0, "cqb_eta_2"),
    ("exploration", 0.3, "cqb_eta_2"),
    ("ties", "random", "cqb_eta_2"),
    ("epsilon_exploration", 0.0, "cqb_epsilon"),
    ("acqb_samples", 1, "acqb"),
    ("acqb_radius_scale", 1.0, "acqb"),
    ("delta", "1/T^4", "cqb_eta_2"),
    ("radius_scale", 0.01, "cqb_eta_2"),
    ("phase_1_end", 0.0, "cqb_eta_2"),
    ("acqb_exploration_scale", 1.0, "acqb"),
)
#: What the paper does state for its experiments. Varied all the same, to see how much hangs on it.
STATED = {"delta": "1/T", "radius_scale": 0.1, "phase_1_end": 0.2, "acqb_exploration_scale": 20.0}


def _word_or_number(
    options: Mapping[str, Any], field: str, words: Sequence[str], low: float, high: float, strict: bool
) -> None:
    if isinstance(options[field], str):
        if options[field] not in words:
            allowed = ", ".join(map(repr, words))
            raise ValueError(f"{field}: must be {allowed} or a number, not {options[field]!r}")
    else:
        number(options, field, low, high, strict)
