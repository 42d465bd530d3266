"""Waiting times: importing zonal, and the first fits of a small table.

    python benchmarks/small.py [--rounds 3]

Each round runs new processes. The import is compared with that of jax and scikit-learn
alone. The fits are of 200 rows and 3 columns with default estimators: the first
includes compilation, the second is of another table of the same shape. The script
prints the best of all rounds.
"""

import argparse
import datetime
import os
import subprocess
import sys

IMPORTS = {
    "jax and scikit-learn": "import jax, sklearn.base, sklearn.utils.validation",
    "zonal": "import jax, sklearn.base, sklearn.utils.validation, zonal",
}
FITS = """
import time, warnings
import numpy as np
from zonal import SphericalGP{kind}
warnings.simplefilter("ignore")
for seed in (0, 1):
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(200, 3))
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * generator.normal(size=200)
    begin = time.perf_counter()
    SphericalGP{kind}().fit(X, {target})
    print(time.perf_counter() - begin)
"""


def run_script(script: str) -> list[float]:
    """Numbers printed by a script in a new process."""
    process = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return [float(line) for line in process.stdout.split()]


def time_statement(statement: str) -> str:
    return (
        "import time; begin = time.perf_counter()\n"
        f"{statement}\nprint(time.perf_counter() - begin)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    print(f"{os.cpu_count()} cores, {datetime.date.today()}, best of {rounds}")
    for name, statement in IMPORTS.items():
        best = min(run_script(time_statement(statement))[0] for _ in range(rounds))
        print(f"  import {name:24}{best:6.2f} s")
    for kind, target in (("Regressor", "y"), ("Classifier", "y > 0")):
        script = FITS.format(kind=kind, target=target)
        pairs = [run_script(script) for _ in range(rounds)]
        first, second = (min(times) for times in zip(*pairs, strict=True))
        print(f"  {kind:12}first fit {first:6.2f} s   second fit {second:6.2f} s")


if __name__ == "__main__":
    main()
