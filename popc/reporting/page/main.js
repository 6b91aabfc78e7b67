// Puts the page together: what is selected, what the tables show, what happens on a click.

const DATA = JSON.parse(byId("data").textContent);
const state = { op: -1, memory: DATA.chips.length > 1 ? -1 : 0, liveness: 0, schedule: 0, tensors: 0, trace: null, printing: false };
const OPS = DATA.ops.name.map((_, op) => op);
const TOTALS = DATA.ops.cycles.map((row) => row.reduce((a, b) => a + b, 0));
const TOTAL = DATA.summary.total_cycles;
const ALL = DATA.cycles;
const HIDDEN = DATA.ops.hidden.reduce((a, b) => a + b, 0);
const RANKED = [...OPS].sort((a, b) => TOTALS[b] - TOTALS[a] || a - b).filter((op) => TOTALS[op] > 0);
const OPS_OF = DATA.chips.map((_, ipu) => OPS.filter((op) => DATA.ops.ipu[op] === ipu).sort((a, b) => DATA.ops.start[a] - DATA.ops.start[b]));
const BUSY = OPS_OF.map((_, ipu) => ipu).filter((ipu) => OPS_OF[ipu].length); // others have no trace
const typeOf = (op) => (op < 0 ? "" : DATA.ops.types[DATA.ops.type[op]]);

const TYPES = new Map();
for (const op of OPS) {
  const type = DATA.ops.type[op];
  if (!TYPES.has(type)) TYPES.set(type, { ops: 0, total: 0, parts: DATA.kinds.map(() => 0) });
  const one = TYPES.get(type);
  one.ops += 1;
  one.total += TOTALS[op];
  DATA.ops.cycles[op].forEach((cycles, kind) => { one.parts[kind] += cycles; });
}
const TYPE_ORDER = [...TYPES.keys()].sort((a, b) => TYPES.get(b).total - TYPES.get(a).total).slice(0, TYPE_COLOURS.length);
const TYPE_RANK = new Map(TYPE_ORDER.map((type, rank) => [type, rank]));

// -- summary --------------------------------------------------------------------------------------

function card(label, value, kind = "") {
  return element("div", { class: "card" }, element("b", { class: kind }, value), element("span", {}, label));
}

function duration(seconds) {
  if (seconds >= 1) return `${seconds.toFixed(2)} s`;
  return seconds >= 1e-3 ? `${(seconds * 1e3).toFixed(2)} ms` : `${(seconds * 1e6).toFixed(1)} µs`;
}

function showSummary() {
  const { summary, graph } = DATA;
  const { target, archive } = summary;
  byId("title").textContent = archive.name;
  const ipus = target.ipus > 1 ? `${target.ipus} IPUs of ` : "";
  byId("subtitle").textContent = `${target.name}: ${ipus}${count(target.tiles_per_ipu)} tiles at ${(target.clock_hz / 1e9).toFixed(2)} GHz, ${count(target.bytes_per_tile)} bytes each`;
  byId("cards").append(
    card("cycles for a run", count(TOTAL)),
    card("time for a run", duration(summary.seconds)),
    card("samples per second", count(summary.samples_per_second)),
    card(`busiest tile, of ${bytes(target.bytes_per_tile)}`, bytes(summary.max_tile_bytes)),
    card("memory", summary.fits ? "fits" : "does not fit", summary.fits ? "good" : "bad"),
    card("archive", bytes(archive.bytes)),
    card("program steps", count(graph.ops)),
    card("compute sets", count(graph.compute_sets)),
    card("exchanges", count(graph.exchanges)),
    ...(DATA.pipeline ? [
      card("of the time IPUs are busy in the pipeline", share(DATA.pipeline.utilisation, 1)),
      card(`cycles for each of ${count(DATA.pipeline.turns)} turns of the pipeline`, count(DATA.pipeline.turn_cycles)),
    ] : []),
    ...(HIDDEN ? [card("cycles for the host that are hidden", count(HIDDEN))] : []),
  );
  const list = byId("interface");
  const tell = (term, text) => list.append(element("dt", {}, term), element("dd", {}, text));
  summary.inputs.forEach((one) => tell("input", one));
  summary.outputs.forEach((one) => tell("output", one));
  summary.assumed_loops.forEach((one) => tell("one iteration assumed of", one));
}

