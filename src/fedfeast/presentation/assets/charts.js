/* Charts as inline SVG, for the server's page and for reports; nothing else is loaded.

   charts.draw(container, spec) draws, and draws again when the container's width or the spec changes.
   A spec is plain data; chart.py writes those of reports, and pictures.py draws the same ones into files.
   {kind: "xy"} is the usual one:
     x, y       {label, scale: "log" | "linear", format: "macs" | "percent" | "count" | "number" | "milliseconds", unit,
                whole, min, max, and without those span, floor, ceiling}
     series     [{label, colour, points: [[x, y, spread?, name?, [low, high]?], ...], line, dash, thin, mark}], where
                colour is a number, a name of the stylesheet, or "grade:0.5", half-way along an order, and
                mark is "dot", one of SHAPES, "diamond" or "ring" (both open), or "none"
     bars       [{from, to, value, muted}], for histograms
     anchors    [x, ...]: dotted upright lines;  shade: [{to}]: a range of x that does not count
     notes      [{x, y, text}]: words beside points
     budget     {x, y?, label}: where a device stands, and the point it gets
   {kind: "grid", rows, columns, values, x, format} is a heat map; values[row][column] is a share in percent or null.
   Every element with data-chart="ID" is drawn from the JSON that the element ID holds. */
"use strict";
const charts = (() => {
  const SVG = "http://www.w3.org/2000/svg";
  const MARGIN = { left: 56, right: 16, top: 12, bottom: 46 };
  const LEAST_GAP = 46; // between the labels of an axis
  const MARK_GAP = 14; // between the marks of one line
  const TITLE_LINE = 16; // of what an axis measures
  const GRADES = 5; // colours of the stylesheet along an order
  const ring = (reaches) => reaches.map((reach, index) => {
    const angle = (2 * Math.PI * index) / reaches.length;
    return [reach * Math.sin(angle), -reach * Math.cos(angle)];
  });
  const plus = [[-1, -3], [1, -3], [1, -1], [3, -1], [3, 1], [1, 1], [1, 3], [-1, 3], [-1, 1], [-3, 1], [-3, -1], [-1, -1]].map(([x, y]) => [0.46 * x, 0.46 * y]);
  const SHAPES = {
    square: [[-1, -1], [1, -1], [1, 1], [-1, 1]],
    triangle: [[0, -1.35], [1.2, 0.9], [-1.2, 0.9]],
    wedge: [[0, 1.35], [1.2, -0.9], [-1.2, -0.9]],
    plus,
    star: ring([1.6, 0.65, 1.6, 0.65, 1.6, 0.65, 1.6, 0.65, 1.6, 0.65]),
    cross: plus.map(([x, y]) => [(x - y) * Math.SQRT1_2, (x + y) * Math.SQRT1_2]),
    pentagon: ring([1.25, 1.25, 1.25, 1.25, 1.25]),
    leftward: [[-1.35, 0], [0.9, 1.2], [0.9, -1.2]],
    rightward: [[1.35, 0], [-0.9, 1.2], [-0.9, -1.2]],
    hourglass: [[-1.1, -1.25], [1.1, -1.25], [-1.1, 1.25], [1.1, 1.25]],
    bow: [[-1.25, -1.1], [-1.25, 1.1], [1.25, -1.1], [1.25, 1.1]],
    bar: [[-0.6, -1.45], [0.6, -1.45], [0.6, 1.45], [-0.6, 1.45]],
    beam: [[-1.45, -0.6], [1.45, -0.6], [1.45, 0.6], [-1.45, 0.6]],
    chevron: [[0, -1.2], [1.4, 0.3], [1.4, 1.4], [0, -0.1], [-1.4, 1.4], [-1.4, 0.3]],
    hexagon: ring([1.25, 1.25, 1.25, 1.25, 1.25, 1.25]),
    arch: [[-1.3, 0.9], [-1.2, 0.1], [-0.7, -0.7], [0, -1], [0.7, -0.7], [1.2, 0.1], [1.3, 0.9]],
  };

  // --- numbers for people ---------------------------------------------------------------------------------------------
  function si(value) {
    for (const [unit, scale] of [["G", 1e9], ["M", 1e6], ["k", 1e3]]) {
      if (value >= scale * 0.99995) return `${Number((value / scale).toPrecision(4))}${unit}`;
    }
    return `${Number(value.toPrecision(4))}`;
  }
  const FORMATS = {
    macs: si,
    count: (value) => value.toLocaleString("en"),
    percent: (value) => `${Number(value.toFixed(2))} %`,
    milliseconds: (value) => `${Number(value.toPrecision(3))} ms`,
    number: (value) => `${Number(value.toPrecision(4))}`,
  };
  const TICKS = { percent: (value) => `${Number(value.toFixed(4))}`, milliseconds: (value) => `${Number(value.toPrecision(3))}` };
  const tickFormat = (axis) => TICKS[axis.format] || FORMATS[axis.format || "number"];

  function linearTicks(low, high, most) {
    const rough = (high - low) / Math.max(1, most);
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough);
    const ticks = [];
    for (let index = Math.ceil(low / step - 1e-9); index * step <= high + step * 1e-9; index += 1) ticks.push(index * step || 0);
    return ticks;
  }
  function logTicks(low, high, place) {
    const among = (steps) => {
      const ticks = [];
      for (let power = Math.floor(Math.log10(low)); 10 ** power <= high; power += 1) {
        for (const step of steps) {
          const tick = step * 10 ** power;
          if (tick >= low * 0.9999 && tick <= high * 1.0001) ticks.push(tick);
        }
      }
      return ticks;
    };
    const apart = (ticks) => ticks.every((tick, index) => !index || place(tick) - place(ticks[index - 1]) >= LEAST_GAP);
    const sets = [[1, 1.5, 2, 3, 4, 5, 6, 8], [1, 2, 3, 5], [1, 2, 5], [1, 3], [1]].map(among);
    return sets.find((ticks) => ticks.length > 1 && apart(ticks)) ?? [low, high];
  }

  // --- axes -----------------------------------------------------------------------------------------------------------
  function scaleOf(axis, values, from, to) {
    const log = axis.scale === "log";
    let low = axis.min ?? Math.min(...values), high = axis.max ?? Math.max(...values);
    if (!Number.isFinite(low) || !Number.isFinite(high)) [low, high] = log ? [1, 10] : [0, 1];
    if (log) {
      if (axis.min === undefined) low /= 1.12;
      if (axis.max === undefined) high *= 1.12;
      if (low >= high) [low, high] = [low / 2, high * 2];
    } else {
      const slack = Math.max(((axis.span || 0) - (high - low)) / 2, (high - low) * 0.06, 1e-9);
      if (axis.max === undefined) high = Math.min(high + slack, axis.ceiling === undefined ? Infinity : Math.max(axis.ceiling, high));
      if (axis.min === undefined) low = Math.min(low - slack, high - (axis.span || 0));
      if (axis.floor !== undefined && axis.min === undefined) low = Math.max(low, axis.floor);
      if (low >= high) high = low + 1;
    }
    const at = log ? Math.log10 : (value) => value;
    const place = (value) => from + ((at(value) - at(low)) / (at(high) - at(low))) * (to - from);
    const back = (pixel) => {
      const value = at(low) + ((pixel - from) / (to - from)) * (at(high) - at(low));
      return log ? 10 ** value : value;
    };
    return Object.assign(place, { low, high, log, back });
  }

  // --- small helpers --------------------------------------------------------------------------------------------------
  function add(parent, name, attributes = {}, text) {
    const node = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) {
      if (key === "fill" || key === "stroke") node.style[key] = value;
      else node.setAttribute(key, value);
    }
    if (text !== undefined) node.textContent = text;
    parent.append(node);
    return node;
  }
  function colourOf(colour = 0) {
    if (typeof colour === "number") return `var(--series-${colour % 10})`;
    if (colour.startsWith("grade:")) {
      const place = Number(colour.slice(6)) * (GRADES - 1), first = Math.min(Math.floor(place), GRADES - 2);
      return `color-mix(in srgb, var(--grade-${first + 1}) ${100 * (place - first)}%, var(--grade-${first}))`;
    }
    return `var(--${colour})`;
  }
  function mark(parent, kind, x, y, colour, size = 4.5) {
    if (kind === "none") return;
    if (kind === "diamond") {
      const reach = size + 2;
      add(parent, "path", { d: `M${x} ${y - reach}L${x + reach} ${y}L${x} ${y + reach}L${x - reach} ${y}Z`, class: "open", stroke: colour });
    } else if (kind === "ring") {
      add(parent, "circle", { cx: x, cy: y, r: 1.6 * size, class: "open", fill: "none", stroke: colour });
    } else if (kind in SHAPES) {
      const corners = SHAPES[kind].map(([right, down]) => [x + right * size, y + down * size]);
      add(parent, "path", { d: `${path(corners)}Z`, class: "dot", fill: colour });
    } else {
      add(parent, "circle", { cx: x, cy: y, r: size, class: "dot", fill: colour });
    }
  }
  function path(points) {
    return points.map(([x, y], index) => `${index ? "L" : "M"}${x.toFixed(2)} ${y.toFixed(2)}`).join("");
  }

  /* Write what the horizontal axis measures, within the picture and in as many lines as it needs; return their extra height. */
  function addTitle(svg, label, middle, width, height) {
    const node = add(svg, "text", { "text-anchor": "middle", class: "axis-title" }, label);
    const fits = (words) => {
      node.textContent = words;
      return node.getComputedTextLength() <= width - 4;
    };
    let lines = fits(label) ? [label] : label.split(/ (?=\()/); // what is in brackets is a line of its own, where that is enough
    if (!lines.every(fits)) {
      lines = [];
      for (const word of label.split(" ")) {
        const longer = `${lines.at(-1)} ${word}`;
        if (lines.length && fits(longer)) lines[lines.length - 1] = longer;
        else lines.push(word);
      }
    }
    node.textContent = "";
    lines.forEach((line, index) => {
      const part = add(node, "tspan", { y: height - 5 - TITLE_LINE * (lines.length - 1 - index) }, line);
      const half = part.getComputedTextLength() / 2 + 2;
      part.setAttribute("x", Math.min(Math.max(middle, half), width - half));
    });
    return TITLE_LINE * (lines.length - 1);
  }

  // --- the usual chart ------------------------------------------------------------------------------------------------
  function drawXY(svg, spec, width, height) {
    const series = spec.series || [], bars = spec.bars || [], points = series.flatMap((one) => one.points);
    const left = MARGIN.left, right = width - MARGIN.right, top = MARGIN.top;
    const bottom = height - MARGIN.bottom - addTitle(svg, spec.x.label, (left + right) / 2, width, height);
    const xs = [...points.map((point) => point[0]), ...bars.flatMap((bar) => [bar.from, bar.to])];
    const ys = [...points.flatMap(([, y, spread, , ends]) => ends || (spread ? [y - spread, y + spread] : [y])), ...bars.map((bar) => bar.value)];
    const x = scaleOf(spec.x, xs, left, right);
    const y = scaleOf(bars.length ? { min: 0, ...spec.y } : spec.y, ys, bottom, top);

    for (const { to } of spec.shade || []) {
      const edge = Math.min(Math.max(x(to), left), right);
      if (edge > left) add(svg, "rect", { x: left, y: top, width: edge - left, height: bottom - top, class: "shade" });
    }
    if (spec.budget) {
      const edge = Math.min(Math.max(x(spec.budget.x), left), right);
      add(svg, "rect", { x: edge, y: top, width: right - edge, height: bottom - top, class: "shade" });
    }
    const yTicks = linearTicks(y.low, y.high, Math.max(2, Math.floor((bottom - top) / 34)));
    for (const tick of spec.y.whole ? yTicks.filter(Number.isInteger) : yTicks) {
      add(svg, "line", { x1: left, x2: right, y1: y(tick), y2: y(tick), class: "grid" });
      add(svg, "text", { x: left - 9, y: y(tick) + 4, "text-anchor": "end" }, tickFormat(spec.y)(tick));
    }
    const xTicks = x.log ? logTicks(x.low, x.high, x) : linearTicks(x.low, x.high, Math.max(2, Math.floor((right - left) / 58)));
    for (const tick of spec.x.whole ? xTicks.filter(Number.isInteger) : xTicks) {
      add(svg, "line", { x1: x(tick), x2: x(tick), y1: bottom, y2: bottom + 5, class: "axis" });
      add(svg, "text", { x: x(tick), y: bottom + 19, "text-anchor": "middle" }, tickFormat(spec.x)(tick));
    }
    add(svg, "line", { x1: left, x2: right, y1: bottom, y2: bottom, class: "axis" });
    const upright = add(svg, "text", { "text-anchor": "middle", class: "axis-title" }, spec.y.label);
    const long = upright.getComputedTextLength(), fitting = Math.min(1, (height - 4) / long);
    if (fitting < 1) upright.style.fontSize = `${12.5 * fitting}px`;
    const half = (long * fitting) / 2 + 2, centre = Math.min(Math.max((top + bottom) / 2, half), height - half);
    upright.setAttribute("transform", `translate(13 ${centre}) rotate(-90)`);
    for (const anchor of spec.anchors || []) {
      if (anchor >= x.low && anchor <= x.high) add(svg, "line", { x1: x(anchor), x2: x(anchor), y1: top, y2: bottom, class: "anchor" });
    }

    for (const bar of bars) {
      const begin = x(bar.from), end = x(bar.to), high = y(bar.value);
      const wide = Math.max(1, end - begin - 2);
      if (bar.value > 0) {
        add(svg, "rect", { x: begin + 1, y: high, width: wide, height: bottom - high, rx: Math.min(3, wide / 2), fill: bar.muted ? "var(--grey)" : "var(--series-0)" });
      }
    }
    if (spec.budget && right - x(spec.budget.x) > 130) {
      add(svg, "text", { x: right - 10, y: bottom - 12, "text-anchor": "end", class: "on-shade" }, "beyond the budget");
    }
    const targets = [];
    for (const one of series) {
      const colour = colourOf(one.colour), placed = one.points.map(([px, py]) => [x(px), y(py)]);
      if (one.points.length && one.points.every((point) => point[2])) {
        const upper = one.points.map(([px, py, spread]) => [x(px), y(py + spread)]);
        const lower = one.points.map(([px, py, spread]) => [x(px), y(py - spread)]).reverse();
        add(svg, "path", { d: `${path([...upper, ...lower])}Z`, class: "band", fill: colour });
      }
      for (const [px, , , , ends] of one.points) {
        if (ends) add(svg, "line", { x1: x(px), x2: x(px), y1: y(ends[0]), y2: y(ends[1]), class: "interval", stroke: colour });
      }
      if (one.line !== false) {
        const attributes = { d: path(placed), class: one.thin ? "line thin" : "line", stroke: colour };
        if (one.dash) attributes["stroke-dasharray"] = one.dash;
        add(svg, "path", attributes);
      }
      const crowded = placed.length > 1 && (right - left) / placed.length < MARK_GAP;
      const joined = one.line !== false;
      let marked = -Infinity; // a crowded line shows some of its marks
      placed.forEach(([px, py], index) => {
        if (!(crowded && joined) || Math.abs(px - marked) >= MARK_GAP) {
          mark(svg, one.mark || "dot", px, py, colour, crowded && !joined ? 3 : 4.5);
          marked = px;
        }
        targets.push({ x: px, y: py, label: one.label, point: one.points[index] });
      });
    }
    for (const { x: px, y: py, text } of spec.notes || []) {
      add(svg, "text", { x: x(px) + 6, y: y(py) + 17, class: "mark-label" }, text);
    }
    for (const bar of bars) targets.push({ x: (x(bar.from) + x(bar.to)) / 2, y: y(bar.value), bar });
    if (spec.budget) {
      const place = Math.min(Math.max(x(spec.budget.x), left), right);
      add(svg, "line", { x1: place, x2: place, y1: top, y2: bottom, class: "budget" });
      if (spec.budget.y !== undefined && spec.budget.y !== null) {
        add(svg, "circle", { cx: x(spec.budget.at), cy: y(spec.budget.y), r: 8.5, class: "halo" });
      }
    }
    return { targets, x, left, right, top, bottom };
  }

  function tipText(target, spec) {
    const format = (axis, value) => FORMATS[axis.format || "number"](value);
    if (target.bar) {
      const { from, to, value } = target.bar;
      return [`${format(spec.y, value)} ${spec.barName || ""}`.trim(), `${format(spec.x, from)} to ${format(spec.x, to)} ${spec.x.unit || ""}`.trim()];
    }
    const [px, py, spread, name, ends] = target.point;
    const around = ends ? ` (${tickFormat(spec.y)(Number(ends[0].toFixed(1)))} to ${format(spec.y, Number(ends[1].toFixed(1)))})` : spread ? ` ± ${format(spec.y, spread)}` : "";
    const value = `${format(spec.y, py)}${around}`;
    return [name ? `${target.label}, ${name}` : target.label, `${format(spec.x, px)} ${spec.x.unit || ""}: ${value}`];
  }

  // --- heat map -------------------------------------------------------------------------------------------------------
  function drawGrid(svg, spec, width, height) {
    const left = 76, right = width - 8, top = 6;
    const bottom = height - 44 - addTitle(svg, spec.x.label, (left + right) / 2, width, height);
    const wide = (right - left) / spec.columns.length, high = (bottom - top) / spec.rows.length;
    spec.rows.forEach((name, row) => {
      add(svg, "text", { x: left - 10, y: top + (row + 0.5) * high + 4, "text-anchor": "end" }, name);
      spec.values[row].forEach((value, column) => {
        if (value === null || value === undefined) return;
        const place = { x: left + column * wide + 1.5, y: top + row * high + 1.5 };
        const fill = `color-mix(in srgb, var(--accent) ${Math.round(8 + 0.86 * value)}%, var(--card))`;
        add(svg, "rect", { ...place, width: wide - 3, height: high - 3, rx: 4, fill });
        const text = { x: left + (column + 0.5) * wide, y: top + (row + 0.5) * high, class: "cell-text" };
        add(svg, "text", { ...text, fill: value > 50 ? "var(--on-accent)" : "var(--ink)" }, Math.round(value));
      });
    });
    spec.columns.forEach((name, column) => {
      add(svg, "text", { x: left + (column + 0.5) * wide, y: bottom + 18, "text-anchor": "middle" }, name);
    });
    return null;
  }

  // --- legend, hovering, drawing again --------------------------------------------------------------------------------
  function legendOf(spec) {
    const list = document.createElement("ul");
    list.className = "legend";
    for (const one of spec.series) {
      if (!one.label) continue;
      const item = document.createElement("li"), svg = add(item, "svg", { viewBox: "0 0 26 12", "aria-hidden": "true" });
      const colour = colourOf(one.colour);
      if (one.line !== false) {
        const line = add(svg, "path", { d: "M1 6H25", class: one.thin ? "line thin" : "line", stroke: colour });
        if (one.dash) line.setAttribute("stroke-dasharray", one.dash);
      }
      mark(svg, one.mark || "dot", 13, 6, colour, 4);
      item.append(one.label);
      list.append(item);
    }
    return list;
  }
  function hover(box, svg, drawn, spec) {
    const tip = document.createElement("div");
    tip.className = "tip";
    tip.hidden = true;
    box.append(tip);
    const ring = add(svg, "circle", { r: 8, class: "focus", visibility: "hidden" });
    const hide = () => { tip.hidden = true; ring.setAttribute("visibility", "hidden"); };
    svg.addEventListener("pointerleave", hide);
    svg.addEventListener("pointermove", (event) => {
      const area = svg.getBoundingClientRect(), px = event.clientX - area.left, py = event.clientY - area.top;
      const weight = spec.bars ? 0.02 : 0.06; // upright distance counts little: the whole chart answers
      let nearest = null, best = 55 ** 2;
      for (const target of drawn.targets) {
        const distance = (target.x - px) ** 2 + weight * (target.y - py) ** 2;
        if (distance < best) [nearest, best] = [target, distance];
      }
      if (!nearest) return hide();
      const [first, second] = tipText(nearest, spec), strong = document.createElement("b");
      strong.textContent = first;
      tip.replaceChildren(strong, second);
      tip.hidden = false;
      const shift = Math.min(Math.max(nearest.x - tip.offsetWidth / 2, 0), area.width - tip.offsetWidth);
      const above = nearest.y - tip.offsetHeight - 14;
      tip.style.left = `${shift}px`;
      tip.style.top = `${area.top - box.getBoundingClientRect().top + (above < -20 ? nearest.y + 14 : above)}px`;
      if (!nearest.bar) {
        ring.setAttribute("cx", nearest.x);
        ring.setAttribute("cy", nearest.y);
        ring.setAttribute("visibility", "visible");
      }
    });
  }

  function render(box) {
    const spec = box.chartSpec, width = Math.floor(box.clientWidth);
    if (!spec || width < 40) return;
    box.chartWidth = width;
    if (spec.empty) {
      const words = document.createElement("p");
      words.className = "chart-empty";
      words.textContent = spec.empty;
      box.replaceChildren(words);
      return;
    }
    const height = spec.kind === "grid" ? 50 + 40 * spec.rows.length : spec.height || (width < 480 ? 260 : 330);
    const svg = document.createElementNS(SVG, "svg");
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.setAttribute("height", height);
    svg.setAttribute("role", "img");
    svg.setAttribute("aria-label", spec.about || `${spec.y ? spec.y.label : "share"} over ${spec.x.label}`);
    const showLegend = spec.legend !== false && spec.kind !== "grid" && (spec.series || []).some((one) => one.label);
    box.replaceChildren(...(showLegend ? [legendOf(spec)] : []), svg);
    const drawn = spec.kind === "grid" ? drawGrid(svg, spec, width, height) : drawXY(svg, spec, width, height);
    box.chartScale = drawn;
    if (drawn) hover(box, svg, drawn, spec);
    if (spec.onDrawn) spec.onDrawn(drawn);
  }

  const sizes = typeof ResizeObserver === "undefined" ? null : new ResizeObserver((entries) => {
    for (const { target } of entries) if (Math.floor(target.clientWidth) !== target.chartWidth) render(target);
  });

  function draw(box, spec) {
    const known = box.chartSpec !== undefined;
    box.chartSpec = spec;
    render(box);
    if (!known && sizes) sizes.observe(box);
  }

  function drawAll() {
    for (const box of document.querySelectorAll("[data-chart]")) {
      draw(box, JSON.parse(document.getElementById(box.dataset.chart).textContent));
    }
  }
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", drawAll);
  else drawAll();
  const markOf = (number) => ["dot", ...Object.keys(SHAPES)][number % (Object.keys(SHAPES).length + 1)];
  return { draw, si, formats: FORMATS, margin: MARGIN, markOf };
})();
