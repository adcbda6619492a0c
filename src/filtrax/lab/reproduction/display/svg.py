"""Renders charts as SVG, a text format that browsers show and version control can compare.

Pictures have a background and follow the reader's preference for light or dark, so that they are
readable on any page. Series differ in colour, dash and marker, to be distinguishable without
colours.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from filtrax.lab.report.charts import Chart, Numbers, Series
from filtrax.lab.reproduction.display.ticks import Scale, number, scale_of

_LIGHT = ("#0b62a4", "#c2490a", "#007a5a", "#a03d7c", "#806500", "#3f4650", "#b3202a", "#5b4bb5")
_DARK = ("#6cb6ff", "#ff9d5c", "#4fd1a5", "#f09ccf", "#e0c257", "#cdd3da", "#ff8a8f", "#b3a6ff")
_DASHES = ("", "7 3", "2 3", "9 3 2 3", "12 4", "4 2")
_MARKERS = (
    ("a3.5 3.5 0 1 1 -.01 0z", 3.5),
    ("h3.2v6.4h-6.4v-6.4z", 3.2),
    ("l4.2 7.2h-8.4z", 4.2),
    ("l4.6 4.6l-4.6 4.6l-4.6 -4.6z", 4.6),
)
"""Paths of circle, square, triangle and diamond, and how far above the centre they start."""

_NUM_STYLES = len(_LIGHT)
_REFERENCE = _NUM_STYLES
"""The gray style of references, after the coloured ones."""

_HEIGHT = 330
_PLOT = (66.0, 470.0)
"""Left and right edge of the plot in a line chart; the legend is on its right."""

_COLOURS = np.asarray(
    [(68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37)], np.float64
)
"""Five colours of viridis (van der Walt & Smith), a perceptually uniform colour map."""


@dataclass(frozen=True)
class HeatMap:
    """Numbers on a grid of squares.

    Attributes:
        title: The quantity, with its unit.
        values: The numbers, rows from top to bottom; squares without a finite number stay empty.
        edges: The edges of the squares, the same along both axes.
        x: The label of the horizontal axis, with its unit.
        y: The label of the vertical axis, with its unit.
    """

    title: str
    values: np.ndarray
    edges: np.ndarray
    x: str
    y: str


def line_chart(chart: Chart, places: Sequence[str] = ()) -> str:
    """Draws lines over common axes; the bands of series become error bars.

    **Arguments:**

    - `chart`: the chart to draw.
    - `places`: labels for x = 0, 1, 2, …, if the horizontal axis shows names.
    """
    left, right = _PLOT
    top, bottom = 44.0, _HEIGHT - 56.0
    xs = [series.x for series in chart.series]
    ys = [edge for s in chart.series for edge in (s.y, s.low, s.high)]
    if places:
        x = Scale(-0.5, len(places) - 0.5, left, right)
    else:
        x = scale_of(chart.x, xs, left, right)
    y = scale_of(chart.y, ys, bottom, top)
    parts = [_text(chart.title, left, 24.0, "title", "start")]
    parts += _vertical_axis(y, chart.y.label, left, right)
    parts += _named_places(x, places, bottom) if places else _horizontal_ticks(x, bottom, top)
    parts.append(_text(chart.x.label, (left + right) / 2, bottom + 38, "label"))
    for series in chart.series:
        parts += _series(series, x, y)
    parts += _legend(chart.series, right + 18, top)
    return _picture(680, _HEIGHT, chart.title, parts)


def heat_maps(title: str, maps: Sequence[HeatMap]) -> str:
    """Draws heat maps side by side, each with its own colour bar."""
    width, size = 330, 210.0
    parts = [_text(title, 20.0, 24.0, "title", "start")]
    for i, shown in enumerate(maps):
        parts += _heat_map(shown, 66.0 + i * width, 64.0, size)
    return _picture(width * len(maps) + 20, _HEIGHT, title, parts)


def _heat_map(shown: HeatMap, left: float, top: float, size: float) -> list[str]:
    values = np.asarray(shown.values, np.float64)
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    high = high if high > low else low + 1.0
    first, last = float(shown.edges[0]), float(shown.edges[-1])
    x, y = Scale(first, last, left, left + size), Scale(first, last, top, top + size)
    parts = [_text(shown.title, left, top - 10, "label", "start")]
    for row, column in np.ndindex(values.shape):
        value = float(values[row, column])
        if math.isfinite(value):
            fill = _colour((value - low) / (high - low))
            corners = [shown.edges[i] for i in (column, column + 1, row, row + 1)]
            x0, x1, y0, y1 = (s(float(c)) for s, c in zip((x, x, y, y), corners, strict=True))
            parts.append(_rectangle(x0, y0, x1 - x0, y1 - y0, fill))
    bottom = top + size
    for tick in x.ticks():
        parts.append(_text(number(tick), x(tick), bottom + 16, "tick"))
        parts.append(_text(number(tick), left - 6, y(tick) + 4, "tick", "end"))
    parts.append(_text(shown.x, left + size / 2, bottom + 36, "label"))
    parts.append(_sideways(shown.y, left - 44, top + size / 2))
    return parts + _colour_bar(Scale(low, high, bottom, top), left + size + 12)


def _colour_bar(scale: Scale, left: float) -> list[str]:
    steps = 24
    height = (scale.start - scale.stop) / steps
    parts = [
        # The rectangles overlap a little to hide seams.
        _rectangle(
            left, scale.start - (i + 1) * height, 12.0, height + 0.4, _colour(i / (steps - 1))
        )
        for i in range(steps)
    ]
    ticks = [_text(number(t), left + 17, scale(t) + 4, "tick", "start") for t in scale.ticks()]
    return parts + ticks


def _colour(share: float) -> str:
    place = min(max(share, 0.0), 1.0) * (len(_COLOURS) - 1)
    channels = [np.interp(place, np.arange(len(_COLOURS)), _COLOURS[:, i]) for i in range(3)]
    return "#" + "".join(f"{round(float(channel)):02x}" for channel in channels)


def _series(series: Series, x: Scale, y: Scale) -> list[str]:
    style, xs = _style(series), _floats(series.x)
    parts = []
    if series.low is not None and series.high is not None:
        for place, low, high in zip(xs, _floats(series.low), _floats(series.high), strict=True):
            if _is_shown(low, y) and _is_shown(high, y):
                ends = f"{x(place):.1f} {y(low):.1f}V{y(high):.1f}"
                parts.append(f'<path class="bar s{style}" d="M{ends}"/>')
    if series.y is None:
        return parts
    points = [
        (x(place), y(value)) if _is_shown(value, y) else None
        for place, value in zip(xs, _floats(series.y), strict=True)
    ]
    known = [point for point in points if point is not None]
    if not series.points:
        parts.append(f'<path class="line s{style}" d="{_path(points)}"/>')
    # Many markers would hide the line.
    if series.points or len(known) <= 15:
        parts += [_marker(style, *point) for point in known]
    name = escape(series.name, quote=True)
    return [f'<g data-name="{name}">', *parts, "</g>"]


def _floats(numbers: Numbers) -> list[float]:
    return [float(number) for number in numbers]


def _is_shown(value: float, scale: Scale) -> bool:
    return math.isfinite(value) and (value > 0 or not scale.log)


def _path(points: Iterable[tuple[float, float] | None]) -> str:
    """Returns the path of a line through the points, with gaps at missing ones."""
    text, pen = "", "M"
    for point in points:
        if point is None:
            pen = "M"
        else:
            text += f"{pen}{point[0]:.1f} {point[1]:.1f}"
            pen = "L"
    return text


def _marker(style: int, x: float, y: float) -> str:
    shape, drop = _MARKERS[style % len(_MARKERS)]
    return f'<path class="dot s{style}" d="M{x:.1f} {y - drop:.1f}{shape}"/>'


def _style(series: Series) -> int:
    return _REFERENCE if series.style is None else series.style % _NUM_STYLES


def _legend(series: Sequence[Series], left: float, top: float) -> list[str]:
    parts = []
    for i, shown in enumerate(shown for shown in series if shown.name):
        middle, style = top + 8 + 20 * i, _style(shown)
        if shown.y is not None and not shown.points:
            parts.append(f'<path class="line s{style}" d="M{left:.1f} {middle:.1f}h24"/>')
        parts.append(_marker(style, left + 12, middle))
        parts.append(_text(shown.name, left + 32, middle + 4, "tick", "start"))
    return parts


def _vertical_axis(scale: Scale, label: str, left: float, right: float) -> list[str]:
    parts = [_sideways(label, left - 48, (scale.start + scale.stop) / 2)]
    for tick in scale.ticks():
        place = scale(tick)
        parts.append(f'<path class="grid" d="M{left:.1f} {place:.1f}H{right:.1f}"/>')
        parts.append(_text(number(tick), left - 7, place + 4, "tick", "end"))
    return parts


def _horizontal_ticks(scale: Scale, bottom: float, top: float) -> list[str]:
    parts = [f'<path class="axis" d="M{scale.start:.1f} {bottom:.1f}H{scale.stop:.1f}"/>']
    for tick in scale.ticks():
        place = scale(tick)
        parts.append(f'<path class="grid" d="M{place:.1f} {bottom:.1f}V{top:.1f}"/>')
        parts.append(_text(number(tick), place, bottom + 17, "tick"))
    return parts


def _named_places(scale: Scale, places: Sequence[str], bottom: float) -> list[str]:
    parts = [f'<path class="axis" d="M{scale.start:.1f} {bottom:.1f}H{scale.stop:.1f}"/>']
    named = enumerate(places)
    return parts + [_text(name, scale(float(i)), bottom + 17, "tick") for i, name in named]


def _sideways(text: str, x: float, y: float) -> str:
    return (
        f'<text class="label" x="{x:.1f}" y="{y:.1f}" text-anchor="middle" '
        f'transform="rotate(-90 {x:.1f} {y:.1f})">{escape(text)}</text>'
    )


def _text(text: str, x: float, y: float, kind: str, anchor: str = "middle") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text class="{kind}" {place}>{escape(text)}</text>'


def _rectangle(x: float, y: float, width: float, height: float, fill: str) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{fill}"/>'
    )


def _picture(width: int, height: int, title: str, parts: Sequence[str]) -> str:
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" role="img">',
            f"<title>{escape(title)}</title>",
            f"<style>{_style_sheet()}</style>",
            f'<rect class="page" width="{width}" height="{height}" rx="6"/>',
            *parts,
            "</svg>\n",
        ]
    )


def _style_sheet() -> str:
    def colours(page: str, text: str, quiet: str, grid: str, series: Sequence[str]) -> str:
        rules = [f".page{{fill:{page}}}.title,.label{{fill:{text}}}.tick{{fill:{quiet}}}"]
        rules.append(f".grid{{stroke:{grid}}}.axis{{stroke:{quiet}}}")
        named = enumerate([*series, quiet])
        rules += [f".s{i}{{stroke:{colour};color:{colour}}}" for i, colour in named]
        return "".join(rules)

    light = colours("#ffffff", "#1d2126", "#59616b", "#e6e9ed", _LIGHT)
    dark = colours("#14171b", "#e4e7eb", "#a0a8b3", "#2a3038", _DARK)
    dashes = "".join(
        f".line.s{i}{{stroke-dasharray:{_DASHES[i % len(_DASHES)] or 'none'}}}"
        for i in range(_NUM_STYLES)
    )
    return (
        "text{font:12px system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}"
        "rect{shape-rendering:crispEdges}.title{font-weight:600;font-size:14px}.label{font-size:13px}"
        ".line{fill:none;stroke-width:2;stroke-linejoin:round}.bar{fill:none;stroke-width:1.2}"
        f".dot{{fill:currentColor;stroke:none}}{dashes}{light}"
        f"@media(prefers-color-scheme:dark){{{dark}}}"
    )
