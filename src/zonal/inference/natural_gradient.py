"""Inference for any likelihood: a short sequence of weighted least squares.

Conjugate-computation variational inference (Khan & Lin 2017). The approximate posterior
of each function is that of Gaussian pseudo-data, a *site* a row: precision λ and target
ỹ. A pass over the rows predicts each with the present posterior and makes its new site

    λ = -2 ∂E/∂v,    ỹ = m + (∂E/∂m)/λ,    E = E_q[log p(y|f)],

which is a natural-gradient step of length one. Shorter steps mix old and new sites, and
mixing sites is mixing their sums, so a stream is inferred without keeping a number a
row. The bound is Σ E minus the divergence from the prior, known after every pass; a
step that would lower it is shortened. Sites overshoot or fall short; two passes in a
row tell by how much. Those of several classes do not know of each other: their steps
are shorter from the start, and other ones for means than for precisions.

What the features do not capture of a row, u, adds to its variance v and so costs E. The
*tightened* bound (Titsias 2025) lets the posterior shrink it by one factor s for all
rows, v = s u + ..., which costs ½ n (s - 1 - log s); the best s = 1/(1 + mean λu) is
known from the sums. Predictions have the whole of u.

Everything else is the regression engine: sites are rows with known precisions, so
their statistics, collapsed bound and gradients are those of `zonal.engine.bound` at
noise one. Where sites are at their fixed point, that gradient is the bound's own.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from zonal.engine.blas import suited_blas
from zonal.engine.features import Frame, whiten
from zonal.engine.precision import check_sums, refine
from zonal.engine.statistics import Statistics
from zonal.inference.problem import Problem
from zonal.inference.sites import (
    add_given,
    best_factor,
    duals,
    first_sums,
    full_pass,
    mix,
    mix_apart,
)
from zonal.inference.solution import Solution
from zonal.likelihoods.base import Likelihood
from zonal.prior.basis import Basis
from zonal.prior.process import Process
from zonal.saving import savable

__all__ = ["Effort", "Passes", "Refit", "Watch", "infer"]

_SHORTEST_STEP = 1e-3
# Two functions that compete for a row are both moved all the way by their sites, and so
# twice as far apart as they should be; one of many is moved about right. Steps of their
# means are in between, and of precisions a little shorter. Where a pass gains less than
# this much of the bound, means go on by some of what they moved before (Polyak 1964).
# From nothing, whole steps are taken until then.
_MEANS = 2 / 3
_PRECISIONS = 0.8
_NEAR = 0.01
_NEAR_MEANS = 0.8
_MOMENTUM = 0.2
# Rates of convergence are taken for no worse than this.
_LARGEST_RATE = 0.9
# Passes that a refit may follow.
_MOST_REFITS = 5
# A bound may fall by this much of itself through rounding of float32 features.
_ROUNDING = 1e-7

Refit = Callable[[Solution], tuple[tuple[Process, ...], Likelihood]]


@savable
@dataclasses.dataclass(frozen=True, eq=False)
class Passes:
    """Where inference is between two passes: all that it needs to go on from there.

    ``processes`` and ``likelihood`` are those of the next pass, which starts from the
    ``best`` state of those before; ``refitted`` says whether they were changed since.
    Means of several classes that are near their end have `duals` ``before`` those.
    """

    processes: tuple[Process, ...]
    likelihood: Likelihood
    dtype: Any
    best: Solution | None = None
    bounds: tuple[float, ...] = ()
    step: float = 1.0
    refits: int = 0
    refitted: bool = False
    before: Float[np.ndarray, "latents features"] | None = None


@dataclasses.dataclass(frozen=True)
class Effort:
    """How precisely to infer, and when to stop.

    Parameters
    ----------
    dtype
        Precision of features; float64 follows where float32 sums are too coarse.
    tolerance
        Relative change of the bound that ends inference.
    most_passes
        Passes at most.
    """

    dtype: Any = np.float32
    tolerance: float = 1e-6
    most_passes: int = 30


@dataclasses.dataclass(frozen=True)
class Watch:
    """What follows inference from outside, and what it can go on from.

    Parameters
    ----------
    callback
        Called with the number of each pass and the solution that it started from,
        with its bound; where it returns true, that pass is the last.
    keep
        Called after each pass with what it takes to go on.
    resumed
        Where the same inference was when it was cut off: the end is the same to the
        last bit.
    """

    callback: Callable[[int, Solution], Any] | None = None
    keep: Callable[[Passes], Any] | None = None
    resumed: Passes | None = None


def infer(
    problem: Problem,
    processes: Sequence[Process],
    start: Sequence[Statistics] | None = None,
    effort: Effort | None = None,
    refit: Refit | None = None,
    watch: Watch | None = None,
) -> Solution:
    """Pass over the rows until the bound hardly changes any more.

    Parameters
    ----------
    problem
        The rows and their likelihood.
    processes
        The prior of each function, all in the same features and with noise one.
    start
        Sums of sites to start from; without them, what the likelihood suggests, or
        the prior.
    effort
        How precisely, and when to stop.
    refit
        Called after a pass that did not lower the bound, for the priors and the
        likelihood to go on with, in the same features. A refit that lowers the bound
        is undone. (The first few passes only: energies soon stay where they are.)
    watch
        What follows the passes, and what to resume from.

    Examples
    --------
    >>> from zonal import ARD, ArraySource, Basis, ContinuousDepth, Poisson
    >>> x = np.linspace(-1, 1, 200)[:, None]
    >>> counts = np.random.default_rng(0).poisson(np.exp(1 + np.sin(3 * x[:, 0])))
    >>> basis = Basis.build(ARD.isotropic(1), ContinuousDepth(), n_features=20)
    >>> problem = Problem(ArraySource(x, counts), Poisson(), np.ones(1))
    >>> found = infer(problem, [Process(basis, 1.0)])
    >>> found.converged, len(found.bounds) <= 15
    (True, True)
    """
    effort, watch = effort or Effort(), watch or Watch()
    run = _Run(problem, effort, refit, watch)
    basis, likelihood = processes[0].basis, problem.likelihood
    grows = start is None and likelihood.exchangeable
    step = 1 / _MEANS if grows else 1.0
    first = Passes(tuple(processes), likelihood, effort.dtype, step=step)

    def attempt(dtype: Any) -> Solution:
        if dtype == effort.dtype:
            return run.ended(basis, watch.resumed or first, start)
        finer = dataclasses.replace(first, dtype=dtype, refits=run.at.refits)
        return run.ended(basis, finer, None)

    with suited_blas(basis.n_features):
        return refine(attempt, effort.dtype)


@dataclasses.dataclass(eq=False)
class _Run:
    """One inference: where it is, and how it goes on from there."""

    problem: Problem
    effort: Effort
    refit: Refit | None
    watch: Watch

    def ended(
        self, basis: Basis, at: Passes, start: Sequence[Statistics] | None
    ) -> Solution:
        """The state where the bound has stopped rising, or passes have run out."""
        self.at = at
        frame = whiten(basis, at.dtype)
        callback, keep = self.watch.callback, self.watch.keep
        if start is None and at.best is None:
            start = add_given(first_sums(frame, self._problem), self.problem.given)
        while len(self.at.bounds) < self.effort.most_passes:
            found = self._passed(frame, start)
            bounds = (*self.at.bounds, found.bound)
            self._move(bounds=bounds)
            last = callback is not None and callback(len(bounds), found)
            better = self._is_best(found)
            goes_on = self._went_on(found) if better else self._went_back(found)
            if last or not goes_on:
                break
            self._prepare(better)
            if keep is not None:
                keep(self.at)
        assert self.at.best is not None, "there is at least one pass"
        return dataclasses.replace(self.at.best, bounds=self.at.bounds)

    @property
    def _problem(self) -> Problem:
        """The problem with the likelihood of the next pass."""
        return dataclasses.replace(self.problem, likelihood=self.at.likelihood)

    def _move(self, **changes: Any) -> None:
        self.at = dataclasses.replace(self.at, **changes)

    def _passed(self, frame: Frame, start: Sequence[Statistics] | None) -> Solution:
        """The next pass, from the best state so far or from the start."""
        at, best = self.at, self.at.best
        if best is not None:
            now, sums = self._next_sums(best), best.proposed
        else:
            assert start is not None, "there is a start or a state"
            now = sums = tuple(start)
        factors = self._factors(at.processes, sums)
        found = full_pass(frame, self._problem, at.processes, now, factors)
        check_sums(found.lift, at.dtype)
        return found

    def _next_sums(self, best: Solution) -> tuple[Statistics, ...]:
        processes, step, before = self.at.processes, self.at.step, self.at.before
        if not best.likelihood.exchangeable:
            return mix(best.statistics, best.proposed, step)
        if before is None or step < 1:
            precisions = min(_PRECISIONS * step, 1.0)
            return mix_apart(best, processes, _MEANS * step, precisions)
        further = _MOMENTUM * (duals(best.posteriors) - before)
        return mix_apart(best, processes, _NEAR_MEANS, _PRECISIONS, further)

    def _prepare(self, better: bool) -> None:
        """Set what the next pass is made with, refitted if the last one was better."""
        at, best = self.at, self.at.best
        assert best is not None, "a pass was made"
        self._move(processes=best.processes, likelihood=best.likelihood, refitted=False)
        if better and self.refit is not None and at.refits < _MOST_REFITS:
            processes, likelihood = self.refit(best)
            self._move(
                processes=processes,
                likelihood=likelihood,
                refits=at.refits + 1,
                refitted=True,
            )

    def _factors(
        self, processes: Sequence[Process], sums: Sequence[Statistics]
    ) -> tuple[float, ...]:
        if not self.problem.tightened:
            return (1.0,) * len(processes)
        return tuple(map(best_factor, processes, sums))

    def _is_best(self, found: Solution) -> bool:
        best = self.at.best
        if best is None:
            if np.isfinite(found.bound):
                return True
            raise ArithmeticError(
                f"the bound is {found.bound} where inference starts; are targets or "
                "exposures beyond all measure?"
            )
        slack = _ROUNDING * (1 + abs(found.bound))
        return bool(found.bound >= best.bound - slack)

    def _went_on(self, found: Solution) -> bool:
        """Take a state for the best, and say whether there is further to go."""
        before, step = self.at.best, self.at.step
        self._move(best=found)
        if before is None:
            return True
        # A short step gains little, however far there is to go.
        least = min(step, 1) * self.effort.tolerance * (1 + abs(found.bound))
        if abs(found.bound - before.bound) <= least:
            self._move(best=dataclasses.replace(found, converged=True))
            return False
        if found.likelihood.exchangeable:
            near = found.bound - before.bound < _NEAR * abs(found.bound)
            step = min(1.0, 2 * step) if near or step <= 1 else step
            self._move(step=step, before=duals(before.posteriors) if near else None)
            return True
        longest = 2.0 if len(found.processes) == 1 else 1.0
        residuals = _residual(found), _residual(before)
        self._move(step=_next_step(step, *residuals, longest))
        return True

    def _went_back(self, found: Solution) -> bool:
        """Take a pass back that lowered the bound; a shorter step, if there is one.

        Where the bound changes by less than the tolerance whatever the step, this is
        the top, as exactly as quadrature and rounding tell.
        """
        best, step = self.at.best, self.at.step
        assert best is not None, "something was better"
        if self.at.refitted:
            # It was the refit, or may have been.
            self._move(refits=_MOST_REFITS)
            return True
        fall = best.bound - found.bound
        if step <= 1 and fall <= self.effort.tolerance * (1 + abs(best.bound)):
            self._move(best=dataclasses.replace(best, converged=True))
            return False
        self._move(step=1.0 if step > 1 else step / 2, before=None)
        return self.at.step >= _SHORTEST_STEP


def _residual(state: Solution) -> np.ndarray:
    """How far sites are from their fixed point, by their moments."""
    pairs = zip(state.proposed, state.statistics, strict=True)
    return np.concatenate([new.moment - old.moment for new, old in pairs])


def _next_step(
    step: float, now: np.ndarray, before: np.ndarray, longest: float
) -> float:
    """The step after one that did not lower the bound.

    With a step of one the residual is multiplied by some λ a pass, as two of them in a
    row tell. Where a single function's heavy tails come in slowly (λ > 0) or sites
    overshoot (λ < 0), a step of 2/(2 - λ) is better.
    """
    if not before.any():
        return min(1.0, 2 * step)
    shrunk = float(now @ before / (before @ before))
    if shrunk >= 1:
        return min(step, 1.0)
    rate = 1 - (1 - shrunk) / step
    rate = float(np.clip(rate, -_LARGEST_RATE, _LARGEST_RATE))
    return min(2 / (2 - rate), 2 * step, longest)
