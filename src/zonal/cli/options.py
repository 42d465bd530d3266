"""Options that several commands share, and their types."""

import re
from collections.abc import Callable
from typing import Any

import click

__all__ = [
    "DURATION",
    "data_argument",
    "delimiter_option",
    "json_option",
    "model_argument",
    "out_option",
    "quiet_option",
    "target_option",
    "weight_option",
]


class _Duration(click.ParamType):
    """Seconds, or a number followed by s, m or h."""

    name = "DURATION"
    _seconds = {"": 1, "s": 1, "m": 60, "h": 3600}  # noqa: RUF012

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        if isinstance(value, float):
            return value
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|m|h|)", str(value).strip())
        if not match or float(match[1]) == 0:
            self.fail(f"{value!r} is not a duration; use, for example, 90, 2m or 1.5h")
        return float(match[1]) * self._seconds[match[2]]


class _Delimiter(click.ParamType):
    """One character."""

    name = "CHARACTER"

    def convert(self, value: Any, param: Any, ctx: Any) -> str:
        character = "\t" if value in ("\\t", "tab") else str(value)
        if len(character) != 1:
            self.fail(f"{value!r} is not one character; use, for example, ; or tab")
        return character


DURATION = _Duration()
# Commands check paths themselves; the type is for completion in shells.
_PATH = click.Path()

model_argument = click.argument("model", type=_PATH)
data_argument = click.argument("data", nargs=-1, required=True, type=_PATH)
delimiter_option = click.option(
    "--delimiter",
    type=_Delimiter(),
    help="CSV delimiter; detected by default.",
)
target_option = click.option(
    "-t", "--target", help="Target column, if it has been renamed since the fit."
)
weight_option = click.option("--weight", help="Column with the weight of each row.")
quiet_option = click.option("-q", "--quiet", is_flag=True, help="Hide progress.")
json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print results as JSON."
)


def out_option(**settings: Any) -> Callable[..., Any]:
    """The option ``--out``, with further settings of click."""
    return click.option("-o", "--out", type=_PATH, **settings)
