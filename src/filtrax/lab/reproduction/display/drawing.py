"""Draws charts by matplotlib into one SVG, which also carries the numbers that it shows.

matplotlib draws the same numbers a little differently in each version, so a test compares the
numbers in a file and not its bytes.
"""

import io
import json
import math
import re
import xml.etree.ElementTree as Tree
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from filtrax.lab.report.charts import Axis, Chart, Numbers, Series
from filtrax.plot._axes import COLOURS, MARKERS, TRUTH

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_DIGITS = 4
"""Significant digits of the numbers in a file."""

_DESCRIPTION = "{http://purl.org/dc/elements/1.1/}description"
_DASHES = ("-", "--", "-.", (0, (6, 1, 1, 1, 1, 1)), (0, (1, 1)))
_STYLE: Mapping[str, Any] = {
    "svg.fonttype": "none",  # text stays text, which is small and can be searched
    "svg.hashsalt": "filtrax",  # equal numbers give equal bytes
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "lines.linewidth": 1.3,
    "lines.markersize": 4,
    "axes.xmargin": 0.03,
    "xtick.bottom": False,
    "ytick.left": False,
}


@dataclass(frozen=True)
class Panel:
    """A chart of a picture.

    Attributes:
        chart: The lines with their axes.
        places: Labels of x = 0, 1, 2, …, if the horizontal axis shows names.
    """

    chart: Chart
    places: Sequence[str] = ()


@dataclass(frozen=True)
class Picture:
    """Panels in rows and columns, with the name of their file and a caption of one sentence.

    The panels of a row share their vertical axis; None leaves a place empty.
    """

    name: str
    caption: str
    rows: Sequence[Sequence[Panel | None]]

    @property
    def panels(self) -> list[Panel]:
        """All panels, row by row."""
        return [panel for row in self.rows for panel in row if panel is not None]

    def numbers(self) -> list[dict[str, Any]]:
        """Returns titles, labels and numbers of all panels, as `numbers_in` reads them."""
        return [_content(panel) for panel in self.panels]

    def svg(self) -> str:
        """Draws the picture; equal numbers give equal bytes with the same matplotlib."""
        from matplotlib import style
        from matplotlib.figure import Figure

        with style.context(["default", {**_STYLE}]):
            figure = Figure(layout="constrained")
            self.draw(figure)
            file = io.StringIO()
            description = json.dumps(self.numbers(), separators=(",", ":"), ensure_ascii=False)
            metadata = {"Date": None, "Creator": None, "Description": description}
            figure.savefig(file, format="svg", metadata=metadata)
        return _shortened(file.getvalue())

    def draw(self, figure: "Figure") -> None:
        """Draws the panels on a figure, and sets its size."""
        width, height = len(self.rows[0]), len(self.rows)
        figure.set_size_inches(3.0 * width + 1.4, 2.1 * height + 0.3)
        same = len({panel.chart.x.label for panel in self.panels}) == 1
        share: Any = {"sharex": "col" if same else False, "sharey": "row"}
        grid = figure.subplots(height, width, squeeze=False, **share)
        above: set[str] = set()
        for axes, row in zip(grid, self.rows, strict=True):
            for ax, panel in zip(axes, row, strict=True):
                _draw(panel, ax, above)
                if same:
                    ax.label_outer()
                elif ax is not axes[0]:
                    ax.set_ylabel("")
            above |= {panel.chart.title for panel in row if panel is not None}
        entries = _entries(grid.flat)
        if entries:
            figure.legend(entries.values(), entries, loc="outside right upper")


def numbers_in(svg: str) -> list[dict[str, Any]] | None:
    """Reads the numbers that an SVG of `Picture.svg` carries; None if it carries none."""
    try:
        element = next(Tree.fromstring(svg).iter(_DESCRIPTION), None)
        return None if element is None else json.loads(element.text or "")
    except (Tree.ParseError, ValueError):
        return None


