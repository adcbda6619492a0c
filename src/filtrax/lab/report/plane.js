"use strict";

// A plane seen from above: draws its axes on a canvas and gives a pen for what is on it.
const Plane = (() => {
  const MARGIN = { left: 46, right: 12, top: 10, bottom: 38 }; // pixels of the page
  const TICK_DISTANCE = 70;
  const FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', sans-serif";
  const COLOURS = { grid: "#3a414b", frame: "#59616b", text: "#c3cad3" };

  // Where the plane is on a canvas that is so wide.
  function area(sequence, width, unit) {
    const [left, top] = [MARGIN.left * unit, MARGIN.top * unit];
    const right = width - MARGIN.right * unit;
    const scale = (right - left) / sequence.width;
    const bottom = top + scale * sequence.height;
    return { left, right, top, bottom, scale, height: Math.round(bottom + MARGIN.bottom * unit) };
  }

  function axes({ plane }, { left, right, top, bottom }, unit) {
    const count = (length) => Math.max(2, length / unit / TICK_DISTANCE);
    // Numbers may grow to the left or downwards, but a scale goes from low to high.
    const scale = (ends, places, number) => (ends[0] < ends[1]
      ? Scales.scale({}, ends, places, number)
      : Scales.scale({}, ends.toReversed(), places.toReversed(), number));
    return {
      x: scale(plane.x, [left, right], count(right - left)),
      y: scale(plane.y, [bottom, top], count(bottom - top)),
    };
  }

  function drawGrid(context, { x, y }, { left, right, top, bottom }) {
    context.beginPath();
    for (const tick of x.ticks) {
      context.moveTo(x.place(tick), top);
      context.lineTo(x.place(tick), bottom);
    }
    for (const tick of y.ticks) {
      context.moveTo(left, y.place(tick));
      context.lineTo(right, y.place(tick));
    }
    context.strokeStyle = COLOURS.grid;
    context.stroke();
    context.strokeStyle = COLOURS.frame;
    context.strokeRect(left, top, right - left, bottom - top);
  }

  function drawTexts(context, { x, y }, { left, right, bottom, top }, [xLabel, yLabel], unit) {
    context.font = `${12 * unit}px ${FONT}`;
    context.fillStyle = COLOURS.text;
    context.textAlign = "center";
    context.textBaseline = "top";
    for (const tick of x.ticks) context.fillText(Scales.format(tick), x.place(tick), bottom + 5 * unit);
    context.fillText(xLabel, (left + right) / 2, bottom + 21 * unit);
    context.textAlign = "right";
    context.textBaseline = "middle";
    for (const tick of y.ticks) context.fillText(Scales.format(tick), left - 5 * unit, y.place(tick));
    context.textAlign = "left";
    context.textBaseline = "top";
    context.fillText(yLabel, left + 6 * unit, top + 6 * unit);
  }

  // Gives the canvas its size, draws the empty plane, and returns a pen that cannot leave it.
  function prepare(canvas, sequence, unit) {
    const place = area(sequence, canvas.width, unit);
    canvas.height = place.height;
    const context = canvas.getContext("2d");
    context.lineWidth = unit;
    const both = axes(sequence, place, unit);
    drawGrid(context, both, place);
    drawTexts(context, both, place, sequence.plane.labels, unit);
    context.beginPath();
    context.rect(place.left, place.top, place.right - place.left, place.bottom - place.top);
    context.clip();
    context.translate(place.left, place.top);
    return { context, scale: place.scale, unit, margin: 0 };
  }

  return { prepare };
})();
