"""Real outcomes without a file: classifiers of handwritten digits as servers, images as jobs.

The images are those that scikit-learn brings along. Half of them train five classifiers of different kinds, four of
which have hardly seen anything but their own few digits; the other half are the jobs, and a server completes a job
when its classifier reads the image correctly. So no server is good at everything, and which one is good at an image
can be guessed, but not known, from a few principal components of its pixels.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np

from ..fields import require_count
from .contexts.outcomes import OutcomesSystem, from_outcomes
from .systems import (
    Floats,
    Ints,
)

#: Images that train the classifiers and the principal components; the others are the jobs.
_TRAINING = 900
#: Images in each replica's bootstrap sample: few, so that replicas differ and training takes a fraction of a second.
_SAMPLE = 250
#: How often an image of a foreign digit enters a specialist's sample, relative to one of its own digits.
_FOREIGN = 0.03


class Classifier(NamedTuple):
    """One server: a kind of classifier and the digits that it has mostly seen."""

    name: str
    kind: str
    digits: tuple[int, ...]


#: The servers, in order. Neighbours in pixel space go to the same specialist, so that few components tell them apart.
CLASSIFIERS = (
    Classifier("decision tree for 0, 6", "tree", (0, 6)),
    Classifier("naive Bayes for 1, 4, 7", "bayes", (1, 4, 7)),
    Classifier("nearest neighbours for 3, 5, 9", "neighbours", (3, 5, 9)),
    Classifier("linear classifier for 2, 8", "linear", (2, 8)),
    Classifier("shallow tree for all digits", "shallow tree", tuple(range(10))),
)


@dataclass(frozen=True, eq=False, kw_only=True)
class DigitsSystem(OutcomesSystem):
    """The system of :func:`digits_system`.

    Attributes
    ----------
    server_names : tuple of str
    digits : int64[rows]
        The digit that each row of the law's table shows.
    """

    server_names: tuple[str, ...]
    digits: Ints


def digits_system(
    load: float = 0.5,
    seed: int = 0,
    components: int = 5,
    replicas: int = 20,
    truth: str = "repeat",
    impossible: str = "drop",
    floor: float | None = None,
    suggested_radius: float = 1.0,
) -> DigitsSystem:
    """A system of real outcomes: five classifiers of scikit-learn's digits as servers, held-out images as jobs.

    Every classifier is trained `replicas` times on bootstrap samples. An attempt stands for asking one replica at
    random, so the success probability of a pair is the fraction of the classifier's replicas that read the image
    correctly: a frequency on images that none of them has seen, not a model. What policies know of a job is the first
    principal components of its pixels; every server has a parameter vector of its own. The logistic model of the
    policies fits that truth only roughly, as is usual.

    With the default values the best single server reads about 55 % of the images, the best server of each image
    about 98 %, and the server that a logistic fit to all outcomes would choose about 82 %. For one image in ten that
    last server nearly always fails: whoever trusts the logistic model too firmly comes back to such images over and
    over. That makes this a hard system, whose queue grows under some policies that have proofs for logistic truths.
    ``truth="fit"`` replaces the fractions by the logistic fit to them, a truth of the kind those proofs are about.

    Parameters
    ----------
    load : float
        ``arrival_rate * E[1/p*]``, in (0, 1): the share of rounds that best servers would be busy.
    seed : int
        Draws the split into training images and jobs, and the bootstrap samples.
    components : int
        Principal components that policies see, from 1 to 64.
    replicas : int
        Trainings per classifier.
    truth : {"repeat", "fit"}
        Whether the fractions themselves are the success probabilities, or a ridge-logistic fit to them.
    impossible, floor
        What becomes of images that no replica of any classifier reads; see ``from_outcomes``.
    suggested_radius : float
        Confidence radius for policies that are named without one: a practical value, far below what theory asks for.

    Returns
    -------
    DigitsSystem
        With ``.server_names``, ``.digits``, ``.best_single_server()``, ``.matched_success()``, ``.fitted_success()``.

    Raises
    ------
    ValueError
        If an argument is out of range.
    ImportError
        If scikit-learn is not installed.
    """
    require_count("seed", seed, 0)
    require_count("replicas", replicas)
    require_count("components", components)
    if components > 64:
        raise ValueError(f"components must be at most 64 (pixels of an image), not {components}")
    try:
        from sklearn.datasets import (  # type: ignore[import-untyped,import-not-found,unused-ignore]
            load_digits,
        )
        from sklearn.decomposition import (  # type: ignore[import-untyped,import-not-found,unused-ignore]
            PCA,
        )
    except ImportError as error:
        raise ImportError("digits_system needs scikit-learn: install queuewise[examples]") from error

    pixels, labels = load_digits(return_X_y=True)
    pixels, labels = pixels / 16.0, labels.astype(np.int64)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(labels))
    training, jobs = order[:_TRAINING], order[_TRAINING:]
    outcomes = np.zeros((len(jobs), len(CLASSIFIERS)))
    for server, classifier in enumerate(CLASSIFIERS):
        share = np.where(np.isin(labels[training], classifier.digits), 1.0, _FOREIGN)
        share /= share.sum()
        for _ in range(replicas):
            sample = training[rng.choice(len(training), size=_SAMPLE, p=share)]
            model = _untrained(classifier.kind, int(rng.integers(2**31)))
            model.fit(pixels[sample], labels[sample])
            outcomes[:, server] += model.predict(pixels[jobs]) == labels[jobs]
    outcomes /= replicas

    pca = PCA(components, svd_solver="full").fit(pixels[training])
    # Scaled as one, so that the components' mean square is about the square of the constant entry next to them; and
    # rounded, so that the last bits of a linear algebra library do not make another system.
    scores: Floats = pca.transform(pixels[jobs]) / np.sqrt(pca.explained_variance_.sum())
    system = from_outcomes(
        np.round(scores, 6),
        outcomes,
        load=load,
        truth=truth,
        impossible=impossible,
        floor=floor,
        suggested_radius=suggested_radius,
        suggested_initial_design=1.0,
        suggested_ridge=1.0,
        name="classifiers of handwritten digits",
    )
    carried = {field.name: getattr(system, field.name) for field in fields(system)}
    carried["identification"] = {
        "law": "digits_system",
        "load": load,
        "seed": seed,
        "components": components,
        "replicas": replicas,
        "truth": truth,
        "impossible": impossible,
        "floor": floor,
        "suggested_radius": suggested_radius,
        # Another version of scikit-learn may train other classifiers: the outcomes are part of the identity.
        "sha256": system.identification["sha256"],
    }
    names = tuple(classifier.name for classifier in CLASSIFIERS)
    carried["notes"] = (*system.notes, "servers: " + "; ".join(names))
    return DigitsSystem(**carried, server_names=names, digits=labels[jobs][system.kept])


def _untrained(kind: str, seed: int) -> Any:
    """A fresh classifier of one kind; the trees use the seed to break ties between splits."""
    from sklearn.linear_model import RidgeClassifier  # type: ignore[import-untyped,import-not-found,unused-ignore]
    from sklearn.naive_bayes import GaussianNB  # type: ignore[import-untyped,import-not-found,unused-ignore]
    from sklearn.neighbors import (  # type: ignore[import-untyped,import-not-found,unused-ignore]
        KNeighborsClassifier,
    )
    from sklearn.tree import (  # type: ignore[import-untyped,import-not-found,unused-ignore]
        DecisionTreeClassifier,
    )

    if kind == "tree":
        return DecisionTreeClassifier(max_depth=6, random_state=seed)
    if kind == "shallow tree":
        return DecisionTreeClassifier(max_depth=4, random_state=seed)
    if kind == "bayes":
        return GaussianNB(var_smoothing=1e-2)
    if kind == "neighbours":
        return KNeighborsClassifier(3)
    return RidgeClassifier(10.0)
