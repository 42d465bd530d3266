"""Files that version 0.1 wrote are read, and predict what 0.1 predicted."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from zonal import load

FOLDER = Path(__file__).parent / "data" / "v01"
EXPECTED = json.loads((FOLDER / "expected.json").read_text(encoding="utf-8"))
# Products of float32 depend on the order in which a machine adds them: between two
# processors, the log score differs by 1e-3.
TOLERANCE = {"float32": 5e-3}
# And 0.1 took variances as small differences of large numbers, also in float32.
SCALE = {"float32": 0.2}
# For these 0.1 drew random numbers that it did not use.
OTHER_DRAWS = {"poisson", "student_t", "heteroscedastic"}


def test_every_file_has_its_predictions():
    assert {path.stem for path in FOLDER.glob("*.zonal")} == set(EXPECTED)


@pytest.fixture(params=sorted(EXPECTED))
def name(request):
    return request.param


@pytest.fixture
def model(name):
    return load(FOLDER / f"{name}.zonal")


def rows(name, part):
    """Arguments for ``fit`` and its like: X, y and perhaps an exposure."""
    stored = EXPECTED[name][part]
    found = {key: np.array(values) for key, values in stored.items() if key != "X"}
    X = stored["X"]
    if isinstance(X, list):
        return {"X": np.array(X), **found}
    frame = pl.DataFrame(X)
    if "time" in frame.columns:
        frame = frame.with_columns(pl.col("time").str.to_datetime())
    return {"X": frame, **found}


def predictions(model, X, y, **exposure):
    found = {name: getattr(model, name) for name in ("bound_", "n_samples_seen_")}
    found["log_score"] = model.log_score(X, y, **exposure)
    if hasattr(model, "classes_"):
        return {**found, "probabilities": model.predict_proba(X)}
    mean, std = model.predict(X, return_std=True, **exposure)
    quantiles = model.predict_quantiles(X, [0.05, 0.5, 0.95], **exposure)
    return {**found, "mean": mean, "std": std, "quantiles": quantiles}


def check(name, part, found):
    """Compare with what 0.1 predicted, relatively and on the scale of each array."""
    tolerance = TOLERANCE.get(name, 1e-6)
    for quantity, value in found.items():
        expected = np.array(EXPECTED[name][part][quantity])
        np.testing.assert_allclose(
            value,
            expected,
            rtol=tolerance,
            atol=tolerance * SCALE.get(name, 1e-3) * np.abs(expected).max(),
            err_msg=f"{name}: {quantity}, {part}",
        )


def test_predictions_are_those_of_01(name, model):
    check(name, "loaded", predictions(model, **rows(name, "new")))


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, found in EXPECTED.items()
        if "draws" in found["loaded"] and name not in OTHER_DRAWS
    ],
)
def test_draws_are_those_of_01_or_of_the_same_law(name, model):
    new = rows(name, "new")
    del new["y"]
    if not model.models_[0].likelihood.conjugate:
        draws = model.sample_y(n_samples=2, random_state=3, **new)
        check(name, "loaded", {"draws": draws})
        return
    # Draws under normal noise now have exactly the law of single predictions.
    draws = model.sample_y(n_samples=2000, random_state=3, **new)
    quantiles = model.predict_quantiles(new["X"], [0.1, 0.5, 0.9])
    shape = (len(quantiles), 3, -1)
    quantiles = quantiles.reshape(shape)
    draws = draws.reshape(len(quantiles), -1, 2000)
    below = draws[:, None] < quantiles[..., None]
    expected = np.array([0.1, 0.5, 0.9])[:, None]
    np.testing.assert_allclose(
        below.mean(axis=-1),
        np.broadcast_to(expected, (len(quantiles), 3, draws.shape[1])),
        atol=0.05,
    )


def test_a_row_is_added_as_by_01(name, model):
    new = rows(name, "new")
    first = {key: values[:1] for key, values in new.items()}
    check(name, "partial_fit", predictions(model.partial_fit(**first), **new))


def test_a_row_is_forgotten_as_by_01(name, model):
    model.forget(**rows(name, "old"))
    check(name, "forget", predictions(model, **rows(name, "new")))


def test_an_old_model_saved_again_is_the_same(name, model, tmp_path):
    model.save(tmp_path / "again.zonal")
    again = load(tmp_path / "again.zonal")
    new = rows(name, "new")
    before, after = predictions(model, **new), predictions(again, **new)
    for quantity, value in before.items():
        np.testing.assert_array_equal(after[quantity], value)


def test_an_old_model_is_described(name, model):
    """What people read of a model: columns, history and summary."""
    lines = str(model.summary()).splitlines()
    assert lines[0] == type(model).__name__
    assert len(model.history_) > 0
    assert np.all(np.isfinite(model.history_["bound"]))
    assert model.get_params()["random_state"] == 0
    X = rows(name, "new")["X"]
    assert model.n_features_in_ == X.shape[1]
    if isinstance(X, pl.DataFrame):
        assert list(model.feature_names_in_) == X.columns


@pytest.mark.parametrize(
    ("name", "classes"),
    [
        ("binary", ["no", "yes"]),
        ("probit", [False, True]),
        ("three_classes", ["low", "middle", "top"]),
    ],
)
def test_classes_keep_their_names_and_types(name, classes, model):
    assert model.classes_.tolist() == classes
    found = model.predict(rows(name, "new")["X"])
    largest = np.argmax(EXPECTED[name]["loaded"]["probabilities"], axis=1)
    assert found.tolist() == [classes[number] for number in largest]
