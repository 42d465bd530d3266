"""The progress of learning: its state between two rounds, and what it reports."""

import dataclasses

import numpy as np

from zonal.inference.natural_gradient import Passes
from zonal.inference.solution import Solution
from zonal.prior.process import Process
from zonal.saving import savable

__all__ = ["LearningStoppedWarning", "Progress", "Step"]


class LearningStoppedWarning(UserWarning):
    """Learning was stopped before it was done."""


@savable
@dataclasses.dataclass(frozen=True)
class Step:
    """What is reported while learning: where it is, and the bound per row there."""

    stage: str
    number: int
    rows: int
    bound: float
    seconds: float


@savable
@dataclasses.dataclass(frozen=True, eq=False)
class Progress:
    """Everything there is to know between two rounds of learning.

    ``stage`` counts the samples, ``steps`` the steps on the present one; ``bound`` and
    ``score`` are the bound per row and the held-out log density reached. Likelihoods
    other than normal noise have ``sites`` too, inferred for the process, and ``passes``
    over all rows, once these have begun.
    """

    process: Process
    stage: int = 0
    steps: int = 0
    rounds: int = 0
    bound: float = -np.inf
    score: float = -np.inf
    done: bool = False
    history: tuple[Step, ...] = ()
    sites: Solution | None = None
    passes: Passes | None = None
