"""Options that several commands share, and what they are turned into."""

import re
from collections.abc import Callable
from typing import Any

import click

__all__ = [
    "TIME",
    "data_argument",
    "delimiter_option",
    "json_option",
    "model_argument",
    "out_option",
    "quiet_option",
    "target_option",
    "weight_option",
]


class _Time(click.ParamType):
    """Seconds, or a number with s, m or h."""

    name = "TIME"
    _units = {"": 1, "s": 1, "m": 60, "h": 3600}  # noqa: RUF012

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        if isinstance(value, float):
            return value
        found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|m|h|)", str(value).strip())
        if not found or float(found[1]) == 0:
            self.fail(f"{value!r} is no time; give one such as 90, 90s, 2m or 1.5h")
        return float(found[1]) * self._units[found[2]]


class _Delimiter(click.ParamType):
    """One character."""

    name = "CHARACTER"

    def convert(self, value: Any, param: Any, ctx: Any) -> str:
        found = "\t" if value in ("\\t", "tab") else str(value)
        if len(found) != 1:
            self.fail(f"{value!r} is not one character; give one such as ; or tab")
        return found


TIME = _Time()
# Paths are checked where they are opened; this makes shells complete them.
_PATH = click.Path()

model_argument = click.argument("model", type=_PATH)
data_argument = click.argument("data", nargs=-1, required=True, type=_PATH)
delimiter_option = click.option(
    "--delimiter",
    type=_Delimiter(),
    help="What stands between values of CSV files, if the first line does not tell.",
)
target_option = click.option(
    "-t", "--target", help="The column with the target, if it was renamed."
)
weight_option = click.option(
    "--weight", help="The column that says how often each row counts."
)
quiet_option = click.option("-q", "--quiet", is_flag=True, help="Show no progress.")
json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print results as JSON."
)


def out_option(**more: Any) -> Callable[..., Any]:
    """Where to write, with what else there is to say of it."""
    return click.option("-o", "--out", type=_PATH, **more)
