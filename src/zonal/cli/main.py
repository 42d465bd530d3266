"""The command line: a trained, checked and explained model, without a line of Python.

`app` has the group and turns errors into sentences; `fitting`, `using`, `editing` and
`tools` have the commands, `options` what they share; `data` opens tables and splits
them, `progress` shows what is being done, `scores` measures on held-out rows and
`words` says it.
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
