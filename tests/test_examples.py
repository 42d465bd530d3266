"""Examples of the documentation that are no doctests are run as they stand.

Shell blocks and plain Python blocks are found in the pages, so a new one is run too, or
fails here because the world that it needs is not there.
"""

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

PROJECT = Path(__file__).parent.parent
PAGES = [PROJECT / "README.md", *sorted((PROJECT / "docs").glob("*.md"))]
# What sets the project up, and what other tests run.
ELSEWHERE = ("make ", "pip ", "zonal demo", "zonal bench", "ZONAL_DATA=data zonal ")


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


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where the reader of an example is: some files, and a model."""
    monkeypatch.chdir(tmp_path)
    houses(0).to_csv("houses.csv", index=False)
    houses(1, price=False).to_csv("new.csv", index=False)
    houses(2).to_csv("monday.csv", index=False)
    used = ["area", "price"]
    model = SphericalGPRegressor().fit(houses(0)[used], target="price")
    model.save("model.zonal")
    model.emptied().partial_fit(houses(3)[used], target="price").save("other.zonal")
    (tmp_path / "flights").mkdir()
    flights = houses(4)[["area", "price"]]
    flights.columns = ["distance", "delay"]
    flights.to_parquet("flights/one.parquet")
    return tmp_path


@pytest.mark.parametrize("block", blocks("sh"))
def test_shell(block, folder):
    lines = [line for line in block.splitlines() if line and not line.startswith("#")]
    assert lines
    for line in lines:
        if line.startswith(ELSEWHERE):
            continue
        program, *arguments = shlex.split(line, comments=True)
        assert program == "zonal", f"no test runs {line!r}"
        done = CliRunner().invoke(group, arguments)
        assert done.exit_code == 0, f"{line}: {done.output} {done.exception!r}"
        if "--out" in arguments:
            assert Path(arguments[arguments.index("--out") + 1]).stat().st_size > 0
    if "zonal merge" in block:
        # Monday's rows were added and taken out again.
        assert load("both.zonal").models_[0].statistics.rows == 180


# Dask warns of ports in use and of clusters that close.
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("block", blocks("python"))
def test_python(block, folder, monkeypatch):
    flights = pd.read_parquet("flights/one.parquet").assign(count=1)
    columns = ["distance"]
    frame = dd.from_pandas(flights, npartitions=2)
    with LocalCluster(2, processes=False, dashboard_address=None) as local:
        monkeypatch.setattr("distributed.Client", lambda address: Client(local))
        world = {
            **{"SphericalGPRegressor": SphericalGPRegressor, "columns": columns},
            **{"dask_frame": frame[["distance", "delay"]], "frame": frame},
            **{"X_test": flights[columns], "y_test": flights["delay"]},
            "model": SphericalGPRegressor().fit(flights[columns], flights["delay"]),
        }
        with Client(local):
            exec(compile(block, "example", "exec"), world)
        if "client" in world:
            world["client"].close()
    written = [Path(name) for name in re.findall(r'"([\w.]+\.(?:html|zonal))"', block)]
    assert written
    assert all(path.stat().st_size > 0 for path in written)
