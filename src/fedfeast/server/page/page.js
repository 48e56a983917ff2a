/* The page: asks the API again and again, and shows what it says. */
import { Pad } from "./drawing.js";
import { fairnessTable, fairnessText, tenthsAxis, tenthsSeries } from "./fairness.js";
import { InBrowser } from "./in-browser.js";
import { MOST_RUNS, sizeSeries, valuesIn } from "./sizes.js";

const at = (id) => document.getElementById(id);
const percent = (share, digits = 2) => `${(100 * share).toFixed(digits)} %`;
const count = (value) => value.toLocaleString("en");
const capital = (words) => words[0].toUpperCase() + words.slice(1);
const isShare = () => page.about.metric.unit === "%";
const shown = (value) => (isShare() ? 100 * value : value); // as charts and people read the metric
const figure = (value) => (isShare() ? percent(value) : `${Number(value.toPrecision(4))}`);
const LIVE = new Set(["waiting", "training", "evaluating", "stopped", "gone"]);
const MOST_TRIED = 8; // models that look at an image
const MOST_DOTTED = 12; // models that the fleet's chart marks
const SLIDER_STEPS = 600;
const PHONE = 704; // pixels, the 44rem of page.css
const PREDICT_AGAIN_MS = 1000; // after an answer that was lost
const RELOAD_MS = 3500; // between looks at the models of all runs: others are evaluated and measured too

const UNITS = {
  macs: { name: "MACs", unit: "MACs", key: "price", query: "max_macs", format: "macs", axis: "inference cost (MACs per example, log scale)" },
  parameters: { name: "Parameters", unit: "parameters", key: "parameters", query: "max_params", format: "macs", axis: "size (parameters, log scale)" },
  latency: { name: "Latency", unit: "ms", key: "latency_ms", query: "max_latency_ms", format: "milliseconds", axis: "latency of one image on the server's machine (ms, log scale)" },
};

const page = {
  run: null, // its name; the first one without it
  about: null, // /api/run
  runs: new Map(), // name -> /api/variants
  loadedAt: 0, // when those were asked for
  fleet: null,
  rounds: [],
  others: new Map(), // rounds of runs beside this one, by name
  fairness: new Map(), // name -> /api/fairness
  toldFairness: "", // those of them that are shown
  unit: "macs",
  takesBest: false, // of the models that a device affords the one that validates best, and not the largest
  budget: {}, // by unit
  chosen: null,
  better: null, // a smaller model that validates better than the chosen one
  image: null,
};

// --- the API ----------------------------------------------------------------------------------------------------------
class Refused extends Error {
  constructor(status, content) {
    super(content.detail);
    Object.assign(this, { status, content });
  }
}
class Unreachable extends Error {
  constructor() {
    super("The server does not answer; trying again.");
  }
}
const isExpected = (error) => error instanceof Refused || error instanceof Unreachable; // anything else is a mistake of ours
const isPassing = (error) => error instanceof Unreachable || error.status === 408 || error.status === 503; // the same request may be answered soon

let token = sessionStorage.getItem("fedfeast-token");

async function ask(path, options = {}) {
  for (;;) {
    const headers = { ...options.headers, ...(token ? { Authorization: `Bearer ${token}` } : {}) };
    const answer = await fetch(path, { ...options, headers }).catch(() => { throw new Unreachable(); });
    if (answer.status === 401) {
      await askForToken();
      continue;
    }
    if (answer.ok) return answer;
    throw new Refused(answer.status, await answer.json().catch(() => ({ detail: `the server answered ${answer.status}` })));
  }
}
const read = (answer) => answer.json().catch(() => { throw new Unreachable(); }); // it was cut off
const get = async (name, query = {}) => {
  const given = Object.entries({ run: page.run, ...query }).filter(([, value]) => value !== null && value !== undefined);
  return read(await ask(`api/${name}?${new URLSearchParams(given)}`));
};

let asking = null;
function askForToken() {
  asking ??= new Promise((resolve) => {
    const box = at("token-box");
    at("token-text").textContent = token ? "That token is not the right one." : "It is kept in this tab alone.";
    box.addEventListener("close", () => {
      token = at("token").value;
      sessionStorage.setItem("fedfeast-token", token);
      asking = null;
      resolve();
    }, { once: true });
    box.showModal();
  });
  return asking;
}

// --- looking again ----------------------------------------------------------------------------------------------------
let timer = 0, turn = 0;

