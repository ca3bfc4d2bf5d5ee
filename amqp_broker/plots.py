"""Small plots as inline SVG: lines over time, and bars. No script, no file beside the page.

    lines(Plot("Messages a minute", "messages"), times, {"came": [...], "went": [...]})

Each mark has a title, which a browser shows where the pointer is. Colours are those of the page's style sheet
(`s0` to `s5`), so that a plot is readable in light and dark.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Final

import attrs

WIDTH: Final = 720
HEIGHT: Final = 220
LEFT: Final = 64
RIGHT: Final = 12
TOP: Final = 12
BOTTOM: Final = 28
SKETCH_WIDTH: Final = 240
SKETCH_HEIGHT: Final = 56
SERIES: Final = 6
"""More series than these share no plot: nobody could tell their colours apart."""
MARKS_UP_TO: Final = 60

Number = float | int | None


@attrs.frozen
class Plot:
    """What stands around a plot: its title, and the unit of its values."""

    title: str
    unit: str
    log: bool = False


def lines(plot: Plot, times: Sequence[float], series: Mapping[str, Sequence[Number]]) -> str:
    """One line for each series over `times` (seconds of the Unix epoch); None is a hole."""
    named = dict(list(series.items())[:SERIES])
    values = [value for each in named.values() for value in each if value is not None]
    if not times or not values:
        return _empty(plot)
    scale = _Scale(plot, max(values), min(values))
    begin, span = times[0], max(times[-1] - times[0], 1.0)
    parts = [scale.grid(), *_time_ticks(begin, span)]
    for at, (name, each) in enumerate(named.items()):
        points = [
            None if value is None else (_x((time - begin) / span), scale.y(value), time, value)
            for time, value in zip(times, each, strict=True)
        ]
        parts.append(_polyline(points, at))
        if len(points) <= MARKS_UP_TO:
            parts += [_mark(point, at, name, plot) for point in points if point is not None]
    return _figure(plot, "".join(parts), list(named) if len(named) > 1 else [])


def bars(plot: Plot, values: Mapping[str, float]) -> str:
    """One horizontal bar for each name, in the order given."""
    if not values:
        return _empty(plot)
    most, step = max(max(values.values()), 1e-9), 26
    left, height = 240, TOP + step * len(values) + 4
    parts = []
    for at, (name, value) in enumerate(values.items()):
        top, length = TOP + at * step, (WIDTH - left - 90) * value / most
        # Isolated: a name that is read from right to left moves no digit beside it.
        shown = escape(f"\u2068{name if len(name) <= 36 else name[:35] + '…'}\u2069")
        parts.append(
            f'<text class="t" x="{left - 8}" y="{top + 13}" text-anchor="end">{shown}</text>'
            f'<rect class="s0 bar" x="{left}" y="{top}" width="{max(length, 1):.1f}" height="18" rx="3">'
            f"<title>{escape(name)}: {short(value)} {escape(plot.unit)}</title></rect>"
            f'<text class="t" x="{left + length + 6:.1f}" y="{top + 13}">{short(value)}</text>'
        )
    return _figure(plot, "".join(parts), [], height)


def sketch(came: Sequence[float], went: Sequence[float], waiting: Sequence[float]) -> str:
    """What came and went on one scale, and what waited on its own, filled; without numbers."""
    most, deep = max(*came, *went, 1.0), max(*waiting, 1.0)
    height = SKETCH_HEIGHT - 4

    def points(values: Sequence[float], top: float) -> str:
        wide = SKETCH_WIDTH / max(len(values) - 1, 1)
        pairs = [f"{at * wide:.1f} {2 + height * (1 - value / top):.1f}" for at, value in enumerate(values)]
        return " L".join(pairs if len(pairs) > 1 else [*pairs, f"{SKETCH_WIDTH} {pairs[0].split()[1]}"])

    area = f"M0 {SKETCH_HEIGHT} L{points(waiting, deep)} L{SKETCH_WIDTH} {SKETCH_HEIGHT} Z"
    return (
        f'<svg viewBox="0 0 {SKETCH_WIDTH} {SKETCH_HEIGHT}" preserveAspectRatio="none" aria-hidden="true">'
        f'<path class="a s1" d="{area}"/><path class="l s0" d="M{points(came, most)}"/>'
        f'<path class="l s2" d="M{points(went, most)}"/></svg>'
    )


def short(value: float) -> str:
    """A number as people read it: 1,234, 56.7, 1.20 M."""
    size = abs(value)
    if size >= 1e6:
        return f"{value / 1e6:,.2f} M"
    if size >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.3g}"


def ticks(most: float, about: int = 4) -> list[float]:
    """Round values from 0 to at least `most`."""
    if most <= 0:
        return [0.0, 1.0]
    rough = most / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    return [step * n for n in range(math.ceil(most / step) + 1)]


class _Scale:
    """The axis of the values; a logarithmic one begins at the decade of the smallest."""

    def __init__(self, plot: Plot, most: float, least: float) -> None:
        self._log = plot.log
        if plot.log:
            low = math.floor(math.log10(max(least, 0.01)))
            high = max(math.ceil(math.log10(max(most, 0.02))), low + 1)
            self._ticks = [10.0**n for n in range(low, high + 1)]
        else:
            self._ticks = ticks(most)
        self._low, self._high = self._of(self._ticks[0]), self._of(self._ticks[-1])

    def _of(self, value: float) -> float:
        return math.log10(max(value, 0.01)) if self._log else value

    def y(self, value: float) -> float:
        """Where a value stands."""
        share = (self._of(value) - self._low) / (self._high - self._low)
        return HEIGHT - BOTTOM - min(max(share, 0.0), 1.0) * (HEIGHT - TOP - BOTTOM)

    def grid(self) -> str:
        """A line and a number for each tick."""
        return "".join(
            f'<line class="g" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{self.y(tick):.1f}" '
            f'y2="{self.y(tick):.1f}"/><text class="t" x="{LEFT - 8}" y="{self.y(tick) + 4:.1f}" '
            f'text-anchor="end">{short(tick)}</text>'
            for tick in self._ticks
        )


def _x(share: float) -> float:
    return LEFT + share * (WIDTH - LEFT - RIGHT)


def _time_ticks(begin: float, span: float) -> list[str]:
    pattern = "%H:%M:%S" if span < 600 else "%H:%M" if span < 2 * 86400 else "%d %b"
    parts = []
    for at in range(5):
        share = at / 4
        anchor = "start" if at == 0 else "end" if at == 4 else "middle"
        time = datetime.fromtimestamp(begin + share * span, UTC)
        parts.append(
            f'<text class="t" x="{_x(share):.1f}" y="{HEIGHT - 8}" text-anchor="{anchor}">'
            f"{time:{pattern}}</text>"
        )
    return parts


_Point = tuple[float, float, float, float]


def _polyline(points: Sequence[_Point | None], at: int) -> str:
    """One path; a hole lifts the pen."""
    steps, pen = [], "M"
    for point in points:
        if point is None:
            pen = "M"
            continue
        steps.append(f"{pen}{point[0]:.1f} {point[1]:.1f}")
        pen = "L"
    return f'<path class="l s{at}" d="{" ".join(steps)}"/>'


def _mark(point: _Point, at: int, name: str, plot: Plot) -> str:
    time = datetime.fromtimestamp(point[2], UTC)
    said = f"{name}, {time:%Y-%m-%d %H:%M:%S} UTC: {short(point[3])} {plot.unit}"
    return (
        f'<circle class="m s{at}" cx="{point[0]:.1f}" cy="{point[1]:.1f}" r="3">'
        f"<title>{escape(said)}</title></circle>"
    )


def _figure(plot: Plot, inside: str, names: Sequence[str], height: int = HEIGHT) -> str:
    keys = "".join(
        f'<span title="{escape(name)}"><i class="k s{at}"></i><bdi>{escape(name)}</bdi></span>'
        for at, name in enumerate(names)
    )
    legend = f'<div class="legend">{keys}</div>' if keys else ""
    return (
        f"<figure><figcaption>{escape(plot.title)} <small>{escape(plot.unit)}</small></figcaption>{legend}"
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(plot.title)}">{inside}</svg>'
        "</figure>"
    )


def _empty(plot: Plot) -> str:
    return f"<figure><figcaption>{escape(plot.title)}</figcaption><p>nothing to show</p></figure>"
