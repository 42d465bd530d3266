"""The measurements behind the documentation: experiments, peers, results, tables.

A row of data passes through `zonal.bench.tables` (files to splits), a method of
`zonal.bench.methods` or `zonal.bench.peers` (a split to predictions), and
`zonal.bench.scores` (predictions to numbers). `zonal.bench.experiments` says which
methods meet which tables; `zonal.bench.runs` gives each meeting a process of its own
and keeps what was found; `zonal.bench.pages` turns that into tables and figures.
"""

from zonal.bench.experiments import EXPERIMENTS, Experiment
from zonal.bench.methods import Settings
from zonal.bench.pages import write_pages
from zonal.bench.runs import Case, perform, stored

__all__ = [
    "EXPERIMENTS",
    "Case",
    "Experiment",
    "Settings",
    "perform",
    "stored",
    "write_pages",
]