async function look() {
  clearTimeout(timer);
  const mine = (turn += 1);
  let wait = 4000;
  try {
    const before = page.about, about = await get("run");
    if (mine !== turn) return;
    const last = page.rounds.at(-1)?.round ?? 0;
    if (about.finished_rounds < last) page.rounds = [];
    if (about.finished_rounds > (page.rounds.at(-1)?.round ?? 0)) {
      page.rounds.push(...(await get("history", { after: page.rounds.at(-1)?.round ?? 0 })).rounds);
    }
    const news = ["name", "served_round", "state", "population_score", "clients"].some((key) => before?.[key] !== about[key]);
    if (mine !== turn) return;
    page.about = about;
    page.run = about.name;
    const changed = news || Date.now() - page.loadedAt >= RELOAD_MS ? await loadModels(about, news) : false;
    if (mine !== turn) return;
    show(news || changed);
    if (LIVE.has(about.state)) wait = 1200;
  } catch (error) {
    const state = at("state");
    state.textContent = error instanceof Refused ? "refused" : "unreachable";
    state.className = "pill unreachable";
    at("note").textContent = error.message;
    if (!isExpected(error)) throw error;
  } finally {
    if (mine === turn) timer = setTimeout(look, wait);
  }
}

/* Load the models of all runs, and the fleet where it may be new; return whether any model's figures are, such as
   another run's latencies. */
async function loadModels({ runs, clients }, news) {
  const all = await Promise.all(runs.map((run) => get("variants", { run }))), before = [...page.runs.values()];
  page.runs = new Map(all.map((one) => [one.run, one]));
  page.loadedAt = Date.now();
  page.fairness = new Map((await Promise.all(runs.map((run) => get("fairness", { run })))).map((one) => [one.run, one]));
  await Promise.all(alike(runs).slice(1, MOST_RUNS).map(loadRounds));
  if (news) page.fleet = clients === null ? null : await get("fleet");
  return JSON.stringify(all) !== JSON.stringify(before);
}

/* The run on show, and after it those whose figures can be laid over its own. */
function alike(runs) {
  const { name, data, metric } = page.about;
  const fits = (run) => page.runs.get(run)?.data === data && page.runs.get(run).metric.name === metric.name;
  return [name, ...runs.filter((run) => run !== name && fits(run))];
}

/* Load the rounds of another run that are new; all of them where it was cut back and has gone on. */
async function loadRounds(run) {
  const before = page.others.get(run) ?? [], last = before.at(-1);
  const { rounds } = await get("history", { run, after: last ? last.round - 1 : 0 });
  const goesOn = !last || JSON.stringify(rounds[0]) === JSON.stringify(last);
  page.others.set(run, goesOn ? [...before, ...rounds.slice(last ? 1 : 0)] : (await get("history", { run })).rounds);
}

// --- showing ----------------------------------------------------------------------------------------------------------
function show(news) {
  showHead();
  showTiles();
  showHistory();
  showFairness();
  if (!news) return;
  showRuns();
  showUnits();
  showRule();
  showTable();
  showTry();
  startBudget();
  showFleet();
  inBrowser.show(page.about, models());
}

const STATES = { waiting: "waiting", training: "training", stopped: "stopped", evaluating: "measuring", unevaluated: "not measured", finished: "finished", gone: "gone", ladder: "ladder" };

const isGone = () => page.about.state === "gone";
const isLadder = () => page.about.state === "ladder"; // networks alone: nobody knows their clients and rounds here

function showHead() {
  const { about } = page, state = at("state");
  state.textContent = STATES[about.state];
  state.className = `pill ${about.state}`;
  at("note").textContent = about.note;
  at("title").textContent = about.name;
  at("choose-title").textContent = `${capital(about.metric.label)} at every cost`;
  document.title = `${about.name} · fedfeast`;
  const clients = about.clients === null ? "" : ` over ${count(about.clients)} clients`;
  at("lead").textContent = `One elastic network, trained with ${about.method} on ${about.data}${clients}. Each device takes the ${takesBest() ? "best" : "largest"} model it affords.`;
  const going = !["finished", "unevaluated", "gone", "ladder"].includes(about.state);
  at("progress").hidden = !going;
  const track = at("progress").querySelector(".track");
  track.setAttribute("aria-valuemax", about.total_rounds);
  track.setAttribute("aria-valuenow", about.finished_rounds);
  track.firstElementChild.style.width = `${(100 * about.finished_rounds) / about.total_rounds}%`;
  const left = about.remaining_seconds === null ? "" : `, about ${duration(about.remaining_seconds)} left`;
  at("progress-text").textContent = `Round ${count(about.finished_rounds)} of ${count(about.total_rounds)}${left}`;
  at("live").hidden = about.state !== "training";
  at("training").hidden = isLadder();
}

