"""The progress of learning: its state between two rounds, and its reports."""

import dataclasses

import numpy as np

from zonal.inference.natural_gradient import Passes
from zonal.inference.solution import Solution
from zonal.prior.process import Process
from zonal.saving import savable

__all__ = ["NEIGHBOUR_STAGES", "LearningStoppedWarning", "Progress", "Step"]

# Stages of learning by neighbours: the race of starts, rounds, the choice of sizes.
NEIGHBOUR_STAGES = ("race", "round", "sizes")


class LearningStoppedWarning(UserWarning):
    """Learning was stopped before it was done."""


@savable
@dataclasses.dataclass(frozen=True)
class Step:
    """The report of one step of learning.

    ``bound`` is per row: of the log evidence, or, in the stages of learning by
    neighbours, the leave-one-out log density of validation rows.

    Examples
    --------
    >>> Step("learn 1", 1, 100, -0.5, 2.0).measure
    'bound'
    >>> Step("round", 1, 100, -0.5, 2.0).measure
    'log density'
    """

    stage: str
    number: int
    rows: int
    bound: float
    seconds: float

    @property
    def measure(self) -> str:
        """The name of what ``bound`` holds."""
        return "log density" if self.stage in NEIGHBOUR_STAGES else "bound"


@savable
@dataclasses.dataclass(frozen=True, eq=False)
class Progress:
    """The whole state between two rounds of learning.

    ``stage`` counts the samples, ``steps`` the steps on the current one; ``bound`` and
    ``score`` are the bound per row and the mean log density of the validation rows.
    Likelihoods other than normal noise also have ``sites``, inferred for the process,
    and ``passes`` over all rows, once these have begun.
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
