"use strict";

// From numbers to places on an axis, and to texts.
const Scales = (() => {
  const isNumber = (value) => typeof value === "number";

  function format(value) {
    if (!isNumber(value)) return "–";
    const size = Math.abs(value);
    const text = size !== 0 && (size >= 1e5 || size < 1e-3)
      ? value.toExponential(2).replace(/\.?0+e\+?/, "e")
      : String(Number(value.toPrecision(4)));
    return text.replace("-", "−");
  }

  function coordinates(series, axis) {
    return axis === "x" ? series.x : [series.y, series.low, series.high].flatMap((v) => v ?? []);
  }

  function extent(description, axis) {
    const { log, zero } = description[axis];
    let low = Infinity;
    let high = -Infinity;
    for (const series of description.series) {
      for (const value of coordinates(series, axis)) {
        if (!isNumber(value) || (log && value <= 0)) continue;
        low = Math.min(low, value);
        high = Math.max(high, value);
      }
    }
    if (low > high) return [1, 10];
    if (zero && !log) [low, high] = [Math.min(low, 0), Math.max(high, 0)];
    if (low < high) return [low, high];
    const space = Math.abs(low) / 10 || 1;
    return log ? [low / 2, high * 2] : [low - space, high + space];
  }

  // Marks keep away from the edges, but zero stays at the edge where it is the end.
  function padded([low, high], log) {
    if (log) {
      const factor = (high / low) ** 0.04;
      return [low / factor, high * factor];
    }
    const space = 0.04 * (high - low);
    return [low === 0 ? 0 : low - space, high === 0 ? 0 : high + space];
  }

  // Wider ranges that give both axes the same scale on so many pixels, as on a map.
  function equalized(xs, ys, width, height) {
    const perPixel = Math.max((xs[1] - xs[0]) / width, (ys[1] - ys[0]) / height);
    return [[xs, width], [ys, height]].map(([[low, high], size]) => {
      const [middle, half] = [(low + high) / 2, (perPixel * size) / 2];
      return [middle - half, middle + half];
    });
  }

  function linearTicks(low, high, count, whole = false) {
    const rough = Math.max((high - low) / count, whole ? 1 : 0);
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
    const ticks = [];
    for (let i = Math.ceil(low / step); i * step <= high; i++) ticks.push(i * step);
    // Sums of decimal fractions are not exact: 0.30000000000000004 must read 0.3.
    return ticks.map((tick) => Number(tick.toPrecision(10)));
  }

  function logTicks(low, high, count) {
    const decades = Math.log10(high / low);
    const factors = decades < 1.2 ? [1, 2, 3, 5, 7] : decades < 2.5 ? [1, 2, 5] : [1];
    const stride = Math.max(1, Math.ceil(decades / count));
    const ticks = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += stride) {
      for (const factor of factors) {
        const tick = Number((factor * 10 ** power).toPrecision(6));
        if (tick >= low && tick <= high) ticks.push(tick);
      }
    }
    return ticks.length > 1 ? ticks : linearTicks(low, high, count);
  }

  function scale({ log, whole }, [low, high], [start, end], count) {
    const along = log
      ? (value) => Math.log(value / low) / Math.log(high / low)
      : (value) => (value - low) / (high - low);
    const shows = (value) => isNumber(value) && (!log || value > 0);
    return {
      place: (value) => (shows(value) ? start + along(value) * (end - start) : null),
      ticks: log ? logTicks(low, high, count) : linearTicks(low, high, count, whole),
    };
  }

  return { isNumber, format, extent, padded, equalized, scale };
})();