function duration(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  return seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

function showRuns() {
  const nav = at("runs"), { runs, name } = page.about;
  nav.hidden = runs.length < 2;
  nav.replaceChildren(...runs.map((run, index) => {
    const dot = document.createElement("i");
    dot.style.background = `var(--series-${index % 10})`;
    return segment([dot, run], run === name, () => {
      Object.assign(page, { run, about: null, rounds: [], budget: {}, chosen: null });
      look();
    });
  }));
}

function segment(content, pressed, onPress) {
  const button = document.createElement("button");
  button.type = "button";
  button.append(...content);
  button.setAttribute("aria-pressed", pressed);
  button.addEventListener("click", onPress);
  return button;
}

function servedVector(about) {
  return about.served_vector === "average" ? ", its running average" : about.served_vector === "global" ? ", not its running average" : "";
}

function showTiles() {
  const { about } = page, models = page.runs.get(about.name).variants, tiles = [], { label, more_is_better } = about.metric;
  const measured = models.map((one) => one.test_value).filter((value) => value !== null);
  const test = about.measured_on === "the test set" ? "test " : "";
  if (about.population_score !== null) tiles.push([figure(about.population_score), `mean ${test}${label} over all clients`]);
  if (about.population_score_best !== null && about.population_score_best !== about.population_score) tiles.push([figure(about.population_score_best), "with the best model each affords"]);
  if (about.population_score === null && about.validation_score !== null) tiles.push([figure(about.validation_score), `validation ${label}: ${about.chosen_by}`]);
  if (measured.length) tiles.push([figure((more_is_better ? Math.max : Math.min)(...measured)), `best model on ${about.measured_on}`]);
  if (models.length) tiles.push([count(models.length), `models, ${charts.si(models[0].price)} to ${charts.si(models.at(-1).price)} MACs`]);
  if (about.served_share !== null) tiles.push([percent(about.served_share, 0), `of ${count(about.clients)} clients served`]);
  if (about.served_round !== null) tiles.push([count(about.served_round), isLadder() ? "rounds were trained" : `round that is served, the best so far${servedVector(about)}`]);
  if (about.seconds) tiles.push([duration(about.seconds), "of training"]);
  at("tiles").replaceChildren(...tiles.map(([value, label]) => {
    const tile = document.createElement("div"), strong = document.createElement("b"), words = document.createElement("span");
    tile.className = "tile";
    strong.textContent = value;
    words.textContent = label;
    tile.append(strong, words);
    return tile;
  }));
}

/* The axis of the metric, as chart.py has it for reports. */
function metricAxis(what) {
  const facts = [isShare() ? "%" : "", page.about.metric.more_is_better ? "" : "less is better"].filter(Boolean);
  const label = facts.length ? `${what} (${facts.join(", ")})` : what;
  return isShare() ? { label, format: "percent", span: 3, ceiling: 100.5 } : { label, format: "number" };
}

// --- the budget and the choice ----------------------------------------------------------------------------------------
const models = () => page.runs.get(page.about.name)?.variants ?? [];
const offered = (unit) => models().filter((one) => one[UNITS[unit].key] !== null);

function showUnits() {
  const usable = Object.keys(UNITS).filter((unit) => offered(unit).length);
  if (!usable.includes(page.unit)) page.unit = "macs";
  at("units").hidden = usable.length < 2;
  at("units").replaceChildren(...usable.map((unit) => segment([UNITS[unit].name], unit === page.unit, () => {
    page.unit = unit;
    showUnits();
    startBudget();
    showFleet();
  })));
}

const isValidated = () => models().some((one) => one.validation_value !== null);
const takesBest = () => page.takesBest && isValidated();

function showRule() {
  at("rule").hidden = !isValidated();
  at("rule").replaceChildren(...[["takes the largest", false], ["takes the best", true]].map(([name, best]) => segment([name], best === takesBest(), () => takeBest(best))));
}

function takeBest(best) {
  page.takesBest = best;
  showHead();
  showRule();
  choose();
}

function range() {
  const { key } = UNITS[page.unit];
  const values = [...page.runs.values()].filter((one) => one.data === page.about.data).flatMap((one) => one.variants.map((variant) => variant[key])).filter((value) => value !== null);
  return [Math.min(...values) * 0.72, Math.max(...values) * 1.3];
}

function startBudget() {
  const some = offered(page.unit).length > 0;
  at("budget-box").hidden = !some;
  if (!some) {
    page.chosen = null;
    showCurve();
    showChosen(null);
    return;
  }
  const [low, high] = range(), middle = page.unit === "macs" && page.fleet ? page.fleet.median_macs : Math.sqrt(low * high);
  setBudget(page.budget[page.unit] ?? Math.min(Math.max(middle, low), high));
}

function setBudget(value, typed = false) {
  const [low, high] = range(), { unit, format } = UNITS[page.unit], slider = at("budget");
  page.budget[page.unit] = value;
  const place = Math.min(Math.max(Math.log(value / low) / Math.log(high / low), 0), 1);
  slider.value = Math.round(place * SLIDER_STEPS);
  slider.style.setProperty("--part", `${100 * place}%`);
  if (!typed) at("budget-value").value = charts.formats[format](value).replace(" ms", "");
  at("budget-value").removeAttribute("aria-invalid");
  at("budget-unit").textContent = unit;
  showCurve();
  choose();
}

let choosing = false, again = false;
async function choose() {
  again = true;
  if (choosing) return;
  choosing = true;
  try {
    while (again) {
      again = false;
      await chooseOnce();
    }
  } finally {
    choosing = false;
  }
}

async function chooseOnce() {
  const { query, key } = UNITS[page.unit], budget = page.budget[page.unit];
  try {
    refuseTooLittle(key, budget);
    const answer = await get("choose", { [query]: budget, ...(takesBest() ? { best: true } : {}) });
    page.chosen = answer.variant;
    page.better = answer.better;
    showChosen(null);
  } catch (error) {
    if (!isExpected(error)) throw error;
    page.chosen = null;
    showChosen(error);
  }
  showCurve();
  markChosen();
}

/* What the server would answer; asking would only make the browser complain of a 404. */
function refuseTooLittle(key, budget) {
  const [least, macs, parameters] = [key, "price", "parameters"].map((one) => Math.min(...models().map((model) => model[one] ?? Infinity)));
  if (budget >= least) return;
  const named = { price: `${charts.si(macs)} MACs`, parameters: `${charts.si(parameters)} parameters`, latency_ms: charts.formats.milliseconds(least) }[key];
  throw new Refused(404, { detail: `The least that any model needs is ${named}.`, least_macs: macs, least_parameters: parameters });
}

function showCurve() {
  const { key, format, axis, unit } = UNITS[page.unit], names = page.about.runs, { label } = page.about.metric;
  const lines = names.map((name, index) => {
    const run = page.runs.get(name);
    if (run?.data !== page.about.data || run.metric.name !== page.about.metric.name) return { points: [] }; // other figures say nothing here
    const points = run.variants
      .filter((one) => one.test_value !== null && one[key] !== null)
      .map((one) => [one[key], shown(one.test_value), 0, `${one.name} MACs`, one.test_interval?.map(shown)])
      .sort((one, other) => one[0] - other[0]);
    return { label: names.length > 1 ? name : `test ${label}`, colour: index, mark: charts.markOf(index), points, line: true, thin: name !== page.about.name };
  }).filter((one) => one.points.length);
  noteAtCurve(lines);
  const tested = lines.length > 0;
  if (!tested) lines.push(...validatedLine(key));
  if (!lines.length || isGone()) {
    const measured = label === "accuracy" ? "accuracies are" : `${label} is`;
    const why = models().length ? `The models can be had already; their test ${measured} measured when training ends.` : page.about.note;
    return charts.draw(at("curve"), { empty: why, x: {}, y: {} });
  }
  const anchors = tested && page.unit === "macs" ? page.runs.get(page.about.name).anchors : []; // of test sets
  at("beside-paper").hidden = !anchors.length;
  if (anchors.length) {
    lines.push({ label: "the paper's FEAST", colour: "ink", points: anchors.map((one) => [one.macs, one.accuracy]), line: false, mark: "diamond" });
  }
  const [min, max] = range(), { chosen } = page;
  const budget = models().length && { x: page.budget[page.unit] ?? min, at: chosen?.[key], y: chosen && chosen.test_value !== null ? shown(chosen.test_value) : null };
  charts.draw(at("curve"), {
    kind: "xy", height: innerWidth < PHONE ? 180 : 330, x: { label: axis, scale: "log", format, min, max, unit }, y: metricAxis(`${tested ? "test" : "validation"} ${label}`),
    series: lines, legend: lines.length > 1, budget, anchors: anchors.map((one) => one.macs), onDrawn: placeSlider,
  });
}

/* What the curves show besides accuracies, and which run has none of them. */
function noteAtCurve(lines) {
  const words = [], drawn = lines.map((one) => one.label), { runs, name, data } = page.about;
  const missing = runs.filter((run) => run !== name && page.runs.get(run)?.data === data && !drawn.includes(run));
  if (lines.some((one) => one.points.some((point) => point[4]))) words.push("Bars: at 95 % certainty; the test set is small.");
  if (page.unit === "latency") words.push(...missing.map((run) => `The latency of ${run} is not measured on this machine: fedfeast latency ${run}.`));
  at("curve-note").textContent = words.join(" ");
  at("curve-note").hidden = !words.length;
}

/* The slider lies under the chart's own axis: its thumb is where the budget is. */
function placeSlider(drawn) {
  const thumb = 24, slider = at("budget");
  slider.style.marginLeft = `${drawn.left - thumb / 2}px`;
  slider.style.width = `${drawn.right - drawn.left + thumb}px`;
}

function element(name, className, ...content) {
  const node = document.createElement(name);
  if (className) node.className = className;
  node.append(...content);
  return node;
}

function showChosen(problem) {
  const { chosen, about } = page, card = at("chosen");
  if (!chosen) {
    const words = problem ? problem.message : models().length ? "" : about.note;
    const title = problem?.content?.least_macs ? "Nothing fits" : isGone() || problem?.status === 410 ? "Nothing" : "No model yet";
    card.replaceChildren(element("p", "eyebrow", "This device gets"), element("p", "big", title), element("p", "sub", words));
    if (problem?.content?.least_macs && page.unit !== "latency") {
      const { unit } = UNITS[page.unit], least = page.unit === "macs" ? problem.content.least_macs : problem.content.least_parameters;
      const button = element("button", "button", `Take the least: ${charts.si(least)} ${unit}`);
      button.type = "button";
      button.addEventListener("click", () => setBudget(least));
      card.append(button);
    }
    at("budget").setAttribute("aria-valuetext", words);
    return;
  }
  const facts = [["Cost", `${count(chosen.macs)} MACs`], ...(chosen.price === chosen.macs ? [] : [["Priced at", `${count(chosen.price)} MACs`]]), ["Size", `${count(chosen.parameters)} parameters`]];
  if (chosen.test_interval) facts.push(["At 95 % certainty", `${chosen.test_interval.map((end) => (100 * end).toFixed(1)).join(" to ")} %`]);
  if (chosen.latency_ms !== null) facts.push(["Latency here", charts.formats.milliseconds(chosen.latency_ms)]);
  if (chosen.validation_value !== null) facts.push([`Validation ${about.metric.label}`, figure(chosen.validation_value)]);
  if (chosen.clients !== null && !takesBest()) facts.push(["Clients it serves", `${count(chosen.clients)} of ${count(about.clients)}`]);
  facts.push(["Round", `${count(about.served_round)}${servedVector(about)}`]);
  const list = element("dl", "", ...facts.flatMap(([name, value]) => [element("dt", "", name), element("dd", "", value)]));
  const big = chosen.test_value === null
    ? [element("p", "big", chosen.name, " ", element("small", "", "MACs"))]
    : [element("p", "big", figure(chosen.test_value), " ", element("small", "", `test ${about.metric.label}`))];
  const buttons = element("div", "buttons", download(chosen.id, "onnx", "↓ ONNX", true), download(chosen.id, "safetensors", "↓ safetensors", false));
  card.replaceChildren(element("p", "eyebrow", `This device gets the ${chosen.name} model`), ...big, list, ...betterNote(), buttons, command(chosen.id));
  const { unit, format } = UNITS[page.unit], budget = charts.formats[format](page.budget[page.unit]).replace(" ms", "");
  const value = chosen.test_value === null ? "" : `, ${figure(chosen.test_value)}`;
  at("budget").setAttribute("aria-valuetext", `${budget} ${unit}: the ${chosen.name} model${value}`);
}

/* The largest is not always the best. */
function betterNote() {
  const { better, chosen, about } = page;
  if (!better) return [];
  const button = element("button", "button", "Take the best instead");
  button.type = "button";
  button.addEventListener("click", () => takeBest(true));
  return [element("p", "note better", `The smaller ${better.name} model has the better validation ${about.metric.label}: ${figure(better.validation_value)} against ${figure(chosen.validation_value)}.`, button)];
}

function download(id, kind, label, primary) {
  const link = element("a", primary ? "button primary" : "button", label);
  link.href = `models/${id}.${kind}`;
  link.download = "";
  link.title = `Download the ${kind} file`;
  link.dataset.kind = kind;
  if (token) link.addEventListener("click", (event) => { event.preventDefault(); save(link.href); });
  return link;
}

/* A link cannot carry a token, so that the file is fetched here and handed over. */
async function save(address) {
  const answer = await ask(address), name = /filename="?([^";]+)/.exec(answer.headers.get("content-disposition") ?? "");
  const link = element("a");
  link.href = URL.createObjectURL(await answer.blob());
  link.download = name ? name[1] : "";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

