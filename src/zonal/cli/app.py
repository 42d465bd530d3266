"""The group of commands, and exceptions as one-line messages."""

import importlib
import os
import sys
import traceback
import warnings
from typing import Any

import click

from zonal import __version__
from zonal.cli.output import print_note

__all__ = ["run", "zonal"]

# Module and one-line help of each command: importing them all would take seconds.
_COMMANDS = {
    "fit": ("fitting", "Train a model on a file and test it on held-out rows."),
    "predict": ("predicting", "Predict the rows of a file, with uncertainty."),
    "evaluate": ("predicting", "Score a model on rows with known targets."),
    "report": ("predicting", "Write an HTML report of a model on held-out rows."),
    "inspect": ("editing", "Show the parameters and test scores of a model."),
    "update": ("editing", "Add rows to a model without retraining."),
    "forget": ("editing", "Remove rows from a model without retraining."),
    "merge": ("editing", "Merge models of the same fit that have seen different rows."),
    "figure": ("depth_figure", "Draw a figure that explains the model."),
    "demo": ("demo", "Train on a small built-in table and write a report."),
    "doctor": ("doctor", "Show versions, devices and threads."),
    "completion": ("completion", "Print a script for shell completion."),
}
# Exceptions with a message that tells users how to correct their input.
_INPUT_ERRORS = (ValueError, TypeError, OSError, ImportError)
INPUT_ERROR, INTERNAL_ERROR, INTERRUPTED = 2, 1, 130


class _LazyGroup(click.Group):
    """Group that imports a command when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module, _ = _COMMANDS[cmd_name]
        return getattr(importlib.import_module(f"zonal.cli.{module}"), cmd_name)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # The reader of the pipe has closed it, as `head` does.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0

    def format_commands(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])


@click.command(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 success, 1 internal error, 2 invalid input, 130 interrupted "
    "before a model was available.",
)
@click.version_option(__version__, prog_name="zonal")
@click.option("--debug", is_flag=True, help="Print the traceback of an error.")
def zonal(debug: bool) -> None:
    """Gaussian processes for tables, with calibrated uncertainty.

    \b
    Train a model and predict:
      zonal fit houses.csv --target price --out houses.zonal
      zonal predict houses.zonal new.csv --out prices.csv
    """


def run(arguments: list[str] | None = None) -> None:
    """Run a command and end the process with its exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    warnings.showwarning = lambda message, *_: print_note(f"warning: {message}")
    try:
        code = zonal.main(arguments, prog_name="zonal", standalone_mode=False)
    except (click.exceptions.Abort, KeyboardInterrupt):
        print_note("interrupted")
        code = INTERRUPTED
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except Exception as error:
        code = _report_error(error, "--debug" in arguments)
    sys.exit(code if isinstance(code, int) else 0)


def _report_error(error: Exception, debug: bool) -> int:
    if debug:
        traceback.print_exception(error)
    if isinstance(error, ImportError):
        print_note(f'error: {error}; pip install "zonal[cli,plot]"')
        return INPUT_ERROR
    if isinstance(error, _INPUT_ERRORS):
        print_note(f"error: {_format_error(error)}")
        return INPUT_ERROR
    print_note(
        f"error: {type(error).__name__}: {_format_error(error)}\n"
        "This is a bug in zonal. Run `zonal --debug ...` for the traceback."
    )
    return INTERNAL_ERROR


def _format_error(error: Exception) -> str:
    """The message of an exception, on one line."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split())