// -- the op that is selected ----------------------------------------------------------------------

function selectOp(op) {
  state.op = op;
  showDetail();
  [opsTable, scheduleTable].forEach((table) => table.draw());
  ["op-chart", "trace-chart", "liveness-chart"].forEach((id) => draw(id, drawn.get(id)));
}

function showDetail() {
  const op = state.op;
  const panel = byId("detail");
  panel.hidden = op < 0;
  if (op < 0) return;
  const { ops } = DATA;
  const facts = [
    [typeOf(op), `${count(TOTALS[op])} cycles, ${share(TOTALS[op], TOTAL)}`],
    ["node", ops.node[op] || ops.name[op]],
    ["program step", `${count(op)} of ${count(OPS.length)}, from cycle ${count(ops.start[op])}`],
    ["IPU", DATA.chips.length > 1 ? String(ops.ipu[op]) : ""],
    ["executions", ops.times[op] > 1 ? count(ops.times[op]) : ""],
    ["hidden", ops.hidden[op] ? `${count(ops.hidden[op])} more cycles for the host while others compute` : ""],
    ["temporary data", ops.temporary[op] ? `${count(ops.temporary[op])} bytes on the busiest tile` : ""],
    ...ops.plans[op].map((plan) => [typeOf(op) === "FusedElementwise" ? "steps" : "plan", plan]),
  ].filter(([, text]) => text);
  const close = element("button", { type: "button", class: "close", onclick: () => selectOp(-1) }, "Close");
  const list = element("dl", {}, ...facts.flatMap(([term, text]) => [element("dt", {}, term), element("dd", {}, text)]));
  panel.replaceChildren(element("div", {}, close, element("h3", {}, ops.name[op]), list, phaseTable(op)));
}

function phaseTable(op) {
  const head = ["phase", "vertex", ...DATA.kinds, "temporary bytes"];
  const rows = DATA.ops.phases[op].map(([name, vertex, ...numbers]) => {
    const cells = [DATA.ops.words[name], DATA.ops.words[vertex]].map((text) => element("td", {}, text));
    return element("tr", {}, ...cells, ...numbers.map((one) => element("td", { class: "number" }, count(one))));
  });
  const heads = head.map((text, index) => element("th", { scope: "col", class: index > 1 ? "number" : "" }, text));
  const table = element("table", {}, element("thead", {}, element("tr", {}, ...heads)), element("tbody", {}, ...rows));
  return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Phases of the op" }, table);
}

// -- tables ---------------------------------------------------------------------------------------

const same = (op) => op;
const cyclesOf = (kind) => ({ label: DATA.kinds[kind], number: true, value: (op) => DATA.ops.cycles[op][kind], text: (op) => count(DATA.ops.cycles[op][kind]) });

const opsTable = new Table(
  byId("ops-table"),
  [
    { label: "step", number: true, value: same },
    { label: "op", name: true, value: (op) => DATA.ops.name[op] },
    { label: "type", value: typeOf },
    { label: "cycles", number: true, value: (op) => TOTALS[op], text: (op) => count(TOTALS[op]) },
    { label: "share", number: true, value: (op) => TOTALS[op], text: (op) => share(TOTALS[op], TOTAL) },
    cyclesOf(0), cyclesOf(2), cyclesOf(3), cyclesOf(4),
    { label: "temporary", number: true, value: (op) => DATA.ops.temporary[op], text: (op) => count(DATA.ops.temporary[op]) },
    ...(DATA.ops.node.some(Boolean) ? [{ label: "node", value: (op) => DATA.ops.node[op] }] : []),
  ],
  OPS,
  {
    caption: "Ops", sort: { index: 3, down: true }, select: selectOp, selected: same,
    search: (op) => [DATA.ops.name[op], typeOf(op), DATA.ops.node[op], ...DATA.ops.plans[op]].join(" "),
    filter: { label: "All types", names: DATA.ops.types, value: typeOf },
  },
);