function command(id) {
  const address = new URL(`models/${id}.onnx`, document.baseURI).href;
  const words = `curl -fOJ ${token ? '-H "Authorization: Bearer $TOKEN" ' : ""}${address}`;
  const button = element("button", "", "Copy"), code = element("code", "", words);
  button.type = "button";
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(words);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(code);
      button.textContent = "Press Ctrl+C";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
  return element("div", "command", code, button);
}

at("budget").addEventListener("input", () => {
  const [low, high] = range();
  setBudget(low * (high / low) ** (at("budget").value / SLIDER_STEPS));
});
at("budget-value").addEventListener("input", () => {
  const match = /^\s*([0-9.]+(?:e[0-9]+)?)\s*([kmg]?)\s*$/i.exec(at("budget-value").value.replaceAll(",", ""));
  const value = match ? Number(match[1]) * { "": 1, k: 1e3, m: 1e6, g: 1e9 }[match[2].toLowerCase()] : NaN;
  if (Number.isFinite(value) && value > 0) setBudget(value, true);
  else at("budget-value").setAttribute("aria-invalid", "true");
});
at("curve").addEventListener("pointerdown", (event) => {
  const scale = at("curve").chartScale;
  if (!scale || event.button) return;
  const area = at("curve").querySelector("svg").getBoundingClientRect();
  const place = Math.min(Math.max(event.clientX - area.left, scale.left), scale.right);
  setBudget(scale.x.back(place));
});

