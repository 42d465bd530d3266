"""Runs: a method meets a split in a process of its own, and what is found is kept.

Results are JSON files, one for each table of an experiment, with a record for each
method and split: scores, seconds, rows predicted a second, the most memory that the
process had (imports and data included), versions, machine and date. What is stored
already is not run again unless that is asked for. A method that fails is recorded as
failing, with the reason; one that is not installed, or has no data, is only told of.
"""

import collections
import dataclasses
import datetime
import importlib.metadata
import json
import multiprocessing
import os
import resource
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from zonal.engine.passes import core_count
from zonal_bench.methods import OURS, Method, Settings, UnaffordableError
from zonal_bench.peers import PEERS
from zonal_bench.scores import class_numbers, number_scores
from zonal_bench.tables import Split

__all__ = ["METHODS", "Case", "judged", "perform", "stored"]

METHODS: dict[str, Method] = {method.name: method for method in (*OURS, *PEERS)}
# Judged again where so much more time has passed since it was judged last.
_APART = 1.3
# What says nothing of a method, and is not stored.
_NOT_THERE = ("not installed", "no data")
# A process may take so many times the limit before it is given up, and so many seconds
# to start and to read its table.
_PATIENCE = 3
_STARTING = 60.0
_LEAST_LIMIT = Settings().limit


@dataclasses.dataclass(frozen=True, order=True)
class Case:
    """One meeting of a method and a split of a table."""

    experiment: str
    table: str
    method: str
    split: int = 0

    def __str__(self) -> str:
        return f"{self.table} {self.split}, {self.method}"


Measure = Callable[[Case, Path | None, Settings], dict[str, Any]]
Record = dict[str, Any]


def judged(method: Method, split: Split, settings: Settings) -> Record:
    """Train a method on a split, judge it on the way and at the end."""
    steps = method.train(split, settings)
    seconds, last, answer, curve = 0.0, 0.0, None, []
    begin = time.perf_counter()
    for answer in steps:
        seconds += time.perf_counter() - begin
        if seconds > _APART * last:
            curve.append({"seconds": seconds, **_scores(answer.predict, split)})
            last = seconds
        if seconds > settings.limit:
            steps.close()
            break
        begin = time.perf_counter()
    if answer is None:
        raise RuntimeError(f"{method.name} learned nothing")
    begin = time.perf_counter()
    scores = _scores(answer.predict, split)
    rate = len(split.y_test) / (time.perf_counter() - begin)
    return {
        "scores": scores,
        "seconds": seconds,
        "rows_a_second": rate,
        "rows": len(split.y),
        "columns": split.x.shape[1],
        "curve": curve if len(curve) > 1 else [],
        **answer.told,
    }


def _scores(predict: Callable[[np.ndarray], Any], split: Split) -> dict[str, Any]:
    found = predict(split.x_test)
    if split.classes:
        scores = class_numbers(np.asarray(found, np.float64), split.y_test)
    else:
        scores = number_scores(found, split.y_test)
    wrong = [name for name in ("rmse", "nll", "log_loss") if name in scores]
    if not np.all(np.isfinite([scores[name] for name in wrong])):
        raise FloatingPointError("its predictions are not finite")
    return scores


