"""Examples of the documentation that are no doctests are run as they stand.

Shell blocks and plain Python blocks are found in the pages, so a new one is run too, or
fails here because the world that it needs is not there. (Commands in the middle of a
sentence are not found.)
"""

import copy
import re
import shlex
from pathlib import Path

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from distributed import Client, LocalCluster

from zonal import SphericalGPRegressor, load
from zonal.cli.app import zonal as group

# What is shown does not depend on how long is learned.
pytestmark = pytest.mark.usefixtures("few_rounds")

PROJECT = Path(__file__).parents[2]
PAGES = [PROJECT / "README.md", *sorted((PROJECT / "docs").glob("*.md"))]
# What sets the project up, and what other tests run.
ELSEWHERE = ("make ", "pip ", "zonal demo", "ZONAL_DATA=data make ")


def blocks(language):
    """Blocks of a language in all pages that are no doctests."""
    pattern = re.compile(rf"^```{language}\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    return [
        pytest.param(block, id=f"{page.name}-{number}")
        for page in PAGES
        for number, block in enumerate(pattern.findall(page.read_text()))
        if not block.startswith(">>>")
    ]


def houses(seed, price=True):
    generator = np.random.default_rng(seed)
    area = generator.uniform(30, 200, 90).round(1)
    table = pd.DataFrame({"id": np.arange(90), "area": area})
    table["address"] = [f"{number} High Street" for number in range(90)]
    if price:
        table["price"] = 3 * area + 10 * generator.normal(size=90)
    return table


USED = ["area", "price"]


def flights():
    table = houses(4)[USED]
    table.columns = ["distance", "delay"]
    return table


@pytest.fixture(scope="module")
def of_houses(few_rounds):
    return SphericalGPRegressor().fit(houses(0)[USED], target="price")


@pytest.fixture(scope="module")
def of_flights(few_rounds):
    return SphericalGPRegressor().fit(flights(), target="delay")


@pytest.fixture
def folder(tmp_path, monkeypatch, of_houses):
    """Where the reader of an example is: some files, and a model."""
    monkeypatch.chdir(tmp_path)
    houses(0).to_csv("houses.csv", index=False)
    houses(1, price=False).to_csv("new.csv", index=False)
    houses(2).to_csv("monday.csv", index=False)
    of_houses.save("model.zonal")
    other = of_houses.emptied().partial_fit(houses(3)[USED], target="price")
    other.save("other.zonal")
    (tmp_path / "flights").mkdir()
    flights().to_parquet("flights/one.parquet")
    return tmp_path


def test_no_block_is_overlooked():
    text = "".join(page.read_text() for page in PAGES)
    assert set(re.findall(r"^ *```(\w+)", text, re.MULTILINE)) == {"sh", "python"}
    assert not re.search(r"^ +```", text, re.MULTILINE)


def written_by(arguments):
    """The files that a command says it writes."""
    options = [
        Path(arguments[index + 1])
        for index, word in enumerate(arguments)
        if word in ("--out", "--report")
    ]
    if arguments[0] in ("fit", "update", "forget"):
        options.append(Path("model.zonal"))
    return options


def contents(paths):
    return [path.read_bytes() if path.exists() else b"" for path in paths]


@pytest.mark.parametrize("block", blocks("sh"))
def test_shell(block, folder):
    lines = [line for line in block.splitlines() if line and not line.startswith("#")]
    assert lines
    rows = {"update": 180, "forget": 90}
    for line in lines:
        if line.startswith(ELSEWHERE):
            continue
        program, *arguments = shlex.split(line, comments=True)
        assert program == "zonal", f"no test runs {line!r}"
        paths = written_by(arguments)
        assert paths
        before = contents(paths)
        done = CliRunner().invoke(group, arguments)
        assert done.exit_code == 0, f"{line}: {done.output} {done.exception!r}"
        for path, old, new in zip(paths, before, contents(paths), strict=True):
            assert new, f"{line} wrote no {path}"
            assert new != old, f"{line} left {path} as it was"
        if arguments[0] in rows:
            assert load("model.zonal").n_samples_seen_ == rows[arguments[0]]
        if arguments[0] == "merge":
            assert load(paths[0]).n_samples_seen_ == 180


# Dask warns of ports in use and of clusters that close.
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("block", blocks("python"))
def test_python(block, folder, monkeypatch, of_flights):
    table = flights().assign(count=1)
    columns = ["distance"]
    frame = dd.from_pandas(table, npartitions=2)
    paths = [Path(name) for name in re.findall(r'"([\w.]+\.(?:html|zonal))"', block)]
    assert paths
    before = contents(paths)
    with LocalCluster(2, processes=False, dashboard_address=None) as local:
        monkeypatch.setattr("distributed.Client", lambda address: Client(local))
        world = {
            **{"SphericalGPRegressor": SphericalGPRegressor, "columns": columns},
            **{"dask_frame": frame[["distance", "delay"]], "frame": frame},
            **{"X_test": table[columns], "y_test": table["delay"]},
            # A copy: examples may change it.
            "model": copy.deepcopy(of_flights),
        }
        with Client(local):
            exec(compile(block, "example", "exec"), world)
        if "client" in world:
            world["client"].close()
    for old, new in zip(before, contents(paths), strict=True):
        assert new
        assert new != old
