"""Systems of the scheduling wing: one contextual queue in slotted time, and the constants that theory asks of it.

A :class:`System` is the truth of a simulation: how jobs arrive, which contexts they carry, and how likely each server
completes each job. Policies never see it; the oracle does. The context laws in :mod:`queuewise.scheduling.contexts`
build systems; this module holds what all of them share.

The model is the one of WISE (Section 2.1) and CQB-eta-2 (Section 2). In every round at most one waiting job is served
by one server and leaves with probability ``p(x, k) = mu(<phi(x, k), theta>)``, ``mu(z) = 1 / (1 + exp(-z))``;
afterwards a job arrives with probability ``arrival_rate``, its context drawn from the law.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from ..bounds import Assumption, all_hold
from ..fields import plain, require_count, require_number, require_positive

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

#: How far rounding may carry a norm, or a logit, beyond the stated bound before it counts as a violation.
ROUNDING = 1e-9


class Quantity(NamedTuple):
    """A constant of a system, and how well it is known.

    Attributes
    ----------
    value : float
    error : float
        Standard error. 0 where the value is exact, nan where a sample bounds the value from one side only (the
        largest norm seen, say), which no standard error describes.
    exact : bool
        Whether the value comes from the whole law and not from a sample.
    note : str
        How an inexact value is to be read.
    """

    value: float
    error: float = 0.0
    exact: bool = True
    note: str = ""

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        text = f"{self.value:.6g}"
        if self.exact:
            return text
        return f"{text} ({self.note})" if math.isnan(self.error) else f"{text} ± {self.error:.2g}"


class Constants(NamedTuple):
    """What a context law knows about itself; :class:`System` turns it into slacks and curvatures.

    Attributes
    ----------
    mean_attempts : Quantity
        ``E[1 / p*(X)]``, the attempts that a job needs on its best server, on average; those that it gets where it is
        given up after so many.
    lowest_best : Quantity
        ``min_x p*(x)`` over the contexts that occur.
    least_variance : Quantity
        ``min_{x,k} p(x, k) (1 - p(x, k))``, which is the least slope of ``mu`` at the true parameter.
    largest_norm : Quantity
        ``max_{x,k} ||phi(x, k)||``.
    diversity : Quantity
        The least eigenvalue of ``E[(1/K) sum_k phi phi^T]``.
    """

    mean_attempts: Quantity
    lowest_best: Quantity
    least_variance: Quantity
    largest_norm: Quantity
    diversity: Quantity


class Contexts(NamedTuple):
    """The contexts of the arriving jobs of one run: the part of a :class:`Draw` that a context law makes."""

    rows: Ints
    features: Floats
    probabilities: Floats


class ContextLaw(Protocol):
    """What a system needs of a context law.

    ``draw(jobs, rng)`` must give the same first contexts whatever ``jobs`` is, so that a longer run extends a shorter
    one. Built-in laws take one row of a uniform matrix of fixed width per job.
    """

    @property
    def servers(self) -> int: ...

    @property
    def dimension(self) -> int: ...

    def draw(self, jobs: int, rng: np.random.Generator) -> Contexts: ...

    def constants(self) -> Constants: ...


class Draw(NamedTuple):
    """Everything random that the policies of one run share.

    Attributes
    ----------
    arrivals : bool[rounds]
        Whether a job arrives at the end of round 1, 2, ...
    contexts : int64[jobs]
        Row of `features` and `probabilities` that belongs to the n-th arriving job; ``jobs = arrivals.sum()``.
    features : float64[rows, d, K]
        C-contiguous, server axis last: ``phi(x, k) = features[row, :, k]``. Shared between draws of a finite law, so
        not to be written to.
    probabilities : float64[rows, K]
        True success probability of an attempt.
    service : float64[rounds]
        The round's service uniform: the chosen job departs iff it is at most the chosen pair's probability.
    """

    arrivals: Bools
    contexts: Ints
    features: Floats
    probabilities: Floats
    service: Floats


class TheoremCheck(NamedTuple):
    """The assumptions of one theorem, checked on one system."""

    theorem: str
    assumptions: tuple[Assumption, ...]

    @property
    def holds(self) -> bool | None:
        """True if every assumption holds, False if one fails, None if it cannot be decided from a sample."""
        return all_hold(self.assumptions)


@dataclass(frozen=True, eq=False, kw_only=True)
class System:
    """A contextual queue with one arrival stream and several servers: the truth behind a simulation.

    Systems come from the context laws (``wise_figure_law``, ``uniform_law``, ``table_law``, ``function_law``,
    ``from_outcomes``, ``digits_system``) rather than from this constructor.

    Attributes
    ----------
    name : str
    arrival_rate : float
        Probability of an arrival per round, in (0, 1).
    law : ContextLaw
        Draws contexts and knows their constants.
    parameter_bound : float
        ``S``: the radius of the ball in which policies look for the parameter.
    feature_bound : float
        The bound on ``||phi(x, k)||`` that the law states.
    theta : float64[d] or None
        True parameter; None where the truth is not logistic in the features.
    suggested_radius, suggested_initial_design, suggested_ridge : float or None
        The confidence radius, the multiple of the identity that ``V`` starts from and the ridge penalty that the law
        suggests to policies that are named without them.
    notes : tuple of str
        Lines that :meth:`describe` adds.
    allow_unstable : bool
        Accept a system without capacity slack.

    Raises
    ------
    ValueError
        If a value is out of its range, or if the system has no capacity slack and `allow_unstable` is False.
    """

    name: str
    arrival_rate: float
    law: ContextLaw
    parameter_bound: float
    feature_bound: float
    identification: Mapping[str, Any]
    theta: Floats | None = None
    suggested_radius: float | None = None
    suggested_initial_design: float | None = None
    suggested_ridge: float | None = None
    notes: tuple[str, ...] = ()
    allow_unstable: bool = False

    def __post_init__(self) -> None:
        require_arrival_rate(self.arrival_rate)
        require_positive("parameter_bound", self.parameter_bound)
        require_positive("feature_bound", self.feature_bound)
        for field in ("suggested_radius", "suggested_initial_design", "suggested_ridge"):
            value = getattr(self, field)
            if value is not None:
                require_positive(field, value)
        slack = self.capacity_slack()
        if not slack.value > 0 and not self.allow_unstable:
            raise ValueError(
                f"{self.name}: capacity_slack is {slack.value:.4g}, so even the oracle's queue grows without bound; it "
                "must be positive (lower arrival_rate, or pass allow_unstable=True to simulate it all the same)"
            )

    @property
    def servers(self) -> int:
        """Number of servers, ``K``."""
        return self.law.servers

    @property
    def dimension(self) -> int:
        """Number of entries of a feature vector, ``d``."""
        return self.law.dimension

    @property
    def blocks(self) -> int:
        """``K`` if the law says that ``phi(x, k)`` vanishes outside the k-th of K equal parts: servers then share no
        parameter, and estimates take a fraction of the time. 1 otherwise, and for a law without this attribute."""
        return int(getattr(self.law, "blocks", 1))

    @property
    def max_attempts(self) -> int | None:
        """Failed attempts after which a job is given up and leaves the queue; None where it stays until it is done."""
        return getattr(self.law, "max_attempts", None)

    def draw(
        self,
        rounds: int,
        arrivals_rng: np.random.Generator,
        contexts_rng: np.random.Generator,
        service_rng: np.random.Generator,
    ) -> Draw:
        """Draw what the policies of one run share.

        Each purpose uses its own generator alone and is drawn in order of time, so that more rounds extend the same
        arrivals, contexts and service uniforms instead of changing them.

        Parameters
        ----------
        rounds : int
            Number of rounds, at least 1.
        arrivals_rng : numpy.random.Generator
            For the arrivals alone.
        contexts_rng : numpy.random.Generator
            For the jobs' contexts alone.
        service_rng : numpy.random.Generator
            For the service uniforms alone.

        Returns
        -------
        Draw

        Raises
        ------
        ValueError
            If `rounds` is not a positive whole number.
        """
        require_count("rounds", rounds)
        arrivals = arrivals_rng.random(rounds) < self.arrival_rate
        contexts = self.law.draw(int(np.count_nonzero(arrivals)), contexts_rng)
        if self.blocks > 1:
            _require_blocks(contexts.features, self.blocks)
        return Draw(arrivals, *contexts, service_rng.random(rounds))

    @cached_property
    def constants(self) -> Constants:
        """What the law knows about itself (see :class:`Constants`)."""
        return self.law.constants()

    def capacity_slack(self) -> Quantity:
        """``1 - lambda E[1/p*(X)]``: the share of rounds that best servers would leave idle (WISE, Assumption 2).

        Where jobs are given up after m attempts, ``1/p`` is replaced by the mean number that they get,
        ``(1 - (1 - p)^m) / p``.
        """
        attempts = self.constants.mean_attempts
        return attempts._replace(
            value=1.0 - self.arrival_rate * attempts.value, error=self.arrival_rate * attempts.error
        )

    def slack(self) -> float:
        """The capacity slack as a plain number."""
        return self.capacity_slack().value

    def context_slack(self) -> Quantity:
        """``min_x p*(x) - lambda``: the slack in the worst context (CQB-eta-2, Assumption 4)."""
        lowest = self.constants.lowest_best
        return lowest._replace(value=lowest.value - self.arrival_rate)

    def kappa(self, where: Literal["ball", "truth"] = "ball") -> Quantity:
        """Inverse of the least slope of the logistic function, ``kappa``.

        Parameters
        ----------
        where : {"ball", "truth"}
            Over all parameters of the ball, ``1 / mu'(S max ||phi||)`` (WISE, Assumption 1; CQB-eta-2, Assumption 2),
            or at the true success probabilities alone, ``1 / min p (1 - p)``.

        Returns
        -------
        Quantity
            Infinite at the truth where some pair never or always succeeds.
        """
        if where == "ball":
            norm = self.constants.largest_norm
            if norm.exact:
                return Quantity(inverse_slope(self.parameter_bound * norm.value))
            value = inverse_slope(self.parameter_bound * self.feature_bound)
            return Quantity(value, math.nan, False, "at most: from the stated feature bound")
        if where == "truth":
            least = self.constants.least_variance
            value = 1.0 / least.value if least.value > 0 else math.inf
            return least._replace(value=value, note=least.note.replace("at most", "at least"))
        raise ValueError(f"where must be 'ball' or 'truth', not {where!r}")

    def feature_diversity(self) -> Quantity:
        """``sigma_0^2``: least eigenvalue of ``E[(1/K) sum_k phi phi^T]`` (CQB-eta-2, Assumption 3)."""
        return self.constants.diversity

    def max_feature_norm(self) -> Quantity:
        """``max ||phi(x, k)||`` over the contexts that occur."""
        return self.constants.largest_norm

    def assumptions(self) -> dict[str, TheoremCheck]:
        """Check the assumptions of the papers' upper bounds on this system.

        Returns
        -------
        dict of str to TheoremCheck
            Keys ``"WISE Theorem 6"`` and ``"CQB-eta-2 Theorem 5"``. What the theorems ask of the *horizon* is no
            property of a system and is left to the theory functions.
        """
        norm, parameter, capacity = self._norm_assumption(), self._parameter_assumption(), self.capacity_slack()
        undecided = not capacity.exact and abs(capacity.value) <= 3 * capacity.error
        capacity_check = Assumption(
            "capacity slack is positive",
            None if undecided else capacity.value > 0,
            capacity,
            "1 - lambda E[1/p*] is within three standard errors of zero" if undecided else "1 - lambda E[1/p*]",
        )
        stay = () if self.max_attempts is None else (self._patience_assumption(),)
        wise = TheoremCheck("WISE Theorem 6", (*stay, norm, parameter, capacity_check))
        cqb = TheoremCheck(
            "CQB-eta-2 Theorem 5",
            (
                *stay,
                norm,
                parameter,
                Assumption("curvature", True, self.kappa(), "1/kappa <= mu' <= 1/4 over the ball, kappa finite"),
                self._diversity_assumption(),
                self._context_slack_assumption(),
            ),
        )
        return {check.theorem: check for check in (wise, cqb)}

    def _patience_assumption(self) -> Assumption:
        limit = Quantity(float(self.max_attempts or 0))
        return Assumption("jobs stay until they are done", False, limit, "they are given up after so many attempts")

    def _norm_assumption(self) -> Assumption:
        name, norm = "features have norm at most 1", self.constants.largest_norm
        if norm.value > 1 + ROUNDING:
            reason = (
                f"features reach {norm.value:.4g}; the same system with features divided by that number meets it, at "
                f"S = {self.parameter_bound * norm.value:.4g} and with V and the ridge rescaled"
            )
            return Assumption(name, False, norm, reason)
        if norm.exact or self.feature_bound <= 1 + ROUNDING:
            return Assumption(name, True, norm, "checked on every context" if norm.exact else "enforced on every draw")
        return Assumption(name, None, norm, f"only norms up to {self.feature_bound:.4g} are ruled in by the law")

    def _parameter_assumption(self) -> Assumption:
        name = "true parameter has norm at most S"
        if self.theta is None:
            return Assumption(name, False, Quantity(math.nan), "the truth is not logistic in the features")
        size = float(np.linalg.norm(self.theta))
        holds = size <= self.parameter_bound * (1 + ROUNDING)
        return Assumption(name, holds, Quantity(size), f"S = {self.parameter_bound:.4g}")

    def _diversity_assumption(self) -> Assumption:
        name, diversity = "features are diverse", self.constants.diversity
        reason = "sigma_0^2, the least eigenvalue of the mean of phi phi^T, is positive"
        if diversity.exact:
            # A singular moment matrix has a computed eigenvalue of rounding size, not zero.
            zero = self.dimension * np.finfo(np.float64).eps * self.constants.largest_norm.value**2
            if diversity.value > zero:
                return Assumption(name, True, diversity, reason)
            return Assumption(name, False, diversity, "the features do not span the space: sigma_0^2 is zero")
        if diversity.value > 3 * diversity.error:
            return Assumption(name, True, diversity, reason)
        return Assumption(name, None, diversity, "sigma_0^2 is within three standard errors of zero")

    def _context_slack_assumption(self) -> Assumption:
        name, slack = "context-wise slack is positive", self.context_slack()
        if slack.value <= 0:
            return Assumption(name, False, slack, "some context's best server succeeds at most as often as jobs arrive")
        if slack.exact:
            return Assumption(name, True, slack, "min p* - lambda")
        return Assumption(name, None, slack, "no sampled context violates it")

    def describe(self) -> str:
        """The system's constants and the theorems whose assumptions it meets, as a text table."""
        rows: list[tuple[str, str]] = [
            ("servers K", str(self.servers)),
            ("dimension d", str(self.dimension)),
            ("arrival rate lambda", f"{self.arrival_rate:.6g}"),
            ("capacity slack 1 - lambda E[1/p*]", str(self.capacity_slack())),
            ("context-wise slack min p* - lambda", str(self.context_slack())),
            ("parameter bound S", f"{self.parameter_bound:.6g}"),
            ("norm of the true parameter", _norm_text(self.theta)),
            ("stated bound on feature norms", f"{self.feature_bound:.6g}"),
            ("largest feature norm", str(self.max_feature_norm())),
            ("kappa over the ball", str(self.kappa("ball"))),
            ("kappa at the truth", str(self.kappa("truth"))),
            ("feature diversity sigma_0^2", str(self.feature_diversity())),
        ]
        if self.max_attempts is not None:
            rows.append(("attempts of a job before it is given up", str(self.max_attempts)))
        for field in ("suggested_radius", "suggested_initial_design", "suggested_ridge"):
            value = getattr(self, field)
            if value is not None:
                rows.append((field.replace("_", " "), f"{value:.6g}"))
        width = max(len(label) for label, _ in rows)
        lines = [self.name, *(f"  {label:<{width}}  {text}" for label, text in rows)]
        lines += [f"  {note}" for note in self.notes]
        words = {True: "holds", False: "fails", None: "undecided"}
        for check in self.assumptions().values():
            lines.append(f"  assumptions of {check.theorem}: {_verdict(check)}")
            for item in check.assumptions:
                lines.append(f"    {words[item.holds]:<9}  {item.name}: {item.value}  [{item.reason}]")
        return "\n".join(lines)

    def settings(self) -> dict[str, Any]:
        """What identifies the system, as plain JSON values (arrays appear as SHA-256 digests)."""
        return {key: plain(value) for key, value in self.identification.items()} | {
            "allow_unstable": self.allow_unstable
        }


