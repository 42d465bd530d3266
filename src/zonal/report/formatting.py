"""Numbers, names and table values as strings for a report."""

import datetime
import html
from typing import Any

import numpy as np

__all__ = [
    "escape",
    "format_number",
    "format_percent",
    "format_time",
    "format_value",
    "truncate",
]

_MINUS = "−"


def escape(text: object) -> str:
    """Text escaped for HTML, SVG and attributes, without characters illegal in XML."""
    legal = "".join(char for char in str(text) if char >= " " or char in "\t\n")
    return html.escape(legal.replace("\ufffe", "").replace("\uffff", ""))


def format_number(value: float, digits: int = 4) -> str:
    """A number with `digits` significant digits.

    Examples
    --------
    >>> format_number(-1234.5), format_number(0.001234567), format_number(2.0)
    ('−1,234', '0.001235', '2')
    """
    if not np.isfinite(value):
        return "–"
    if value == 0:
        return "0"
    exponent = int(np.floor(np.log10(abs(value))))
    if exponent >= 9 or exponent < -4:
        mantissa, power = f"{value:.{max(digits - 2, 1)}e}".split("e")
        text = f"{mantissa}e{int(power)}"
    else:
        text = f"{value:,.{max(digits - 1 - exponent, 0)}f}"
        if "." in text:
            text = text.rstrip("0").rstrip(".")
    return text.replace("-", _MINUS)


def format_percent(share: float, places: int = 1) -> str:
    """A share in percent.

    Examples
    --------
    >>> format_percent(0.1234), format_percent(-0.01, 0)
    ('12.3 %', '−1 %')
    """
    if not np.isfinite(share):
        return "–"
    return f"{100 * share:.{places}f} %".replace("-", _MINUS)


def format_time(seconds: float) -> str:
    """Seconds since 1970 as a date, with the time of day unless it is midnight.

    Examples
    --------
    >>> format_time(86_400.0), format_time(90_000.0)
    ('1970-01-02', '1970-01-02 01:00')
    """
    date, _, time = str(np.datetime64(round(seconds), "s")).partition("T")
    return date if time == "00:00:00" else f"{date} {time[:5]}"


def format_value(value: Any) -> str:
    """A value of a table of any library.

    Examples
    --------
    >>> format_value(None), format_value(True), format_value(3.0), format_value("Ulm")
    ('missing', 'yes', '3', 'Ulm')
    """
    if hasattr(value, "as_py"):  # scalars of pyarrow
        value = value.as_py()
    if isinstance(value, str):
        return value
    # Comparisons with missing values of pandas are neither true nor false.
    if value is None or str(value) in ("nan", "<NA>", "NaT"):
        return "missing"
    if isinstance(value, (bool, np.bool_)):
        return "yes" if value else "no"
    if isinstance(value, (int, float, np.number)):
        return format_number(float(value))
    if isinstance(value, datetime.datetime):
        return value.isoformat(sep=" ", timespec="seconds").removesuffix(" 00:00:00")
    return str(value)


def truncate(name: object, length: int = 18) -> str:
    """A name of at most `length` characters, with an ellipsis if it is longer."""
    name = str(name)
    return name if len(name) <= length else name[: length - 1] + "…"
