// Charts, drawn by plotly.  Each is a function that returns {data, layout}; `draw` adds what they
// have in common: colours of the page, sizes, names for those who cannot see them.

const PHASE_COLOURS = ["#3b82c4", "#8e6bb8", "#e08b2d", "#b8a12a", "#5b9e5b"];
const CATEGORY_COLOURS = [
  "#7a828c", "#b9c0c8", "#8e6bb8", "#b79ad3", "#d3c3e6", "#a98fd0", "#cbb8dd", "#c9635b", "#e0a09b", "#4f8a8b",
  "#5b9e5b", "#8fae45", "#b5cf8f", "#7fb7d6", "#3b82c4", "#e08b2d", "#e8c547",
];
const TYPE_COLOURS = ["#3aa6a6", "#d98cb3", "#8fae45", "#b5651d", "#6f7fd1", "#c9635b", "#a0785a", "#7fb7d6", "#d0b35f"];
const LIMIT = "#d1242f";
const SHOWN = 25;
const GROUPS = 260; // segments of the trace that are drawn at once, about

// Plotly reads some tags in texts; a name has none.
const plain = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
const narrow = () => window.innerWidth < 600;

function shortened(text, length) {
  return text.length <= length ? text : `…${text.slice(1 - length)}`;
}

// On paper: black on white, and as wide as a page.
const PAPER = { "--text": "#000", "--line": "#ccc", "--panel": "#fff", "--link": "#0b5cad" };
const PAPER_WIDTH = 680;

function colour(name) {
  if (state.printing) return PAPER[name];
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function themed(layout) {
  const line = colour("--line");
  const axis = { gridcolor: line, zerolinecolor: line, linecolor: line, automargin: true, fixedrange: false };
  const themedLayout = {
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: colour("--text"), family: "system-ui, sans-serif", size: narrow() ? 11 : 12 },
    margin: { l: 8, r: 12, t: 8, b: 8 },
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", traceorder: "normal" },
    hoverlabel: { bgcolor: colour("--panel"), bordercolor: line, font: { color: colour("--text") }, align: "left", namelength: -1 },
    dragmode: narrow() ? false : "zoom",
    ...layout,
  };
  for (const key of Object.keys(themedLayout)) {
    if (/^[xy]axis/.test(key)) themedLayout[key] = { ...axis, ...themedLayout[key] };
  }
  return themedLayout;
}

const drawn = new Map();

function draw(id, make, onClick = null) {
  const host = byId(id);
  const { data, layout, label, height } = make();
  if (height) host.style.height = `${height}px`;
  if (state.printing) layout.width = PAPER_WIDTH;
  const config = { responsive: true, displaylogo: false, displayModeBar: false, doubleClick: "reset" };
  Plotly.react(host, data, themed(layout), config);
  if (label) host.setAttribute("aria-label", label);
  if (!drawn.has(id) && onClick) {
    host.on("plotly_click", (event) => {
      const picked = event.points.map((point) => point.customdata).find((op) => Number.isInteger(op));
      if (picked !== undefined && picked >= 0) onClick(picked);
    });
  }
  drawn.set(id, make);
}

// -- memory ---------------------------------------------------------------------------------------

function tileColumn(chip, category) {
  const column = chip.tiles[category];
  return column.length === 1 ? chip.peak.map(() => column[0]) : column;
}

