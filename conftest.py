"""Strictness for every test: shapes and types checked, no silent promotion."""

import os

import hypothesis
import jax
import pytest
from jaxtyping import install_import_hook

install_import_hook("zonal", "beartype.beartype")

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

hypothesis.settings.register_profile("local", deadline=None, max_examples=25)
hypothesis.settings.register_profile(
    "ci", parent=hypothesis.settings.get_profile("local"), derandomize=True
)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "local")


@pytest.fixture
def x64():
    """Float64 inside JAX, for the tests that compare with float64 truth."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module")
def few_starts():
    """For tests that do not depend on where learning starts: one place to."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("zonal.learning._START_SCALES", (0.5,))
        patch.setattr("zonal.learning._START_LEVELS", (10,))
        yield
