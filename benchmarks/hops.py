"""How often a person who reads one fit has to change files.

    PYTHONPATH=src python benchmarks/hops.py [--order "regressor fit"]

A profile hook records the functions of zonal that one call runs, in all threads:

files      distinct files of these functions
hops       distinct pairs of files (A, B) where a function in A calls one in B, directly
           or through another library
returns    hops to a file that was entered before: hops - (files - 1), as long as
           every file but the first is entered by a hop
functions  distinct functions
changes    changes of file in the list of functions, ordered by first call

By this definition, a fit of `SphericalGPRegressor` has 120 hops between 34 files in
version 0.1, and 87 of them are returns. Comprehensions and lambdas belong to the
function that contains them. Code that runs while a module is imported does not count,
nor does code that dataclasses generate. A function that numba compiled is invisible.

The table has 500 rows and 3 columns, the classifier 2 classes, and both 32 features.
Each estimator runs in a process of its own, because JAX runs a function only when it
traces it.

``--order`` prints the functions of one call instead, each with the function that called
it first, and the hops.
"""

import argparse
import functools
import inspect
import itertools
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import numpy as np

import zonal

PACKAGE = Path(zonal.__path__[0])
ESTIMATORS = {
    "regressor": "SphericalGPRegressor",
    "classifier": "SphericalGPClassifier",
}
CALLS = [f"{kind} {call}" for kind in ESTIMATORS for call in ("fit", "predict")]


class Function(NamedTuple):
    """A function of the package: its file, and its name with its class."""

    file: str
    name: str

    def __str__(self) -> str:
        return f"{self.file}: {self.name}"


class Reading:
    """The functions that run in a ``with`` block, and the first caller of each."""

    def __init__(self):
        self.callers: dict[Function, Function | None] = {}
        self.hops: dict[tuple[str, str], tuple[Function, Function]] = {}
        self._imports = 0

    def __enter__(self):
        threading.setprofile(self._record)
        sys.setprofile(self._record)
        return self

    def __exit__(self, *error):
        sys.setprofile(None)
        threading.setprofile(None)

    def _record(self, frame: FrameType, event: str, argument: Any) -> None:
        if event not in ("call", "return"):
            return
        if frame.f_code.co_name == "<module>":
            self._imports += 1 if event == "call" else -1
        if event == "return" or self._imports:
            return
        function = function_of(frame.f_code)
        if function is None or frame.f_code.co_name.startswith("<"):
            return
        caller = caller_of(frame)
        self.callers.setdefault(function, caller)
        if caller is not None and caller.file != function.file:
            self.hops.setdefault((caller.file, function.file), (caller, function))

    @property
    def files(self) -> list[str]:
        return list(dict.fromkeys(function.file for function in self.callers))

    @property
    def returns(self) -> int:
        entered = {self.files[0]}
        count = 0
        for _, file in self.hops:
            count += file in entered
            entered.add(file)
        return count

    @property
    def changes(self) -> int:
        runs = itertools.groupby(self.callers, key=lambda function: function.file)
        return sum(1 for _ in runs) - 1


@functools.cache
def function_of(code: CodeType) -> Function | None:
    """The package's function that some code belongs to, or None for other code."""
    path = Path(code.co_filename)
    if not path.is_relative_to(PACKAGE) or not code.co_flags & inspect.CO_NEWLOCALS:
        return None
    # ``f.<locals>.<lambda>`` belongs to f.
    parts = code.co_qualname.split(".<locals>.")
    named = itertools.takewhile(lambda part: not part.startswith("<"), parts)
    return Function(path.relative_to(PACKAGE).as_posix(), ".".join(named))


def caller_of(frame: FrameType) -> Function | None:
    """The nearest function of the package that a frame runs for."""
    above = frame.f_back
    while above is not None:
        function = function_of(above.f_code)
        if function is not None:
            return function
        above = above.f_back
    return None


def readings(kind: str) -> dict[str, Reading]:
    """What a fit and a prediction of one estimator read."""
    generator = np.random.default_rng(0)
    X = generator.normal(size=(500, 3))
    y = np.sin(2 * X[:, 0]) + generator.normal(size=500) / 10
    model = getattr(zonal, ESTIMATORS[kind])(32)
    with Reading() as fit:
        model.fit(X, y > 0 if kind == "classifier" else y)
    with Reading() as predict:
        model.predict(X[:10])
    return {f"{kind} fit": fit, f"{kind} predict": predict}


def print_counts(kind: str) -> None:
    for call, found in readings(kind).items():
        counts = (len(found.files), len(found.hops), found.returns)
        counts += (len(found.callers), found.changes)
        print(f"{call:20}", *(f"{count:9}" for count in counts))


def print_order(call: str) -> None:
    found = readings(call.split()[0])[call]
    print(f"# {call}: functions in the order of their first call, and first callers\n")
    for file, functions in itertools.groupby(found.callers, lambda one: one.file):
        print(file)
        for function in functions:
            caller = found.callers[function]
            print(f"    {function.name:45} {'' if caller is None else caller}".rstrip())
    print(f"\n# {call}: hops, and the first call of each\n")
    entered = {found.files[0]}
    for (start, end), (caller, function) in found.hops.items():
        back = "back" if end in entered else ""
        entered.add(end)
        print(f"{back:4} {start} -> {end}: {caller.name} calls {function.name}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--only", choices=list(ESTIMATORS), help="one estimator")
    choice.add_argument("--order", choices=CALLS, help="functions of one call")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.order:
        print_order(options.order)
        return
    if options.only:
        print_counts(options.only)
        return
    names = ("files", "hops", "returns", "functions", "changes")
    print(" " * 20, *(f"{name:>9}" for name in names), flush=True)
    for kind in ESTIMATORS:
        subprocess.run([sys.executable, __file__, "--only", kind], check=True)


if __name__ == "__main__":
    main()
