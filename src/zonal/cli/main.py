"""The command line: train, test and explain a model without writing Python.

`app` has the group of commands and turns exceptions into messages. The commands are in
`fitting`, `predicting`, `editing`, `depth_figure`, `demo`, `doctor` and `completion`,
and their shared options in `options`. `data` reads tables and splits them, `progress`
shows progress, `metrics` describes scores and `output` prints.
"""

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line."""
    try:
        from zonal.cli.app import run
    except ImportError as error:
        if error.name != "click":
            raise
        sys.exit('the command line needs more packages: pip install "zonal[cli]"')
    run()
