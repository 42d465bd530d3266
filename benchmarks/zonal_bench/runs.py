"""Runs: each method is trained on a split in its own process, and scores are stored.

Results are JSON files, one per table of an experiment, with a record per method and
split: scores, seconds, rows predicted per second, peak memory of the process (with
imports and data), versions, machine and date. Stored runs are repeated on request only.
Failures are stored with their reason, unless the package or the data are missing.
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
from zonal_bench.methods import ZONAL_METHODS, Method, Settings, UnaffordableError
from zonal_bench.peers import PEERS
from zonal_bench.scores import score_classes, score_numbers
from zonal_bench.tables import Split

__all__ = ["METHODS", "Case", "evaluate_method", "load_results", "run_cases"]

METHODS: dict[str, Method] = {
    method.name: method for method in (*ZONAL_METHODS, *PEERS)
}
# Ratio of training times between two scores of a curve.
_CURVE_RATIO = 1.3
# Failures that say nothing about a method are not stored.
_UNAVAILABLE = ("not installed", "no data")
# A process is killed after this multiple of the limit, plus seconds to start and to
# read its table.
_PATIENCE = 3
_STARTING = 60.0
_LEAST_LIMIT = Settings().limit


@dataclasses.dataclass(frozen=True, order=True)
class Case:
    """A method and a split of a table."""

    experiment: str
    table: str
    method: str
    split: int = 0

    def __str__(self) -> str:
        return f"{self.table} {self.split}, {self.method}"


Measure = Callable[[Case, Path | None, Settings], dict[str, Any]]
Record = dict[str, Any]


def evaluate_method(method: Method, split: Split, settings: Settings) -> Record:
    """Train a method on a split, with scores during training and at the end."""
    steps = method.train(split, settings)
    seconds, last, answer, curve = 0.0, 0.0, None, []
    begin = time.perf_counter()
    for answer in steps:
        seconds += time.perf_counter() - begin
        if seconds > _CURVE_RATIO * last:
            curve.append({"seconds": seconds, **_score(answer.predict, split)})
            last = seconds
        if seconds > settings.limit:
            steps.close()
            break
        begin = time.perf_counter()
    if answer is None:
        raise RuntimeError(f"{method.name} yielded no model")
    begin = time.perf_counter()
    scores = _score(answer.predict, split)
    rate = len(split.y_test) / (time.perf_counter() - begin)
    return {
        "scores": scores,
        "seconds": seconds,
        "rows_a_second": rate,
        "rows": len(split.y),
        "columns": split.x.shape[1],
        "curve": curve if len(curve) > 1 else [],
        **answer.facts,
    }


def _score(predict: Callable[[np.ndarray], Any], split: Split) -> dict[str, Any]:
    predictions = predict(split.x_test)
    if split.classes:
        scores = score_classes(np.asarray(predictions, np.float64), split.y_test)
    else:
        scores = score_numbers(predictions, split.y_test)
    errors = [name for name in ("rmse", "nll", "log_loss") if name in scores]
    if not np.all(np.isfinite([scores[name] for name in errors])):
        raise FloatingPointError("predictions are not finite")
    return scores


def run_cases(
    cases: Iterable[Case],
    measure: Measure,
    data: Path | None,
    results: Path,
    settings: Settings = Settings(),  # noqa: B008 (it cannot change)
    again: bool = False,
    log: Callable[[str], Any] = print,
    own_process: bool = True,
    limits: Mapping[str, float] | None = None,
) -> list[Record]:
    """Run the cases that are not stored yet, and store their records.

    Parameters
    ----------
    cases
        Cases in order.
    measure
        Function from a case, the data folder and settings to a record.
    data
        Data folder.
    results
        Folder with results.
    settings
        Seed and limits.
    again
        Whether to repeat stored runs.
    log
        Function that prints a line per run.
    own_process
        Whether each run has its own process, to measure its memory and limit its time.
    limits
        Time limits of single methods, in seconds.
    """
    records = []
    for case in cases:
        path = results / case.experiment / f"{case.table}.json"
        known = _load_records(path)
        key = (case.method, case.split)
        if key in known and not again:
            records.append(known[key])
            continue
        limit = (limits or {}).get(case.method, settings.limit)
        seed = settings.seed + case.split
        case_settings = dataclasses.replace(settings, seed=seed, limit=limit)
        run = _run_in_process if own_process else _run_here
        record = run(measure, case, data, case_settings)
        record = dataclasses.asdict(case) | record | _describe_environment(case)
        if settings.steps is not None:
            record["steps"] = settings.steps
        log(format_record(record))
        records.append(record)
        if record.get("failed", "").startswith(_UNAVAILABLE):
            continue
        known = _load_records(path) | {key: record}
        path.parent.mkdir(parents=True, exist_ok=True)
        ordered = [known[key] for key in sorted(known)]
        text = json.dumps(_round_floats(ordered), indent=1)
        temporary = path.with_suffix(".new")
        temporary.write_text(text + "\n")
        temporary.replace(path)
    return records


def load_results(results: Path) -> dict[str, dict[str, list[Record]]]:
    """All records, by experiment and table."""
    tables: dict[str, dict[str, list[Record]]] = collections.defaultdict(dict)
    for path in sorted(results.glob("*/*.json")):
        tables[path.parent.name][path.stem] = list(_load_records(path).values())
    return dict(tables)


def format_record(record: Record) -> str:
    """One line on a run."""
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


def _load_records(path: Path) -> dict[tuple[str, int], Record]:
    if not path.exists():
        return {}
    return {
        (record["method"], record["split"]): record
        for record in json.loads(path.read_text())
    }


def _run_in_process(
    measure: Measure, case: Case, data: Path | None, settings: Settings
) -> Record:
    """Run a case in a new process, which is killed if it takes too long."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(
        target=_send_record, args=(sender, measure, case, data, settings)
    )
    process.start()
    sender.close()
    # The first step of an iterative method may take longer than the limit.
    patience = _STARTING + _PATIENCE * max(settings.limit, _LEAST_LIMIT)
    try:
        if not receiver.poll(patience):
            return {"failed": f"not finished after {patience:.0f} s"}
        return receiver.recv()
    except EOFError:
        process.join()
        return {"failed": f"process ended with code {process.exitcode}"}
    finally:
        process.kill()
        process.join()


def _send_record(pipe: Connection, *arguments: Any) -> None:
    warnings.simplefilter("ignore")
    pipe.send(_run_here(*arguments))


def _run_here(
    measure: Measure, case: Case, data: Path | None, settings: Settings
) -> Record:
    """The record of a case, or the reason of its failure."""
    try:
        record = measure(case, data, settings)
    except ImportError as error:
        record = {"failed": f"{_UNAVAILABLE[0]}: {error.name or error}"}
    except FileNotFoundError as error:
        record = {"failed": f"{_UNAVAILABLE[1]}: {error}"}
    except UnaffordableError as error:
        record = {"failed": str(error)}
    except Exception as error:  # any failure of a peer is a result
        message = str(error).strip().split("\n")[0][:200]
        record = {"failed": f"{type(error).__name__}: {message}"}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return record | {"peak_mb": peak}


def _describe_environment(case: Case) -> Record:
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


def _round_floats(value: Any) -> Any:
    """A value with all numbers rounded to six digits."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: _round_floats(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_round_floats(item) for item in value]
    return value
