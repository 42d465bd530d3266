"""Experiments: their tables, methods and protocols."""

import dataclasses
import functools
import inspect
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from zonal.estimators.regressor import SphericalGPRegressor
from zonal.prior.kernels import NTK
from zonal_bench import tables
from zonal_bench.methods import BUDGETS, Settings
from zonal_bench.runs import METHODS, Case, Measure, evaluate_method
from zonal_bench.tables import Split

__all__ = ["EXPERIMENTS", "Experiment"]

Loader = Callable[[Path, str, int], Split]


@dataclasses.dataclass(frozen=True)
class Experiment:
    """A protocol: tables, methods, splits and a function that measures a case.

    Tables in ``once`` are large and have a single split. ``settings`` limit each
    training run, and ``limits`` are the time limits of single methods, in seconds.
    """

    name: str
    protocol: str
    tables: tuple[str, ...]
    methods: tuple[str, ...]
    splits: int
    measure: Measure
    once: tuple[str, ...] = ()
    settings: Settings = Settings()
    limits: Mapping[str, float] = dataclasses.field(default_factory=dict)

    def cases(
        self,
        tables: tuple[str, ...] = (),
        methods: tuple[str, ...] = (),
        splits: int | None = None,
    ) -> Iterator[Case]:
        """All cases, or those of some tables and methods."""
        for table in tables or self.tables:
            if table not in self.tables:
                known = ", ".join(self.tables)
                raise ValueError(f"{self.name} has the tables {known}, not {table!r}")
            default = 1 if table in self.once else self.splits
            for split in range(default if splits is None else splits):
                for method in methods or self.methods:
                    if method not in METHODS:
                        known = ", ".join(METHODS)
                        raise ValueError(f"methods are {known}, not {method!r}")
                    yield Case(self.name, table, method, split)


def _measure_case(
    loaders: dict[str, Loader], case: Case, data: Path | None, settings: Settings
) -> dict[str, Any]:
    folder = tables.find_data_folder(data)
    split = loaders[case.table](folder, case.table, case.split)
    return evaluate_method(METHODS[case.method], split, settings)


def _define(
    protocol: Callable[[], Any],
    loaders: dict[str, Loader],
    methods: tuple[str, ...],
    splits: int = 1,
    once: tuple[str, ...] = (),
    settings: Settings = Settings(),  # noqa: B008 (immutable)
    limits: Mapping[str, float] | None = None,
) -> Experiment:
    """An experiment that trains and scores methods on splits of tables."""
    return Experiment(
        protocol.__name__,
        inspect.getdoc(protocol) or "",
        tuple(loaders),
        methods,
        splits,
        functools.partial(_measure_case, loaders),
        once,
        settings,
        limits or {},
    )


def susy():
    """Supersymmetry: a signal or background, from eight kinematic columns.

    The public SUSY.csv(.gz) has 5,000,000 rows, the last tenth for testing; without it,
    10,000 training rows and 10,000 test rows. Five seeds. The configuration of the
    paper has 7 frequencies of at most 100 phases each, 454 features. Published AUC on
    the whole file: the paper 0.870; Dutordoir et al. (2020) 0.859 to 0.864; Baldi et
    al. (2014), shallow 0.867, deep 0.872 to 0.876.
    """


def song():
    """The year of a song from 90 numbers of its timbre.

    The public YearPredictionMSD.txt has 515,345 rows; without it, 1,176 of them. A
    random fifth is for testing, three splits. The configuration of the paper has 15
    frequencies of at most 100 phases. Complete levels are too large in 91 dimensions,
    and the paper does not describe its own; here a linear projection to eight columns
    is learned first, until the score on a validation fifth stops improving. Published,
    standardised, for sparse processes of this kind: RMSE 0.80, NLL 1.20.
    """


def buzz():
    """Discussions of a topic on Twitter, from 77 counts of the days before.

    The public Twitter.data has 583,250 rows; there is no smaller part of it. Otherwise
    like song. Published, standardised: RMSE 0.27, NLL 0.
    """


def houseelectric():
    """Power consumption of a household, from time, voltage, current and meters.

    The public household_power_consumption.txt has 2,075,259 minutes, 2,049,280 without
    missing values; without the file, the first 47,960. Time is a number and cycles of
    day and year. Otherwise like song. Published, standardised, on the whole file: RMSE
    0.06, NLL -1.35, and 0.048, -1.60 for 1000 collapsed features.
    """


def uci():
    """Thirteen regression tables of the UCI repository, with all peers.

    Published splits (a tenth of the rows for testing), ten for small tables and the
    first for large ones; targets standardised. Time limits are five minutes for
    GPyTorch, and two and a half for gpfy and GPJax.
    """


def sizes():
    """Features alone, solved with fewer and with more of them, on three tables.

    The chosen number of features comes from ``uci``.
    """


def layouts():
    """Layouts, penalties and radial orders: one change each, 512 features throughout.

    Features alone, without neighbours. Banded features can be solved with more of them
    than were learned with, which other layouts do not support; here no method does.
    Twenty steps of learning.
    """


def airline():
    """Flights of 2001: minutes of delay, and whether a flight is late.

    Three million flights, a tenth by row hash for testing. ``flights``: delays of at
    most six hours. ``late``: whether the delay exceeds 15 minutes.
    """