// --- fleet, history, table --------------------------------------------------------------------------------------------
function showFleet() {
  const { fleet } = page;
  if (!fleet) {
    at("fleet-text").textContent = "";
    return charts.draw(at("fleet"), { empty: isGone() ? page.about.note : "The clients are known as soon as training begins.", x: {}, y: {} });
  }
  const least = models()[0]?.price ?? null;
  const bars = fleet.counts.map((value, index) => {
    const [from, to] = [fleet.edges_macs[index], fleet.edges_macs[index + 1]];
    return { from, to, value, muted: least !== null && Math.sqrt(from * to) < least };
  });
  const served = fleet.served === null ? "" : `: ${count(fleet.served)} (${percent(fleet.served / fleet.clients, 0)}) afford at least the smallest model`;
  at("fleet-text").textContent = `Budgets of ${count(fleet.clients)} clients${served}.${models().length > MOST_DOTTED ? " Dotted: the smallest and the largest model." : models().length ? " Dotted: the models." : ""}`;
  charts.draw(at("fleet"), {
    kind: "xy", height: innerWidth < 992 ? 260 : 424, x: { label: "client's budget (MACs per example, log scale)", scale: "log", format: "macs", unit: "MACs", min: fleet.edges_macs[0], max: fleet.edges_macs.at(-1) },
    y: { label: "clients", format: "count", whole: true }, bars, barName: "clients", series: [],
    anchors: models().filter((_, place, all) => all.length <= MOST_DOTTED || place === 0 || place === all.length - 1).map((one) => one.price), about: at("fleet-text").textContent,
  });
}

