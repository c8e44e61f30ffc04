"""SVG charts. They are 440 units wide, so that their text is readable on a phone."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from xmc_tf.report.page.elements import Html, text

WIDTH, HEIGHT = 440, 280
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 14, 14, 46
_LEGEND = 20  # height of a line of the legend
_SERIES = 6  # colours of the style sheet
_NAME_LENGTH = 48


@dataclass(frozen=True)
class Axis:
    title: str
    low: float
    high: float
    ticks: tuple[float, ...] = ()  # default: five, evenly spread
    logarithmic: bool = False  # low must be above 0

    @property
    def marks(self) -> tuple[float, ...]:
        return self.ticks or tuple(self.low + share * (self.high - self.low) for share in (0, 0.25, 0.5, 0.75, 1))

    def place(self, value: float) -> float:
        """Return the relative position of a value on the axis, from 0 to 1."""
        if self.logarithmic:
            return math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        return (value - self.low) / ((self.high - self.low) or 1)


@dataclass(frozen=True)
class Line:
    name: str  # in the legend
    xs: Sequence[float]
    ys: Sequence[float]  # NaN: left out
    dots: bool = False
    style: str = ""  # CSS class (default: the colour of its place)


def line_chart(lines: Sequence[Line], x: Axis, y: Axis, about: str, caption: str = "") -> Html:
    """Return a line chart. ``about`` is the description for screen readers and the default caption."""
    parts = [_axes(x, y)]
    for number, line in enumerate(lines):
        style = line.style or f"s{number % _SERIES}"
        points = [
            (_x(x.place(at)), _y(y.place(value)), at, value)
            for at, value in zip(line.xs, line.ys, strict=True)
            if not math.isnan(value)
        ]
        path = " ".join(f"{px:.1f},{py:.1f}" for px, py, _, _ in points)
        parts.append(f'<polyline class="line {style}" points="{path}"/>')
        if line.dots:
            parts += [
                f'<circle class="dot {style}" cx="{px:.1f}" cy="{py:.1f}" r="3.2">'
                f"<title>{text(line.name)}: {value:.4g} at {at:g}</title></circle>"
                for px, py, at, value in points
            ]
    named = [(line.name, line.style or f"s{number % _SERIES}") for number, line in enumerate(lines) if line.name]
    return _figure(parts, named if len(lines) > 1 else [], about, caption or about)


def bar_chart(
    groups: Sequence[str], series: Sequence[tuple[str, Sequence[float]]], y: Axis, x_title: str, about: str
) -> Html:
    """Return a chart with one bar per series in each group. ``about`` is the caption, also for screen readers."""
    parts = [_axes(Axis(x_title, 0, 1, (-1.0,)), y)]
    space = (WIDTH - _LEFT - _RIGHT) / max(len(groups), 1)
    wide = min(0.76 * space / max(len(series), 1), 46)
    for place, group in enumerate(groups):
        middle = _LEFT + space * (place + 0.5)
        parts.append(
            f'<text x="{middle:.1f}" y="{HEIGHT - _BOTTOM + 17}" text-anchor="middle">{text(group, 24)}</text>'
        )
        for number, (name, values) in enumerate(series):
            if math.isnan(values[place]):
                continue
            top = _y(y.place(values[place]))
            left = middle + (number - len(series) / 2) * wide
            parts.append(
                f'<rect class="bar s{number % _SERIES}" x="{left + 1:.1f}" y="{top:.1f}" width="{wide - 2:.1f}" '
                f'height="{max(HEIGHT - _BOTTOM - top, 0):.1f}"><title>{text(name)}, {text(group)}: '
                f"{values[place]:.2f}</title></rect>"
            )
    named = [(name, f"s{number % _SERIES}") for number, (name, _) in enumerate(series)]
    return _figure(parts, named if len(series) > 1 else [], about, about)


def axis_to(values: Sequence[float], title: str) -> Axis:
    """Return a vertical axis from 0 to a round number that is at least the largest value."""
    top = max((value for value in values if not math.isnan(value)), default=0)
    power = 10 ** math.floor(math.log10(top)) if top > 0 else 1
    return Axis(title, 0, next(step * power for step in (1, 2, 4, 6, 8, 10) if step * power >= top))


def axis_around(values: Sequence[float], title: str) -> Axis:
    seen = [value for value in values if not math.isnan(value)]
    low, high = min(seen, default=0), max(seen, default=1)
    return Axis(title, low, high if high > low else low + 1)


def _x(share: float) -> float:
    return _LEFT + share * (WIDTH - _LEFT - _RIGHT)


def _y(share: float) -> float:
    return HEIGHT - _BOTTOM - share * (HEIGHT - _TOP - _BOTTOM)


def _axes(x: Axis, y: Axis) -> Html:
    parts = []
    for mark in y.marks:
        at = _y(y.place(mark))
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 7}" y="{at + 4:.1f}" text-anchor="end">{_number(mark)}</text>')
    for mark in x.marks:
        if x.low <= mark <= x.high:
            at = _x(x.place(mark))
            parts.append(f'<text x="{at:.1f}" y="{HEIGHT - _BOTTOM + 17}" text-anchor="middle">{_number(mark)}</text>')
    middle = (_TOP + HEIGHT - _BOTTOM) / 2
    parts.append(
        f'<text x="{(_LEFT + WIDTH - _RIGHT) / 2}" y="{HEIGHT - 8}" text-anchor="middle">{text(x.title)}</text>'
        f'<text x="13" y="{middle}" text-anchor="middle" transform="rotate(-90 13 {middle})">{text(y.title)}</text>'
    )
    return "\n".join(parts)


def _figure(parts: Sequence[Html], named: Sequence[tuple[str, str]], about: str, caption: str) -> Html:
    """Return the chart with a legend below it. Each name has a line of its own, so that long names fit."""
    legend = []
    for number, (name, style) in enumerate(named):
        at = HEIGHT + 6 + _LEGEND * number
        legend.append(f'<line class="line {style}" x1="{_LEFT}" x2="{_LEFT + 26}" y1="{at + 6}" y2="{at + 6}"/>')
        legend.append(f'<text x="{_LEFT + 34}" y="{at + 10}">{text(name, _NAME_LENGTH)}</text>')
    height = HEIGHT + (6 + _LEGEND * len(named) if named else 0)
    body = "\n".join([*parts, *legend])
    svg = f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{text(about, 400)}">\n{body}\n</svg>'
    return f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>"


def side_by_side(*figures: Html) -> Html:
    """Return figures that are shown side by side, or below each other on a small screen."""
    return f'<div class="figures">{"".join(figures)}</div>'


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