def perform(
    cases: Iterable[Case],
    measure: Measure,
    data: Path | None,
    results: Path,
    settings: Settings = Settings(),  # noqa: B008 (it cannot change)
    again: bool = False,
    say: Callable[[str], Any] = print,
    apart: bool = True,
    limits: Mapping[str, float] | None = None,
) -> list[Record]:
    """Run the cases that are not stored yet, and store them.

    Parameters
    ----------
    cases
        What is to be run, in order.
    measure
        What is run: from a case, the data and settings to a part of a record.
    data
        The folder with the data.
    results
        The folder that results are kept in.
    again
        Whether what is stored is run again.
    say
        Where a line for each run goes.
    apart
        Whether each has a process of its own, for its memory to be told and its time
        to be limited.
    limits
        Seconds for methods that have a limit of their own.
    """
    found = []
    for case in cases:
        path = results / case.experiment / f"{case.table}.json"
        known = _records(path)
        key = (case.method, case.split)
        if key in known and not again:
            found.append(known[key])
            continue
        limit = (limits or {}).get(case.method, settings.limit)
        seed = settings.seed + case.split
        told = dataclasses.replace(settings, seed=seed, limit=limit)
        if apart:
            record = _alone(measure, case, data, told)
        else:
            record = _attempted(measure, case, data, told)
        record = dataclasses.asdict(case) | record | _circumstances(case)
        if settings.steps is not None:
            record["steps"] = settings.steps
        say(line(record))
        found.append(record)
        if record.get("failed", "").startswith(_NOT_THERE):
            continue
        known = _records(path) | {key: record}
        path.parent.mkdir(parents=True, exist_ok=True)
        ordered = [known[one] for one in sorted(known)]
        text = json.dumps(_rounded(ordered), indent=1)
        beside = path.with_suffix(".new")
        beside.write_text(text + "\n")
        beside.replace(path)
    return found


def stored(results: Path) -> dict[str, dict[str, list[Record]]]:
    """All records, by experiment and table."""
    found: dict[str, dict[str, list[Record]]] = collections.defaultdict(dict)
    for path in sorted(results.glob("*/*.json")):
        found[path.parent.name][path.stem] = list(_records(path).values())
    return dict(found)


def line(record: Record) -> str:
    """One record for people to read while others run."""
    name = f"{record['table']:22}{record['split']:3}  {record['method']:24}"
    if "failed" in record:
        return f"{name}failed: {record['failed']}"
    scores = "  ".join(
        f"{key} {value:8.4f}"
        for key, value in record.get("scores", {}).items()
        if isinstance(value, float)
    )
    depth = f"  depth {record['depth']}" if "depth" in record else ""
    return f"{name}{scores}{depth}  {record['seconds']:6.1f} s"


def _records(path: Path) -> dict[tuple[str, int], Record]:
    if not path.exists():
        return {}
    return {
        (record["method"], record["split"]): record
        for record in json.loads(path.read_text())
    }


def _alone(
    measure: Measure, case: Case, data: Path | None, settings: Settings
) -> Record:
    """Measure in a process of its own, and give it up if it takes for ever."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(
        target=_measured, args=(theirs, measure, case, data, settings)
    )
    process.start()
    theirs.close()
    # A limit is for what improves step by step; a first step may take longer.
    patience = _STARTING + _PATIENCE * max(settings.limit, _LEAST_LIMIT)
    try:
        if not ours.poll(patience):
            return {"failed": f"not done after {patience:.0f} s"}
        return ours.recv()
    except EOFError:
        process.join()
        return {"failed": f"its process ended with code {process.exitcode}"}
    finally:
        process.kill()
        process.join()


def _measured(pipe: Connection, *what: Any) -> None:
    warnings.simplefilter("ignore")
    pipe.send(_attempted(*what))


def _attempted(
    measure: Measure, case: Case, data: Path | None, settings: Settings
) -> Record:
    """What is measured, or why it was not."""
    try:
        record = measure(case, data, settings)
    except ImportError as error:
        record = {"failed": f"{_NOT_THERE[0]}: {error.name or error}"}
    except FileNotFoundError as error:
        record = {"failed": f"{_NOT_THERE[1]}: {error}"}
    except UnaffordableError as error:
        record = {"failed": str(error)}
    except Exception as error:  # whatever a peer does is a result
        said = str(error).strip().split("\n")[0][:200]
        record = {"failed": f"{type(error).__name__}: {said}"}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return record | {"peak_mb": peak}


def _circumstances(case: Case) -> Record:
    """Versions, machine and date."""
    method = METHODS.get(case.method)
    packages = {"zonal", "jax", "numpy"} | ({method.package} if method else set())
    versions = {}
    for package in sorted(packages):
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "versions": versions,
        "machine": {"cores": core_count(), "memory_gb": round(memory)},
        "date": datetime.date.today().isoformat(),
    }


def _rounded(value: Any) -> Any:
    """Six digits are enough to keep."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_rounded(one) for one in value]
    return value
