"""Benchmarks: readers, scores, runs and pages, compared with known results."""

import gzip
import json
import os
import re
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.stats import norm
from zonal_bench.__main__ import bench
from zonal_bench.experiments import EXPERIMENTS
from zonal_bench.listings import CALIBRATED, MECHANISMS, SIZES, TREES
from zonal_bench.methods import Answer, Method, Settings, sum_stage_seconds
from zonal_bench.pages import write_pages
from zonal_bench.peers import add_calibration
from zonal_bench.processes import call_in_new_process, use_empty_cache
from zonal_bench.public import HOUSEHOLD, SONG, SUSY
from zonal_bench.runs import METHODS, Case, evaluate_method, load_results, run_cases
from zonal_bench.samples import QUICK, quick_run, write_samples
from zonal_bench.scores import (
    drop_calibration,
    make_normal,
    score_classes,
    score_numbers,
)
from zonal_bench.tables import (
    Split,
    find_data_folder,
    load_buzz_split,
    load_household_split,
    load_song_split,
    load_susy_split,
    load_uci_split,
    take_rows,
)

from zonal.learning.state import Step

# Scores on small tables are meaningless, however long is learned.
pytestmark = pytest.mark.usefixtures("few_rounds")

PROJECT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with synthetic tables in all formats."""
    place = tmp_path_factory.mktemp("data")
    write_samples(place, rows=120)
    return place


@pytest.fixture
def split():
    generator = np.random.default_rng(0)
    x = generator.normal(size=(50, 2))
    y = x[:, 0] + 0.1 * generator.normal(size=50)
    return Split("made", x[:30], y[:30], x[30:], y[30:])


@pytest.mark.filterwarnings("ignore:.*published file")
def test_susy_is_read_correctly(folder):
    with gzip.open(folder / "SUSY.csv.gz", "rt") as file:
        truth = np.loadtxt(file, delimiter=",")
    split = load_susy_split(folder)
    x = np.vstack([split.x, split.x_test])
    np.testing.assert_allclose(x, truth[:, 1:9], rtol=1e-6)
    assert np.array_equal(np.concatenate([split.y, split.y_test]), truth[:, 0])
    assert len(split.y_test) == 12
    assert split.classes == 2


@pytest.mark.filterwarnings("ignore:.*published file")
def test_songs_and_discussions_are_read_correctly(folder):
    truth = np.loadtxt(folder / "YearPredictionMSD.txt", delimiter=",")
    read = SONG.read(folder / "YearPredictionMSD.txt")
    assert np.array_equal(read["year"], truth[:, 0])
    np.testing.assert_allclose(read["t89"], truth[:, 90], rtol=1e-6)
    for one in (load_song_split(folder), load_buzz_split(folder)):
        assert len(one.y) + len(one.y_test) == 120
        assert abs(one.y.mean()) < 1e-9
        assert abs(one.y.std() - 1) < 1e-9


@pytest.mark.filterwarnings("ignore:.*published file")
def test_households_have_gaps_and_times(folder, tmp_path):
    read = HOUSEHOLD.read(folder / "household_power_consumption.txt")
    assert read["Date"][0] == np.datetime64("2006-12-16")
    assert read["Time"][0] == 17 * 3600 + 24 * 60
    assert np.isnan(read["Voltage"][1])
    split = load_household_split(folder)
    assert len(split.y) + len(split.y_test) == 119
    with zipfile.ZipFile(tmp_path / "household_power_consumption.zip", "w") as archive:
        archive.write(folder / "household_power_consumption.txt", "inside.txt")
    again = load_household_split(tmp_path)
    assert np.array_equal(again.x, split.x)


def test_files_with_other_columns_raise(tmp_path):
    path = tmp_path / "SUSY.csv"
    path.write_text("1,2,3\n")
    with pytest.raises(ValueError, match="3 columns where the published file has 19"):
        SUSY.read(path)
    path.write_text(",".join(["1.0"] * 19) + "\n")
    with pytest.warns(UserWarning, match="1 rows, the published file 5,000,000"):
        SUSY.read(path)
    with pytest.raises(FileNotFoundError, match=r"kin40k\.parquet is not in"):
        load_uci_split(tmp_path, "kin40k")
    with pytest.raises(FileNotFoundError, match="download it from"):
        load_buzz_split(tmp_path)


def test_the_data_folder_comes_from_the_environment(monkeypatch, tmp_path):
    monkeypatch.delenv("ZONAL_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match="set ZONAL_DATA"):
        find_data_folder()
    monkeypatch.setenv("ZONAL_DATA", str(tmp_path))
    assert find_data_folder() == tmp_path


def test_scores_are_those_of_scipy():
    generator = np.random.default_rng(0)
    mean, y = generator.normal(size=(2, 400))
    deviation = generator.uniform(0.5, 2, size=400)
    scores = score_numbers(make_normal(mean, deviation**2), y)
    assert np.isclose(scores["nll"], -norm.logpdf(y, mean, deviation).mean())
    assert np.isclose(scores["rmse"], np.sqrt(np.mean((y - mean) ** 2)))
    inside = np.abs(y - mean) < norm.ppf(0.95) * deviation
    assert np.isclose(scores["coverage"]["90%"], inside.mean())
    # CRPS as the mean pinball loss over all quantiles, doubled.
    levels = (np.arange(2000) + 0.5) / 2000
    off = y[:, None] - norm.ppf(levels, mean[:, None], deviation[:, None])
    pinball = np.maximum(levels * off, (levels - 1) * off)
    assert np.isclose(scores["crps"], 2 * pinball.mean(), rtol=1e-3)
    assert "auc" not in score_classes(np.full((3, 3), 1 / 3), np.array([0.0, 1, 2]))


def test_the_clock_stops_during_scoring(split, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("zonal_bench.runs.time.perf_counter", lambda: now[0])

    def train(split, settings):
        for step in range(5):
            now[0] += 10.0

            def predict(x, step=step):
                now[0] += 1000.0
                return make_normal(np.zeros(len(x)), 1.0 + step)

            yield Answer(predict, {"step": step})

    method = Method("made", "made", "numpy", train)
    record = evaluate_method(method, split, Settings())
    assert record["seconds"] == 50.0
    assert record["step"] == 4
    assert [one["seconds"] for one in record["curve"]] == [10, 20, 30, 40]
    stopped = evaluate_method(method, split, Settings(limit=25.0))
    assert stopped["seconds"] == 30.0


def test_methods_can_be_calibrated_like_zonal():
    generator = np.random.default_rng(0)
    x = generator.normal(size=(4000, 1))
    y = generator.laplace(size=4000)
    split = Split("made", x[:3000], y[:3000], x[3000:], y[3000:])

    def train(split, settings):
        yield Answer(lambda x: make_normal(np.zeros(len(x)), 1.0), {"trees": 5})

    plain = Method("made", "made", "numpy", train)
    record = evaluate_method(add_calibration(plain), split, Settings())
    # A Laplace distribution's own negative log density is 1 + log 2.
    assert abs(record["scores"]["nll"] - (1 + np.log(2))) < 0.06
    normal_nll = evaluate_method(plain, split, Settings())["scores"]["nll"]
    assert normal_nll > record["scores"]["nll"] + 0.1
    assert abs(record["scores"]["coverage"]["90%"] - 0.9) < 0.03
    assert record["trees"] == 5
    assert add_calibration(plain).variant


def test_plain_normals_ignore_the_calibration():
    generator = np.random.default_rng(0)
    x = generator.normal(size=(2000, 1))
    y = generator.laplace(size=2000)
    split = Split("made", x[:1500], y[:1500], x[1500:], y[1500:])

    def train(split, settings):
        yield Answer(lambda x: make_normal(np.zeros(len(x)), 3.0))

    method = add_calibration(Method("made", "made", "numpy", train))
    (answer,) = method.train(split, Settings())
    plain = drop_calibration(answer.predict(split.x_test))
    np.testing.assert_allclose(plain.variance_y, 3.0)
    scores = score_numbers(plain, split.y_test)
    truth = -norm.logpdf(split.y_test, scale=np.sqrt(3.0)).mean()
    assert np.isclose(scores["nll"], truth)


def test_stages_add_up_to_the_last_step():
    seconds = {"start": 1.0, "learn 1": 4.0, "learn 2": 2.5}
    ends = np.cumsum([0.5, 0.5, 1.0, 3.0, 2.5])
    names = ["start", "start", "learn 1", "learn 1", "learn 2"]
    pairs = zip(names, ends, strict=True)
    history = [Step(name, 1, 9, 0.0, end) for name, end in pairs]
    assert sum_stage_seconds(history) == pytest.approx(seconds)
    assert sum_stage_seconds([]) == {}


@pytest.mark.parametrize(
    ("name", "has_features", "has_neighbors"),
    [("zonal-features", True, False), ("zonal-neighbors", False, True)],
)
def test_mechanisms_have_features_or_neighbours(
    split, name, has_features, has_neighbors
):
    # QUICK asks for 40 features, which methods without features must ignore.
    (answer,) = METHODS[name].train(split, QUICK)
    assert (answer.facts["features"] > 0) == has_features
    assert (answer.facts["neighbors"] > 0) == has_neighbors
    assert all(seconds >= 0 for seconds in answer.facts["stages"].values())
    assert np.isfinite(answer.predict(split.x_test).mean).all()


def test_random_rows_are_training_rows(split):
    few = take_rows(split, 7, seed=1)
    assert len(np.unique(few.y)) == 7
    assert np.isin(few.y, split.y).all()
    assert np.array_equal(few.x[0], split.x[split.y == few.y[0]][0])
    assert len(take_rows(split, 1000).y) == len(split.y)
    assert np.array_equal(few.y_test, split.y_test)


# LightGBM 4.7 renames an argument; older versions only know the old name.
@pytest.mark.filterwarnings("ignore:The argument 'eval_set' is deprecated")
@pytest.mark.parametrize("name", ["lightgbm", "lightgbm-wide"])
def test_the_best_trees_are_chosen_on_validation_rows(name):
    pytest.importorskip("lightgbm")
    generator = np.random.default_rng(0)
    x = generator.uniform(-1, 1, size=(300, 2))
    y = np.sign(x[:, 0]) + 0.1 * generator.normal(size=300)
    split = Split("made", x[:250], y[:250], x[250:], y[250:])
    (answer,) = METHODS[name].train(split, Settings())
    trials = answer.facts["trials"]
    assert len(trials) == 3
    assert all(trial["rounds"] >= 1 and trial["seconds"] > 0 for trial in trials)
    # The constant noise is the mean squared error of the validation rows, which early
    # stopping minimises.
    variance = answer.predict(split.x_test).variance_y
    best = min(trial["loss"] for trial in trials)
    np.testing.assert_allclose(variance, best, rtol=1e-6)


# LightGBM 4.7 renames an argument; older versions only know the old name.
@pytest.mark.filterwarnings("ignore:The argument 'eval_set' is deprecated")
@pytest.mark.parametrize("name", ["lightgbm", "lightgbm-wide"])
def test_classes_have_their_own_trees(name):
    pytest.importorskip("lightgbm")
    x = np.random.default_rng(0).uniform(-1, 1, size=(200, 2))
    y = (x[:, 0] > 0).astype(np.float64)
    split = Split("made", x[:150], y[:150], x[150:], y[150:], classes=2)
    (answer,) = METHODS[name].train(split, Settings())
    assert score_classes(answer.predict(split.x_test), split.y_test)["accuracy"] > 0.9


def test_scripts_use_one_core_and_start_new_processes():
    code = (
        "import sys; from zonal_bench.processes import use_one_core; use_one_core();"
        "import os; print(len(os.sched_getaffinity(0)), os.environ['OMP_NUM_THREADS'],"
        "'numpy' in sys.modules)"
    )
    environment = os.environ | {"PYTHONPATH": str(PROJECT / "benchmarks")}
    output = subprocess.check_output([sys.executable, "-c", code], env=environment)
    assert output.split() == [b"1", b"1", b"False"]
    assert call_in_new_process(os.getpid) != os.getpid()


def test_new_processes_can_have_an_empty_cache(monkeypatch):
    # Restored at the end of the test.
    monkeypatch.setenv("NUMBA_CACHE_DIR", "elsewhere")
    with use_empty_cache() as folder:
        assert call_in_new_process(os.getenv, "NUMBA_CACHE_DIR") == folder
        assert os.listdir(folder) == []


def _failing(case, data, settings):
    raise FloatingPointError("the loss is NaN\nat step 7")


def test_failures_are_results(tmp_path):
    cases = [Case("uci", "kin40k", "linear")]
    (record,) = run_cases(cases, _failing, None, tmp_path, own_process=False, log=str)
    assert record["failed"] == "FloatingPointError: the loss is NaN"
    assert load_results(tmp_path)["uci"]["kin40k"][0]["failed"] == record["failed"]


def _without(error):
    def measure(case, data, settings):
        raise error

    return measure


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ModuleNotFoundError(name="ngboost"), "not installed: ngboost"),
        (FileNotFoundError("Twitter.data is not there"), "no data: Twitter.data is"),
    ],
)
def test_unavailable_methods_are_not_stored(tmp_path, error, said):
    cases = [Case("buzz", "buzz", "ngboost")]
    (record,) = run_cases(
        cases, _without(error), None, tmp_path, own_process=False, log=str
    )
    assert record["failed"].startswith(said)
    assert load_results(tmp_path) == {}


def _slow(*_):
    time.sleep(2)
    return {"seconds": 2.0}


def test_a_first_step_may_take_longer_than_the_limit(tmp_path):
    cases = [Case("uci", "kin40k", "linear")]
    (record,) = run_cases(cases, _slow, None, tmp_path, Settings(limit=0.01), log=str)
    assert record["seconds"] == 2.0


def _endless(*_):
    time.sleep(600)


def test_an_endless_run_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr("zonal_bench.runs._STARTING", 0.5)
    monkeypatch.setattr("zonal_bench.runs._LEAST_LIMIT", 0.0)
    cases = [Case("uci", "kin40k", "linear")]
    (record,) = run_cases(cases, _endless, None, tmp_path, Settings(limit=0.1), log=str)
    assert record["failed"] == "not finished after 1 s"
    assert load_results(tmp_path)["uci"]["kin40k"][0]["failed"] == record["failed"]


def test_a_run_in_its_own_process_is_stored_once(folder, tmp_path):
    said = []
    experiment = EXPERIMENTS["uci"]
    cases = list(experiment.cases(("kin40k",), ("linear",), splits=2))
    arguments = (cases, experiment.measure, folder, tmp_path, QUICK)
    first = run_cases(*arguments, log=said.append)
    assert len(said) == 2
    assert (
        run_cases(*arguments, log=said.append)
        == load_results(tmp_path)["uci"]["kin40k"]
    )
    assert len(said) == 2
    run_cases(cases[:1], *arguments[1:], log=said.append, again=True)
    assert len(said) == 3
    assert first[0]["peak_mb"] > 20
    assert first[0]["scores"]["rmse"] != first[1]["scores"]["rmse"]
    text = (tmp_path / "uci" / "kin40k.json").read_text()
    assert {"machine", "versions", "date"} <= set(json.loads(text)[0])
    assert str(tmp_path) not in text


def test_methods_have_their_own_limits(tmp_path):
    spent = {}

    def measure(case, data, settings):
        spent[case.method] = settings.limit, settings.seed
        return {"seconds": 1.0}

    cases = [Case("uci", "kin40k", "linear", 2), Case("uci", "kin40k", "gpfy", 2)]
    settings = Settings(seed=5, limit=7.0)
    limits = {"gpfy": 3.0}
    run_cases(
        cases,
        measure,
        None,
        tmp_path,
        settings,
        log=str,
        own_process=False,
        limits=limits,
    )
    assert spent == {"linear": (7.0, 7), "gpfy": (3.0, 7)}


def test_options_override_protocols(monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr(
        "zonal_bench.__main__.run_cases",
        lambda cases, measure, data, results, settings, again, log, limits: (
            asked.append((settings.steps, settings.limit, limits.get("gpfy")))
        ),
    )
    common = ["speed", "layouts", "--docs", str(tmp_path / "none")]
    assert CliRunner().invoke(bench, common).exit_code == 0
    more = ["--limit", "30s", "--steps", "5"]
    assert CliRunner().invoke(bench, common + more).exit_code == 0
    assert asked == [
        (None, 600.0, 480.0),
        (20, 600.0, None),
        (5, 30.0, None),
        (5, 30.0, None),
    ]


def test_unknown_names_raise():
    with pytest.raises(ValueError, match="uci has the tables kin40k"):
        list(EXPERIMENTS["uci"].cases(("kin",)))
    with pytest.raises(ValueError, match="methods are zonal, "):
        list(EXPERIMENTS["uci"].cases(methods=("xgboost",)))


def test_large_tables_have_one_split():
    cases = list(EXPERIMENTS["uci"].cases(("kin40k", "yacht"), ("zonal",)))
    assert [(one.table, one.split) for one in cases] == [
        ("kin40k", 0),
        *(("yacht", split) for split in range(10)),
    ]


def test_experiments_name_methods_that_exist():
    for experiment in EXPERIMENTS.values():
        assert set(experiment.methods) <= set(METHODS)
        assert experiment.protocol


def test_the_configuration_of_the_paper_has_its_features():
    generator = np.random.default_rng(0)
    x = generator.normal(size=(120, 8))
    split = Split("made", x, x[:, 0], x, x[:, 0])
    (answer,) = METHODS["paper-7"].train(split, Settings(steps=0))
    # 1 + 9 + 44 harmonics, and a hundred phases in each of four levels more.
    assert answer.facts["features"] == 454
    assert answer.facts["levels"] == 6


def record(method, nll, seconds, split=0, curve=(), table="kin40k"):
    """A stored run."""
    coverage = {"90%": 0.8 + nll / 100}
    return {
        **{"table": table, "method": method, "split": split, "depth": 3, "rows": 90},
        **{"seconds": seconds, "rows_a_second": 5.0, "peak_mb": 7.0},
        "scores": {"rmse": 0.5, "nll": nll, "crps": 0.1, "coverage": coverage},
        "curve": [{"seconds": one, "nll": two} for one, two in curve],
        "versions": {"zonal": "0.1"},
        "machine": {"cores": 2, "memory_gb": 24},
        "date": "2026-11-16",
    }


def failure(method, split=0):
    """A stored failure."""
    found = record(method, 0.0, 0.0, split) | {"failed": "it did not"}
    del found["scores"], found["seconds"]
    return found


def filled(folder, places, **results):
    """A page with markers, filled from results by experiment and table."""
    for name, records in results.items():
        experiment, _, table = name.partition("_")
        (folder / experiment).mkdir(exist_ok=True)
        (folder / experiment / f"{table}.json").write_text(json.dumps(records))
    page = folder / "page.md"
    text = "\n".join(f"<!-- bench:{one} -->\nold\n<!-- end -->" for one in places)
    page.write_text(f"before\n{text}\nafter\n")
    written = write_pages(folder, [page], folder / "figures")
    assert page in written
    text = page.read_text()
    assert "old" not in text
    return text


def test_pages_are_filled_from_results(tmp_path):
    ours = [record("zonal", 1.0, 9.0), record("zonal", 3.0, 9.0, split=1)]
    trees = [record("lightgbm", 1.5, 3.0), record("lightgbm-shaped", 0.5, 3.0)]
    # One that failed on a split is last, whatever it did on another.
    failing = [record("gpfy", 0.1, 30.0), failure("gpfy", split=1)]
    # And one that failed everywhere has no place at all.
    failing += [failure("sklearn-gp")]
    text = filled(
        tmp_path,
        ("uci-nll", "uci-failures", "uci-summary", "uci-coverage", "uci-costs", "susy"),
        uci_kin40k=ours + trees + failing,
        # A method that has not met all tables is shown, and not ranked.
        uci_pol=ours + failing,
    )
    assert "| kin40k | 2.000 ± 1.000 | **1.500** | 0.100 | – |" in text
    assert "| pol | **2.000 ± 1.000** | – | 0.100 | – |" not in text
    assert "| pol | 2.000 ± 1.000 | – | 0.100 | – |" in text
    assert "| mean rank on 2 | 1.0 | – | 2.0 | – |" in text
    assert "- gpfy on kin40k, pol: it did not" in text
    assert "| zonal | 1.0 | 1.0 | 82% to 82% | 9 |" in text
    assert "| scikit-learn GP | 2" not in text
    assert "| kin40k | 0.820 ± 0.010 | 0.815 | 0.801 | – |" in text
    assert "| zonal | 9 | 5 | 7 |" in text
    assert "| LightGBM | 3 |" not in text
    assert "`make bench EXPERIMENTS=uci`, 2 cores, 24 GB, 2026-11-16; zonal 0.1" in text
    assert "(not measured yet)" in text
    page = tmp_path / "page.md"
    assert write_pages(tmp_path, [page], tmp_path / "figures") == []
    page.write_text("<!-- bench:what -->\n<!-- end -->")
    with pytest.raises(ValueError, match="refers to the table 'what'"):
        write_pages(tmp_path, [page], tmp_path / "figures")


def test_runs_are_shared_between_pages(tmp_path):
    known = [record("zonal", 1.0, 9.0), record("lightgbm", 1.5, 3.0)]
    known += [record("lightgbm-shaped", 0.5, 3.0), record("gpfy", 4.0, 30.0)]
    known += [record("zonal-features", 0.9, 8.0), record("zonal-neighbors", 1.1, 2.0)]
    known += [record("lightgbm-wide", 1.4, 7.0)]
    timed = [record("zonal-1s", 2.0, 1.5)]
    timed += [record("gpytorch-512", 1.2, 90.0, curve=[(45.0, 2.0), (90.0, 1.2)])]
    timed[-1] |= {"steps": 500}  # its own, and no option of ours
    # One that was run with more time stands for itself, unless that failed.
    timed += [record("gpfy", 1.7, 60.0), failure("lightgbm")]
    text = filled(
        tmp_path,
        ("speed", "sizes", "uci-shaped", "uci-mechanisms", "uci-trees"),
        uci_kin40k=known,
        speed_kin40k=timed,
        sizes_kin40k=[record("zonal-4096", 0.5, 20.0)],
    )
    assert "| kin40k | GPyTorch SVGP-512 | 1.200 | 90 | 9.0 | 10 |" in text
    assert "| kin40k | LightGBM | 1.500 | 3 | 9.0 | 0.3 |" in text
    assert "| kin40k | gpfy | 1.700 | 60 | 9.0 | 6.7 |" in text
    assert "| 4.000 |" not in text
    # A change of a method is no peer.
    assert "| kin40k | LightGBM, with zonal's calibration |" not in text
    assert "| LightGBM, with zonal's calibration | 0.500 / 0.500 |" in text
    assert "| zonal | 0.500 / 1.000 |" in text
    assert "| zonal, solved with 4096 features alone | 0.500 / 0.500 |" in text
    # Features alone are shown beside other sizes and beside the other mechanisms.
    assert text.count("| zonal, features alone | 0.500 / 0.900 |") == 2
    assert "| zonal, neighbours alone | 0.500 / 1.100 |" in text
    assert "| LightGBM, 15 to 255 leaves | 0.500 / 1.400 |" in text
    assert "`make bench EXPERIMENTS=speed`, 2 cores" in text
    assert (tmp_path / "figures" / "time_to_quality.svg").exists()


def test_the_figure_works_without_zonal(tmp_path):
    filled(tmp_path, ("speed",), speed_kin40k=[record("gpfy", 1.7, 60.0)])
    assert (tmp_path / "figures" / "time_to_quality.svg").exists()


def test_every_variant_that_a_page_shows_is_in_a_protocol():
    run = {name for one in EXPERIMENTS.values() for name in one.methods}
    assert set(SIZES + CALIBRATED + MECHANISMS + TREES) <= run
    pages = [*(PROJECT / "docs").glob("*.md"), PROJECT / "README.md"]
    text = "".join(page.read_text() for page in pages)
    shown = set(re.findall(r"<!-- bench:(\S+) -->", text))
    assert {name.split("-")[0] for name in shown} == set(EXPERIMENTS)


def test_a_small_version_of_everything(tmp_path):
    said = []
    quick_run(tmp_path, log=said.append)
    text = "\n".join(said)
    assert all(f"{name}:" in said for name in EXPERIMENTS)
    assert "failed" not in text.replace("None failed.", "")
