"""Drawing: axes, lines, bands, points and bars as SVG that follows the page's colours.

Figures are drawn in a small frame, so that their texts can be read on a phone, and grow
with the page. Every mark can carry a sentence in a ``title``, which shows where the
mouse rests on it.
"""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from zonal.report.words import cut, escape, number

__all__ = ["Axis", "Plot", "bars"]

WIDTH, HEIGHT = 420, 270
_TOP, _RIGHT, _BOTTOM, _ROOM = 30, 14, 46, 4
# Width of a letter, on average.
_LETTER = 7.0
# The same on a phone, where letters are larger, and the longest name of a bar.
_WIDE_LETTER, _NAME = 8.2, 15


@dataclasses.dataclass(frozen=True)
class Axis:
    """A range of numbers, what they are, and where they are marked.

    ``ticks`` are places and texts; without them round numbers are chosen.
    """

    low: float
    high: float
    label: str
    log: bool = False
    ticks: tuple[tuple[float, str], ...] | None = None
    words: Callable[[float], str] = number

    @classmethod
    def around(cls, values: Sequence[float] | np.ndarray, label: str, **more) -> "Axis":
        """An axis with some room around values."""
        finite = np.asarray(values, np.float64)
        finite = finite[np.isfinite(finite)]
        low, high = (finite.min(), finite.max()) if len(finite) else (0.0, 1.0)
        room = 0.05 * (high - low) or 0.5 * max(abs(high), 1e-9)
        return cls(float(low - room), float(high + room), label, **more)

    def share(self, value):
        """Where a value lies between the ends, as 0 to 1."""
        if self.log:
            low, high = np.log10(self.low), np.log10(self.high)
            return (np.log10(value) - low) / (high - low)
        return (np.asarray(value) - self.low) / (self.high - self.low)

    def marks(self, most: int) -> list[tuple[float, str]]:
        """Places on the axis and what is written there."""
        if self.ticks is not None:
            return list(self.ticks)
        if self.log:
            first = int(np.ceil(np.log10(self.low) - 1e-9))
            last = int(np.floor(np.log10(self.high) + 1e-9))
            step = max(1, int(np.ceil((last - first + 1) / most)))
            return [(10.0**n, _power(n)) for n in range(first, last + 1, step)]
        rough = (self.high - self.low) / most
        size = 10.0 ** np.floor(np.log10(rough))
        step = next(size * f for f in (1, 2, 2.5, 5, 10) if size * f >= rough * 0.999)
        first = int(np.ceil(self.low / step - 1e-9))
        last = int(np.floor(self.high / step + 1e-9))
        return [(n * step, self.words(n * step)) for n in range(first, last + 1)]


def _power(exponent: int) -> str:
    if -2 <= exponent <= 3:
        return number(10.0**exponent)
    raised = str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"10{raised}"