function showHistory() {
  const { rounds, about } = page, x = { label: "round", format: "count", unit: "", min: 0, max: Math.max(about.total_rounds, 1), whole: true };
  const validated = rounds.filter((row) => row.validation_score !== null).map((row) => [row.round, shown(row.validation_score)]);
  const best = rounds.find((row) => row.round === about.served_round);
  at("history-text").textContent = best && best.validation_score !== null
    ? `Best validation score so far: ${figure(best.validation_score)} in round ${count(best.round)}.`
    : "";
  if (!rounds.length) {
    charts.draw(at("score"), { empty: isGone() ? about.note : "The first round is not finished yet.", x: {}, y: {} });
    at("sizes-box").hidden = true;
    return at("loss").replaceChildren();
  }
  charts.draw(at("score"), validated.length ? {
    kind: "xy", height: 190, x: { ...x, label: "round" }, y: metricAxis("validation"),
    series: [{ label: `mean validation ${about.metric.label} over clients`, colour: 0, points: validated }],
  } : { empty: "No round is validated yet.", x: {}, y: {} });
  showSizes(x);
  const roles = [...new Set(rounds.flatMap((row) => Object.keys(row.losses)))].sort();
  charts.draw(at("loss"), {
    kind: "xy", height: 210, x, y: { label: "training loss", format: "number", floor: 0 },
    series: roles.map((role, index) => ({
      label: `${role} loss`, colour: index + 1, thin: true, mark: "none",
      points: rounds.filter((row) => role in row.losses).map((row) => [row.round, row.losses[role]]),
    })),
  });
}

function showSizes(x) {
  const { name, runs, metric: { label } } = page.about;
  const histories = alike(runs).slice(0, MOST_RUNS).map((run) => [run, run === name ? page.rounds : page.others.get(run) ?? []]);
  const series = sizeSeries(histories.filter(([, rounds]) => rounds.some((row) => row.sizes.length)), shown);
  at("sizes-box").hidden = !series.length;
  if (!series.length) return;
  at("sizes-text").textContent = `Validation ${label} of the smallest to the largest model, round by round.`;
  charts.draw(at("sizes"), { kind: "xy", height: 260, x, y: metricAxis(`validation ${label}`), series });
}

function showFairness() {
  const { name, runs, metric: { label } } = page.about, table = page.fairness.get(name);
  at("fairness-box").hidden = !table?.deciles.length || isGone();
  if (at("fairness-box").hidden) return;
  const tables = alike(runs).map((run) => page.fairness.get(run)).filter((one) => one?.deciles.length), x = tenthsAxis(tables);
  const told = JSON.stringify(tables);
  if (told === page.toldFairness) return; // so that nothing is drawn anew while somebody reads
  page.toldFairness = told;
  const scores = tenthsSeries(tables, (one) => (one.score === null ? null : shown(one.score)), runs, name);
  charts.draw(at("fairness-scores"), scores.length
    ? { kind: "xy", height: 240, x, y: metricAxis(`score, ${label}`), series: scores, legend: runs.length > 1 }
    : { empty: "What clients get is measured when training ends.", x: {}, y: {} });
  const answers = tenthsSeries(tables, (one) => (one.answered === null ? null : one.answered / one.clients), runs, name);
  at("fairness-answers").hidden = !answers.length;
  if (answers.length) charts.draw(at("fairness-answers"), { kind: "xy", height: 240, x, y: { label: "answers per client", format: "number", min: 0, span: 1 }, series: answers, legend: runs.length > 1 });
  const { headings, rows } = fairnessTable(table, figure);
  at("fairness-text").textContent = fairnessText(table, figure);
  at("fairness").tHead.replaceChildren(element("tr", "", ...headings.map((heading) => element("th", "", heading))));
  at("fairness").tBodies[0].replaceChildren(...rows.map((row) => element("tr", "", ...row.map((cell) => element("td", "", cell)))));
}

