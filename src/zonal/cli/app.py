"""The group of commands, and errors as sentences."""

import importlib
import os
import sys
import traceback
import warnings
from typing import Any

import click

from zonal import __version__
from zonal.cli.words import note

__all__ = ["run", "zonal"]

# Commands, and where each is defined: importing them all would take its time.
_COMMANDS = {
    "fit": "fitting",
    "predict": "using",
    "evaluate": "using",
    "report": "using",
    "inspect": "editing",
    "update": "editing",
    "forget": "editing",
    "merge": "editing",
    "figure": "tools",
    "demo": "tools",
    "doctor": "tools",
    "completion": "tools",
}
# What people can mend: told in a sentence.
_MENDABLE = (ValueError, TypeError, OSError, ImportError)
INPUT_ERROR, INTERNAL_ERROR, INTERRUPTED = 2, 1, 130


class _Commands(click.Group):
    """Commands that are imported when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module = importlib.import_module(f"zonal.cli.{_COMMANDS[cmd_name]}")
        return getattr(module, cmd_name)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # Whoever reads our output has seen enough.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0

    def format_commands(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        # Importing every command to list it would take seconds.
        with formatter.section("Commands"):
            formatter.write_dl([(name, _SHORT[name]) for name in _COMMANDS])


_SHORT = {
    "fit": "Train a model on a file and check it on rows kept aside.",
    "predict": "Predict the rows of a file, with uncertainty.",
    "evaluate": "Measure a model on rows with known targets.",
    "report": "Write an HTML report of a model on held-out rows.",
    "inspect": "Show what a model has learned.",
    "update": "Add rows to a model, without training again.",
    "forget": "Take rows out of a model.",
    "merge": "Join models of the same fit that have seen different rows.",
    "figure": "Draw a figure that explains the model.",
    "demo": "Train on a small table that is built in, and report.",
    "doctor": "Show versions, devices and threads.",
    "completion": "Print a script that completes commands in your shell.",
}


@click.command(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done, 1 a fault in zonal, 2 bad input, 130 interrupted "
    "before there was anything to keep.",
)
@click.version_option(__version__, prog_name="zonal")
@click.option("--debug", is_flag=True, help="Show where in the code an error arose.")
def zonal(debug: bool) -> None:
    """Gaussian processes on tables, with uncertainty to be trusted.

    \b
    A first model and its predictions:
      zonal fit houses.csv --target price --out houses.zonal
      zonal predict houses.zonal new.csv --out prices.csv
    """


def run(arguments: list[str] | None = None) -> None:
    """Run a command and end the process with its exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    warnings.showwarning = lambda message, *_: note(f"note: {message}")
    try:
        code = zonal.main(given, prog_name="zonal", standalone_mode=False)
    except (click.exceptions.Abort, KeyboardInterrupt):
        note("stopped")
        code = INTERRUPTED
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except Exception as error:
        code = _failed(error, "--debug" in given)
    sys.exit(code if isinstance(code, int) else 0)


def _failed(error: Exception, debug: bool) -> int:
    if debug:
        traceback.print_exception(error)
    if isinstance(error, ImportError):
        note(f'error: {error}; pip install "zonal[cli,plot]"')
        return INPUT_ERROR
    if isinstance(error, _MENDABLE):
        note(f"error: {_sentence(error)}")
        return INPUT_ERROR
    note(
        f"error: {type(error).__name__}: {_sentence(error)}\n"
        "This is a fault in zonal. With `zonal --debug ...` it says where."
    )
    return INTERNAL_ERROR


def _sentence(error: Any) -> str:
    """What an error says, on one line."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split())