const stepRows = () => DATA.chips[state.schedule].step.map((_, step) => step);
const ofStep = (key) => (step) => DATA.chips[state.schedule][key][step];
const column = (label, key) => ({ label, number: true, value: ofStep(key), text: (step) => count(ofStep(key)(step)) });
const scheduleTable = new Table(
  byId("schedule-table"),
  [
    { label: "step", number: true, value: same },
    { label: "op", name: true, value: ofStep("step") },
    { label: "type", value: (step) => typeOf(ofStep("op")(step)) },
    column("live bytes", "live"),
    column("temporary bytes", "temporary"),
    column("busiest tile", "top"),
    column("tile", "tile"),
  ],
  stepRows(),
  {
    caption: "Steps of the schedule", search: (step) => `${ofStep("step")(step)} ${typeOf(ofStep("op")(step))}`,
    select: (step) => selectOp(ofStep("op")(step)), selected: ofStep("op"),
  },
);

const tensorsTable = new Table(
  byId("tensors-table"),
  [
    { label: "tensor", name: true, value: (row) => row[0] },
    { label: "type", value: (row) => row[1] },
    { label: "kind", value: (row) => row[2] },
    { label: "bytes", number: true, value: (row) => row[3], text: (row) => count(row[3]) },
    { label: "on the busiest tile", number: true, value: (row) => row[4], text: (row) => count(row[4]) },
    { label: "from step", number: true, value: (row) => row[5], text: (row) => count(row[5]) },
    { label: "to step", number: true, value: (row) => row[6], text: (row) => count(row[6]) },
    { label: "node", value: (row) => row[7] },
  ],
  DATA.chips[0]?.tensors ?? [],
  {
    caption: "Biggest tensors", search: (row) => `${row.slice(0, 3).join(" ")} ${row[7]}`,
    filter: { label: "All kinds", names: ["activation", "constant", "input", "state", "variable"], value: (row) => row[2] },
  },
);

function showTables() {
  const rows = DATA.summary.options;
  const text = (value) => (Array.isArray(value) ? value.join(", ") : String(value));
  new Table(byId("options-table"), [
    { label: "option", value: (row) => row.name },
    { label: "value", name: true, value: (row) => text(row.value) },
    { label: "from", value: (row) => row.origin },
  ], [...rows].sort((a, b) => (a.origin === "default") - (b.origin === "default")), { caption: "Options, those that were set first", search: (row) => `${row.name} ${text(row.value)} ${row.origin}` });
  const { archive, provenance } = DATA.summary;
  const facts = [
    ["compiled by", `popc ${archive.popc}`], ["model", `sha256 ${archive.model_sha256}`],
    ...(archive.replicas > 1 ? [["replicas", String(archive.replicas)]] : []),
    ...Object.entries(provenance),
    ...DATA.blobs.map(([name, stored, raw]) => [`blob ${name}`, `${count(stored)} bytes, ${count(raw)} when read`]),
  ];
  new Table(byId("provenance-table"), [
    { label: "fact", value: (row) => row[0] }, { label: "value", name: true, value: (row) => row[1] },
  ], facts, { caption: "Where it comes from" });
  new Table(byId("vertex-table"), [
    { label: "vertex", name: true, value: (row) => row[0] },
    { label: "compute sets", number: true, value: (row) => row[1], text: (row) => count(row[1]) },
    { label: "compute cycles", number: true, value: (row) => row[2], text: (row) => count(row[2]) },
  ], DATA.vertices, { caption: "Compute sets by type of vertex", sort: { index: 2, down: true } });
}

