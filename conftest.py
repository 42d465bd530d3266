"""Strictness: shapes and types checked, no silent promotion.

Checking every call takes three times as long as the calls themselves. So it is done in
the tests of the engine, which reach all of its code, and left out where whole fits are
made to test what surrounds them, and in examples.
"""

import os

import hypothesis
import jax
import jaxtyping
import pytest

jaxtyping.install_import_hook("zonal", "beartype.beartype")
_UNCHECKED = {
    "test_bad_tables",
    "test_bench",
    "test_noise",
    "test_checkpoints",
    "test_cli",
    "test_dask",
    "test_demo",
    "test_estimators",
    "test_examples",
    "test_dense",
    "test_interoperation",
    "test_neighbors",
    "test_report",
    "test_streams",
}

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

hypothesis.settings.register_profile("local", deadline=None, max_examples=25)
hypothesis.settings.register_profile(
    "ci", parent=hypothesis.settings.get_profile("local"), derandomize=True
)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "local")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    unchecked = isinstance(item, pytest.DoctestItem) or item.path.stem in _UNCHECKED
    jaxtyping.config.update("jaxtyping_disable", unchecked)


@pytest.fixture
def x64():
    """Float64 inside JAX, for the tests that compare with float64 truth."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module")
def few_rounds():
    """Brief learning, for modules of tests that do not depend on how much is learned.

    Use it for all tests of a module: it lasts until the last of them.
    """
    from limits import FEW_ROUNDS

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("zonal.learning.schedule.DEFAULT", FEW_ROUNDS)
        yield


@pytest.fixture(autouse=True)
def _brief_docstrings(request):
    """Examples of docstrings show calls; pages and README learn as long as users do."""
    item = request.node
    if isinstance(item, pytest.DoctestItem) and item.path.suffix == ".py":
        request.getfixturevalue("few_rounds")
