"""The regressor's scale of the target."""

import inspect
import json

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner
from safetensors import safe_open
from safetensors.numpy import save
from sklearn.base import clone

from zonal import SphericalGPClassifier, SphericalGPRegressor, load, saving
from zonal.cli.app import zonal
from zonal.estimators.base import SphericalGP
from zonal.tables.target_maps import Identity, Log, Logit, YeoJohnson

pytestmark = pytest.mark.usefixtures("few_rounds")


def table(rows=500, seed=0):
    """Prices, whose noise grows with them."""
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(rows, 2))
    return x, 1000 * np.exp(np.sin(2 * x[:, 0]) + 0.4 * generator.normal(size=rows))


@pytest.fixture(scope="module")
def fitted(few_rounds):
    return SphericalGPRegressor().fit(*table())


def test_prices_have_positive_intervals(fitted):
    x, y = table(1000, seed=1)
    assert fitted.target_transform_ == Log()
    low, high = fitted.predict_interval(x, 0.9).T
    assert np.all(low > 0)
    assert np.mean((low < y) & (y < high)) == pytest.approx(0.9, abs=0.05)
    assert np.all(fitted.sample_y(x[:20], 50) > 0)


def test_scores_gain_from_the_scale(fitted):
    x, y = table(1000, seed=1)
    plain = SphericalGPRegressor(target_transform=None).fit(*table())
    assert plain.target_transform_ == Identity()
    assert np.any(plain.predict_interval(x)[:, 0] < 0)
    assert fitted.log_score(x, y) > plain.log_score(x, y) + 0.05
    scores = [
        np.mean(model.predict_dist(x).prediction.crps(y)) for model in (fitted, plain)
    ]
    assert scores[0] < scores[1]


def test_symmetric_targets_are_predicted_as_without_the_option():
    x, y = table()
    y = np.log(y)
    auto, plain = (
        SphericalGPRegressor(target_transform=transform).fit(x, y)
        for transform in ("auto", None)
    )
    assert auto.target_transform_.is_identity
    assert np.array_equal(auto.predict(x), plain.predict(x))
    assert np.array_equal(auto.predict_interval(x), plain.predict_interval(x))


def test_the_summary_shows_the_scale(fitted):
    assert "log scale" in str(fitted.summary())
    plain = SphericalGPRegressor(target_transform=None).fit(*table(100))
    assert "scale" not in str(plain.summary())


def test_it_is_saved(fitted, tmp_path):
    fitted.save(tmp_path / "model.zonal")
    again = load(tmp_path / "model.zonal")
    x, y = table(50, seed=1)
    assert again.target_transform_ == Log()
    assert np.array_equal(again.predict_interval(x), fitted.predict_interval(x))
    assert again.log_score(x, y) == fitted.log_score(x, y)
    assert again.bound_ == fitted.bound_


def without(value, names):
    """A description of a file without some fields."""
    if isinstance(value, list):
        return [without(part, names) for part in value]
    if not isinstance(value, dict):
        return value
    kept = {key: part for key, part in value.items() if key not in names}
    return {key: without(part, names) for key, part in kept.items()}


def test_files_from_before_there_were_scales_are_read(tmp_path):
    x, y = table(100)
    model = SphericalGPRegressor(target_transform=None).fit(x, y)
    model.save(tmp_path / "new.zonal")
    with safe_open(tmp_path / "new.zonal", framework="numpy") as file:
        header = file.metadata()
        arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    described = json.loads(header["description"])
    for pair in described["$dict"]:
        if pair[0] == "parameters":
            pair[1]["$dict"] = [
                each for each in pair[1]["$dict"] if each[0] != "target_transform"
            ]
    header["description"] = json.dumps(without(described, ("target_map", "log_slope")))
    assert "target_map" not in header["description"]
    header["digest"] = saving._compute_digest(header["description"], arrays)
    (tmp_path / "old.zonal").write_bytes(save(arrays, header))
    old = load(tmp_path / "old.zonal")
    assert old.get_params()["target_transform"] is None
    assert old.target_transform_ == Identity()
    assert np.array_equal(old.predict_interval(x), model.predict_interval(x))
    assert old.bound_ == model.bound_


def test_rows_are_added_and_forgotten_exactly(fitted, tmp_path):
    fitted.save(tmp_path / "model.zonal")
    model = load(tmp_path / "model.zonal")
    x, y = table(50, seed=1)
    before = model.predict(x)
    model.partial_fit(x, y)
    assert not np.allclose(model.predict(x), before, rtol=1e-3)
    model.forget(x, y)
    assert np.allclose(model.predict(x), before, rtol=1e-4)
    merged = model.merge(model.emptied().partial_fit(x, y))
    assert merged.n_samples_seen_ == 550
    larger = merged.copy_with(*table(), n_features=32)
    assert larger.target_transform_ == Log()


def test_refresh_chooses_again(fitted, tmp_path):
    fitted.save(tmp_path / "model.zonal")
    x, y = table()
    model = load(tmp_path / "model.zonal").refresh(x, np.log(y) - 7)
    assert model.target_transform_ == Identity()