/* Until the test set is measured: what the models on offer came to when their round was validated. */
function validatedLine(key) {
  const { served_round, metric } = page.about, values = valuesIn(page.rounds, served_round);
  const points = models().filter((one) => values.has(one.name) && one[key] !== null).map((one) => [one[key], shown(values.get(one.name)), 0, `${one.name} MACs`]);
  points.sort((one, other) => one[0] - other[0]);
  return points.length ? [{ label: `validation ${metric.label}, round ${count(served_round)}`, colour: Math.max(0, page.about.runs.indexOf(page.about.name)), points, line: true }] : [];
}

function showTable() {
  const rows = models(), measured = rows.some((one) => one.latency_ms !== null);
  const header = ["model", "MACs", "parameters", `test ${page.about.metric.label}`, ...(measured ? ["latency here"] : []), "clients it serves", "files"];
  at("variants").tHead.replaceChildren(element("tr", "", ...header.map((name) => element("th", "", name))));
  at("variants").tBodies[0].replaceChildren(...rows.map((one) => {
    const files = ["onnx", "safetensors"].flatMap((kind) => {
      const link = download(one.id, kind, kind, false);
      link.className = "";
      return [link, " "];
    });
    const clients = one.clients === null ? "–" : count(one.clients);
    const cells = [one.name, count(one.macs), count(one.parameters), one.test_value === null ? "–" : figure(one.test_value)];
    if (measured) cells.push(one.latency_ms === null ? "–" : charts.formats.milliseconds(one.latency_ms));
    const row = element("tr", "", ...[...cells, clients].map((cell) => element("td", "", cell)), element("td", "", ...files));
    row.dataset.id = one.id;
    return row;
  }));
  if (!rows.length) at("variants").tBodies[0].replaceChildren(element("tr", "", element("td", "", isGone() ? "none" : "none yet")));
}

function markChosen() {
  for (const row of document.querySelectorAll("tr[data-id]")) row.classList.toggle("is-chosen", row.dataset.id === page.chosen?.id);
}

// --- try it -----------------------------------------------------------------------------------------------------------
let pad = null;

function showTry() {
  const { channels, side, classes } = page.about.images, { kind, shape } = page.about.inputs, looks = kind === "images";
  const draws = looks && channels === 1 && side === 8 && classes === 10;
  at("try").hidden = !models().length;
  at("try-grid").hidden = !looks;
  at("pad").hidden = !draws;
  if (!looks) {
    const takes = `${shape.join(" x ")} ${kind === "tokens" ? "token ids" : "numbers"}`;
    at("try-text").textContent = `The models take ${takes}: POST one example as JSON to api/predict/ID, or run a model's file.`;
    page.image = null;
    at("answers").tBodies[0].replaceChildren();
    return;
  }
  at("try-text").textContent = draws
    ? "Draw a digit, large and in one place: every model looks at it."
    : `Give an image of ${side} x ${side} pixels: ${tried().length} models from the smallest to the largest look at it, each built when it is first asked.`;
  if (draws && !pad) {
    pad = new Pad(at("drawing"), at("seen"), async (inked) => {
      page.image = inked ? pad : null;
      predict();
    });
    at("clear").addEventListener("click", () => pad.clear());
  }
  at("answers").tBodies[0].replaceChildren(...tried().map((one) => {
    const bar = element("i"), words = element("span");
    const row = element("tr", "", element("td", "", one.name), element("td", "", "–"),
      element("td", "", element("div", "sure", element("div", "", bar), words)), element("td", "", "–"));
    row.dataset.id = one.id;
    return row;
  }));
  predict();
}

function tried() {
  const all = models(), most = Math.min(MOST_TRIED, all.length);
  return Array.from({ length: most }, (_, place) => all[Math.round((place * (all.length - 1)) / Math.max(1, most - 1))]);
}

let predicting = false, predictAgain = false, predictLater = 0;
async function predict() {
  clearTimeout(predictLater);
  predictAgain = true;
  if (predicting) return;
  predicting = true;
  try {
    while (predictAgain) {
      predictAgain = false;
      await predictOnce([...at("answers").tBodies[0].rows]);
    }
  } finally {
    predicting = false;
  }
}