function showCategories() {
  const chip = DATA.chips[Math.max(state.memory, 0)];
  const rows = DATA.categories.map((name, index) => [name, chip.busiest[index], chip.average[index]]);
  rows.push(["all", chip.busiest.reduce((a, b) => a + b, 0), chip.average.reduce((a, b) => a + b, 0)]);
  new Table(byId("category-table"), [
    { label: "category", value: (row) => row[0] },
    { label: "busiest tile", number: true, value: (row) => row[1], text: (row) => count(row[1]) },
    { label: "average tile", number: true, value: (row) => row[2], text: (row) => count(row[2]) },
  ], rows, { caption: DATA.chips.length > 1 ? `Bytes by category, IPU ${Math.max(state.memory, 0)}` : "Bytes by category" });
  const over = DATA.chips.reduce((sum, one) => sum + one.peak.filter((tile) => tile > one.limit).length, 0);
  byId("memory-note").textContent = over ? `${count(over)} tiles need more than they have.` : "";
}

// -- controls -------------------------------------------------------------------------------------

function choose(name, first, onChange) {
  const select = byId(`${name}-ipu`);
  select.append(...(first ? [element("option", { value: "-1" }, "all")] : []));
  select.append(...DATA.chips.map((_, ipu) => element("option", { value: ipu }, String(ipu))));
  select.value = String(state[name]);
  select.addEventListener("change", () => {
    state[name] = Number(select.value);
    onChange();
  });
}

function followZoom() {
  byId("trace-chart").on("plotly_relayout", (change) => {
    const from = change["xaxis.range[0]"] ?? change["xaxis.range"]?.[0];
    const to = change["xaxis.range[1]"] ?? change["xaxis.range"]?.[1];
    const wanted = from === undefined ? (change["xaxis.autorange"] ? null : state.trace) : [Math.max(from, 0), Math.min(to, TOTAL)];
    if (JSON.stringify(wanted) === JSON.stringify(state.trace)) return;
    state.trace = wanted;
    draw("trace-chart", traceChart);
  });
  byId("trace-chart").on("plotly_doubleclick", () => {
    state.trace = null;
    draw("trace-chart", traceChart);
    return false;
  });
}

const redraw = () => drawn.forEach((make, id) => draw(id, make));

function start() {
  document.querySelectorAll(".ipus").forEach((label) => { label.hidden = DATA.chips.length < 2; });
  showSummary();
  showCategories();
  showTables();
  draw("memory-chart", memoryChart);
  draw("liveness-chart", livenessChart, selectOp);
  draw("phase-chart", phaseChart);
  draw("type-chart", typeChart);
  draw("op-chart", opChart, selectOp);
  draw("trace-chart", traceChart, selectOp);
  followZoom();
  choose("memory", true, () => { showCategories(); draw("memory-chart", memoryChart); });
  choose("liveness", false, () => draw("liveness-chart", livenessChart));
  choose("schedule", false, () => scheduleTable.replace(stepRows()));
  choose("tensors", false, () => tensorsTable.replace(DATA.chips[state.tensors].tensors));
  byId("memory-limit").addEventListener("change", () => draw("memory-chart", memoryChart));
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && state.op >= 0) selectOp(-1);
  });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  const print = (printing) => () => {
    state.printing = printing;
    redraw();
    if (!printing) drawn.forEach((_, id) => Plotly.Plots.resize(byId(id)));
  };
  window.addEventListener("beforeprint", print(true));
  window.addEventListener("afterprint", print(false));
  let width = window.innerWidth;
  window.addEventListener("resize", () => {
    if (narrow() !== width < 600) redraw();
    width = window.innerWidth;
  });
  document.documentElement.dataset.ready = "yes";
}

// The library is packed to a third of its size; the policy knows what comes out by its hash.
async function unpack() {
  const packed = Uint8Array.from(atob(byId("library").textContent), (char) => char.charCodeAt(0));
  const unpacked = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const script = document.createElement("script");
  script.textContent = await new Response(unpacked).text();
  document.head.append(script);
}

unpack().then(start, () => { byId("subtitle").textContent = "This browser cannot unpack the page: it is older than 2023."; });