class Plot:
    """A figure with two axes that marks are put on, the later above the earlier."""

    def __init__(self, x: Axis, y: Axis, about: str):
        self.x, self.y, self.about = x, y, about
        self._across = y.marks(5)
        widest = max((len(text) for _, text in self._across), default=1)
        self.left = 14 + _LETTER * widest
        self.right, self.bottom = WIDTH - _RIGHT, HEIGHT - _BOTTOM
        self._marks: list[str] = []

    def _px(self, value):
        return self.left + np.clip(self.x.share(value), -1, 2) * (
            self.right - self.left
        )

    def _py(self, value):
        return self.bottom - np.clip(self.y.share(value), -1, 2) * (self.bottom - _TOP)

    def _path(self, x, y) -> str:
        pairs = zip(np.atleast_1d(self._px(x)), np.atleast_1d(self._py(y)), strict=True)
        return " ".join(f"{one:.1f},{other:.1f}" for one, other in pairs)

    def line(self, x, y, kind: str) -> None:
        """A line through points."""
        self._marks.append(
            f'<polyline class="line {kind}" points="{self._path(x, y)}"/>'
        )

    def band(self, x, low, high, kind: str) -> None:
        """What lies between two lines."""
        x, low, high = map(np.asarray, (x, low, high))
        around = self._path(np.append(x, x[::-1]), np.append(low, high[::-1]))
        self._marks.append(f'<polygon class="band {kind}" points="{around}"/>')

    def points(
        self, x, y, kind: str, titles: Sequence[str], radius: float = 2.4
    ) -> None:
        """A dot for each row, with a sentence."""
        places = zip(self._px(np.asarray(x)), self._py(np.asarray(y)), strict=True)
        for (one, other), title in zip(places, titles, strict=True):
            self._marks.append(
                f'<circle class="dot {kind}" cx="{one:.1f}" cy="{other:.1f}" '
                f'r="{radius}"><title>{escape(title)}</title></circle>'
            )

    def columns(self, edges, heights, kind: str, titles: Sequence[str]) -> None:
        """Columns that stand on the axis."""
        edges, top = self._px(np.asarray(edges)), self._py(np.asarray(heights))
        pairs = zip(edges[:-1], edges[1:], top, titles, strict=True)
        for left, right, high, title in pairs:
            self._marks.append(
                f'<rect class="bar {kind}" x="{left + 0.7:.1f}" y="{high:.1f}" '
                f'width="{max(right - left - 1.4, 0.5):.1f}" '
                f'height="{max(self.bottom - high, 0):.1f}">'
                f"<title>{escape(title)}</title></rect>"
            )

    def whiskers(self, x, low, high, kind: str) -> None:
        """An upright line at each place."""
        for at, one, other in zip(x, low, high, strict=True):
            self.line([at, at], [one, other], kind)

    def _axes(self) -> str:
        parts = []
        for value, text in self._across:
            y = float(self._py(value))
            parts.append(
                f'<line class="grid" x1="{self.left:.1f}" x2="{self.right}" '
                f'y1="{y:.1f}" y2="{y:.1f}"/><text class="tick" text-anchor="end" '
                f'x="{self.left - 6:.1f}" y="{y + 4:.1f}">{escape(text)}</text>'
            )
        marks, after = self.x.marks(6), -np.inf
        for value, text in marks:
            x, half = float(self._px(value)), _LETTER * len(text) / 2
            parts.append(
                f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{self.bottom}" '
                f'y2="{self.bottom + 4}"/>'
            )
            if x - half < after:  # texts never run into each other
                continue
            x = min(x, WIDTH - half)
            after = x + half + 5
            parts.append(
                f'<text class="tick" text-anchor="middle" x="{x:.1f}" '
                f'y="{self.bottom + 18}">{escape(text)}</text>'
            )
        parts.append(
            f'<line class="axis" x1="{self.left:.1f}" x2="{self.right}" '
            f'y1="{self.bottom}" y2="{self.bottom}"/>'
            f'<text class="label" x="0" y="13">{escape(cut(self.y.label, 58))}</text>'
            f'<text class="label" text-anchor="end" x="{self.right}" '
            f'y="{HEIGHT - 6}">{escape(cut(self.x.label, 52))}</text>'
        )
        return "".join(parts)

    def svg(self) -> str:
        """The figure."""
        # What reaches beyond the axes is cut off by a frame of its own, with room for
        # the width of a line.
        x, y = self.left - _ROOM, _TOP - _ROOM
        width, height = self.right - self.left + 2 * _ROOM, self.bottom - y + _ROOM
        frame = f"{x:.1f} {y} {width:.1f} {height}"
        inner = (
            f'<svg x="{x:.1f}" y="{y}" width="{width:.1f}" height="{height}" '
            f'viewBox="{frame}">{"".join(self._marks)}</svg>'
        )
        return _svg(self.about, HEIGHT, self._axes() + inner)


def bars(
    about: str,
    names: Sequence[str],
    values: Sequence[float],
    texts: Sequence[str],
    ends: Sequence[tuple[float, float]] | None = None,
) -> str:
    """Bars one below the other, each with its name and value; ``ends`` are whiskers."""
    longest = min(max(map(len, names)), _NAME)
    step, left, right = 22, 12 + _WIDE_LETTER * longest, WIDTH - 70
    low = min(0.0, *values, *(one for one, _ in ends or []))
    high = max(0.0, *values, *(one for _, one in ends or [])) or 1.0

    def at(value: float) -> float:
        return left + (value - low) / (high - low) * (right - left)

    parts = []
    for place, (name, value, text) in enumerate(zip(names, values, texts, strict=True)):
        y, start, stop = place * step, *sorted((at(0.0), at(value)))
        title = escape(f"{name}: {text}")
        parts.append(
            f'<text class="tick" text-anchor="end" x="{left - 8:.1f}" y="{y + 15}">'
            f"{escape(cut(name, _NAME))}<title>{escape(name)}</title></text>"
            f'<rect class="bar s0" x="{start:.1f}" y="{y + 4}" height="{step - 8}" '
            f'width="{max(stop - start, 0.8):.1f}"><title>{title}</title></rect>'
            f'<text class="value" x="{right + 8}" y="{y + 15}">{escape(text)}</text>'
        )
        if ends is not None:
            one, other = map(at, ends[place])
            parts.append(
                f'<line class="line whisker" x1="{one:.1f}" x2="{other:.1f}" '
                f'y1="{y + step / 2}" y2="{y + step / 2}"/>'
            )
    return _svg(about, step * len(names) + 4, "".join(parts))


def _svg(about: str, height: int, inside: str) -> str:
    return (
        f'<svg role="img" viewBox="0 0 {WIDTH} {height}" '
        f'aria-label="{escape(about)}">{inside}</svg>'
    )
