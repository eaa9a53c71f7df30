"""What WISE and CQB-η-2 prove about numbers, as functions of numbers.

Every function cites its equation and refuses numbers that its theorem's assumptions rule out. :func:`bounds` evaluates all
theorems of both papers for one system and horizon, with the assumptions that the system meets and fails.

WISE: :func:`wise_radius` (9) · :func:`elliptical_potential`, :func:`wide_intervals` (Lemmas 21, 10) · :func:`workload`,
:func:`workload_drift` (1), :func:`workload_growth` (Lemma 11), :func:`lemma_12`, :func:`wide_newcomers` (Lemma 13),
:func:`persistence_bound` (Lemma 17) · :func:`theorem_6`, its conditions and the first round that meets them ·
:func:`theorem_7`, :func:`theorem_8`, :func:`lemma_18`.

CQB-η-2: :func:`cqb_eta_2_radius` (3) · :func:`cqb_eta_2_phases` (4) · :func:`lemma_8`, :func:`lemma_9` · :func:`theorem_5`,
term by term and as a number · :func:`theorem_10`.
"""

from .cqb_eta_2 import (
    Phases,
    Theorem5,
    cqb_eta_2_phases,
    cqb_eta_2_radius,
    lemma_8,
    lemma_9,
    theorem_5,
    theorem_5_first_round,
    theorem_5_terms,
    theorem_10,
    theorem_10_least_bound,
    theorem_10_probabilities,
)
from .evaluated import bounds
from .wise import (
    Condition,
    Lemma12,
    Lemma18,
    bernoulli_divergence,
    elliptical_potential,
    least_probability,
    lemma_5_shape,
    lemma_12,
    lemma_18,
    persistence_bound,
    proof_lengths,
    sign_coordinates,
    theorem_6,
    theorem_6_conditions,
    theorem_6_first_round,
    theorem_6_shape,
    theorem_7,
    theorem_7_separation,
    theorem_8,
    theorem_8_separation,
    wide_intervals,
    wide_newcomers,
    wise_radius,
    workload,
    workload_drift,
    workload_growth,
)

__all__ = [
    "Condition",
    "Lemma12",
    "Lemma18",
    "Phases",
    "Theorem5",
    "bernoulli_divergence",
    "bounds",
    "cqb_eta_2_phases",
    "cqb_eta_2_radius",
    "elliptical_potential",
    "least_probability",
    "lemma_5_shape",
    "lemma_8",
    "lemma_9",
    "lemma_12",
    "lemma_18",
    "persistence_bound",
    "proof_lengths",
    "sign_coordinates",
    "theorem_5",
    "theorem_5_first_round",
    "theorem_5_terms",
    "theorem_6",
    "theorem_6_conditions",
    "theorem_6_first_round",
    "theorem_6_shape",
    "theorem_7",
    "theorem_7_separation",
    "theorem_8",
    "theorem_8_separation",
    "theorem_10",
    "theorem_10_least_bound",
    "theorem_10_probabilities",
    "wide_intervals",
    "wide_newcomers",
    "wise_radius",
    "workload",
    "workload_drift",
    "workload_growth",
]
