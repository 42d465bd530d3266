"""Numbers and names as they are written in a report."""

import html

import numpy as np

__all__ = ["cut", "escape", "number", "percent", "time"]

_MINUS = "−"


def escape(text: object) -> str:
    """A text that stands for itself in HTML, in SVG and in attributes.

    Characters that XML has no place for are left out.
    """
    kept = "".join(one for one in str(text) if one >= " " or one in "\t\n")
    return html.escape(kept.replace("\ufffe", "").replace("\uffff", ""))


def number(value: float, digits: int = 4) -> str:
    """A number with so many digits that count.

    Examples
    --------
    >>> number(-1234.5), number(0.001234567), number(12345678.0), number(2.0)
    ('−1,234', '0.001235', '12,345,678', '2')
    """
    if not np.isfinite(value):
        return "–"
    if value == 0:
        return "0"
    size = int(np.floor(np.log10(abs(value))))
    if size >= 9 or size < -4:
        mantissa, exponent = f"{value:.{max(digits - 2, 1)}e}".split("e")
        found = f"{mantissa}e{int(exponent)}"
    else:
        found = f"{value:,.{max(digits - 1 - size, 0)}f}"
        if "." in found:
            found = found.rstrip("0").rstrip(".")
    return found.replace("-", _MINUS)


def percent(share: float, places: int = 1) -> str:
    """A share in percent.

    Examples
    --------
    >>> percent(0.1234), percent(-0.01, 0)
    ('12.3 %', '−1 %')
    """
    if not np.isfinite(share):
        return "–"
    return f"{100 * share:.{places}f} %".replace("-", _MINUS)


def time(seconds: float) -> str:
    """Seconds since 1970 as a date, with the hour where it is not midnight.

    Examples
    --------
    >>> time(86_400.0), time(90_000.0)
    ('1970-01-02', '1970-01-02 01:00')
    """
    found = str(np.datetime64(round(seconds), "s"))
    day, _, hour = found.partition("T")
    return day if hour == "00:00:00" else f"{day} {hour[:5]}"


def cut(name: object, most: int = 18) -> str:
    """A name, with an ellipsis where it is too long."""
    name = str(name)
    return name if len(name) <= most else name[: most - 1] + "…"