class Family:
    """A law whose instance is drawn afresh for every run.

    Parameters
    ----------
    law : callable
        A context law that takes `seed`, such as ``wise_figure_law``.
    **parameters
        Its other arguments.

    Attributes
    ----------
    name : str
    arrival_rate, feature_bound : float
    servers, dimension : int
        The same for every instance. (What differs between instances, the parameter bound of ``uniform_law`` say, is
        asked of the instance.)

    Raises
    ------
    ValueError
        If `seed` is among the parameters: each run brings its own.
    """

    def __init__(self, law: Callable[..., System], **parameters: Any) -> None:
        if "seed" in parameters:
            raise ValueError("seed must be left out of a family: every run draws its instance from its own seed")
        self._law = law
        self._parameters = dict(parameters)
        reference = law(seed=0, **parameters)
        self.name = reference.name
        self.arrival_rate = reference.arrival_rate
        self.feature_bound = reference.feature_bound
        self.servers = reference.servers
        self.dimension = reference.dimension

    def __repr__(self) -> str:
        arguments = ", ".join([self._law.__name__, *(f"{key}={value!r}" for key, value in self._parameters.items())])
        return f"family({arguments})"

    def instance(self, seed: int) -> System:
        """The system of the run that brings this seed."""
        return self._law(seed=seed, **self._parameters)

    def settings(self) -> dict[str, Any]:
        """What identifies the family, as plain JSON values."""
        return {"family": self._law.__name__, **{key: plain(value) for key, value in self._parameters.items()}}


