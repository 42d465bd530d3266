"""Methods: each is trained on a split, and predicts.

A method's ``train`` is a generator. Each time it yields, what it yields predicts with
what has been learned so far; the last is the answer. So the clock can be stopped while
it is judged, and a curve of quality against seconds costs nothing but the judging. A
method that is done at once yields once.
"""

import dataclasses
from collections.abc import Callable, Generator
from typing import Any

import numpy as np

from zonal.learning.recipe import Recipe
from zonal.likelihoods.classes import Labels
from zonal.model import fit
from zonal.prediction import Prediction
from zonal.prior.basis import Basis
from zonal.prior.kernels import ContinuousDepth
from zonal.prior.polynomials import harmonic_count
from zonal.prior.sphere import Projection
from zonal.tables.sources import ArraySource
from zonal_bench.tables import Split

__all__ = [
    "BUDGETS",
    "OURS",
    "Answer",
    "Answers",
    "Method",
    "Settings",
    "UnaffordableError",
]


class UnaffordableError(Exception):
    """What a method would need is out of proportion; says what."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """How much is spent on a training.

    ``limit`` is the seconds after which a method that improves step by step is
    stopped; ``steps`` makes zonal's learning shorter, and ``features`` changes how many
    it has.
    """

    seed: int = 0
    limit: float = 600.0
    steps: int | None = None
    features: int | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Answer:
    """How to predict rows, and what else there is to tell (``depth``, ``features``).

    ``predict`` gives a `Prediction` of numbers, or probabilities of classes.
    """

    predict: Callable[[np.ndarray], Prediction | np.ndarray]
    told: dict[str, Any] = dataclasses.field(default_factory=dict)


Answers = Generator[Answer, None, None]


@dataclasses.dataclass(frozen=True)
class Method:
    """A name for files, a title for people, and how it is trained.

    ``package`` is whose version is recorded; ``numbers`` and ``classes`` say what
    targets it can have. A ``variant`` is a change of another method: it is shown beside
    that in tables of their own, and has no rank among the others.
    """

    name: str
    title: str
    package: str
    train: Callable[[Split, Settings], Answers]
    numbers: bool = True
    classes: bool = False
    variant: bool = False


def _zonal(split: Split, settings: Settings, **choices: Any) -> Answers:
    chosen = {"seed": settings.seed, **choices}
    if settings.steps is not None:
        chosen["most_steps"] = settings.steps
    if settings.features is not None:
        chosen["n_features"] = settings.features
    recipe = Recipe(**chosen)
    rows = ArraySource(split.x, split.y)
    likelihood = Labels.of(split.y).likelihood() if split.classes else None
    model = fit(rows, recipe, likelihood)

    def predict(x: np.ndarray) -> Prediction | np.ndarray:
        found = model.predict(x)
        return found.probabilities() if split.classes else found

    yield Answer(predict, _facts(model.process.basis))


def _facts(basis: Basis) -> dict[str, Any]:
    return {
        "depth": basis.depth,
        "levels": basis.kernel.last_level,
        "features": basis.n_features,
    }


def _ours(name: str, title: str, **choices: Any) -> Method:
    def train(split: Split, settings: Settings) -> Answers:
        return _zonal(split, settings, **choices)

    return Method(name, title, "zonal", train, classes=True, variant=name != "zonal")


def _projected(split: Split, settings: Settings) -> Answers:
    """Complete levels on a sphere that a learned linear map of the rows goes to."""
    centre, width = split.x.mean(axis=0), split.x.std(axis=0)

    def standardised(x: np.ndarray) -> np.ndarray:
        return (x - centre) / width

    size = min(_PROJECTED, split.x.shape[1])
    sphere = Projection.random(split.x.shape[1], size, seed=settings.seed)
    inner = dataclasses.replace(
        split, x=standardised(split.x), x_test=standardised(split.x_test)
    )
    # So many numbers would follow the noise of few rows; some kept aside say when.
    choices = {"sphere": sphere, "validation_fraction": _KEPT_ASIDE}
    (answer,) = _zonal(inner, settings, **_complete_levels(size), **choices)
    yield Answer(lambda x: answer.predict(standardised(x)), answer.told)


def _complete_levels(n_inputs: int, levels: int = 5) -> dict[str, Any]:
    """The lowest levels, all of their harmonics."""
    counts = [harmonic_count(level, n_inputs + 1) for level in range(levels)]
    return {
        "layout": "harmonics",
        "n_features": sum(counts),
        "kernel": ContinuousDepth(max_level=levels - 1),
    }


def _of_the_paper(frequencies: int, phases: int = 100) -> Method:
    """One band a level, at most so many phases in each, and the paper's bound."""

    def train(split: Split, settings: Settings) -> Answers:
        dimension = split.x.shape[1] + 1
        counts = [harmonic_count(level, dimension) for level in range(frequencies)]
        return _zonal(
            split,
            settings,
            layout="sparse",
            n_levels=frequencies,
            kernel=ContinuousDepth(max_level=frequencies - 1),
            n_features=sum(min(count, phases) for count in counts),
            tightened=False,
            calibrated=False,
        )

    title = f"the paper's: {frequencies} frequencies x {phases} phases at most"
    return Method(
        f"paper-{frequencies}", title, "zonal", train, classes=True, variant=True
    )


# Columns that a learned projection leaves, for complete levels.
_PROJECTED = 8
# Rows that tell when to stop learning it.
_KEPT_ASIDE = 0.2
# Seconds of learning in the curve of quality against time.
BUDGETS = (1, 2, 4, 5, 8, 10, 15, 20, 30, 40, 60, 80)

OURS = (
    _ours("zonal", "zonal"),
    _ours("zonal-plain", "zonal, not calibrated", calibrated=False),
    _ours("zonal-1024", "zonal, 1024 features", n_features=1024),
    _ours("zonal-4096", "zonal, solved with 4096 features", solve_features=4096),
    _ours("zonal-512", "zonal, 512 features throughout", solve_features=512),
    _ours("zonal-standard", "standard penalty", solve_features=512, tightened=False),
    _ours("zonal-radial", "radial order 1", solve_features=512, radial_order=1.0),
    _ours("zonal-sparse", "sparse", layout="sparse"),
    _ours(
        "zonal-sparse-standard",
        "sparse, standard penalty",
        layout="sparse",
        tightened=False,
    ),
    _ours(
        "zonal-sparse-radial",
        "sparse, radial order 1",
        layout="sparse",
        radial_order=1.0,
    ),
    _ours("zonal-harmonics", "complete levels", layout="harmonics"),
    _ours("levels-5", "five complete levels", **_complete_levels(8)),
    Method(
        "levels-projected",
        f"five complete levels, projected to {_PROJECTED} columns",
        "zonal",
        _projected,
        variant=True,
    ),
    _of_the_paper(7),
    _of_the_paper(15),
    *(
        _ours(f"zonal-{seconds}s", f"zonal, {seconds} s", max_seconds=float(seconds))
        for seconds in BUDGETS
    ),
)
