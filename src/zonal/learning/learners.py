"""The learner that suits a likelihood."""

import dataclasses
import os
from collections.abc import Callable, Sequence
from typing import Any

from zonal.inference.problem import Problem
from zonal.learning.by_bound import Learner
from zonal.learning.by_sites import SiteLearner
from zonal.learning.recipe import Recipe
from zonal.learning.state import Step
from zonal.prior.process import Process

__all__ = ["learner_for"]


def learner_for(
    problems: Sequence[Problem],
    recipe: Recipe,
    callback: Callable[[Step], Any] | None = None,
    checkpoint: str | os.PathLike | None = None,
    start: Process | None = None,
) -> Learner:
    """Return the learner for one or more problems with the same rows."""
    likelihood = problems[0].likelihood
    if likelihood.conjugate:
        sources = [problem.source for problem in problems]
        return Learner(sources, recipe, callback, checkpoint, start)
    if len(problems) > 1:
        raise ValueError(
            "several targets can only be learned together with normal noise; fit one "
            f"model with {type(likelihood).__name__} for each target"
        )
    if recipe.most_rows is None:
        # Alternating inference and learning costs more per row, so the sample is half
        # as large as for normal noise, divided by the number of functions.
        most_rows = recipe.sample_rows // (2 * likelihood.n_latents)
        most_rows = max(recipe.schedule.fewest_inferred_rows, most_rows)
        recipe = dataclasses.replace(recipe, most_rows=most_rows)
    return SiteLearner(problems[0], recipe, callback, checkpoint, start)