def family(law: Callable[..., System], **parameters: Any) -> Family:
    """A law whose instance is drawn afresh for every run: ``family(wise_figure_law, q=0.15, slack=0.05)``."""
    return Family(law, **parameters)


def logistic(z: npt.ArrayLike) -> Floats:
    """``mu(z) = 1 / (1 + exp(-z))``, elementwise and without overflow."""
    z = np.asarray(z, dtype=np.float64)
    decay = np.exp(-np.abs(z))
    return np.asarray(np.where(z >= 0, 1.0, decay) / (1.0 + decay), dtype=np.float64)


def logit(p: npt.ArrayLike) -> Floats:
    """``log(p / (1 - p))``, elementwise, for p strictly between 0 and 1."""
    p = np.asarray(p, dtype=np.float64)
    return np.asarray(np.log(p) - np.log1p(-p), dtype=np.float64)


def inverse_slope(z: float) -> float:
    """``1 / mu'(z) = 2 + 2 cosh(z)``; infinite where that exceeds the range of floating point."""
    return 2.0 + 2.0 * math.cosh(z) if abs(z) < 700.0 else math.inf


def least_eigenvalue(matrix: Floats) -> float:
    """The least eigenvalue of a positive semidefinite matrix; rounding below zero is cut off."""
    return max(0.0, float(np.linalg.eigvalsh(matrix)[0]))


def _require_blocks(features: Floats, blocks: int) -> None:
    """Refuse features [rows, d, K] that are not as the law's `blocks` says: estimates would be wrong without a word."""
    _, dimension, servers = features.shape
    own = dimension // blocks
    if blocks != servers or dimension % blocks:
        raise ValueError(
            f"blocks must be 1 or the number of servers ({servers}), and divide d = {dimension}, not {blocks}"
        )
    inside = sum(np.count_nonzero(features[:, k * own : (k + 1) * own, k]) for k in range(servers))
    if inside != np.count_nonzero(features):
        raise ValueError(f"blocks must be 1 where phi(x, k) has entries outside the k-th of {servers} equal parts")


def require_arrival_rate(value: float) -> None:
    """Refuse what is not a probability strictly between 0 and 1."""
    require_number("arrival_rate", value)
    if not 0 < value < 1:
        raise ValueError(f"arrival_rate must lie strictly between 0 and 1 (jobs per round), not {value!r}")


def _norm_text(theta: Floats | None) -> str:
    return "none (the truth is not logistic in the features)" if theta is None else f"{np.linalg.norm(theta):.6g}"


def _verdict(check: TheoremCheck) -> str:
    return {True: "met", False: "not met", None: "not decided by the sample"}[check.holds]
