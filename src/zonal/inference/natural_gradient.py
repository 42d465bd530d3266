"""Inference for any likelihood: a short sequence of weighted least squares.

Conjugate-computation variational inference (Khan & Lin 2017). The approximate posterior
of each function is that of Gaussian pseudo-data, one *site* per row: precision λ and
target ỹ. A pass predicts each row with the current posterior and computes its new site

    λ = -2 ∂E/∂v,    ỹ = m + (∂E/∂m)/λ,    E = E_q[log p(y|f)],

which is a natural-gradient step of length one. Shorter steps mix old and new sites, and
mixing sites is mixing their sums, so a stream is inferred without storing numbers per
row. The bound is Σ E minus the divergence from the prior, known after every pass; a
step that would lower it is shortened. Sites overshoot or fall short; two successive
passes show by how much. Sites of several classes are updated independently of each
other: their steps are shorter from the start, and differ for means and precisions.

The uncaptured variance of a row, u, adds to its variance v and so lowers E. The
*tightened* bound (Titsias 2025) lets the posterior shrink it by one factor s for all
rows, v = s u + ..., which costs ½ n (s - 1 - log s); the best s = 1/(1 + mean λu)
follows from the sums. Predictions include all of u.

Everything else is the regression engine: sites are rows with known precisions, so
their statistics, collapsed bound and gradients are those of `zonal.engine.bound` at
noise one. At the fixed point of the sites, that gradient is the gradient of the bound.
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
# Two functions that compete for a row are each moved the whole way by their sites, and
# so end twice as far apart as they should be; with many functions, a whole step is
# about right. The steps of means lie in between, those of precisions are slightly
# shorter. Once a pass gains less than the share _NEAR of the bound, means get momentum
# (Polyak 1964). Until then, inference without a start takes whole steps.
_MEANS = 2 / 3
_PRECISIONS = 0.8
_NEAR = 0.01
_NEAR_MEANS = 0.8
_MOMENTUM = 0.2
# Upper limit of estimated convergence rates.
_LARGEST_RATE = 0.9
# The most refits.
_MOST_REFITS = 5
# Relative fall of the bound that rounding of float32 features can cause.
_ROUNDING = 1e-7

Refit = Callable[[Solution], tuple[tuple[Process, ...], Likelihood]]


@savable
@dataclasses.dataclass(frozen=True, eq=False)
class Passes:
    """The state of inference between two passes, from which it can be resumed.

    ``processes`` and ``likelihood`` are those of the next pass, which starts from the
    ``best`` state so far; ``refitted`` says whether they have changed since. Near
    convergence, ``before`` holds the previous `duals` of several classes, for momentum.
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
        Largest number of passes.
    """

    dtype: Any = np.float32
    tolerance: float = 1e-6
    most_passes: int = 30


@dataclasses.dataclass(frozen=True)
class Watch:
    """Callbacks of inference, and a state to resume from.

    Parameters
    ----------
    callback
        Called with the number of each pass and the solution that it started from,
        with its bound; if it returns a true value, that pass is the last.
    keep
        Called after each pass with the state to resume from.
    resumed
        The state of the same inference when it was interrupted: the result is the same
        to the last bit.
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
    """Infer the posterior: pass over the rows until the bound hardly changes.

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
        Precision and stopping rule.
    refit
        Called after a pass that did not lower the bound; returns the priors and the
        likelihood of the next pass, in the same features. A refit that lowers the bound
        is undone. (Only the first few passes are refitted: energies soon settle.)
    watch
        Callbacks, and a state to resume from.

    Examples
    --------
    >>> from zonal import ARD, ArraySource, Basis, ContinuousDepth, Poisson
    >>> x = np.linspace(-1, 1, 200)[:, None]
    >>> counts = np.random.default_rng(0).poisson(np.exp(1 + np.sin(3 * x[:, 0])))
    >>> basis = Basis.build(ARD.isotropic(1), ContinuousDepth(), n_features=20)
    >>> problem = Problem(ArraySource(x, counts), Poisson(), np.ones(1))
    >>> solution = infer(problem, [Process(basis, 1.0)])
    >>> solution.converged, len(solution.bounds) <= 15
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
            return run.run(basis, watch.resumed or first, start)
        finer = dataclasses.replace(first, dtype=dtype, refits=run.at.refits)
        return run.run(basis, finer, None)

    with suited_blas(basis.n_features):
        return refine(attempt, effort.dtype)


@dataclasses.dataclass(eq=False)
class _Run:
    """One inference: its state, and the rules for the next pass."""

    problem: Problem
    effort: Effort
    refit: Refit | None
    watch: Watch

    def run(
        self, basis: Basis, at: Passes, start: Sequence[Statistics] | None
    ) -> Solution:
        """Run passes until the bound stops rising or their number is exhausted."""
        self.at = at
        frame = whiten(basis, at.dtype)
        callback, keep = self.watch.callback, self.watch.keep
        if start is None and at.best is None:
            start = add_given(first_sums(frame, self._problem), self.problem.given)
        while len(self.at.bounds) < self.effort.most_passes:
            solution = self._run_pass(frame, start)
            bounds = (*self.at.bounds, solution.bound)
            self._update(bounds=bounds)
            is_last = callback is not None and callback(len(bounds), solution)
            better = self._is_best(solution)
            continues = self._accept(solution) if better else self._reject(solution)
            if is_last or not continues:
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

    def _update(self, **changes: Any) -> None:
        self.at = dataclasses.replace(self.at, **changes)

    def _run_pass(self, frame: Frame, start: Sequence[Statistics] | None) -> Solution:
        """Run the next pass, from the best state so far or from the start."""
        at, best = self.at, self.at.best
        if best is not None:
            current, sums = self._next_sums(best), best.proposed
        else:
            assert start is not None, "there is a start or a state"
            current = sums = tuple(start)
        factors = self._factors(at.processes, sums)
        solution = full_pass(frame, self._problem, at.processes, current, factors)
        check_sums(solution.lift, at.dtype)
        return solution

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
        """Set priors and likelihood of the next pass, refitted after a better one."""
        at, best = self.at, self.at.best
        assert best is not None, "a pass was made"
        self._update(
            processes=best.processes, likelihood=best.likelihood, refitted=False
        )
        if better and self.refit is not None and at.refits < _MOST_REFITS:
            processes, likelihood = self.refit(best)
            self._update(
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

    def _is_best(self, solution: Solution) -> bool:
        best = self.at.best
        if best is None:
            if np.isfinite(solution.bound):
                return True
            raise ArithmeticError(
                f"the bound is {solution.bound} at the start of inference; targets or "
                "exposures are probably too large: check or rescale them"
            )
        slack = _ROUNDING * (1 + abs(solution.bound))
        return bool(solution.bound >= best.bound - slack)

    def _accept(self, solution: Solution) -> bool:
        """Make a solution the best one, and return whether to continue."""
        before, step = self.at.best, self.at.step
        self._update(best=solution)
        if before is None:
            return True
        # A short step gains little even far from the optimum.
        least = min(step, 1) * self.effort.tolerance * (1 + abs(solution.bound))
        if abs(solution.bound - before.bound) <= least:
            self._update(best=dataclasses.replace(solution, converged=True))
            return False
        if solution.likelihood.exchangeable:
            near = solution.bound - before.bound < _NEAR * abs(solution.bound)
            step = min(1.0, 2 * step) if near or step <= 1 else step
            self._update(step=step, before=duals(before.posteriors) if near else None)
            return True
        longest = 2.0 if len(solution.processes) == 1 else 1.0
        residuals = _residual(solution), _residual(before)
        self._update(step=_next_step(step, *residuals, longest))
        return True

    def _reject(self, solution: Solution) -> bool:
        """Discard a pass that lowered the bound, and return whether to continue.

        The next step is shorter. If the bound changes by less than the tolerance, this
        is the maximum, as exactly as quadrature and rounding allow.
        """
        best, step = self.at.best, self.at.step
        assert best is not None, "an earlier pass was better"
        if self.at.refitted:
            # The refit may be the cause.
            self._update(refits=_MOST_REFITS)
            return True
        fall = best.bound - solution.bound
        if step <= 1 and fall <= self.effort.tolerance * (1 + abs(best.bound)):
            self._update(best=dataclasses.replace(best, converged=True))
            return False
        self._update(step=1.0 if step > 1 else step / 2, before=None)
        return self.at.step >= _SHORTEST_STEP


def _residual(state: Solution) -> np.ndarray:
    """The distance of sites from their fixed point, in their moments."""
    pairs = zip(state.proposed, state.statistics, strict=True)
    return np.concatenate([new.moment - old.moment for new, old in pairs])


def _next_step(
    step: float, now: np.ndarray, before: np.ndarray, longest: float
) -> float:
    """The step after one that did not lower the bound.

    With a step of one, each pass multiplies the residual by some λ, estimated from two
    successive residuals. Where sites approach slowly, as with heavy tails of a single
    function (λ > 0), or overshoot (λ < 0), a step of 2/(2 - λ) is better.
    """
    if not before.any():
        return min(1.0, 2 * step)
    shrunk = float(now @ before / (before @ before))
    if shrunk >= 1:
        return min(step, 1.0)
    rate = 1 - (1 - shrunk) / step
    rate = float(np.clip(rate, -_LARGEST_RATE, _LARGEST_RATE))
    return min(2 / (2 - rate), 2 * step, longest)
