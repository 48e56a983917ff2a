/* Who is slow and who is left out: clients by tenths of their budgets, as fairness.py has them for reports. */
const DASH = "–";
const TENTHS = 10;
const count = (value) => value.toLocaleString("en");
const budgets = (one) => [...new Set([one.least_macs, one.greatest_macs].map(charts.si))].join(" to ");
const isKnown = (value) => value !== null;

/* The charts' axis: a place for each tenth. */
export function tenthsAxis(tables) {
  const most = Math.max(0, ...tables.map((one) => one.deciles.length));
  const label = `${most === TENTHS ? "tenth of the clients" : "clients"}, smallest budgets first`;
  return { label, format: "count", whole: true, min: 0.5, max: most + 0.5 };
}

/* A line for every run that knows a fact; runs keep their colours. */
export function tenthsSeries(tables, fact, names, selected) {
  return tables.map((table) => ({
    label: table.run, colour: Math.max(0, names.indexOf(table.run)), thin: table.run !== selected,
    points: table.deciles.filter((one) => isKnown(fact(one))).map((one) => [one.decile, fact(one), 0, `${budgets(one)} MACs`]),
  })).filter((one) => one.points.length);
}

/* Headings and rows; what is not known of any tenth is left out. */
export function fairnessTable(table, figure) {
  const told = (write) => (value) => (isKnown(value) ? write(value) : null), number = told(count), value = told(figure);
  const servedAlone = table.deciles.some((one) => one.value !== one.score); // else it is the score
  const columns = {
    tenth: (one) => (one.decile === table.worst_decile && table.score_gap ? `${one.decile}, the worst` : `${one.decile}`),
    "budgets (MACs)": budgets,
    clients: (one) => count(one.clients),
    score: (one) => value(one.score),
    "by the best": (one) => value(one.score_best),
    "own examples": (one) => value(one.own_value),
    served: (one) => number(one.served),
    [`${table.metric.label} of those served`]: (one) => (servedAlone ? value(one.value) : null),
    asked: (one) => number(one.asked),
    answered: (one) => number(one.answered),
    refused: (one) => number(one.refused),
    late: (one) => number(one.late),
    failed: (one) => number(one.failed),
    "never took part": (one) => number(one.never_answered),
    "median seconds": (one) => told((seconds) => `${Number(seconds.toPrecision(3))}`)(one.answer_seconds),
  };
  const cells = table.deciles.map((one) => Object.values(columns).map((cell) => cell(one)));
  const known = Object.keys(columns).map((_, place) => cells.some((row) => isKnown(row[place])));
  const kept = (row) => row.filter((_, place) => known[place]);
  return { headings: kept(Object.keys(columns)), rows: cells.map((row) => kept(row).map((cell) => cell ?? DASH)) };
}

/* What the table cannot show, and by how much the worst tenth lies behind. */
export function fairnessText(table, figure) {
  const groups = table.deciles.length === TENTHS ? "Clients by tenths of their budgets" : "Every client";
  const simulated = table.deciles.every((one) => !isKnown(one.late));
  const worst = table.score_gap ? table.deciles.find((one) => one.decile === table.worst_decile) : null;
  const best = worst && figure((table.metric.more_is_better ? 1 : -1) * table.score_gap + worst.score);
  const gap = worst ? ` The worst score is ${figure(worst.score)}, the best ${best}.` : "";
  const hidden = table.deciles.some((one) => !isKnown(one.asked)) && " Who took part stays unknown: central privacy counts on it.";
  const about = hidden || (simulated ? " Simulated clients are never late." : " Seconds are from question to answer.");
  return `${groups}, over all rounds.${about}${gap}`;
}
