"""SVG drawing: axes with lines, bands, points and bars, in the colours of the page.

Figures have a small view box, so that their text is legible on a phone, and scale with
the page. Marks can carry a title, which the page shows under the pointer.
"""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from zonal.report.formatting import escape, format_number, truncate

__all__ = ["Axis", "Plot", "draw_bars"]

WIDTH, HEIGHT = 420, 270
_TOP, _RIGHT, _BOTTOM, _MARGIN = 30, 14, 46, 4
# Average width of a letter, the same on a phone, and the longest name beside a bar.
_LETTER, _WIDE_LETTER, _LONGEST_NAME = 7.0, 8.2, 15
_BAR_STEP = 22


@dataclasses.dataclass(frozen=True)
class Axis:
    """A range of numbers with a label.

    ``ticks`` are pairs of position and text; round numbers are chosen by default.
    """

    low: float
    high: float
    label: str
    log: bool = False
    ticks: tuple[tuple[float, str], ...] | None = None
    format_tick: Callable[[float], str] = format_number

    @classmethod
    def around(
        cls, values: Sequence[float] | np.ndarray, label: str, **settings
    ) -> "Axis":
        """An axis that covers all finite values, with a margin."""
        finite = np.asarray(values, np.float64)
        finite = finite[np.isfinite(finite)]
        low, high = (finite.min(), finite.max()) if len(finite) else (0.0, 1.0)
        margin = 0.05 * (high - low) or 0.5 * max(abs(high), 1e-9)
        return cls(float(low - margin), float(high + margin), label, **settings)

    def scale(self, value):
        """Position of a value between the ends, from 0 to 1."""
        if self.log:
            low, high = np.log10(self.low), np.log10(self.high)
            return (np.log10(value) - low) / (high - low)
        return (np.asarray(value) - self.low) / (self.high - self.low)

    def choose_ticks(self, most: int) -> list[tuple[float, str]]:
        """Positions and texts of about `most` ticks."""
        if self.ticks is not None:
            return list(self.ticks)
        if self.log:
            first = int(np.ceil(np.log10(self.low) - 1e-9))
            last = int(np.floor(np.log10(self.high) + 1e-9))
            step = max(1, int(np.ceil((last - first + 1) / most)))
            return [(10.0**n, _format_power(n)) for n in range(first, last + 1, step)]
        rough = (self.high - self.low) / most
        size = 10.0 ** np.floor(np.log10(rough))
        step = next(size * f for f in (1, 2, 2.5, 5, 10) if size * f >= rough * 0.999)
        first = int(np.ceil(self.low / step - 1e-9))
        last = int(np.floor(self.high / step + 1e-9))
        return [(n * step, self.format_tick(n * step)) for n in range(first, last + 1)]


def _format_power(exponent: int) -> str:
    if -2 <= exponent <= 3:
        return format_number(10.0**exponent)
    superscript = str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"10{superscript}"


