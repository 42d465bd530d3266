"""Estimators that predict from nearest rows."""

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.special import zeta

from zonal import SphericalGPClassifier, SphericalGPRegressor, load, write_report
from zonal.cli.app import zonal
from zonal.learning.state import LearningStoppedWarning

pytestmark = pytest.mark.usefixtures("few_rounds")


def table(rows=500, seed=0):
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(rows, 3))
    f = np.sin(3 * X[:, 0]) + 0.5 * X[:, 1]
    return X, 100 * (f + 0.1 * generator.normal(size=rows)) + 1000, 100 * f + 1000


@pytest.fixture(scope="module")
def fitted(few_rounds):
    X, y, _ = table()
    return SphericalGPRegressor(n_neighbors=40).fit(X, y)


def test_a_rough_function_is_learned(fitted):
    X, y, f = table(2000, seed=1)
    mean, std = fitted.predict(X, return_std=True)
    assert np.sqrt(np.mean((mean - f) ** 2)) < 12
    low, high = fitted.predict_interval(X).T
    assert 0.85 < np.mean((low < y) & (y < high)) < 0.95
    assert fitted.noise_ == pytest.approx(10, rel=0.3)
    assert fitted.relevance_[0] > fitted.relevance_[1] > fitted.relevance_[2]
    assert np.median(std) == pytest.approx(12, rel=0.3)
    assert fitted.n_samples_seen_ == 500
    assert "relevance" in str(fitted.summary())
    assert np.isfinite(fitted.bound_)
    assert fitted.history_["stage"][0] == "race"


def test_levels_are_those_of_the_kernel_with_all_of_them(fitted):
    process = fitted.models_[0].solution.process
    beta, variance = float(process.kernel.beta), float(process.variance)
    expected = variance * np.arange(1.0, 22.0) ** -beta / zeta(beta)
    np.testing.assert_allclose(fitted.level_weights_, expected, rtol=1e-6)


def test_the_summary_tells_how_much_is_stored(fitted):
    rows = {name: (value, text) for name, value, text in fitted.summary().rows}
    # Three columns of four bytes, and target, weight and spread of eight.
    assert rows["stored rows"] == ("500", "distinct rows in the model, 0.018 MB")


def test_it_is_saved_with_its_rows(fitted, tmp_path):
    X, y, _ = table()
    fitted.save(tmp_path / "model.zonal")
    again = load(tmp_path / "model.zonal")
    new = table(20, seed=1)[0]
    np.testing.assert_array_equal(again.predict(new), fitted.predict(new))
    again.partial_fit(new, table(20, seed=1)[1])
    assert again.n_samples_seen_ == 520
    # A forgotten row is gone from the model and from its file.
    again.forget(X[:100], y[:100])
    again.save(tmp_path / "model.zonal")
    stored = load(tmp_path / "model.zonal").models_[0].solution.table
    assert len(stored) == 420
    assert np.all(stored.find(fitted.models_[0].scaling.inputs(X[:100])) == -1)


def test_adding_and_forgetting_is_exact(fitted):
    X, y, _ = table(100, seed=2)
    new = table(50, seed=3)[0]
    before = fitted.predict(new, return_std=True)
    model = fitted.emptied().merge(fitted)
    model = model.partial_fit(X, y)
    assert np.abs(model.predict(new) - before[0]).max() > 1e-3
    model = model.forget(X, y)
    for found, expected in zip(
        model.predict(new, return_std=True), before, strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-5)
    with pytest.raises(ValueError, match="row 0 of the rows to forget"):
        model.forget(X, y)


def test_the_order_of_rows_changes_nothing(fitted):
    X, y, _ = table()
    order = np.random.default_rng(0).permutation(len(X))
    again = SphericalGPRegressor(n_neighbors=40).fit(X[order], y[order])
    new = table(50, seed=3)[0]
    np.testing.assert_allclose(again.predict(new), fitted.predict(new), rtol=1e-6)


