"""Output of the command line: notes on stderr, results on stdout."""

import json
import math
from collections.abc import Sequence
from typing import Any

import click

__all__ = [
    "format_count",
    "format_duration",
    "format_table",
    "print_json",
    "print_note",
]


def print_note(text: str) -> None:
    """Print a line on stderr, apart from the results."""
    click.echo(text, err=True)


def format_table(rows: Sequence[tuple[str, str, str]]) -> str:
    """Names, values and explanations, aligned in columns."""
    names = max((len(name) for name, _, _ in rows), default=0)
    # Only values with an explanation behind them need padding.
    values = max((len(value) for _, value, meaning in rows if meaning), default=0)
    lines = []
    for name, value, meaning in rows:
        padded = f"{value:>{values}}" if meaning else value
        lines.append(f"{name:<{names}}  {padded}  {meaning}".rstrip())
    return "\n".join(lines)


def print_json(contents: dict[str, Any]) -> None:
    """Print results as JSON, with null for NaN and infinity."""
    click.echo(json.dumps(_replace_non_finite(contents), indent=2, ensure_ascii=False))


def _replace_non_finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _replace_non_finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_replace_non_finite(item) for item in value]
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def format_count(count: int, noun: str) -> str:
    """A count with its noun, in the plural unless it is one.

    Examples
    --------
    >>> format_count(1, "row"), format_count(2000, "row")
    ('1 row', '2,000 rows')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def format_duration(seconds: float) -> str:
    """A duration in hours, minutes and seconds.

    Examples
    --------
    >>> format_duration(4.2), format_duration(75.0), format_duration(7300.0)
    ('4 s', '1 min 15 s', '2 h 1 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