@pytest.mark.parametrize(
    ("transform", "bad"), [("log", 0.0), ("log", -2.0), ("logit", 1.0)]
)
def test_targets_that_do_not_fit_are_named(transform, bad):
    x, y = table(60)
    y = y / (y.max() + 1)
    y[40] = bad
    model = SphericalGPRegressor(target_transform=transform)
    with pytest.raises(ValueError, match=rf"row 40 has {bad:g}.*target_transform=None"):
        model.fit(x, y)
    frame = pl.DataFrame({"a": x[:, 0], "b": x[:, 1], "price": y})
    with pytest.raises(ValueError, match=rf"row 40 has {bad:g}"):
        model.fit(frame, target="price")
    # Rows of weight zero are ignored.
    weight = np.ones(60)
    weight[40] = 0
    model.fit(x, y, sample_weight=weight)


def test_further_rows_that_do_not_fit_are_named(fitted):
    x, y = table(60, seed=1)
    y[7] = -3
    with pytest.raises(ValueError, match="row 7 has -3"):
        fitted.partial_fit(x, y)


def test_each_output_has_its_scale():
    x, y = table()
    several = np.column_stack([y, np.log(y), 1 / (1 + 1000 / y)])
    model = SphericalGPRegressor().fit(x, several)
    assert model.target_transform_[:2] == [Log(), Identity(floor=0.0)]
    assert np.all(model.predict_interval(x)[:, 0, 0] > 0)
    model = SphericalGPRegressor(target_transform="logit").fit(
        x, np.column_stack([several[:, 2], 100 * several[:, 2]])
    )
    assert model.target_transform_ == [Logit(), Logit(0.0, 100.0)]
    means = model.predict(x)
    assert np.allclose(means[:, 1], 100 * means[:, 0], rtol=0.05)


def awkward_targets():
    generator = np.random.default_rng(5)
    _, y = table()
    none = generator.random(500) < 0.9
    return {
        "zeros": np.where(none, 0.0, y),
        "some zeros": np.where(generator.random(500) < 0.1, 0.0, y),
        "counts": generator.poisson(y / 500).astype(float),
        "integers": np.round(y / 10),
        "huge": y**35,
        "tiny": y * 1e-100,
        "outlier": np.where(np.arange(500) == 3, -1e9, y),
        "cauchy": generator.standard_cauchy(500) ** 3,
    }


@pytest.mark.parametrize("name", awkward_targets())
@pytest.mark.parametrize("transform", ["auto", "yeo-johnson"])
def test_awkward_targets_have_finite_predictions(name, transform):
    (x, _), y = table(), awkward_targets()[name]
    model = SphericalGPRegressor(target_transform=transform).fit(x, y)
    mean, std = model.predict(x[:50], return_std=True)
    distribution = model.predict_dist(x[:50])
    scores = distribution.prediction.crps(y[:50])
    for values in (mean, std, model.predict_interval(x), distribution.logpdf(y[:50])):
        assert np.all(np.isfinite(values))
    assert np.all(np.isfinite(scores))
    far = model.predict_interval(1e3 * x[:5], 0.99)
    assert np.all(np.isfinite(far))


def test_explicit_scales_are_taken():
    x, y = table(150)
    model = SphericalGPRegressor(target_transform="yeo-johnson").fit(x, y)
    assert isinstance(model.target_transform_, YeoJohnson)
    few = SphericalGPRegressor(target_transform="yeo-johnson").fit(x[:20], y[:20])
    assert isinstance(few.target_transform_, YeoJohnson)
    with pytest.raises(ValueError, match="not 'cube'"):
        SphericalGPRegressor(target_transform="cube").fit(x, y)
    model = SphericalGPRegressor(target_transform="log", likelihood="poisson")
    with pytest.raises(ValueError, match="is for normal noise"):
        model.fit(x, np.round(y))


def test_the_option_is_the_regressors_alone():
    """The other parameters are those of the base class, in the same order."""
    base = list(inspect.signature(SphericalGP.__init__).parameters.items())
    own = inspect.signature(SphericalGPRegressor.__init__).parameters
    rest = [(name, each) for name, each in own.items() if name != "target_transform"]
    assert rest == base
    assert "target_transform" not in SphericalGPClassifier().get_params()
    model = SphericalGPRegressor(target_transform="log")
    assert clone(model).target_transform == "log"


def test_it_is_chosen_on_the_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    x, y = table()
    frame = pl.DataFrame({"a": x[:, 0], "b": x[:, 1], "price": y})
    frame.write_parquet("prices.parquet")
    arguments = ["fit", "prices.parquet", "--target", "price"]
    done = CliRunner().invoke(zonal, arguments)
    assert done.exit_code == 0, done.output
    assert "target: log scale" in done.output
    assert load("model.zonal").target_transform_ == Log()
    done = CliRunner().invoke(zonal, [*arguments, "--target-transform", "none"])
    assert done.exit_code == 0, done.output
    assert load("model.zonal").target_transform_ == Identity()
