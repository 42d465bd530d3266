"""Progress: a live line on a terminal, plain lines elsewhere."""

import threading
import time
from types import TracebackType

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

from zonal.cli.output import format_duration
from zonal.learning.state import Step

__all__ = ["ProgressDisplay"]

# Seconds between two plain lines of the same phase.
_PAUSE = 5.0
_STAGES = {
    "start": "choosing starting values",
    "race": "choosing starting values",
    "round": "learning",
    "sizes": "choosing the numbers of features and neighbours",
    "widen": "learning with more features",
    "solve": "solving",
    "infer": "inferring",
}


class ProgressDisplay:
    """Shows passes over the rows and steps of learning on stderr.

    ``limit`` is the maximum number of seconds of learning, if there is one.
    """

    def __init__(self, quiet: bool = False, limit: float | None = None):
        self._quiet, self._limit = quiet, limit
        self._start = time.monotonic()
        self._phase, self._phase_start = "", self._start
        self._last_line = -_PAUSE
        self._passes = 0
        self._lock = threading.Lock()
        self._live: Progress | None = None
        console = Console(stderr=True)
        if console.is_terminal and not quiet:
            self._live = Progress(
                SpinnerColumn(),
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                TextColumn("{task.fields[detail]}"),
                TimeElapsedColumn(),
                console=console,
                transient=True,
            )
            self._task = self._live.add_task("", total=None, detail="")

    def __enter__(self) -> "ProgressDisplay":
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def print_line(self, text: str) -> None:
        """Print a line that stays."""
        if not self._quiet:
            click.echo(text, err=True)

    def show_rows(self, done: int, total: int | None) -> None:
        """Show the rows read in the current pass; a pass begins at zero rows."""
        with self._lock:
            if done == 0:
                self._passes += 1
            self._enter_phase(f"pass {self._passes} over the rows")
            detail = (
                f"{done:,} rows" if total is None else f"{done:,} of {total:,} rows"
            )
            elapsed = time.monotonic() - self._phase_start
            if done and elapsed > 0.5:
                rate = done / elapsed
                detail += f", {rate:,.0f} rows/s"
                if total is not None:
                    detail += f", {format_duration((total - done) / rate)} left"
            self._show(detail, float(done), None if total is None else float(total))

    def show_step(self, step: Step) -> None:
        """Show a step of learning; meant as a callback of the estimators."""
        with self._lock:
            self._enter_phase(
                _STAGES.get(step.stage, step.stage.replace("learn", "learning"))
            )
            detail = (
                f"step {step.number} on {step.rows:,} rows, "
                f"{step.measure} per row {step.bound:.4f}"
            )
            if self._limit is None:
                self._show(detail, None, None)
                return
            left = max(self._limit - step.seconds, 0.0)
            detail += f", at most {format_duration(left)} left"
            self._show(detail, step.seconds, self._limit)

    def _enter_phase(self, phase: str) -> None:
        if phase == self._phase:
            return
        self._phase, self._phase_start = phase, time.monotonic()
        self._last_line = -_PAUSE
        if self._live is not None:
            self._live.update(self._task, description=phase, total=None, completed=0)

    def _show(self, detail: str, done: float | None, total: float | None) -> None:
        if self._quiet:
            return
        if self._live is not None:
            self._live.update(
                self._task, total=total, completed=done or 0, detail=detail
            )
            return
        now = time.monotonic()
        if now - self._last_line >= _PAUSE:
            self._last_line = now
            elapsed = format_duration(now - self._start)
            click.echo(f"[{elapsed:>10}] {self._phase}: {detail}", err=True)
