"""Methods of zonal, which are trained on a split and predict.

The ``train`` of a method is a generator that yields an `Answer` for the model so far;
the last one is final. The clock stops while an answer is scored, so a curve of scores
against training time is free. Methods that are not iterative yield once.
"""

import dataclasses
from collections.abc import Callable, Generator, Iterable
from typing import Any

import numpy as np

from zonal.inference.local import LocalSolution
from zonal.learning.recipe import Recipe
from zonal.learning.state import Step
from zonal.likelihoods.classes import Labels
from zonal.model import Model, fit
from zonal.prediction import Prediction
from zonal.prior.kernels import ContinuousDepth
from zonal.prior.polynomials import harmonic_count
from zonal.prior.sphere import Projection
from zonal.tables.sources import ArraySource
from zonal_bench.tables import Split

__all__ = [
    "BUDGETS",
    "ZONAL_METHODS",
    "Answer",
    "Answers",
    "Method",
    "Settings",
    "UnaffordableError",
    "sum_stage_seconds",
]


class UnaffordableError(Exception):
    """The method needs too much time or memory; the message says why."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """Seed and limits of a training run.

    ``limit`` is the time limit of iterative methods in seconds; ``steps`` and
    ``features`` override the number of learning steps and features of zonal.
    """

    seed: int = 0
    limit: float = 600.0
    steps: int | None = None
    features: int | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Answer:
    """A prediction function, and facts to record such as ``depth`` and ``features``.

    ``predict`` returns a `Prediction` for regression, or probabilities of classes.
    """

    predict: Callable[[np.ndarray], Prediction | np.ndarray]
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)


Answers = Generator[Answer, None, None]


@dataclasses.dataclass(frozen=True)
class Method:
    """A name for files, a title for tables, and a training function.

    The version of ``package`` is recorded; ``numbers`` and ``classes`` say whether the
    method supports regression and classification. A ``variant`` of another method is
    shown in separate tables and not ranked.
    """

    name: str
    title: str
    package: str
    train: Callable[[Split, Settings], Answers]
    numbers: bool = True
    classes: bool = False
    variant: bool = False


def _train_zonal(split: Split, settings: Settings, **choices: Any) -> Answers:
    chosen = {"seed": settings.seed, **choices}
    if settings.steps is not None:
        chosen["most_steps"] = settings.steps
    # Methods without features stay without.
    if settings.features is not None and chosen.get("n_features") != 0:
        chosen["n_features"] = settings.features
    recipe = Recipe(**chosen)
    rows = ArraySource(split.x, split.y)
    likelihood = Labels.of(split.y).likelihood() if split.classes else None
    model = fit(rows, recipe, likelihood)

    def predict(x: np.ndarray) -> Prediction | np.ndarray:
        predicted = model.predict(x)
        return predicted.probabilities() if split.classes else predicted

    yield Answer(predict, _collect_facts(model))


def _collect_facts(model: Model) -> dict[str, Any]:
    basis, solution = model.process.basis, model.solution
    has_neighbors = isinstance(solution, LocalSolution)
    return {
        "depth": basis.depth,
        "levels": basis.kernel.last_level,
        "features": len(solution.features) if has_neighbors else basis.n_features,
        "neighbors": solution.n_neighbors if has_neighbors else 0,
        "stages": sum_stage_seconds(model.history),
    }


def sum_stage_seconds(history: Iterable[Step]) -> dict[str, float]:
    """Seconds of each stage of learning, in the order of first appearance.

    A step lasts from the previous step to its own report.

    Examples
    --------
    >>> start, learn = Step("start", 1, 9, 0.1, 2.0), Step("learn", 1, 9, 0.2, 5.0)
    >>> sum_stage_seconds([start, learn])
    {'start': 2.0, 'learn': 3.0}
    """
    stages, last = {}, 0.0
    for step in history:
        stages[step.stage] = stages.get(step.stage, 0.0) + step.seconds - last
        last = step.seconds
    return stages


def _make_zonal(name: str, title: str, **choices: Any) -> Method:
    def train(split: Split, settings: Settings) -> Answers:
        return _train_zonal(split, settings, **choices)

    return Method(name, title, "zonal", train, classes=True, variant=name != "zonal")


def _make_banded(name: str, title: str, **choices: Any) -> Method:
    """Banded features alone, without neighbours."""
    return _make_zonal(name, title, n_neighbors=0, **choices)


def _train_projected(split: Split, settings: Settings) -> Answers:
    """Complete levels on a sphere after a learned linear projection of the rows."""
    centre, width = split.x.mean(axis=0), split.x.std(axis=0)

    def standardise(x: np.ndarray) -> np.ndarray:
        return (x - centre) / width

    size = min(_PROJECTED, split.x.shape[1])
    sphere = Projection.random(split.x.shape[1], size, seed=settings.seed)
    inner = dataclasses.replace(
        split, x=standardise(split.x), x_test=standardise(split.x_test)
    )
    # The projection has many parameters; validation rows prevent overfitting.
    choices = {"sphere": sphere, "validation_fraction": _VALIDATION_FRACTION}
    (answer,) = _train_zonal(inner, settings, **_make_complete_levels(size), **choices)
    yield Answer(lambda x: answer.predict(standardise(x)), answer.facts)


def _make_complete_levels(n_inputs: int, levels: int = 5) -> dict[str, Any]:
    """Settings for all harmonics of the lowest levels."""
    counts = [harmonic_count(level, n_inputs + 1) for level in range(levels)]
    return {
        "layout": "harmonics",
        "n_features": sum(counts),
        "kernel": ContinuousDepth(max_level=levels - 1),
    }


def _make_paper_method(frequencies: int, phases: int = 100) -> Method:
    """The configuration of the paper: one band per level, and its bound."""

    def train(split: Split, settings: Settings) -> Answers:
        dimension = split.x.shape[1] + 1
        counts = [harmonic_count(level, dimension) for level in range(frequencies)]
        return _train_zonal(
            split,
            settings,
            layout="sparse",
            n_levels=frequencies,
            kernel=ContinuousDepth(max_level=frequencies - 1),
            n_features=sum(min(count, phases) for count in counts),
            tightened=False,
            calibrated=False,
        )

    title = f"paper: {frequencies} frequencies, at most {phases} phases each"
    return Method(
        f"paper-{frequencies}", title, "zonal", train, classes=True, variant=True
    )


# Dimension of the learned projection for complete levels.
_PROJECTED = 8
# Share of rows that decide when to stop learning it.
_VALIDATION_FRACTION = 0.2
# Time limits, in seconds, for the curve of scores against training time.
BUDGETS = (1, 2, 4, 5, 8, 10, 15, 20, 30, 40, 60, 80)

ZONAL_METHODS = (
    _make_zonal("zonal", "zonal"),
    _make_zonal("zonal-plain", "zonal, not calibrated", calibrated=False),
    _make_zonal("zonal-features", "zonal, features alone", n_neighbors=0),
    _make_zonal("zonal-neighbors", "zonal, neighbours alone", n_features=0),
    *(
        _make_zonal(
            f"zonal-neighbors-{k}",
            f"zonal, {k} neighbours alone",
            n_features=0,
            n_neighbors=k,
        )
        for k in (64, 128, 400)
    ),
    _make_banded("zonal-1024", "zonal, 1024 features alone", n_features=1024),
    _make_banded(
        "zonal-4096", "zonal, solved with 4096 features alone", solve_features=4096
    ),
    _make_banded(
        "zonal-512", "zonal, 512 features alone throughout", solve_features=512
    ),
    _make_banded(
        "zonal-standard", "standard penalty", solve_features=512, tightened=False
    ),
    _make_banded(
        "zonal-radial", "radial order 1", solve_features=512, radial_order=1.0
    ),
    _make_zonal("zonal-sparse", "sparse", layout="sparse"),
    _make_zonal(
        "zonal-sparse-standard",
        "sparse, standard penalty",
        layout="sparse",
        tightened=False,
    ),
    _make_zonal(
        "zonal-sparse-radial",
        "sparse, radial order 1",
        layout="sparse",
        radial_order=1.0,
    ),
    _make_zonal("zonal-harmonics", "complete levels", layout="harmonics"),
    _make_zonal("levels-5", "five complete levels", **_make_complete_levels(8)),
    Method(
        "levels-projected",
        f"five complete levels, projected to {_PROJECTED} columns",
        "zonal",
        _train_projected,
        variant=True,
    ),
    _make_paper_method(7),
    _make_paper_method(15),
    *(
        _make_zonal(
            f"zonal-{seconds}s", f"zonal, {seconds} s", max_seconds=float(seconds)
        )
        for seconds in BUDGETS
    ),
)
