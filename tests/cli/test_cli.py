"""The command line: results equal the library, and errors are one line."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from zonal import SphericalGPRegressor, load
from zonal.cli.app import run
from zonal.cli.app import zonal as group
from zonal.cli.data import RowSubset, guess_task, profile_target
from zonal.tables.streams import Stream

# The command line is the same however long is learned.
pytestmark = pytest.mark.usefixtures("few_rounds")


def houses(count=240, seed=3):
    generator = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "id": np.arange(count),
            "area": generator.uniform(30, 200, count).round(1),
            "rooms": generator.integers(1, 7, count),
            "town": generator.choice(["Ulm", "Bonn", "Kiel"], count),
        }
    )
    price = 3 * table.area + 20 * table.rooms + 50 * (table.town == "Bonn")
    table["price"] = (price + 10 * generator.normal(size=count)).round(1)
    table["dear"] = np.where(table.price > 420, "yes", "no")
    return table


@pytest.fixture(scope="module")
def folder(tmp_path_factory, few_rounds):
    """A folder with a table in every format, and models fitted to it."""
    path = tmp_path_factory.mktemp("houses")
    table = houses()
    table.to_csv(path / "houses.csv", index=False)
    table.to_csv(path / "semicolons.csv", index=False, sep=";")
    table.to_csv(path / "tabs.tsv", index=False, sep="\t")
    table.to_csv(path / "packed.csv.gz", index=False)
    table.to_parquet(path / "houses.parquet", index=False)
    table.to_feather(path / "houses.feather")
    (path / "parts").mkdir()
    for number, part in enumerate(np.array_split(np.arange(len(table)), 3)):
        table.iloc[part].to_parquet(path / "parts" / f"{number}.parquet", index=False)
    houses(40, seed=4).to_csv(path / "new.csv", index=False)
    for target, other in (("price", "dear"), ("dear", "price")):
        done = command(
            path, "fit", "houses.csv", "-t", target, "--drop", "id", "--drop", other,
            "-o", f"{target}.zonal", "--report", f"{target}.html",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    return path


def command(folder, *arguments, stdin=None):
    """Run the command line in this process, for commands that succeed."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        done = CliRunner().invoke(group, arguments, input=stdin)
    finally:
        os.chdir(before)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return Done(done.exit_code, done.stdout, done.stderr)


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