def covtype():
    """Seven kinds of forest, from 54 columns of cartography; all 581,012 rows.

    A fifth by row hash is for testing.
    """


def speed():
    """Scores against training time, on two tables.

    zonal is trained with several time limits, each in a separate fit that includes
    compilation. Peers are scored during training, with the clock stopped: GPyTorch with
    1024 points for at most fifteen minutes, gpfy for eight. The other methods on the
    same split are those of ``uci``.
    """


def depth():
    """Depth recovery: learned depth for rows from networks of known depth.

    For each depth L a function is drawn from the Gaussian process of an infinitely wide
    ReLU network of L hidden layers (its neural tangent kernel, variance 1), at 400
    points drawn uniformly from the sphere in R^4, and noise of standard deviation 0.05
    is added. A default `SphericalGPRegressor` on that sphere is fitted; ten seeds. The
    lowest levels have few harmonics, so a single function determines its depth only
    roughly.
    """


_TRUE_DEPTHS = {"1-layer": 1, "3-layers": 3, "10-layers": 10}
_ROWS, _DIMENSION, _NOISE = 400, 4, 0.05


def draw_table(
    depth: int, seed: int, rows: int = _ROWS
) -> tuple[np.ndarray, np.ndarray]:
    """Points on a sphere, and noisy values of a function of a network.

    Examples
    --------
    >>> s, y = draw_table(depth=3, seed=0, rows=5)
    >>> s.shape, y.shape
    ((5, 4), (5,))
    """
    generator = np.random.default_rng([seed, depth])
    s = generator.normal(size=(rows, _DIMENSION))
    s /= np.linalg.norm(s, axis=1, keepdims=True)
    correlation = NTK(depth).shape_function(np.clip(s @ s.T, -1, 1), _DIMENSION)
    covariance = np.asarray(correlation, np.float64) + 1e-6 * np.eye(rows)
    function = np.linalg.cholesky(covariance) @ generator.normal(size=rows)
    return s, function + _NOISE * generator.normal(size=rows)


def _measure_depth(case: Case, data: Path | None, settings: Settings) -> dict[str, Any]:
    s, y = draw_table(_TRUE_DEPTHS[case.table], case.split)
    begin = time.perf_counter()
    model = SphericalGPRegressor(geometry="sphere").fit(s, y)
    seconds = time.perf_counter() - begin
    return {"depth": model.depth_.layers, "seconds": seconds}


_LARGE_METHODS = ("paper-15", "levels-projected", "zonal", "lightgbm", "linear")
_LAYOUT_METHODS = (
    "zonal-512",
    "zonal-standard",
    "zonal-radial",
    "zonal-sparse",
    "zonal-sparse-standard",
    "zonal-sparse-radial",
    "zonal-harmonics",
)
_UCI_METHODS = (
    "zonal",
    "zonal-features",
    "zonal-neighbors",
    "lightgbm",
    "lightgbm-wide",
    "ngboost",
    "catboost",
    "network",
    "fourier",
    "linear",
    "sklearn-gp",
    "gpfy",
    "gpytorch-512",
    "gpjax",
    "lightgbm-shaped",
    "network-shaped",
)

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        _define(
            uci,
            dict.fromkeys(tables.UCI, tables.load_uci_split),
            _UCI_METHODS,
            splits=10,
            once=tables.LARGE,
            limits={"gpytorch-512": 300.0, "gpfy": 150.0, "gpjax": 150.0},
        ),
        _define(
            susy,
            {"susy": tables.load_susy_split},
            ("paper-7", "levels-5", "zonal", "lightgbm", "network", "linear", "gpfy"),
            splits=5,
            limits={"gpfy": 150.0},
        ),
        _define(song, {"song": tables.load_song_split}, _LARGE_METHODS, splits=3),
        _define(buzz, {"buzz": tables.load_buzz_split}, _LARGE_METHODS, splits=3),
        _define(
            houseelectric,
            {"houseelectric": tables.load_household_split},
            _LARGE_METHODS,
            splits=3,
        ),
        _define(
            airline,
            {"flights": tables.load_flights_split, "late": tables.load_late_split},
            ("zonal", "zonal-1024", "lightgbm", "linear"),
        ),
        _define(
            covtype,
            {"covtype": tables.load_covtype_split},
            ("zonal", "lightgbm", "linear"),
        ),
        _define(
            speed,
            dict.fromkeys(("kin40k", "protein"), tables.load_uci_split),
            (
                *(f"zonal-{seconds}s" for seconds in BUDGETS),
                "gpytorch-1024",
                "gpfy",
            ),
            limits={"gpytorch-1024": 900.0, "gpfy": 480.0},
        ),
        _define(
            sizes,
            dict.fromkeys(("kin40k", "protein", "pol"), tables.load_uci_split),
            ("zonal-512", "zonal-4096"),
        ),
        _define(
            layouts,
            dict.fromkeys(("kin40k", "protein", "pol"), tables.load_uci_split),
            _LAYOUT_METHODS,
            settings=Settings(steps=20),
        ),
        Experiment(
            "depth",
            inspect.getdoc(depth) or "",
            tuple(_TRUE_DEPTHS),
            ("zonal",),
            10,
            _measure_depth,
        ),
    )
}
