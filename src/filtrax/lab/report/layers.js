"use strict";

// What the player draws on its canvas, layer by layer.
const Layers = (() => {
  const TRAIL = 10;
  const HALO = "rgba(0, 0, 0, 0.75)";
  const WHITE = "#ffffff";
  const AMBER = "#ffb000";
  const SKY = "#6fd3ff";
  const GREEN = "#8ce99a";

  // A pen knows the canvas, how many of its pixels make a pixel of the image (`scale`) and of the
  // page (`unit`), and the margin around the image. Markers have a dark halo, to be seen on any
  // image.

  function strokeWithHalo({ context, unit }, colour, width) {
    context.lineWidth = (width + 2.4) * unit;
    context.strokeStyle = HALO;
    context.stroke();
    context.lineWidth = width * unit;
    context.strokeStyle = colour;
    context.stroke();
  }

  function isPlace(place) {
    return Boolean(place) && place.every((value) => value !== null);
  }

  function trace(pen, places) {
    pen.context.beginPath();
    let open = false;
    for (const place of places) {
      if (isPlace(place)) {
        const [x, y] = place.map((value) => value * pen.scale);
        if (open) pen.context.lineTo(x, y);
        else pen.context.moveTo(x, y);
      }
      open = isPlace(place);
    }
  }

  function drawTrail(pen, places, step, colour) {
    pen.context.globalAlpha = 0.7;
    trace(pen, places.slice(Math.max(0, step - TRAIL), step + 1));
    strokeWithHalo(pen, colour, 1);
    pen.context.globalAlpha = 1;
  }

  // Strong up to the step; what is still to come is faint.
  function drawPath(pen, places, step, colour, toCome) {
    pen.context.lineJoin = "round";
    if (toCome) {
      pen.context.globalAlpha = 0.35;
      trace(pen, places.slice(step));
      pen.context.lineWidth = 1.5 * pen.unit;
      pen.context.strokeStyle = colour;
      pen.context.stroke();
      pen.context.globalAlpha = 1;
    }
    trace(pen, places.slice(0, step + 1));
    strokeWithHalo(pen, colour, 2);
  }


  function drawEllipse(pen, place, ellipse, colour, width) {
    if (!isPlace(place) || !isPlace(ellipse)) return;
    const { context, scale } = pen;
    const [x, y, long, short] = [...place, ellipse[0], ellipse[1]].map((value) => value * scale);
    context.beginPath();
    context.ellipse(x, y, long, short, ellipse[2], 0, 2 * Math.PI);
    strokeWithHalo(pen, colour, width);
  }

  // A marker is a list of strokes around its place, in pixels of the page.
  const CROSS = [[[-7, 0], [7, 0]], [[0, -7], [0, 7]]];
  const ARROW = [[[7, 0], [22, 0]], [[16, -5], [22, 0], [16, 5]]];
  const HEAD = [[[-6, -4], [0, 0], [-6, 4]]];
  const DIAMOND = [[[0, -6], [6, 0], [0, 6], [-6, 0], [0, -6]]];

  function drawMarker(pen, place, strokes, colour) {
    if (!isPlace(place)) return;
    const [x, y] = place.map((value) => value * pen.scale);
    pen.context.beginPath();
    for (const stroke of strokes) {
      stroke.forEach(([right, down], i) => {
        const draw = i === 0 ? "moveTo" : "lineTo";
        pen.context[draw](x + right * pen.unit, y + down * pen.unit);
      });
    }
    strokeWithHalo(pen, colour, 2);
  }

  // Which way something looks.
  function drawHeading(pen, place, angle, colour) {
    if (!isPlace(place) || angle === null) return;
    drawMarker(pen, place, turned(ARROW, angle), colour);
  }

  function turned(strokes, angle) {
    const [cosine, sine] = [Math.cos(angle), Math.sin(angle)];
    const turn = ([along, across]) => [along * cosine - across * sine, along * sine + across * cosine];
    return strokes.map((stroke) => stroke.map(turn));
  }

  function drawDot(pen, place, radius, colour) {
    if (!isPlace(place)) return;
    const [x, y] = place.map((value) => value * pen.scale);
    for (const [style, size] of [[HALO, radius + 1.2], [colour, radius]]) {
      pen.context.beginPath();
      pen.context.arc(x, y, size * pen.unit, 0, 2 * Math.PI);
      pen.context.fillStyle = style;
      pen.context.fill();
    }
  }

  function drawOutline(pen, places, colour) {
    if (!places.every(isPlace)) return;
    pen.context.lineJoin = "round";
    trace(pen, [...places, places[0]]);
    strokeWithHalo(pen, colour, 2);
  }

  // A dot where it begins; one that is too short for a head is the dot alone.
  function drawArrow(pen, [start, end], colour) {
    if (isPlace(start) && isPlace(end)) {
      const [right, down] = [0, 1].map((i) => end[i] - start[i]);
      const [length, angle] = [Math.hypot(right, down), Math.atan2(down, right)];
      if (length * pen.scale > 4 * pen.unit) {
        trace(pen, [start, end]);
        strokeWithHalo(pen, colour, 2);
        drawMarker(pen, end, turned(HEAD, angle), colour);
      }
    }
    drawDot(pen, start, 3, colour);
  }

  // Truth and estimate of a step, the truth below.
  function eachOf(sketch, kind, where, step, draw) {
    for (const [who, colour] of [["truth", WHITE], ["estimate", AMBER]]) {
      const shown = sketch[who][kind][where];
      if (shown) draw(shown[step], colour);
    }
  }

  function drawParticles(pen, particles) {
    const { context, scale, unit } = pen;
    context.fillStyle = AMBER;
    for (const [x, y, weight] of particles) {
      if (x === null || y === null) continue;
      context.globalAlpha = 0.45 + 0.5 * weight;
      context.beginPath();
      context.arc(x * scale, y * scale, (1 + 2 * Math.sqrt(weight)) * unit, 0, 2 * Math.PI);
      context.fill();
    }
    context.globalAlpha = 1;
  }

  // Layers, from the lowest to the highest: what they need of a sequence, and how they are drawn.
  // Most are drawn where positions are. `where` is told to those that are drawn on all canvases:
  // "plane" from above, or "image". The label of a layer may depend on the sequence.

  const LAYERS = {
    image: {
      name: "Image",
      needs: (sequence) => sequence.sheet,
      draw: (pen, sequence, step) => drawFrame(pen, sequence, step),
      icon: null,
    },
    particles: {
      name: "Particles",
      needs: (sequence) => sequence.particles,
      draw: (pen, sequence, step) => drawParticles(pen, sequence.particles[step]),
      icon: (pen) => drawParticles(pen, [[6, 8, 0.2], [11, 14, 1], [16, 8, 0.5]]),
    },
    path: {
      name: "Paths",
      needs: (sequence) => sequence.plane,
      draw: (pen, sequence, step) => {
        drawPath(pen, sequence.truth, step, WHITE, true);
        drawPath(pen, sequence.estimate, step, AMBER, false);
      },
      icon: (pen) => {
        drawPath(pen, [[3, 8], [9, 5], [19, 9]], 1, WHITE, true);
        drawPath(pen, [[3, 14], [10, 17], [19, 13]], 2, AMBER, false);
      },
    },
    companions: {
      name: "Others",
      label: ({ companions: { names } }) => names.join(", ").replace(/^./, (first) => first.toUpperCase()),
      needs: (sequence) => sequence.companions,
      everywhere: true,
      draw: (pen, { companions }, step, where) => {
        for (const path of companions.paths[where] ?? []) {
          if (where === "plane") drawPath(pen, path, step, GREEN, true);
          else drawTrail(pen, path, step, GREEN);
          drawDot(pen, path[step], 4, GREEN);
        }
      },
      icon: (pen) => drawPath(pen, [[3, 14], [10, 8], [19, 11]], 1, GREEN, true),
    },
    outline: {
      name: "Outlines",
      needs: (sequence) => sequence.sketch,
      everywhere: true,
      draw: (pen, { sketch }, step, where) => eachOf(
        sketch, "outlines", where, step, (outline, colour) => drawOutline(pen, outline, colour),
      ),
      icon: (pen) => drawOutline(pen, [[5, 6], [16, 5], [18, 15], [7, 17]], AMBER),
    },
    trail: {
      name: "Trails",
      needs: (sequence) => !sequence.plane,
      draw: (pen, sequence, step) => {
        drawTrail(pen, sequence.truth, step, WHITE);
        drawTrail(pen, sequence.estimate, step, AMBER);
      },
      icon: (pen) => {
        drawTrail(pen, [[3, 8], [12, 5], [19, 9]], 2, WHITE);
        drawTrail(pen, [[3, 14], [10, 17], [19, 13]], 2, AMBER);
      },
    },
    measurement: {
      name: "Measurement, 2σ",
      needs: (sequence) => sequence.measurement,
      draw: (pen, sequence, step) => {
        drawEllipse(pen, sequence.measurement[step], sequence.measurementEllipse?.[step], SKY, 1);
        drawMarker(pen, sequence.measurement[step], DIAMOND, SKY);
      },
      icon: (pen) => drawMarker(pen, [11, 11], DIAMOND, SKY),
    },
    ellipse: {
      name: "Estimate's 2σ",
      needs: () => true,
      draw: (pen, sequence, step) => {
        drawEllipse(pen, sequence.estimate[step], sequence.ellipse[step], AMBER, 2);
      },
      icon: (pen) => drawEllipse(pen, [11, 11], [8, 5, 0.5], AMBER, 2),
    },
    heading: {
      name: "Headings",
      needs: (sequence) => sequence.heading,
      draw: (pen, { truth, estimate, heading }, step) => {
        drawHeading(pen, truth[step], heading.truth[step], WHITE);
        drawHeading(pen, estimate[step], heading.estimate[step], AMBER);
      },
      icon: (pen) => drawHeading(pen, [-2, 17], -0.4, AMBER),
    },
    arrow: {
      name: "Arrows",
      needs: (sequence) => sequence.sketch?.truth.arrows,
      everywhere: true,
      draw: (pen, { sketch }, step, where) => eachOf(
        sketch, "arrows", where, step,
        (arrows, colour) => arrows.forEach((arrow) => drawArrow(pen, arrow, colour)),
      ),
      icon: (pen) => drawArrow(pen, [[4, 16], [18, 6]], AMBER),
    },
    truth: {
      name: "Truth",
      needs: () => true,
      draw: (pen, sequence, step) => drawMarker(pen, sequence.truth[step], CROSS, WHITE),
      icon: (pen) => drawMarker(pen, [11, 11], CROSS, WHITE),
    },
    estimate: {
      name: "Estimate",
      needs: () => true,
      draw: (pen, sequence, step) => drawDot(pen, sequence.estimate[step], 4, AMBER),
      icon: (pen) => drawDot(pen, [11, 11], 4, AMBER),
    },
  };

  // All frames of a sequence are in one image, row by row.
  function drawFrame({ context, scale, margin }, sequence, step) {
    const { image, columns, rows } = sequence;
    if (!image.complete || !image.naturalWidth) return;
    const [width, height] = [image.naturalWidth / columns, image.naturalHeight / rows];
    const column = step % columns;
    const row = Math.floor(step / columns);
    context.imageSmoothingEnabled = false;
    context.drawImage(
      image, column * width, row * height, width, height,
      margin * scale, margin * scale, width * scale, height * scale,
    );
  }

  return LAYERS;
})();