class Plot:
    """A figure with two axes and marks, drawn in the order in which they are added."""

    def __init__(self, x: Axis, y: Axis, description: str):
        self.x, self.y, self.description = x, y, description
        self._y_ticks = y.choose_ticks(5)
        longest = max((len(text) for _, text in self._y_ticks), default=1)
        self.left = 14 + _LETTER * longest
        self.right, self.bottom = WIDTH - _RIGHT, HEIGHT - _BOTTOM
        self._marks: list[str] = []

    def _to_px(self, value):
        width = self.right - self.left
        return self.left + np.clip(self.x.scale(value), -1, 2) * width

    def _to_py(self, value):
        height = self.bottom - _TOP
        return self.bottom - np.clip(self.y.scale(value), -1, 2) * height

    def _format_points(self, x, y) -> str:
        px, py = np.atleast_1d(self._to_px(x)), np.atleast_1d(self._to_py(y))
        return " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(px, py, strict=True))

    def add_line(self, x, y, kind: str) -> None:
        """A line through points."""
        self._marks.append(
            f'<polyline class="line {kind}" points="{self._format_points(x, y)}"/>'
        )

    def add_band(self, x, low, high, kind: str) -> None:
        """The area between two lines."""
        x, low, high = map(np.asarray, (x, low, high))
        outline = self._format_points(np.append(x, x[::-1]), np.append(low, high[::-1]))
        self._marks.append(f'<polygon class="band {kind}" points="{outline}"/>')

    def add_points(
        self, x, y, kind: str, titles: Sequence[str], radius: float = 2.4
    ) -> None:
        """Dots with titles."""
        px, py = self._to_px(np.asarray(x)), self._to_py(np.asarray(y))
        for a, b, title in zip(px, py, titles, strict=True):
            self._marks.append(
                f'<circle class="dot {kind}" cx="{a:.1f}" cy="{b:.1f}" '
                f'r="{radius}"><title>{escape(title)}</title></circle>'
            )

    def add_histogram(self, edges, heights, kind: str, titles: Sequence[str]) -> None:
        """Adjacent upright bars with titles."""
        edges, tops = self._to_px(np.asarray(edges)), self._to_py(np.asarray(heights))
        for left, right, top, title in zip(
            edges[:-1], edges[1:], tops, titles, strict=True
        ):
            self._marks.append(
                f'<rect class="bar {kind}" x="{left + 0.7:.1f}" y="{top:.1f}" '
                f'width="{max(right - left - 1.4, 0.5):.1f}" '
                f'height="{max(self.bottom - top, 0):.1f}">'
                f"<title>{escape(title)}</title></rect>"
            )

    def add_error_bars(self, x, low, high, kind: str) -> None:
        """An upright line at each position."""
        for position, start, end in zip(x, low, high, strict=True):
            self.add_line([position, position], [start, end], kind)

    def _draw_y_axis(self) -> str:
        parts = []
        for value, text in self._y_ticks:
            y = float(self._to_py(value))
            parts.append(
                f'<line class="grid" x1="{self.left:.1f}" x2="{self.right}" '
                f'y1="{y:.1f}" y2="{y:.1f}"/><text class="tick" text-anchor="end" '
                f'x="{self.left - 6:.1f}" y="{y + 4:.1f}">{escape(text)}</text>'
            )
        label = escape(truncate(self.y.label, 58))
        parts.append(f'<text class="label" x="0" y="13">{label}</text>')
        return "".join(parts)

    def _draw_x_axis(self) -> str:
        parts, previous_end = [], -np.inf
        for value, text in self.x.choose_ticks(6):
            x, half = float(self._to_px(value)), _LETTER * len(text) / 2
            parts.append(
                f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{self.bottom}" '
                f'y2="{self.bottom + 4}"/>'
            )
            if x - half < previous_end:  # texts must not overlap
                continue
            x = min(x, WIDTH - half)
            previous_end = x + half + 5
            parts.append(
                f'<text class="tick" text-anchor="middle" x="{x:.1f}" '
                f'y="{self.bottom + 18}">{escape(text)}</text>'
            )
        parts.append(
            f'<line class="axis" x1="{self.left:.1f}" x2="{self.right}" '
            f'y1="{self.bottom}" y2="{self.bottom}"/>'
            f'<text class="label" text-anchor="end" x="{self.right}" '
            f'y="{HEIGHT - 6}">{escape(truncate(self.x.label, 52))}</text>'
        )
        return "".join(parts)

    def render(self) -> str:
        """The figure as SVG."""
        # An inner frame clips marks beyond the axes, with a margin for line widths.
        x, y = self.left - _MARGIN, _TOP - _MARGIN
        width, height = self.right - self.left + 2 * _MARGIN, self.bottom - y + _MARGIN
        frame = f"{x:.1f} {y} {width:.1f} {height}"
        marks = (
            f'<svg x="{x:.1f}" y="{y}" width="{width:.1f}" height="{height}" '
            f'viewBox="{frame}">{"".join(self._marks)}</svg>'
        )
        axes = self._draw_y_axis() + self._draw_x_axis()
        return _wrap_svg(self.description, HEIGHT, axes + marks)


def draw_bars(
    description: str,
    names: Sequence[str],
    values: Sequence[float],
    texts: Sequence[str],
    ranges: Sequence[tuple[float, float]] | None = None,
) -> str:
    """Horizontal bars with names and values as SVG; ``ranges`` are error bars."""
    longest = min(max(map(len, names)), _LONGEST_NAME)
    left, right = 12 + _WIDE_LETTER * longest, WIDTH - 70
    low = min(0.0, *values, *(start for start, _ in ranges or []))
    high = max(0.0, *values, *(end for _, end in ranges or [])) or 1.0

    def to_px(value: float) -> float:
        return left + (value - low) / (high - low) * (right - left)

    parts = []
    for index, (name, value, text) in enumerate(zip(names, values, texts, strict=True)):
        y = index * _BAR_STEP
        start, end = sorted((to_px(0.0), to_px(value)))
        title = escape(f"{name}: {text}")
        parts.append(
            f'<text class="tick" text-anchor="end" x="{left - 8:.1f}" y="{y + 15}">'
            f"{escape(truncate(name, _LONGEST_NAME))}<title>{escape(name)}</title>"
            f'</text><rect class="bar s0" x="{start:.1f}" y="{y + 4}" '
            f'height="{_BAR_STEP - 8}" width="{max(end - start, 0.8):.1f}">'
            f"<title>{title}</title></rect>"
            f'<text class="value" x="{right + 8}" y="{y + 15}">{escape(text)}</text>'
        )
        if ranges is not None:
            start, end = map(to_px, ranges[index])
            middle = y + _BAR_STEP / 2
            parts.append(
                f'<line class="line whisker" x1="{start:.1f}" x2="{end:.1f}" '
                f'y1="{middle}" y2="{middle}"/>'
            )
    return _wrap_svg(description, _BAR_STEP * len(names) + 4, "".join(parts))


def _wrap_svg(description: str, height: int, content: str) -> str:
    return (
        f'<svg role="img" viewBox="0 0 {WIDTH} {height}" '
        f'aria-label="{escape(description)}">{content}</svg>'
    )