def _shortened(svg: str) -> str:
    """Rounds coordinates to a hundredth of a point, and writes each style once."""
    head, mark, drawing = svg.partition("</metadata>")
    drawing = re.sub(r"-?\d+\.\d{3,}", lambda found: f"{float(found[0]):.2f}", drawing)
    drawing = re.sub(r' id="\w+_\d+(\.\w+)?"', "", drawing)  # no other element refers to these
    styles = dict.fromkeys(re.findall(r'style="([^"]*)"', drawing))
    names = {style: f"s{number}" for number, style in enumerate(styles)}
    drawing = re.sub(r'style="([^"]*)"', lambda found: f'class="{names[found[1]]}"', drawing)
    sheet = "".join(f".{name}{{{style}}}" for style, name in names.items())
    drawing = re.sub(r"\s+", " ", drawing).replace("> <", ">\n<")
    return f"{head}{mark}\n<style>{sheet}</style>{drawing.strip()}\n"


def _content(panel: Panel) -> dict[str, Any]:
    chart = panel.chart
    axes = {"x": _axis(chart.x), "y": _axis(chart.y)}
    names = {"places": list(panel.places)} if panel.places else {}
    return {"title": chart.title, **axes, **names, "series": [*map(_line, chart.series)]}


def _axis(axis: Axis) -> str:
    return f"{axis.label} (log)" if axis.log else axis.label


def _line(series: Series) -> dict[str, Any]:
    numbers = {"x": series.x, "y": series.y, "low": series.low, "high": series.high}
    return {"name": series.name} | {
        name: [_rounded(value) for value in np.asarray(values, float).tolist()]
        for name, values in numbers.items()
        if values is not None
    }


def _rounded(value: float) -> float | None:
    return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None


def _entries(axes: Any) -> dict[str, Any]:
    """Returns the handles of the legend by name; panels share their names."""
    pairs = [pair for ax in axes for pair in zip(*ax.get_legend_handles_labels(), strict=True)]
    return {name: handle for handle, name in pairs}


def _draw(panel: Panel | None, ax: "Axes", above: Container[str] = ()) -> None:
    """Draws a panel; a title that stands above it is not repeated."""
    if panel is None:
        ax.set_axis_off()
        return
    chart = panel.chart
    for series in chart.series:
        _draw_series(series, ax)
    title = "" if chart.title in above else chart.title
    ax.set(title=title, xlabel=chart.x.label, ylabel=chart.y.label)
    if chart.y.log:
        _make_logarithmic(ax, "y")
    if chart.x.log:
        _make_logarithmic(ax, "x")
    if chart.y.zero:
        ax.update_datalim([(float(chart.series[0].x[0]), 0.0)])
        ax.autoscale_view()
    if panel.places:
        ax.set_xticks(range(len(panel.places)), panel.places)
    elif chart.x.log:
        places = sorted({float(x) for series in chart.series for x in series.x})
        ax.set_xticks(places, [f"{place:g}" for place in places])


def _draw_series(series: Series, ax: "Axes") -> None:
    style = series.style
    colour = TRUTH if style is None else COLOURS[style % len(COLOURS)]
    dash = ":" if style is None else _DASHES[style % len(_DASHES)]
    x, y = _finite(series.x), _finite(series.y)
    if series.low is not None and series.high is not None:
        ends = np.stack([_finite(series.low), _finite(series.high), np.full(len(x), np.nan)], -1)
        ax.plot(np.repeat(x, 3), ends.ravel(), color=colour, linewidth=0.8)  # one broken line
    markers = {"linestyle": "", "marker": MARKERS[(style or 0) % len(MARKERS)]}
    shape: Any = markers if series.points else {"linestyle": dash}
    ax.plot(x, y, color=colour, label=series.name or "_nolegend_", **shape)


def _finite(values: Numbers | None) -> np.ndarray:
    numbers = np.asarray([] if values is None else values, float)
    return np.where(np.isfinite(numbers), numbers, np.nan)


def _make_logarithmic(ax: "Axes", name: str) -> None:
    """Makes an axis logarithmic, with few ticks that are written as plain numbers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    ax.set(**{f"{name}scale": "log"})
    axis = ax.xaxis if name == "x" else ax.yaxis
    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < 100 * low else (1.0,)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