function memoryChart() {
  if (state.memory < 0) return allTiles();
  const chip = DATA.chips[state.memory];
  const tiles = chip.peak.map((_, tile) => tile);
  const data = DATA.categories
    .map((name, index) => ({ name, index, y: tileColumn(chip, index) }))
    .filter(({ y }) => y.some((one) => one !== 0))
    .map(({ name, index, y }) => ({
      name, x: tiles, y, type: "scatter", mode: "lines", stackgroup: "memory",
      line: { shape: "hv", width: 0, color: CATEGORY_COLOURS[index] }, fillcolor: CATEGORY_COLOURS[index],
      hovertemplate: `${name}: %{y:,} bytes<extra></extra>`,
    }));
  const highest = Math.max(...chip.peak, 1);
  const toLimit = byId("memory-limit").checked || highest > chip.limit;
  data.push({
    name: "limit", x: [0, Math.max(tiles.length - 1, 1)], y: [chip.limit, chip.limit], type: "scatter", mode: "lines",
    line: { color: LIMIT, dash: "dash", width: 2 }, hovertemplate: "limit: %{y:,} bytes<extra></extra>",
  });
  const layout = {
    xaxis: { title: { text: "tile" }, range: [0, Math.max(tiles.length - 1, 1)] },
    yaxis: { title: { text: "bytes" }, range: [0, 1.04 * (toLimit ? Math.max(highest, chip.limit) : highest)] },
    hovermode: narrow() ? "closest" : "x unified",
  };
  return { data, layout, label: `Bytes of ${tiles.length} tiles by category; the busiest has ${count(highest)}, the limit is ${count(chip.limit)}` };
}

function allTiles() {
  const z = DATA.chips.map((chip) => chip.peak);
  const limit = Math.max(...DATA.chips.map((chip) => chip.limit));
  const highest = z.reduce((most, row) => row.reduce((a, b) => Math.max(a, b), most), 0);
  const data = [{
    type: "heatmap", z, y: DATA.chips.map((_, ipu) => String(ipu)), zmin: 0, zmax: byId("memory-limit").checked ? limit : highest,
    colorscale: "Viridis", colorbar: { title: { text: "bytes" }, thickness: 12 },
    hovertemplate: "IPU %{y}, tile %{x}: %{z:,} bytes<extra></extra>",
  }];
  return { data, layout: { xaxis: { title: { text: "tile" } }, yaxis: { title: { text: "IPU" }, type: "category" } }, label: `Bytes of all tiles of ${z.length} IPUs` };
}

function livenessChart() {
  const chip = DATA.chips[state.liveness];
  const x = chip.step.map((_, step) => step);
  const label = chip.step.map((name, step) => `step ${step}: ${plain(shortened(name, 60))}`);
  const line = (name, y, axis, style) => ({
    name, x, y, customdata: chip.op, text: label, yaxis: axis, type: "scatter", mode: x.length < 60 ? "lines+markers" : "lines",
    line: { shape: "hv", width: 1.5, color: style }, hovertemplate: `%{text}<br>${name}: %{y:,} bytes<extra></extra>`,
  });
  const always = Math.max(...chip.always, 0);
  const data = [
    { ...line("not always live, all tiles", chip.live, "y2", CATEGORY_COLOURS[15]), fill: "tozeroy" },
    { ...line("busiest tile", chip.top, "y", CATEGORY_COLOURS[14]), fill: "tozeroy" },
  ];
  const flat = (name, y, dash, style) => ({
    name, x: [0, Math.max(x.length - 1, 1)], y: [y, y], type: "scatter", mode: "lines", line: { dash, color: style, width: 2 },
    hovertemplate: `${name}: %{y:,} bytes<extra></extra>`,
  });
  data.push(flat("always live", always, "dot", CATEGORY_COLOURS[0]), flat("limit", chip.limit, "dash", LIMIT));
  const layout = {
    xaxis: { title: { text: "step of the schedule" }, anchor: "y" },
    yaxis: { title: { text: "bytes of the busiest tile" }, domain: [0, 0.46], rangemode: "tozero" },
    yaxis2: { title: { text: "bytes of all tiles" }, domain: [0.54, 1], rangemode: "tozero" },
    hovermode: "closest",
    shapes: [...mark(chip.peak_step, LIMIT, "dot"), ...mark(chip.op.indexOf(state.op), colour("--link"), "solid")],
  };
  return { data, layout, label: `Live bytes over ${x.length} steps; the peak is ${count(chip.top[chip.peak_step] ?? 0)} bytes on a tile, at step ${chip.peak_step}` };
}

