"""The figure of depth: its numbers and its file."""

import numpy as np
import pytest

from zonal import NTK, ContinuousDepth
from zonal.figures import depth_table, main, relative_eigenvalues


@pytest.mark.parametrize(
    ("depth", "beta"), [(5, 2.0), (10, 1.0), (50, 0.1), (100, 0.01)]
)
@pytest.mark.parametrize("dimension", [4, 11])
def test_beta_does_what_depth_does(depth, beta, dimension):
    network = relative_eigenvalues(NTK(depth), dimension, 20)
    continuous = relative_eigenvalues(ContinuousDepth(beta, 50), dimension, 20)
    # The spectra fall by two to eight decades; the pairs agree within a factor of 3.
    assert np.abs(np.log(network / continuous)).max() < np.log(3)


def test_the_figure_and_its_numbers_are_written(tmp_path, capsys):
    out = tmp_path / "made" / "depth.png"
    main(["depth", "--out", str(out)])
    assert out.read_bytes().startswith(b"\x89PNG")
    assert out.with_suffix(".txt").read_text(encoding="utf-8").strip() == depth_table()
    assert str(out) in capsys.readouterr().out
