"""Conversion of files that version 0.1 wrote (format 1).

There, a model of normal noise and one of any other likelihood were two classes.
"""

from typing import Any

import numpy as np

from zonal.engine.bound import evaluate
from zonal.engine.statistics import Statistics
from zonal.inference.solution import Solution
from zonal.learning.state import Step
from zonal.likelihoods.noise import Calibration, Gaussian
from zonal.model import Model
from zonal.prior.process import Process
from zonal.saving import converts
from zonal.tables.scaling import Scaling

__all__ = []


@converts(1, "Model")
def _normal_model(
    scaling: Scaling,
    process: Process,
    statistics: Statistics,
    tightened: bool,
    history: tuple[Step, ...],
    dtype: Any,
    calibration: Calibration,
) -> Model:
    solution = Solution(
        (process,),
        np.zeros(1),
        Gaussian(process.noise, calibration),
        (statistics,),
        evaluate(statistics, process, tightened).value,
        tightened,
        dtype,
    )
    return Model(scaling, solution, history)


@converts(1, "GeneralisedModel")
def _model(scaling: Scaling, inferred: Solution, history: tuple[Step, ...]) -> Model:
    return Model(scaling, inferred, history)


@converts(1, "Inferred")
def _solution(factors: tuple[float, ...], **fields: Any) -> Solution:
    tightened = any(factor != 1.0 for factor in factors)
    return Solution(tightened=tightened, factors=factors, **fields)