function mark(x, style, dash) {
  if (x < 0) return [];
  return [{ type: "line", xref: "x", yref: "paper", x0: x, x1: x, y0: 0, y1: 1, line: { color: style, width: 1.5, dash } }];
}

// -- cycles ---------------------------------------------------------------------------------------

function bars(names, hints, parts, ops, left) {
  return DATA.kinds.map((kind, index) => ({
    name: kind, type: "bar", orientation: "h", y: names, x: parts.map((row) => row[index]), customdata: ops, text: hints, textposition: "none",
    marker: {
      color: PHASE_COLOURS[index],
      opacity: ops.map((op) => (state.op < 0 || op < 0 || op === state.op || !ops.includes(state.op) ? 1 : 0.4)),
    },
    hovertemplate: `%{text}<br>${kind}: %{x:,} cycles<extra></extra>`,
  })).filter((trace) => left || trace.x.some((one) => one > 0));
}

function phaseChart() {
  const total = ALL.reduce((a, b) => a + b, 0);
  const data = DATA.kinds.map((kind, index) => ({
    name: kind, type: "bar", orientation: "h", x: [ALL[index]], y: [""], marker: { color: PHASE_COLOURS[index] },
    text: [ALL[index] > 0.06 * total ? share(ALL[index], total) : ""], textposition: "inside", insidetextanchor: "middle", textfont: { color: "#fff" },
    hovertemplate: `${kind}: %{x:,} cycles, ${share(ALL[index], total)}<extra></extra>`,
  }));
  const layout = { barmode: "stack", xaxis: { title: { text: "cycles" } }, yaxis: { title: { text: "all phases" }, showticklabels: false } };
  return { data, layout, label: DATA.kinds.map((kind, index) => `${kind} ${count(ALL[index])}`).join(", ") };
}

function horizontal(data, names, legend, title) {
  const layout = {
    barmode: "stack", bargap: 0.25, xaxis: { title: { text: "cycles" } }, hovermode: "closest",
    yaxis: { title: { text: title }, autorange: "reversed", type: "category", tickmode: "array", tickvals: names.map((_, i) => i), ticktext: names, fixedrange: true },
    showlegend: legend,
  };
  return { data, layout, height: (legend ? 120 : 60) + 22 * Math.max(names.length, 3) };
}

function typeChart() {
  const ranked = [...TYPES.entries()].sort((a, b) => b[1].total - a[1].total).filter(([, one]) => one.total > 0).slice(0, SHOWN);
  const names = ranked.map(([type]) => plain(DATA.ops.types[type]));
  const hints = ranked.map(([type, one]) => `${plain(DATA.ops.types[type])}: ${count(one.ops)} ops, ${count(one.total)} cycles`);
  const data = bars(names.map((_, i) => i), hints, ranked.map(([, one]) => one.parts), names.map(() => -1));
  return { ...horizontal(data, names, false, "type of op"), label: hints.slice(0, 5).join("; ") };
}

function opChart() {
  const ops = RANKED.slice(0, SHOWN);
  const names = ops.map((op) => plain(shortened(DATA.ops.name[op], narrow() ? 16 : 40)));
  const hints = ops.map((op) => `${plain(shortened(DATA.ops.name[op], 70))}<br>${plain(DATA.ops.types[DATA.ops.type[op]])}, ${count(TOTALS[op])} cycles, ${share(TOTALS[op], TOTAL)}`);
  const data = bars(ops.map((_, i) => i), hints, ops.map((op) => DATA.ops.cycles[op]), ops);
  return { ...horizontal(data, names, true, "op"), label: `The most expensive op is ${DATA.ops.name[ops[0]] ?? "none"}` };
}

// -- trace ----------------------------------------------------------------------------------------

