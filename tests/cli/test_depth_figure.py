"""The figure of depth: its values and its file."""

import numpy as np
import pytest

from zonal import NTK, ContinuousDepth
from zonal.cli.depth_figure import (
    compute_relative_eigenvalues,
    draw_depth_figure,
    format_depth_table,
)


@pytest.mark.parametrize(
    ("depth", "beta"), [(5, 2.0), (10, 1.0), (50, 0.1), (100, 0.01)]
)
@pytest.mark.parametrize("dimension", [4, 11])
def test_beta_reproduces_depth(depth, beta, dimension):
    network = compute_relative_eigenvalues(NTK(depth), dimension, 20)
    continuous = compute_relative_eigenvalues(ContinuousDepth(beta, 50), dimension, 20)
    # The spectra fall by two to eight decades; the pairs agree within a factor of 3.
    assert np.abs(np.log(network / continuous)).max() < np.log(3)


def test_the_figure_is_written(tmp_path):
    out = tmp_path / "made" / "depth.png"
    draw_depth_figure(out)
    assert out.read_bytes().startswith(b"\x89PNG")
    for name in ("depth 100", "β = 0.01", "10 inputs"):
        assert name in format_depth_table()