def own_process(folder, *arguments, stdin=None):
    """Run the command line in its own process."""
    return subprocess.run(
        [sys.executable, "-c", "from zonal.cli.main import main; main()", *arguments],
        cwd=folder,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def run_here(folder, monkeypatch, *arguments):
    """Run the command line in this process: exit code and notes."""
    monkeypatch.chdir(folder)
    notes = []
    monkeypatch.setattr("zonal.cli.app.print_note", notes.append)
    monkeypatch.setattr("zonal.cli.predicting.print_note", notes.append)
    with pytest.raises(SystemExit) as end:
        run([str(argument) for argument in arguments])
    return end.value.code, "\n".join(notes)


@pytest.mark.parametrize(
    "name",
    ["semicolons.csv", "tabs.tsv", "packed.csv.gz", "houses.feather", "parts"],
)
def test_every_format_holds_the_same_table(folder, monkeypatch, capsys, name):
    predicted = []
    for data in (name, "houses.parquet"):
        code, notes = run_here(folder, monkeypatch, "predict", "price.zonal", data)
        assert code == 0, notes
        predicted.append(capsys.readouterr().out)
    if name != "parts":
        assert predicted[0] == predicted[1]
        return
    # A file is a batch, and products of other sizes round the last digits otherwise.
    ours, theirs = (pd.read_csv(io.StringIO(one)) for one in predicted)
    pd.testing.assert_frame_equal(ours, theirs, rtol=1e-11, atol=0)


def test_fit_explains_itself_and_equals_the_library(folder, tmp_path):
    done = command(
        folder, "fit", "houses.parquet", "--target", "price", "--drop", "id", "--drop",
        "dear", "--out", str(tmp_path / "m.zonal"), "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "as regression, because it has more than 10" in done.stderr
    assert "held out for testing" in done.stderr
    results = json.loads(done.stdout)
    stream = Stream.files(folder / "houses.parquet")
    profile = profile_target(stream, "price", 0.2, 0)
    assert results["rows"] == profile.rows
    assert results["test"]["rows"] == profile.test_rows == 240 - profile.rows
    names = ["area", "rooms", "town", "price"]
    subsets = [
        pd.concat(
            batch.frame.to_pandas()
            for batch in RowSubset(stream, profile, names, 0.2, 0, test).batches()
        )
        for test in (False, True)
    ]
    model = SphericalGPRegressor(missing="indicator").fit(subsets[0], target="price")
    X, y = subsets[1].drop(columns="price"), subsets[1].price
    error = np.sqrt(np.mean((model.predict(X) - y) ** 2))
    assert results["test"]["rmse"] == pytest.approx(error, rel=1e-9)
    assert results["test"]["nll"] == pytest.approx(-model.log_score(X, y), rel=1e-9)
    assert results["test"]["r2"] == pytest.approx(model.score(X, y), rel=1e-9)
    low, high = model.predict_interval(X, 0.9).T
    covered = np.mean((low <= y) & (y <= high))
    assert results["test"]["coverage"]["90%"] == pytest.approx(covered)
    by_std = results["test"]["conditional_coverage"][0]
    assert by_std["by"] == "predicted standard deviation"
    shares, means = np.array(
        [[group["share"], group["coverage"]] for group in by_std["bins"]]
    ).T
    assert shares @ means == pytest.approx(covered)
    assert sum(results["test"]["pit_histogram"]) == pytest.approx(1)
    assert results["test"]["crps"] > 0
    assert results["depth"]["layers"] == model.depth_.layers
    again = load(tmp_path / "m.zonal")
    assert again.metrics_["rmse"] == results["test"]["rmse"]
    assert again.target_name_ == "price"
    assert np.array_equal(again.predict(X), model.predict(X))


def test_reports_are_written(folder):
    for name, word in (("price", "RMSE"), ("dear", "AUC")):
        page = (folder / f"{name}.html").read_text(encoding="utf-8")
        assert word in page
        assert f"<h1>Predicted {name}</h1>" in page
    done = command(
        folder, "report", "price.zonal", "new.csv", "-o", "n.html", "--title", "New!"
    )
    assert done.returncode == 0, done.stderr
    assert "<h1>New!</h1>" in (folder / "n.html").read_text(encoding="utf-8")


def test_predictions_in_files_and_pipes(folder, tmp_path):
    out = tmp_path / "p.parquet"
    done = command(
        folder, "predict", "price.zonal", "new.csv", "--out", str(out), "--id", "id"
    )
    assert done.returncode == 0, done.stderr
    assert "40 predictions" in done.stderr
    table = pd.read_parquet(out)
    assert list(table) == ["id", "mean", "std", "lower", "upper"]
    model = load(folder / "price.zonal")
    new = pd.read_csv(folder / "new.csv")[["area", "rooms", "town"]]
    mean, std = model.predict(new, return_std=True)
    assert np.array_equal(table["mean"], mean)
    assert np.allclose(table["std"], std)
    assert np.allclose(table[["lower", "upper"]], model.predict_interval(new, 0.9))
    rows = (folder / "new.csv").read_text()
    piped = command(folder, "predict", "dear.zonal", "-", stdin=rows)
    assert piped.returncode == 0, piped.stderr
    header, *lines = piped.stdout.splitlines()
    assert header == '"class","p_no","p_yes"'
    written = np.array([[float(x) for x in line.split(",")[1:]] for line in lines])
    assert np.allclose(written, load(folder / "dear.zonal").predict_proba(new))


def test_evaluate_and_inspect(folder):
    done = command(folder, "evaluate", "dear.zonal", "new.csv", "--json")
    metrics = json.loads(done.stdout)
    new = pd.read_csv(folder / "new.csv")
    model = load(folder / "dear.zonal")
    assert metrics["accuracy"] == pytest.approx(
        model.score(new[["area", "rooms", "town"]], new.dear)
    )
    assert metrics["rows"] == 40
    plain = own_process(folder, "evaluate", "price.zonal", "new.csv")
    assert "90% intervals" in plain.stdout
    assert "groups by predicted standard deviation" in plain.stdout
    shown = command(folder, "inspect", "price.zonal").stdout
    assert "hidden layers" in shown
    assert "leave-one-out log density" in shown
    assert "target: price" in shown
    assert "Test scores" in shown
    facts = json.loads(command(folder, "inspect", "price.zonal", "--json").stdout)
    assert facts["target"] == "price"
    assert [column["name"] for column in facts["columns"]] == ["area", "rooms", "town"]
    assert facts["test"]["rmse"] > 0
    assert facts["neighbors"] == load(folder / "price.zonal").n_neighbors_ > 0


def test_update_forget_and_merge_are_exact(folder, monkeypatch, tmp_path):
    new = pd.read_csv(folder / "new.csv")
    X = new[["area", "rooms", "town"]]
    first = load(folder / "price.zonal")
    more, back = tmp_path / "more.zonal", tmp_path / "back.zonal"
    code, notes = run_here(
        folder, monkeypatch, "update", "price.zonal", "new.csv", "-o", more
    )
    assert code == 0, notes
    expected = load(folder / "price.zonal").partial_fit(X, new.price)
    assert np.allclose(load(more).predict(X), expected.predict(X), rtol=1e-8)
    code, notes = run_here(folder, monkeypatch, "forget", more, "new.csv", "-o", back)
    assert code == 0, notes
    assert np.allclose(load(back).predict(X), first.predict(X), rtol=1e-6)
    empty = first.emptied().partial_fit(X, new.price)
    empty.save(tmp_path / "other.zonal")
    merged = tmp_path / "merged.zonal"
    code, notes = run_here(
        folder, monkeypatch, "merge", "price.zonal", tmp_path / "other.zonal", "-o",
        merged,
    )  # fmt: skip
    assert code == 0, notes
    assert np.allclose(load(merged).predict(X), expected.predict(X), rtol=1e-8)


def test_update_replaces_the_model(folder, tmp_path):
    first = load(folder / "price.zonal")
    first.save(tmp_path / "m.zonal")
    new = str(folder / "new.csv")
    done = command(tmp_path, "update", "m.zonal", new)
    assert done.returncode == 0, done.stderr
    assert re.search(r"rows: \d+ before, \d+ now", done.stdout)
    undone = command(tmp_path, "forget", "m.zonal", new)
    assert undone.returncode == 0, undone.stderr
    both = command(tmp_path, "merge", "m.zonal", "m.zonal", "-o", "twice.zonal")
    assert both.returncode == 0, both.stderr


def test_locations_on_the_globe(tmp_path):
    generator = np.random.default_rng(5)
    location = np.column_stack(
        [generator.uniform(-180, 180, 120), generator.uniform(-80, 80, 120)]
    )
    heat = 30 * np.cos(np.radians(location[:, 1]))
    table = pd.DataFrame(location, columns=["lon", "lat"]).assign(heat=heat)
    table.to_csv(tmp_path / "heat.csv", index=False)
    done = command(
        tmp_path, "fit", "heat.csv", "-t", "heat", "--place", "lat", "lon", "-q",
        "--report", "heat.html", "--test-share", "0.3",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    model = load(tmp_path / "model.zonal")
    assert model.geometry == "sphere"
    assert model.columns_.names == ["lat", "lon"]
    assert model.metrics_["r2"] > 0.99
    assert "canvas" in (tmp_path / "heat.html").read_text(encoding="utf-8")


def test_figure_demo_doctor_completion_and_version(tmp_path):
    done = command(tmp_path, "figure", "depth", "--out", "d.png")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "d.png").stat().st_size > 10_000
    assert "depth 5" in done.stdout
    shown = command(tmp_path, "doctor").stdout
    assert "jax" in shown
    assert "cores" in shown
    for shell in ("bash", "zsh", "fish"):
        shown = CliRunner().invoke(group, ["completion", shell])
        assert "_ZONAL_COMPLETE" in shown.output
    assert command(tmp_path, "--version").stdout.startswith("zonal, version 0.")
    assert "Usage" in CliRunner().invoke(group, []).output


def test_every_command_has_help_with_an_example():
    runner = CliRunner()
    context = group.make_context("zonal", ["doctor"])
    for name in group.list_commands(context):
        shown = runner.invoke(group, [name, "--help"])
        assert shown.exit_code == 0, name
        assert f"zonal {name}" in shown.output, name
        assert "Example" in shown.output, name


@pytest.mark.parametrize(
    ("values", "task"),
    [
        ([0.5, 1.5, 2.25] * 20, "regression"),
        ([0, 1] * 30, "classification"),
        ([0.0, 1.0, None] * 20, "classification"),
        ([-1.5, 1.5] * 20, "classification"),
        ([True, False] * 20, "classification"),
        (["a", "b", "c"] * 20, "classification"),
        (list(range(7)) * 9, "classification"),
        (list(range(60)), "regression"),
    ],
)
def test_tasks_are_guessed(values, task):
    stream = Stream.of(pd.DataFrame({"y": values, "x": 1.0}))
    assert guess_task(profile_target(stream, "y", 0.2, 0))[0] == task


def test_subsets_partition_the_rows(folder):
    table = houses(3000).assign(price=lambda t: t.price.where(t.index % 10 > 0))
    stream = Stream.of(table)
    profile = profile_target(stream, "price", 0.25, 1)
    assert profile.dropped == 300
    ids = [
        np.concatenate(
            [
                batch.frame["id"].to_numpy()
                for batch in RowSubset(stream, profile, ["id"], 0.25, 1, test).batches()
            ]
        )
        for test in (False, True)
    ]
    assert [len(part) for part in ids] == [profile.rows, profile.test_rows]
    assert sorted(np.concatenate(ids)) == [n for n in range(3000) if n % 10 > 0]
    assert 0.2 < profile.test_rows / 2700 < 0.3


BAD = {
    "a misspelt target": ("fit houses.csv -t prise", "did you mean 'price'"),
    "a missing file": ("fit nowhere.csv -t price", "no file nowhere.csv"),
    "an empty file": ("fit empty.csv -t price", "empty.csv is empty"),
    "a header without rows": ("fit head.csv -t y", "no row has a value of 'y'"),
    "another delimiter": ("fit colons.csv -t y", "'y' is missing; the table has x:y"),
    "a broken Parquet file": ("fit broken.parquet -t price", "broken.parquet"),
    "mixed types": ("fit ragged.csv -t y", "ragged.csv"),
    "an unknown format": ("fit houses.xls -t y", "cannot tell the format"),
    "a checkpoint that is a table": (
        "fit mine.csv -t y --checkpoint new.csv -o x.zonal",
        "name another file",
    ),
    "too many strings": ("fit names.csv -t name", "too many for classes"),
    "one class": ("fit one.csv -t y --task classification", "same class"),
    "a missing model": ("predict nowhere.zonal new.csv", "nowhere.zonal: No such file"),
    "a file that is not a model": ("predict new.csv new.csv", "not a file of zonal"),
    "a damaged model": ("inspect damaged.zonal", "damaged or was altered"),
    "a missing column": ("predict price.zonal few.csv", "'town' is missing"),
    "a missing column in evaluate": (
        "evaluate price.zonal few.csv",
        "'town' is missing",
    ),
    "an output in a missing folder": (
        "fit houses.csv -t price -o no/m.zonal",
        "no folder",
    ),
    "an output of unknown format": (
        "predict price.zonal new.csv -o p.txt",
        "p.txt must end in",
    ),
    "an output that is a folder": ("fit houses.csv -t price -o parts", "is a folder"),
    "a bad duration": (
        "fit houses.csv -t price --max-time soon",
        "is not a duration",
    ),
    "a bad likelihood": ("fit houses.csv -t price --likelihood x", "'x' is not one of"),
    "a likelihood of another task": (
        "fit houses.csv -t price --task counts --likelihood probit",
        "is for --task classification",
    ),
    "an output that is the table": (
        "fit mine.csv -t y -o mine.csv",
        "already read or written",
    ),
    "predictions on the table": (
        "predict price.zonal new.csv -o new.csv",
        "already read",
    ),
    "a report on the model": (
        "fit mine.csv -t y -o m --report m",
        "read or written by",
    ),
    "a target that is dropped": ("fit houses.csv -t price --drop price", "is needed"),
    "a column with two roles": ("fit houses.csv -t price --weight price", "two roles"),
    "latitude that is longitude": (
        "fit houses.csv -t price --place id id",
        "two roles",
    ),
    "coordinates that are strings": (
        "fit houses.csv -t price --place town id",
        "is not numeric",
    ),
    "an infinite target": ("fit infinite.csv -t y", "infinite in row 3"),
    "a target of dates": ("fit dates.parquet -t when", "holds dates"),
    "a wide delimiter": ("fit houses.csv -t price --delimiter ;;", "not one character"),
    "a negative seed": ("fit houses.csv -t price --seed -1", "range"),
    "a weight that is an input": (
        "evaluate price.zonal new.csv --weight area",
        "two roles",
    ),
    "a class that only the test file has": (
        "fit mine.csv -t y --task classification --test other.csv -o tested.zonal",
        "testing it failed: ",
    ),
    "other models": ("merge price.zonal dear.zonal -o x.zonal", "same kind"),
    "one model": ("merge price.zonal -o x.zonal", "at least two models"),
    "rows that the model has not seen": (
        "forget price.zonal many.csv",
        "is not in the model",
    ),
    "an id like a prediction": ("predict price.zonal mean.csv --id mean", "--id mean"),
    "no such command": ("fot houses.csv", "No such command"),
}


@pytest.fixture(scope="module")
def bad(folder):
    """The folder with invalid files of every kind."""
    (folder / "empty.csv").write_text("")
    (folder / "head.csv").write_text("x,y\n")
    (folder / "colons.csv").write_text("x:y\n1:2\n3:4\n")
    (folder / "broken.parquet").write_bytes(b"PAR1 and then nothing")
    (folder / "ragged.csv").write_text("x,y\n1,2\n3,4,5\n")
    (folder / "houses.xls").write_text("x")
    (folder / "names.csv").write_text(
        "name,x\n" + "".join(f"n{number},1\n" for number in range(300))
    )
    (folder / "one.csv").write_text("x,y\n" + "1,a\n2,a\n" * 20)
    rows = [f"{number % 7},{'ab'[number % 2]}" for number in range(60)]
    (folder / "mine.csv").write_text("\n".join(["x,y", *rows]))
    (folder / "other.csv").write_text("\n".join(["x,y", *rows, "1,c"]))
    (folder / "infinite.csv").write_text("x,y\n1,2\n1,3\n1,4\n1,inf\n" + "1,2\n" * 30)
    when = pd.date_range("2020", periods=50, freq="D")
    pd.DataFrame({"x": np.arange(50.0), "when": when}).to_parquet(
        folder / "dates.parquet"
    )
    houses(10)[["area", "rooms"]].to_csv(folder / "few.csv", index=False)
    houses(10).assign(mean=1).to_csv(folder / "mean.csv", index=False)
    houses(400, seed=9).to_csv(folder / "many.csv", index=False)
    whole = bytearray((folder / "price.zonal").read_bytes())
    whole[-5] ^= 1
    (folder / "damaged.zonal").write_bytes(whole)
    return folder


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line(bad, monkeypatch, capsys, case):
    (bad / "tested.zonal").unlink(missing_ok=True)
    before = sorted(bad.rglob("*"))
    arguments, message = BAD[case]
    code, notes = run_here(bad, monkeypatch, *arguments.split())
    shown = notes + capsys.readouterr().err
    assert code == 2, shown
    assert message in shown
    assert "Traceback" not in shown
    (bad / "tested.zonal").unlink(missing_ok=True)  # saved before the test
    assert sorted(bad.rglob("*")) == before, "something was left behind"


def test_r2_of_targets_far_from_zero(tmp_path, monkeypatch, capsys):
    table = houses(120).assign(price=lambda t: t.price + 1e9)[["area", "price"]]
    table.to_csv(tmp_path / "far.csv", index=False)
    model = SphericalGPRegressor().fit(table[["area"]], table.price)
    model.save(tmp_path / "far.zonal")
    monkeypatch.setattr("zonal.tables.batches.BATCH_ROWS", 50)
    code, notes = run_here(
        tmp_path, monkeypatch, "evaluate", "far.zonal", "far.csv", "--json"
    )
    assert code == 0, notes
    metrics = json.loads(capsys.readouterr().out)
    expected = model.score(table[["area"]], table.price)
    assert metrics["r2"] == pytest.approx(expected, abs=1e-6)


def test_decimal_commas_are_numbers(tmp_path):
    lines = [f"{number},5;{number},25" for number in range(40)]
    (tmp_path / "commas.csv").write_text("\n".join(["x;y", *lines]))
    (batch,) = Stream.files(tmp_path / "commas.csv").batches()
    assert batch.frame["y"].to_pylist()[:2] == [0.25, 1.25]


def test_delimiters_in_quotes_do_not_count(tmp_path):
    (tmp_path / "quoted.csv").write_text('"size; m2; net","b",y\n1,2,3\n')
    assert Stream.files(tmp_path / "quoted.csv").names == ["size; m2; net", "b", "y"]


def test_other_files_in_a_folder_are_ignored(folder):
    names = Stream.files(folder / "parts").names
    (folder / "parts" / "model.zonal").write_text("a model")
    assert Stream.files(folder / "parts").names == names
    (folder / "parts" / "model.zonal").unlink()


def test_rows_without_coordinates_are_dropped(tmp_path, monkeypatch):
    generator = np.random.default_rng(5)
    table = pd.DataFrame({"lat": generator.uniform(-80, 80, 60)})
    table["lon"] = generator.uniform(-180, 180, 60)
    table["heat"] = np.cos(np.radians(table.lat)) + 0.01 * generator.normal(size=60)
    table.loc[:4, "lat"] = np.nan
    table.to_csv(tmp_path / "gaps.csv", index=False)
    arguments = [
        "fit",
        "gaps.csv",
        "-t",
        "heat",
        "--place",
        "lat",
        "lon",
        "-q",
        "-o",
        "m.zonal",
    ]
    code, notes = run_here(tmp_path, monkeypatch, *arguments)
    assert code == 0, notes
    model = load(tmp_path / "m.zonal")
    assert model.geometry == "sphere"
    assert model.n_samples_seen_ + model.metrics_["rows"] == 55


def test_a_closed_pipe_is_no_error(folder):
    done = subprocess.run(
        f"{sys.executable} -c 'from zonal.cli.main import main; main()' "
        "predict price.zonal houses.csv | true; exit ${PIPESTATUS[0]}",
        shell=True,
        executable="/bin/bash",
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_bad_input_in_its_own_process(bad):
    done = own_process(bad, "fit", "houses.csv", "-t", "prise")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    traced = own_process(bad, "--debug", "fit", "houses.csv", "-t", "prise")
    assert traced.returncode == 2
    assert "Traceback" in traced.stderr


def test_an_unwritable_folder_raises_before_the_fit(folder, monkeypatch):
    # Root may write everywhere, so the answer of the system is replaced.
    monkeypatch.setattr("os.access", lambda path, mode, **_: mode != os.W_OK)
    code, notes = run_here(
        folder, monkeypatch, "fit", "houses.csv", "-t", "price", "-o", "locked.zonal"
    )
    assert code == 2
    assert "is not writable; name a file elsewhere" in notes
    assert not (folder / "locked.zonal").exists()


def slow_table(path):
    generator = np.random.default_rng(2)
    x = generator.normal(size=(6000, 4))
    y = np.sin(3 * x[:, 0]) * x[:, 1] + 0.1 * generator.normal(size=6000)
    pd.DataFrame(x, columns=list("abcd")).assign(y=y).to_csv(path, index=False)


def test_an_interrupt_keeps_the_best_model(tmp_path):
    slow_table(tmp_path / "slow.csv")
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", "from zonal.cli.main import main; main()", "fit",
         "slow.csv", "-t", "y", "--features", "64"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    seen = ""
    assert process.stderr is not None
    for line in process.stderr:
        seen += line
        if line.strip().startswith("[") and "learning" in line:
            time.sleep(1.0)
            process.send_signal(signal.SIGINT)
            break
    out, rest = process.communicate(timeout=240)
    assert process.returncode == 0, seen + rest
    assert "stopped by an interrupt" in rest
    assert "RMSE" in out
    assert load(tmp_path / "model.zonal").metrics_["r2"] > 0


def test_an_interrupt_before_anything_leaves_nothing(tmp_path):
    slow_table(tmp_path / "slow.csv")
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", "from zonal.cli.main import main; main()", "fit",
         "slow.csv", "-t", "y", "--features", "64"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    assert process.stderr is not None
    for line in process.stderr:
        if "training rows" in line:
            process.send_signal(signal.SIGINT)
            break
    _, rest = process.communicate(timeout=240)
    assert process.returncode == 130, rest
    assert "interrupted" in rest
    assert sorted(path.name for path in tmp_path.iterdir()) == ["slow.csv"]


def test_time_is_limited(tmp_path):
    slow_table(tmp_path / "slow.csv")
    done = own_process(
        tmp_path, "fit", "slow.csv", "-t", "y", "--max-time", "1s", "--features", "64"
    )
    assert done.returncode == 0, done.stderr
    assert "the limit of 1 seconds" in done.stderr
