"""Accuracy on the UCI regression sets beside every peer: `zonal bench uci`.

    python benchmarks/uci.py --table kin40k --table protein --splits 1
    python benchmarks/uci.py --method zonal --method lightgbm --splits 10

Options are those of ``zonal bench``; results are kept in benchmarks/results.
"""

import sys

from zonal.cli import main

if __name__ == "__main__":
    sys.argv[1:1] = ["bench", "uci"]
    main()
