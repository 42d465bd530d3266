"""What the package offers, and that offering it costs nothing."""

import subprocess
import sys

import pytest

import zonal


def test_every_name_is_there():
    assert set(zonal.__all__) == set(zonal._MODULES)
    for name in zonal.__all__:
        assert getattr(zonal, name).__name__ == name
        assert name in dir(zonal)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        zonal.Nothing  # noqa: B018


def test_the_command_line_starts_without_what_computes():
    heavy = {"jax", "numpy", "scipy", "sklearn", "pyarrow"}
    code = f"import sys, zonal.cli.app; sys.exit(str({heavy} & {{*sys.modules}}))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert done.stderr.strip() == "set()"
