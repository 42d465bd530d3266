"""What the command line says: lines on stderr, results on stdout."""

import json
import math
from collections.abc import Sequence
from typing import Any

import click

__all__ = ["counted", "duration", "lines_of", "note", "print_json"]


def note(text: str) -> None:
    """A line beside the results."""
    click.echo(text, err=True)


def lines_of(rows: Sequence[tuple[str, str, str]]) -> str:
    """Names, values and what they mean, in columns."""
    names = max((len(name) for name, _, _ in rows), default=0)
    values = max((len(value) for _, value, meaning in rows if meaning), default=0)
    lines = []
    for name, value, meaning in rows:
        # A value that nothing follows may be as long as it likes.
        value = f"{value:>{values}}" if meaning else value
        lines.append(f"{name:<{names}}  {value}  {meaning}".rstrip())
    return "\n".join(lines)


def print_json(contents: dict[str, Any]) -> None:
    """Results for programs; what is no number is null."""
    click.echo(json.dumps(_finite(contents), indent=2, ensure_ascii=False))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _finite(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(one) for one in value]
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def counted(count: int, what: str) -> str:
    """A number of things.

    Examples
    --------
    >>> counted(1, "row"), counted(2000, "row")
    ('1 row', '2,000 rows')
    """
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def duration(seconds: float) -> str:
    """A time for a person.

    Examples
    --------
    >>> duration(4.2), duration(75.0), duration(7300.0)
    ('4 s', '1 min 15 s', '2 h 1 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
