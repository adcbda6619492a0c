"use strict";

// Draws charts as SVG from descriptions that Python wrote: {title, x, y, series, note}.
// There is no library, so that the page needs nothing but a browser.
const Charts = (() => {
  const { isNumber, format, extent, padded, equalized, scale } = Scales;
  const NAMESPACE = "http://www.w3.org/2000/svg";
  const HEIGHT = 240;
  const PLANE_HEIGHT = 340;
  const MARGIN = { top: 24, right: 16, bottom: 42 };
  const CHARACTER = 7;
  const NUM_STYLES = 6;

  function svg(name, attributes = {}, ...children) {
    const node = document.createElementNS(NAMESPACE, name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.append(...children);
    return node;
  }

  function html(name, attributes = {}, ...children) {
    const node = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.append(...children);
    return node;
  }

  // Colours repeat after six styles; the dashes are shifted then, so that no two lines look alike.
  function styleClass(style) {
    if (style === null) return "reference";
    const round = Math.floor(style / NUM_STYLES);
    return `colour-${style % NUM_STYLES} dash-${(style + round) % NUM_STYLES}`;
  }

  // Shapes

  function points(series, values, x, y) {
    return series.x.map((value, i) => [x.place(value), y.place(values[i])]);
  }

  const isDrawn = ([x, y]) => x !== null && y !== null;
  const pair = ([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`;

  // Missing numbers leave gaps. A number between two gaps is a stroke of no length: a dot.
  function linePath(places) {
    let path = "";
    let open = false;
    for (const place of places) {
      if (isDrawn(place)) path += `${open ? "L" : "M"}${pair(place)}`;
      else if (open) path += "h0";
      open = isDrawn(place);
    }
    return path + (open ? "h0" : "");
  }

  function bandPath(lower, upper) {
    let path = "";
    let piece = [];
    for (let i = 0; i <= lower.length; i++) {
      if (i < lower.length && isDrawn(lower[i]) && isDrawn(upper[i])) {
        piece.push(i);
      } else if (piece.length) {
        const there = piece.map((j) => pair(upper[j]));
        const back = piece.reverse().map((j) => pair(lower[j]));
        path += `M${[...there, ...back].join("L")}Z`;
        piece = [];
      }
    }
    return path;
  }

  const MARKERS = [
    "m-2 0a2 2 0 1 0 4 0a2 2 0 1 0-4 0z",
    "m-1.8-1.8h3.6v3.6h-3.6z",
    "m0-2.4l2.3 4.2h-4.6z",
    "m0-2.8l2.4 2.8l-2.4 2.8l-2.4-2.8z",
    "m-.7-2.5h1.4v1.8h1.8v1.4h-1.8v1.8h-1.4v-1.8h-1.8v-1.4h1.8z",
    "m-2.4-1.6l.8-.8l4 4l-.8 .8z",
  ];

  // All markers of a series are one path: thousands of elements would make the page slow.
  function markerPath(places, style) {
    const marker = MARKERS[(style ?? 0) % MARKERS.length];
    return places.filter(isDrawn).map((place) => `M${pair(place)}${marker}`).join("");
  }

  function seriesShape(series, x, y) {
    const group = svg("g", { class: `series ${styleClass(series.style)}`, "data-name": series.name });
    if (series.low) {
      const edges = [series.low, series.high].map((values) => points(series, values, x, y));
      group.append(svg("path", { class: "band", d: bandPath(...edges) }));
    }
    if (series.y) {
      const places = points(series, series.y, x, y);
      group.append(series.points
        ? svg("path", { class: "points", d: markerPath(places, series.style) })
        : svg("path", { class: "line", d: linePath(places) }));
    }
    return group;
  }

  // A small picture of how a series is drawn, for legends.
  function sample(series) {
    const group = svg("g", { class: styleClass(series.style), "data-name": series.name });
    if (series.low) group.append(svg("path", { class: "band", d: "M0 0H30V12H0Z" }));
    if (series.points) {
      const places = series.x.length === 1 ? [[15, 6]] : [[6, 6], [15, 6], [24, 6]];
      group.append(svg("path", { class: "dot", d: markerPath(places, series.style) }));
    } else if (series.y) {
      group.append(svg("path", { class: "line", d: "M1 6H29" }));
    }
    return svg("svg", { viewBox: "0 0 30 12", "aria-hidden": "true" }, group);
  }

  // Axes

  function yAxis(y, left, right) {
    const group = svg("g", { class: "y axis" });
    for (const tick of y.ticks) {
      const height = y.place(tick);
      group.append(
        svg("line", { class: "gridline", x1: left, x2: right, y1: height, y2: height }),
        svg("text", { x: left - 6, y: height + 4, "text-anchor": "end" }, format(tick)),
      );
    }
    return group;
  }

  function xAxis(x, top, bottom) {
    const group = svg("g", { class: "x axis" });
    for (const tick of x.ticks) {
      const place = x.place(tick);
      group.append(
        svg("line", { class: "gridline", x1: place, x2: place, y1: top, y2: bottom }),
        svg("text", { x: place, y: bottom + 16, "text-anchor": "middle" }, format(tick)),
      );
    }
    return group;
  }

  function labels(description, left, right, height) {
    const middle = (left + right) / 2;
    return [
      svg("text", { class: "label", x: 0, y: 12 }, description.y.label),
      svg("text", { class: "label", x: middle, y: height - 6, "text-anchor": "middle" }, description.x.label),
    ];
  }

  // The whole

  function layout(description, width) {
    return description.plane ? planeLayout(description, width) : plainLayout(description, width);
  }

  function plainLayout(description, width) {
    const [bottom, top] = [HEIGHT - MARGIN.bottom, MARGIN.top];
    const ys = padded(extent(description, "y"), description.y.log);
    const y = scale(description.y, ys, [bottom, top], 7);
    const longest = Math.max(1, ...y.ticks.map((tick) => format(tick).length));
    const [left, right] = [CHARACTER * longest + 10, width - MARGIN.right];
    const count = Math.max(2, Math.min(8, width / 70));
    const x = scale(description.x, extent(description, "x"), [left, right], count);
    return { x, y, left, right, top, bottom, height: HEIGHT };
  }

  function planeLayout(description, width) {
    const height = Math.min(PLANE_HEIGHT, width);
    const [bottom, top] = [height - MARGIN.bottom, MARGIN.top];
    const [left, right] = [6 * CHARACTER + 10, width - MARGIN.right];
    const ranges = ["x", "y"].map((axis) => padded(extent(description, axis), false));
    const [xs, ys] = equalized(...ranges, right - left, bottom - top);
    const count = Math.max(2, width / 80);
    // The same distance between the lines of both axes makes squares.
    const x = scale(description.x, xs, [left, right], count);
    const y = scale(description.y, ys, [bottom, top], (count * (bottom - top)) / (right - left));
    return { x, y, left, right, top, bottom, height };
  }

  function draw(chart) {
    const width = chart.plot.clientWidth;
    if (width < 1) return;
    chart.width = width;
    const { description } = chart;
    chart.layout = layout(description, width);
    const { x, y, left, right, top, bottom, height } = chart.layout;
    const names = description.series.map((series) => series.name).join(", ");
    chart.cursorLine = svg("line", { class: "cursor", y1: top, y2: bottom, visibility: "hidden" });
    chart.hover = svg("g", { class: "hover" });
    chart.plot.replaceChildren(svg("svg", {
      viewBox: `0 0 ${width} ${height}`,
      height,
      role: "img",
      "aria-label": `${description.title}: ${description.y.label} against ${description.x.label}; ${names}`,
    },
    yAxis(y, left, right),
    xAxis(x, top, bottom),
    svg("rect", { class: "frame", x: left, y: top, width: right - left, height: bottom - top }),
    ...description.series.map((series) => seriesShape(series, x, y)),
    ...labels(description, left, right, height),
    chart.cursorLine,
    chart.hover));
    placeCursor(chart);
  }

  function placeCursor(chart) {
    if (!chart.layout || !isNumber(chart.cursor)) return;
    const place = chart.layout.x.place(chart.cursor);
    chart.cursorLine.setAttribute("x1", place);
    chart.cursorLine.setAttribute("x2", place);
    chart.cursorLine.setAttribute("visibility", "visible");
  }

  // Reading numbers off with the pointer

  function nearestX(chart, place) {
    let best = null;
    for (const series of chart.description.series) {
      if (series.points || series.style === null) continue;
      for (const value of series.x) {
        const distance = Math.abs(chart.layout.x.place(value) - place);
        if (best === null || distance < best.distance) best = { value, distance };
      }
    }
    return best && best.value;
  }

  function entriesAt(description, value) {
    return description.series.flatMap((series) => {
      const i = series.points ? -1 : series.x.indexOf(value);
      return i < 0 ? [] : [{
        series,
        y: series.y?.[i] ?? null,
        low: series.low?.[i] ?? null,
        high: series.high?.[i] ?? null,
      }];
    });
  }

  function entryText({ series, y, low, high }) {
    const range = isNumber(low) ? `${format(low)} to ${format(high)}` : "";
    if (!series.y) return `${series.name}: ${range}`;
    return `${series.name}: ${format(y)}${range ? ` (${range})` : ""}`;
  }

  function pointerPlace(chart, event) {
    return event.clientX - chart.plot.getBoundingClientRect().left;
  }

  function showTip(chart, event) {
    const value = nearestX(chart, pointerPlace(chart, event));
    if (value === null) return;
    const { x, y, top, bottom, right } = chart.layout;
    const place = x.place(value);
    const entries = entriesAt(chart.description, value);
    chart.hover.replaceChildren(
      svg("line", { class: "guide", x1: place, x2: place, y1: top, y2: bottom }),
      ...entries.filter((entry) => y.place(entry.y) !== null).map((entry) => svg(
        "g",
        { class: styleClass(entry.series.style) },
        svg("circle", { class: "dot", cx: place, cy: y.place(entry.y), r: 3.5 }),
      )),
    );
    chart.tip.replaceChildren(
      html("strong", {}, `${chart.description.x.label} ${format(value)}`),
      ...entries.map((entry) => html("div", {}, sample(entry.series), entryText(entry))),
    );
    chart.tip.hidden = false;
    const onLeft = place > right / 2;
    chart.tip.style.left = onLeft ? "" : `${place + 10}px`;
    chart.tip.style.right = onLeft ? `${chart.width - place + 10}px` : "";
    chart.tip.style.top = `${chart.plot.offsetTop + top}px`;
  }

  function hideTip(chart) {
    chart.hover?.replaceChildren();
    chart.tip.hidden = true;
  }

  function pick(chart, event) {
    const value = nearestX(chart, pointerPlace(chart, event));
    if (value !== null) chart.onPick(value);
  }

  function listen(chart) {
    if (chart.description.plane) return; // A path has many places at one x.
    chart.plot.addEventListener("pointermove", (event) => showTip(chart, event));
    chart.plot.addEventListener("pointerdown", (event) => showTip(chart, event));
    chart.plot.addEventListener("pointerleave", () => hideTip(chart));
    if (!chart.onPick) return;
    chart.figure.classList.add("pickable");
    chart.plot.addEventListener("click", (event) => pick(chart, event));
  }

  function describe(chart, description) {
    chart.description = description;
    chart.caption.textContent = description.title;
    chart.note.textContent = description.note;
    chart.legend.replaceChildren(...description.series
      .filter((series) => series.name)
      .map((series) => html("li", {}, sample(series), series.name)));
    hideTip(chart);
    draw(chart);
  }

  // Fills a figure with a chart. `onPick` is called with the value on the horizontal axis that the
  // reader clicks at. The chart can be given another description, and a cursor that moves.
  function mount(figure, description, onPick = null) {
    const chart = {
      figure,
      onPick,
      caption: html("figcaption"),
      plot: html("div", { class: "plot" }),
      tip: html("div", { class: "tip", hidden: "", "aria-hidden": "true" }),
      legend: html("ul", { class: "legend" }),
      note: html("p", { class: "note" }),
    };
    figure.classList.add("chart");
    figure.classList.toggle("plane", Boolean(description.plane));
    figure.replaceChildren(chart.caption, chart.plot, chart.tip, chart.legend, chart.note);
    describe(chart, description);
    listen(chart);
    new ResizeObserver(() => {
      if (chart.plot.clientWidth !== chart.width) draw(chart);
    }).observe(chart.plot);
    return {
      describe: (other) => describe(chart, other),
      moveCursor: (value) => {
        chart.cursor = value;
        placeCursor(chart);
      },
    };
  }

  return { mount, html };
})();
