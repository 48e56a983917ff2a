/* What each size comes to while a run trains. */
const MOST_SIZES = 5; // of a run: more lines could not be told apart
const LOOKS = [{}, { mark: "square", dash: "7 4" }, { mark: "triangle", dash: "2 4" }]; // by run
export const MOST_RUNS = LOOKS.length;

/* As sizes.py has them for reports: a few sizes of each run, from the smallest to the largest, each with its shade; a run
   has its mark and dash. */
export function sizeSeries(histories, shown) {
  return histories.flatMap(([run, rounds], number) => {
    const macs = new Map(rounds.flatMap((row) => row.sizes.map((one) => [one.name, one.macs])));
    const names = spread([...macs.keys()].sort((one, other) => macs.get(one) - macs.get(other)), MOST_SIZES);
    return names.map((name, place) => ({
      label: histories.length > 1 ? `${run}, ${name} MACs` : `${name} MACs`, colour: `grade:${place / Math.max(1, names.length - 1)}`,
      thin: true, ...LOOKS[number],
      points: rounds.flatMap((row) => row.sizes.filter((one) => one.name === name).map((one) => [row.round, shown(one.value)])),
    }));
  });
}

/* The validated values of one round by name. */
export function valuesIn(rounds, number) {
  const row = rounds.find((one) => one.round === number);
  return new Map(row?.sizes.map((one) => [one.name, one.value]));
}

function spread(all, most) {
  const count = Math.min(most, all.length);
  return Array.from({ length: count }, (_, place) => all[Math.round((place * (all.length - 1)) / Math.max(1, count - 1))]);
}
