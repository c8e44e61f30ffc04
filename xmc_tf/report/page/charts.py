"""The geometry of SVG charts. They are 440 units wide, so that their text is readable on a phone."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from xmc_tf.report.page.elements import clean

WIDTH, HEIGHT = 440, 280
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 14, 14, 46
_LEGEND = 20  # height of a line of the legend
_SERIES = 6  # colours of the style sheet


@dataclass(frozen=True)
class Axis:
    title: str
    low: float
    high: float
    ticks: tuple[float, ...] = ()  # default: five, evenly spread
    logarithmic: bool = False  # low must be above 0

    @property
    def marks(self) -> list[tuple[float, str]]:
        """The relative position and the text of each mark."""
        ticks = self.ticks or [self.low + share * (self.high - self.low) for share in (0, 0.25, 0.5, 0.75, 1)]
        return [
            (self.place(tick), f"{tick:,.0f}" if abs(tick) >= 1000 else f"{tick:.3g}")
            for tick in ticks
            if self.low <= tick <= self.high
        ]

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


class DrawnPoint(NamedTuple):
    x: float
    y: float
    about: str


class DrawnLine(NamedTuple):
    style: str
    points: list[DrawnPoint]
    dots: bool


class Bar(NamedTuple):
    style: str
    x: float
    y: float
    width: float
    height: float
    about: str


@dataclass(frozen=True)
class Chart:
    """All that the template draws. ``about`` is the description for screen readers."""

    x: Axis
    y: Axis
    about: str
    caption: str
    x_marks: list[tuple[float, str]]
    named: list[tuple[str, str]]  # the name and the style of each line or series
    lines: Sequence[DrawnLine] = ()
    bars: Sequence[Bar] = ()

    width: ClassVar[int] = WIDTH
    left: ClassVar[int] = _LEFT
    right: ClassVar[int] = WIDTH - _RIGHT
    bottom: ClassVar[int] = HEIGHT - _BOTTOM
    below: ClassVar[int] = HEIGHT - 8
    middle_x: ClassVar[float] = (_LEFT + WIDTH - _RIGHT) / 2
    middle_y: ClassVar[float] = (_TOP + HEIGHT - _BOTTOM) / 2

    @property
    def y_marks(self) -> list[tuple[float, str]]:
        return [(_y(at), mark) for at, mark in self.y.marks]

    @property
    def legend(self) -> list[tuple[int, str, str]]:
        """The height, the name and the style of each line of the legend, which a single series does not need."""
        if len(self.named) < 2:
            return []
        named = [one for one in self.named if one[0]]
        return [(HEIGHT + 6 + _LEGEND * number, *one) for number, one in enumerate(named)]

    @property
    def height(self) -> int:
        return HEIGHT + (6 + _LEGEND * len(self.legend) if self.legend else 0)


def line_chart(lines: Sequence[Line], x: Axis, y: Axis, about: str, caption: str = "") -> Chart:
    """Return a line chart. The default caption is ``about``."""
    named = [(line.name, line.style or f"s{number % _SERIES}") for number, line in enumerate(lines)]
    drawn = [
        DrawnLine(style, [
            DrawnPoint(_x(x.place(at)), _y(y.place(value)), f"{clean(line.name)}: {value:.4g} at {at:g}")
            for at, value in zip(line.xs, line.ys, strict=True)
            if not math.isnan(value)
        ], line.dots)
        for line, (_, style) in zip(lines, named, strict=True)
    ]  # fmt: skip
    return Chart(x, y, about, caption or about, [(_x(at), mark) for at, mark in x.marks], named, lines=drawn)


def bar_chart(
    groups: Sequence[str], series: Sequence[tuple[str, Sequence[float]]], y: Axis, x_title: str, about: str
) -> Chart:
    """Return a chart with one bar per series in each group. NaN has no bar."""
    space = (WIDTH - _LEFT - _RIGHT) / max(len(groups), 1)
    wide = min(0.76 * space / max(len(series), 1), 46)
    middles = [_LEFT + space * (place + 0.5) for place in range(len(groups))]
    named = [(name, f"s{number % _SERIES}") for number, (name, _) in enumerate(series)]
    bars = []
    for place, group in enumerate(groups):
        for number, (name, values) in enumerate(series):
            if not math.isnan(value := values[place]):
                top, left = _y(y.place(value)), middles[place] + (number - len(series) / 2) * wide
                title = f"{clean(name)}, {clean(group)}: {value:.2f}"
                bars.append(Bar(named[number][1], left + 1, top, wide - 2, max(_y(0) - top, 0), title))
    marks = [(middle, clean(group, 24)) for middle, group in zip(middles, groups, strict=True)]
    return Chart(Axis(x_title, 0, 1), y, about, about, marks, named, bars=bars)


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
