"""Likelihoods: how a target follows from the functions at its row.

Inference asks a likelihood for one thing: E = E_q[log p(y|f)] under independent normal
marginals q(f) = N(m, v) of a row's functions, and the derivatives of E in m and v. They
are closed form for `Gaussian`, `Poisson`, `StudentT` and `Heteroscedastic`,
Gauss-Hermite quadrature for `Bernoulli` and `NegativeBinomial`, and an average over
fixed, evenly spread nodes for `Softmax`; the same nodes for every row, so that nothing
depends on the batch.

Predictions integrate over the same marginals. Rows and functions are the axes of
``mean`` and ``variance``; targets are numbers, for classes their codes (see `Labels`).
"""

from zonal.likelihoods.base import Expected, Likelihood
from zonal.likelihoods.classes import Bernoulli, ClassLikelihood, Labels, Softmax
from zonal.likelihoods.counts import CountLikelihood, NegativeBinomial, Poisson
from zonal.likelihoods.reals import (
    Gaussian,
    Heteroscedastic,
    RealLikelihood,
    StudentT,
)

__all__ = [
    "Bernoulli",
    "ClassLikelihood",
    "CountLikelihood",
    "Expected",
    "Gaussian",
    "Heteroscedastic",
    "Labels",
    "Likelihood",
    "NegativeBinomial",
    "Poisson",
    "RealLikelihood",
    "Softmax",
    "StudentT",
]