async function predictOnce(rows) {
  if (!page.image) {
    rows.forEach((row) => showAnswer(row, null));
    showProblem(null);
    inBrowser.look(null);
    return;
  }
  const body = page.image instanceof Blob ? page.image : await page.image.blob();
  inBrowser.look(body);
  try {
    for (const row of rows) {
      if (predictAgain) return; // the drawing has gone on
      showAnswer(row, await read(await ask(`api/predict/${row.dataset.id}`, { method: "POST", body })));
      showProblem(null);
    }
  } catch (error) {
    if (!isExpected(error)) throw error;
    showProblem(error);
    if (isPassing(error)) predictLater = setTimeout(predict, PREDICT_AGAIN_MS);
  }
}

function showAnswer(row, answer) {
  const [, sees, sure, time] = row.cells, best = answer?.classes[0];
  sees.textContent = best ? best.name : "–";
  sure.querySelector("i").style.width = best ? `${100 * best.probability}%` : "0";
  sure.querySelector("span").textContent = best ? percent(best.probability, 0) : "";
  time.textContent = answer ? charts.formats.milliseconds(answer.milliseconds) : "–";
}

function showProblem(error) {
  const { side } = page.about.images, words = at("drop-problem"), fit = at("fit");
  words.hidden = !error;
  words.textContent = error?.message ?? "";
  fit.hidden = !(error?.status === 422 && page.image instanceof Blob && page.image.type.startsWith("image/"));
  fit.textContent = `Scale it to ${side} x ${side}`;
}

async function takeImage(file) {
  if (!file) return;
  page.image = file;
  const shown = at("dropped"), readable = await createImageBitmap(file).then(() => true, () => false);
  if (page.image !== file) return; // another one was given meanwhile
  URL.revokeObjectURL(shown.src);
  shown.hidden = !readable;
  if (readable) shown.src = URL.createObjectURL(file);
  else page.image = null;
  await predict();
  if (!readable) showProblem(new Error(`${file.name} is no image that can be read: give a PNG, JPEG, WebP, BMP or GIF file.`));
}

/* The middle square, scaled: as images are prepared for training. */
at("fit").addEventListener("click", async () => {
  const { side } = page.about.images;
  try {
    const picture = await createImageBitmap(page.image), least = Math.min(picture.width, picture.height);
    const canvas = new OffscreenCanvas(side, side), context = canvas.getContext("2d");
    context.imageSmoothingQuality = "high";
    context.drawImage(picture, (picture.width - least) / 2, (picture.height - least) / 2, least, least, 0, 0, side, side);
    takeImage(await canvas.convertToBlob({ type: "image/png" }));
  } catch {
    showProblem(new Error("This browser cannot read the image."));
  }
});
at("file").addEventListener("change", () => takeImage(at("file").files[0]));
for (const [name, over] of [["dragover", true], ["dragleave", false], ["drop", false]]) {
  at("drop").addEventListener(name, (event) => {
    event.preventDefault();
    at("drop").classList.toggle("over", over);
    if (name === "drop") takeImage(event.dataTransfer.files[0]);
  });
}

// --- light and dark ---------------------------------------------------------------------------------------------------
const dark = matchMedia("(prefers-color-scheme: dark)");
const theme = () => document.documentElement.dataset.theme ?? (dark.matches ? "dark" : "light");
const SUN = "M12 4V2M12 22v-2M4 12H2M22 12h-2M5.6 5.6 4.2 4.2M19.8 19.8l-1.4-1.4M5.6 18.4l-1.4 1.4M19.8 4.2l-1.4 1.4M16 12a4 4 0 1 1-8 0 4 4 0 0 1 8 0Z";
const MOON = "M20 14.5A8.5 8.5 0 0 1 9.5 4 8.5 8.5 0 1 0 20 14.5Z";

function showTheme() {
  const is = theme(), button = at("theme"), svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  svg.setAttribute("viewBox", "0 0 24 24");
  path.setAttribute("d", is === "dark" ? SUN : MOON);
  svg.append(path);
  button.replaceChildren(svg);
  button.setAttribute("aria-label", is === "dark" ? "Change to light" : "Change to dark");
  pad?.show();
}
const kept = localStorage.getItem("fedfeast-theme");
if (kept) document.documentElement.dataset.theme = kept;
at("theme").addEventListener("click", () => {
  document.documentElement.dataset.theme = theme() === "dark" ? "light" : "dark";
  localStorage.setItem("fedfeast-theme", document.documentElement.dataset.theme);
  showTheme();
});
dark.addEventListener("change", showTheme);
showTheme();

// --- in the visitor's browser -----------------------------------------------------------------------------------------
const inBrowser = new InBrowser({ ask, download, figure, setMacs: (macs) => {
  page.unit = "macs";
  showUnits();
  setBudget(macs);
  at("choose").scrollIntoView();
} });

ask("healthz").then((answer) => answer.json()).then(({ version, onnxruntime_web }) => {
  at("version").textContent = version;
  inBrowser.start(onnxruntime_web);
}, () => {});
look();