def test_several_outputs_share_a_kernel():
    X, y, _ = table(200)
    model = SphericalGPRegressor(n_neighbors=20).fit(X, np.column_stack([y, -y]))
    mean = model.predict(X)
    np.testing.assert_allclose(mean[:, 0], -mean[:, 1], rtol=1e-6, atol=1e-3)
    assert model.noise_.shape == (2,)


@pytest.mark.parametrize("k", [1, 2, 10_000])
@pytest.mark.parametrize("n_features", [0, 16])
def test_any_number_of_neighbours(k, n_features):
    X, y, f = table(150)
    model = SphericalGPRegressor(n_features=n_features, n_neighbors=k).fit(X, y)
    mean, std = model.predict(X, return_std=True)
    assert np.all(np.isfinite(std) & (std > 0))
    assert np.corrcoef(mean, f)[0, 1] > 0.8


def awkward_tables():
    """Name, inputs, targets and parameters of the estimator."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(120, 2))
    y = x[:, 0] + 0.1 * generator.normal(size=120)
    half, seventh = x.copy(), np.arange(120) == 7
    half[:60] = half[0]
    far = np.vstack([x[:-1], [[1e8, -1e8]]])
    yield "all rows equal", np.ones((120, 2)), y, {}
    yield "all rows equal, with features", np.ones((120, 2)), y, {"n_features": 16}
    yield "half of the rows equal", half, y, {}
    yield "half of the rows equal, with features", half, y, {"n_features": 16}
    yield "two distinct rows", np.repeat(x[:2], 60, 0), y, {}
    yield "integer columns with ties", np.round(2 * x), y, {}
    yield "integer columns, with features", np.round(2 * x), y, {"n_features": 100}
    yield "a copied column", np.column_stack([x, x[:, 0]]), y, {}
    yield "a constant target but for one row", x, np.where(seventh, 1.0, 0.0), {}
    yield "a linear function without noise", x, x[:, 0], {}
    yield "a smooth function without noise", x, np.sin(x[:, 0]), {}
    yield "a row far from all others", far, y, {}
    yield "a target far from all others", x, np.where(seventh, 1e9, y), {}
    yield "more neighbours than rows", x, y, {"n_neighbors": 1000}
    yield "one neighbour", x, y, {"n_neighbors": 1}
    yield "more features than rows", x, y, {"n_features": 500}
    sizes = [{}, {"n_features": 0}, {"n_features": 16}, {"n_neighbors": 5}]
    for rows in (1, 2, 3):
        for chosen in sizes:
            yield f"{rows} rows, {chosen}", x[:rows], y[:rows], chosen


AWKWARD = {name: case for name, *case in awkward_tables()}


@pytest.mark.parametrize("case", AWKWARD)
@pytest.mark.filterwarnings("ignore:constant columns carry no information")
@pytest.mark.filterwarnings("ignore:the target is constant")
def test_awkward_tables_have_finite_answers(case):
    X, y, chosen = AWKWARD[case]
    model = SphericalGPRegressor(**chosen).fit(X, y)
    new = np.vstack([X, X[:1] + 100, -1e6 * np.abs(X[:1])])
    mean, std = model.predict(new, return_std=True)
    assert np.all(np.isfinite(mean))
    assert np.all(np.isfinite(std) & (std >= 0))
    assert np.all(np.isfinite(model.predict_interval(new)))
    assert np.all(np.isfinite(model.sample_y(new[:5], 3)))
    assert np.isfinite(model.log_score(X, y))
    # No worse than the mean of all targets.
    assert np.mean((mean[: len(y)] - y) ** 2) <= np.var(y) * 1.01 + 1e-9
    assert "nan" not in str(model.summary())
    assert model.partial_fit(X, y).n_samples_seen_ == 2 * len(y)
    assert np.all(np.isfinite(model.predict(new)))


@pytest.mark.filterwarnings("ignore:constant columns carry no information")
def test_equal_rows_have_the_distribution_of_their_targets():
    y = table(200)[1]
    model = SphericalGPRegressor().fit(np.ones((200, 2)), y)
    mean, std = model.predict(np.ones((1, 2)), return_std=True)
    assert mean[0] == pytest.approx(y.mean(), abs=0.05 * y.std())
    assert std[0] == pytest.approx(y.std(), rel=0.1)


def test_the_copy_of_a_column_changes_little(fitted):
    X, y, _ = table()
    copied = SphericalGPRegressor(n_neighbors=40).fit(np.column_stack([X, X[:, 0]]), y)
    new = table(100, seed=5)[0]
    both = copied.predict(np.column_stack([new, new[:, 0]]))
    assert np.sqrt(np.mean((both - fitted.predict(new)) ** 2)) < 5


def test_far_rows_are_uncertain(fitted):
    """Their variance is between that of known rows and that of the prior."""
    X = table()[0]
    _, known = fitted.predict(X, return_std=True)
    _, far = fitted.predict(X[:9] + 1e4, return_std=True)
    model = fitted.models_[0]
    prior = model.scaling.target_width * np.sqrt(float(model.process.basis.variance))
    assert np.all(far > 3 * known.max())
    spread = np.sqrt(model.likelihood.calibration.spread)
    assert np.all(far <= spread * np.hypot(prior, fitted.noise_) * 1.001)


def test_the_numbers_of_features_and_neighbours_are_attributes(fitted):
    X, y, _ = table(60)
    assert fitted.n_features_ in (0, 64, 256, 512)
    assert fitted.n_neighbors_ == 40
    model = SphericalGPRegressor(n_features=16, n_neighbors=0).fit(X, y)
    assert model.n_neighbors_ == 0
    assert model.n_features_ == model.process_.basis.n_features
    assert SphericalGPRegressor(keep_rows=False).fit(X, y).n_neighbors_ == 0


@pytest.mark.filterwarnings("ignore:the target is constant")
def test_a_constant_target():
    X = table(50)[0]
    model = SphericalGPRegressor(n_neighbors=5).fit(X, np.full(50, 3.0))
    np.testing.assert_allclose(model.predict(X), 3.0)


def test_it_can_be_stopped_and_resumed(tmp_path):
    X, y, _ = table(300)
    path = tmp_path / "run.zonal"
    whole = SphericalGPRegressor(n_neighbors=20).fit(X, y)

    def stop(step):
        return step.stage == "round" and step.number == 1

    with pytest.warns(LearningStoppedWarning, match="a callback"):
        SphericalGPRegressor(n_neighbors=20, callbacks=[stop]).fit(
            X, y, checkpoint=path
        )
    assert path.exists()
    seen = []
    resumed = SphericalGPRegressor(n_neighbors=20, callbacks=[seen.append])
    resumed.fit(X, y, checkpoint=path)
    assert not path.exists()
    assert seen[0].number == 1
    np.testing.assert_array_equal(resumed.predict(X), whole.predict(X))
    with pytest.warns(LearningStoppedWarning, match="limit of 0 seconds"):
        hurried = SphericalGPRegressor(n_neighbors=20, max_time=0.0).fit(X, y)
    assert hurried.history_["stage"].tolist() == ["race", "sizes"]


def test_an_interrupt_keeps_what_was_learned():
    X, y, f = table(300)

    def interrupt(step):
        if step.stage == "round":
            raise KeyboardInterrupt

    with pytest.warns(LearningStoppedWarning, match="an interrupt"):
        model = SphericalGPRegressor(n_neighbors=20, callbacks=[interrupt]).fit(X, y)
    assert np.corrcoef(model.predict(X), f)[0, 1] > 0.9


def test_it_is_said_where_there_are_no_neighbours():
    X, y, _ = table(60)
    with pytest.raises(ValueError, match="n_neighbors is for normal noise"):
        SphericalGPClassifier(n_neighbors=5).fit(X, y > 1000)
    with pytest.raises(ValueError, match="n_neighbors must be 0 or more"):
        SphericalGPRegressor(n_neighbors=-1).fit(X, y)
    model = SphericalGPRegressor(n_neighbors=5).fit(X, y)
    larger = model.copy_with(X, y, n_features=10)
    assert (larger.n_features_, larger.n_neighbors_) == (10, 5)
    with pytest.raises(ValueError, match="different parameters"):
        larger.merge(model)
    with pytest.raises(TypeError, match="no number of effective parameters"):
        _ = model.models_[0].effective_parameters


def test_tables_with_strings_times_and_missing_values():
    polars = pytest.importorskip("polars")
    generator = np.random.default_rng(0)
    x = generator.normal(size=200)
    kind = np.where(generator.random(200) > 0.5, "a", "b")
    y = np.sin(2 * x) + (kind == "a")
    frame = polars.DataFrame({"x": np.where(x > 2, None, x), "kind": kind, "y": y})
    model = SphericalGPRegressor(n_neighbors=20, missing="indicator")
    model.fit(frame, target="y")
    assert model.score(frame.drop("y"), y) > 0.8


def test_draws_follow_the_prediction(fitted):
    X = table(5, seed=4)[0]
    draws = fitted.sample_y(X, n_samples=2000, random_state=0)
    mean, std = fitted.predict(X, return_std=True)
    np.testing.assert_allclose(draws.mean(axis=1), mean, atol=0.15 * std.max())
    np.testing.assert_allclose(draws.std(axis=1), std, rtol=0.15)


def test_it_has_a_report(fitted, tmp_path):
    X, y, _ = table(80, seed=6)
    path = tmp_path / "report.html"
    write_report(fitted, X, y, path)
    page = path.read_text(encoding="utf-8")
    for heading in ("Summary", "Calibration", "Feature relevance", "Model"):
        assert heading in page
    assert "n_neighbors" in page


def test_the_command_line_fits_and_forgets(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    X, y, _ = table(120)
    lines = [",".join(map(repr, row)) for row in np.column_stack([X, y]).tolist()]
    Path("rows.csv").write_text("\n".join(["a,b,c,price", *lines]), encoding="utf-8")
    Path("some.csv").write_text("\n".join(["a,b,c,price", *lines[:3]]), "utf-8")
    run = CliRunner().invoke
    command = ["fit", "rows.csv", "-t", "price", "--neighbors", "20"]
    done = run(zonal, [*command, "--test-share", "0", "--out", "m.zonal", "--quiet"])
    assert done.exit_code == 0, done.output
    assert load("m.zonal").n_neighbors == 20
    done = run(zonal, ["forget", "m.zonal", "some.csv", "--quiet"])
    assert done.exit_code == 0, done.output
    assert load("m.zonal").n_samples_seen_ == 117


def test_rows_beyond_the_range_of_float32(fitted):
    X = table(3)[0]
    far = np.vstack([X * 1e30, X * 1e300])
    mean, std = fitted.predict(far, return_std=True)
    np.testing.assert_allclose(mean[:3], mean[3:], rtol=1e-4)
    assert np.all(np.isfinite(std))


def test_values_that_are_not_finite_are_named(fitted):
    X, y, _ = table(20)
    X[3, 1] = np.nan
    for change in (fitted.fit, fitted.partial_fit, fitted.forget, fitted.predict):
        with pytest.raises(ValueError, match=r"column 1.*row"):
            change(X) if change == fitted.predict else change(X, y)


def test_draws_at_close_rows_without_noise_are_finite():
    generator = np.random.default_rng(0)
    X = generator.normal(size=(80, 2))
    model = SphericalGPRegressor(n_features=20, n_neighbors=128).fit(X, 3 * X[:, 0])
    close = np.repeat(X, 20, axis=0)
    close[:, 0] = np.tile(np.linspace(-1, 1, 20), 80)
    errors = np.abs(model.sample_y(close, 5) - 3 * close[:, :1])
    assert np.median(errors) < 0.05
    assert errors.max() < 1
