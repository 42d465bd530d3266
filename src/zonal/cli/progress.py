"""What is being done, while it is: a live line on a terminal, plain lines elsewhere."""

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

from zonal.cli.words import duration
from zonal.learning.state import Step

__all__ = ["Display"]

# Seconds between two plain lines of the same phase.
_PAUSE = 5.0
_STAGES = {
    "start": "choosing a start",
    "widen": "learning with more features",
    "solve": "solving",
    "infer": "inferring",
}


class Display:
    """Tells of passes over the rows and steps of learning, on stderr.

    ``limit`` is how many seconds learning may take, if that is known.
    """

    def __init__(self, quiet: bool = False, limit: float | None = None):
        self._quiet, self._limit = quiet, limit
        self._begin = time.monotonic()
        self._phase, self._since, self._told_at = "", self._begin, -_PAUSE
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

    def __enter__(self) -> "Display":
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

    def say(self, text: str) -> None:
        """A line that stays."""
        if not self._quiet:
            click.echo(text, err=True)

    def rows(self, done: int, total: int | None) -> None:
        """Told how far a pass over the rows has come."""
        with self._lock:
            if done == 0:
                self._passes += 1
            self._enter(f"pass {self._passes} over the rows")
            detail = (
                f"{done:,} rows" if total is None else f"{done:,} of {total:,} rows"
            )
            spent = time.monotonic() - self._since
            if done and spent > 0.5:
                rate = done / spent
                detail += f", {rate:,.0f} rows/s"
                if total is not None:
                    detail += f", {duration((total - done) / rate)} left"
            self._show(detail, float(done), None if total is None else float(total))

    def step(self, step: Step) -> None:
        """Told of a step of learning, as a callback."""
        with self._lock:
            name = _STAGES.get(step.stage, step.stage.replace("learn", "learning"))
            self._enter(name)
            detail = (
                f"step {step.number} on {step.rows:,} rows, "
                f"bound a row {step.bound:.4f}"
            )
            if self._limit is None:
                self._show(detail, None, None)
                return
            left = max(self._limit - step.seconds, 0.0)
            detail += f", at most {duration(left)} left"
            self._show(detail, step.seconds, self._limit)

    def _enter(self, phase: str) -> None:
        if phase == self._phase:
            return
        self._phase, self._since = phase, time.monotonic()
        self._told_at = -_PAUSE
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
        if now - self._told_at >= _PAUSE:
            self._told_at = now
            spent = duration(now - self._begin)
            click.echo(f"[{spent:>10}] {self._phase}: {detail}", err=True)