function traceGroups(ipu, from, to) {
  const least = (to - from) / GROUPS;
  const groups = [];
  let open = null;
  for (const op of OPS_OF[ipu]) {
    const start = DATA.ops.start[op];
    const total = TOTALS[op];
    if (!total || start + total < from || start > to) continue;
    if (open && (open.total >= least || total >= least || start > open.end + least)) {
      groups.push(open);
      open = null;
    }
    open ??= { op, ops: 0, start, end: start, total: 0, parts: DATA.kinds.map(() => 0) };
    open.ops += 1;
    open.total += total;
    open.end = start + total;
    DATA.ops.cycles[op].forEach((cycles, kind) => { open.parts[kind] += cycles; });
  }
  return open ? [...groups, open] : groups;
}

function traceChart() {
  const [from, to] = state.trace ?? [0, TOTAL];
  const data = [];
  const rows = BUSY.length;
  const many = new Map();
  const phases = DATA.kinds.map(() => ({ base: [], x: [], y: [], customdata: [], text: [] }));
  BUSY.forEach((ipu, row) => {
    for (const group of traceGroups(ipu, from, to)) {
      const type = group.ops > 1 ? -1 : TYPE_RANK.get(DATA.ops.type[group.op]) ?? -2;
      if (!many.has(type)) many.set(type, { base: [], x: [], y: [], customdata: [], text: [] });
      const hint = group.ops > 1 ? `${count(group.ops)} steps from ${plain(shortened(DATA.ops.name[group.op], 50))}` : `${plain(shortened(DATA.ops.name[group.op], 60))}<br>${plain(DATA.ops.types[DATA.ops.type[group.op]])}`;
      const add = (bucket, y, base, length) => {
        bucket.base.push(base); bucket.x.push(length); bucket.y.push(y);
        bucket.customdata.push(group.op); bucket.text.push(hint);
      };
      add(many.get(type), 2 * row, group.start, group.total);
      let base = group.start;
      [3, 2, 1, 0, 4].forEach((kind) => { // sync, exchange, launch, compute, host
        if (group.parts[kind]) add(phases[kind], 2 * row + 1, base, group.parts[kind]);
        base += group.parts[kind];
      });
    }
  });
  const bar = { type: "bar", orientation: "h", hovertemplate: "%{text}<br>%{x:,} cycles from %{base:,}<extra></extra>", width: 0.8, textposition: "none" };
  for (const [type, bucket] of [...many.entries()].sort((a, b) => a[0] - b[0])) {
    const name = type === -1 ? "several steps" : type === -2 ? "other ops" : plain(DATA.ops.types[TYPE_ORDER[type]]);
    const style = type < 0 ? "#8b949e" : TYPE_COLOURS[type % TYPE_COLOURS.length];
    data.push({ ...bar, ...bucket, name, legendgroup: "steps", marker: { color: style } });
  }
  phases.forEach((bucket, kind) => {
    if (bucket.x.length) data.push({ ...bar, ...bucket, name: DATA.kinds[kind], legendgroup: "phases", marker: { color: PHASE_COLOURS[kind] } });
  });
  const labels = BUSY.flatMap((ipu) => (DATA.chips.length > 1 ? [`IPU ${ipu}`, "phases"] : ["steps", "phases"]));
  const start = state.op >= 0 ? DATA.ops.start[state.op] : -1;
  const selected = BUSY.indexOf(DATA.ops.ipu[state.op]);
  const shapes = start < 0 ? [] : [{
    type: "rect", xref: "x", yref: "y", x0: start, x1: start + TOTALS[state.op],
    y0: 2 * selected - 0.5, y1: 2 * selected + 1.5,
    line: { color: colour("--link"), width: 2 }, fillcolor: colour("--link"), opacity: 0.3,
  }];
  const layout = {
    barmode: "overlay", hovermode: "closest", shapes,
    xaxis: { title: { text: "cycles" }, range: [from, to] },
    yaxis: { title: { text: "program" }, tickmode: "array", tickvals: labels.map((_, row) => row), ticktext: labels, range: [2 * rows - 0.5, -0.5], fixedrange: true },
  };
  return { data, layout, height: Math.max(narrow() ? 420 : 340, 180 + 70 * rows), label: `${count(DATA.ops.name.length)} program steps in ${count(TOTAL)} cycles` };
}
