"""The two charts of a report, curves and grouped bars, as SVG."""

import math
from collections.abc import Sequence
from html import escape

import numpy as np

# Distinguishable with the common kinds of colour blindness (Okabe and Ito).
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6d31", "#7f7f7f")
_WIDTH, _HEIGHT = 760, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 16, 14, 44


def curves(lines: Sequence[tuple[str, Sequence[int], np.ndarray]], *, x_title: str, y_title: str) -> str:
    """Return a chart with one curve per system.

    Args:
        lines: name, x values, y values.
        x_title: title of the horizontal axis.
        y_title: title of the vertical axis.
    """
    xs = lines[0][1]
    low, high = xs[0], max(xs[-1], xs[0] + 1)
    top = _round_up(max((float(np.nanmax(ys, initial=0)) for _, _, ys in lines), default=0))

    def at(x: float, y: float) -> tuple[float, float]:
        return (
            _LEFT + (x - low) / (high - low) * (_WIDTH - _LEFT - _RIGHT),
            _HEIGHT - _BOTTOM - y / top * (_HEIGHT - _TOP - _BOTTOM),
        )

    parts = [_y_axis(top, y_title)]
    step = max(1, math.ceil(len(xs) / 20))
    for x in xs[::step]:
        parts.append(_text(at(x, 0)[0], _HEIGHT - _BOTTOM + 18, str(x), "middle"))
    parts.append(_text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 6, x_title, "middle"))
    for number, (name, xs_of, ys) in enumerate(lines):
        colour = _COLOURS[number % len(_COLOURS)]
        points = [at(x, y) for x, y in zip(xs_of, ys, strict=True) if not math.isnan(y)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for (px, py), x, y in zip(points, xs_of, ys, strict=False):
            tip = escape(f"{name}: {y:.2f} at {x}")
            parts.append(f'<circle cx="{px:.1f}" cy="{py:.1f}" r="3" fill="{colour}"><title>{tip}</title></circle>')
    return _picture(parts, [name for name, _, _ in lines])


def bars(groups: Sequence[str], series: Sequence[tuple[str, Sequence[float]]], *, y_title: str) -> str:
    """Return a chart with one bar per system in each group.

    Args:
        groups: names of the groups.
        series: name and values of each system, one value per group.
        y_title: title of the vertical axis.
    """
    top = _round_up(max((v for _, values in series for v in values if not math.isnan(v)), default=0))
    space = (_WIDTH - _LEFT - _RIGHT) / max(len(groups), 1)
    wide = min(0.8 * space / max(len(series), 1), 48)
    parts = [_y_axis(top, y_title)]
    for place, group in enumerate(groups):
        middle = _LEFT + space * (place + 0.5)
        parts.append(_text(middle, _HEIGHT - _BOTTOM + 18, group, "middle"))
        for number, (name, values) in enumerate(series):
            value = values[place]
            if math.isnan(value):
                continue
            tall = value / top * (_HEIGHT - _TOP - _BOTTOM)
            x, y = middle + (number - len(series) / 2) * wide, _HEIGHT - _BOTTOM - tall
            colour, tip = _COLOURS[number % len(_COLOURS)], escape(f"{name}: {value:.2f}")
            parts.append(
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{wide - 2:.1f}" height="{tall:.1f}" fill="{colour}">'
                f"<title>{tip}</title></rect>"
            )
    return _picture(parts, [name for name, _ in series])


def _picture(parts: Sequence[str], names: Sequence[str]) -> str:
    """Return the chart with a legend below it, one line per system so that long names fit."""
    legend = []
    for number, name in enumerate(names):
        y = _HEIGHT + 8 + 20 * number
        colour = _COLOURS[number % len(_COLOURS)]
        legend.append(f'<rect x="{_LEFT}" y="{y}" width="12" height="12" fill="{colour}"/>')
        legend.append(_text(_LEFT + 20, y + 11, name, "start"))
    height = _HEIGHT + 8 + 20 * len(names)
    body = "\n".join([*parts, *legend])
    return f'<svg viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" role="img">\n{body}\n</svg>'


def _y_axis(top: float, title: str) -> str:
    parts = []
    for share in (0, 0.25, 0.5, 0.75, 1):
        y = _HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM)
        parts.append(
            f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#888" stroke-opacity="0.3"/>'
        )
        parts.append(_text(_LEFT - 8, y + 4, f"{share * top:g}", "end"))
    middle = (_TOP + _HEIGHT - _BOTTOM) / 2
    parts.append(
        f'<text x="14" y="{middle}" text-anchor="middle" transform="rotate(-90 14 {middle})">{escape(title)}</text>'
    )
    return "\n".join(parts)


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _round_up(value: float) -> float:
    """Return the end of the axis: the next of 1, 2, 4, 6, 8, 10, 20, 40, … that is not below the value."""
    if value <= 0:
        return 1
    power = 10 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 4, 6, 8, 10) if step * power >= value)
