/* Models on the visitor's own device: each is run here and timed, and a limit in milliseconds chooses one. */
import { Runner } from "./runner.js";

const DASH = "–";
const MOST_KEPT_BYTES = 256e6; // of models that stay loaded, to look at images
const TURNS = 3; // of all models, so that what else the device does falls upon all of them
const GREY = [0.299, 0.587, 0.114]; // of red, green and blue, as images are read for training
const at = (name) => document.getElementById(`in-browser${name}`);
const milliseconds = (value) => charts.formats.milliseconds(value);

function element(tag, name, ...content) {
  const made = document.createElement(tag);
  made.className = name;
  made.append(...content);
  return made;
}

export class InBrowser {
  #page; // what the page lends: ask, download, figure, setMacs
  #version = null;
  #about = null;
  #models = [];
  #timed = new Map(); // id -> milliseconds, again and again
  #loaded = new Map(); // id -> what the file says of itself
  #runner = null;
  #running = false;
  #classifies = false; // images, so that models can look at the one above
  #image = null;

  constructor(page) {
    this.#page = page;
    at("-run").addEventListener("click", () => (this.#running ? this.#stop() : this.#measure()));
    at("-limit").addEventListener("input", () => this.#choose());
    at("-csv").addEventListener("click", () => this.#saveCsv());
  }

  /* Says which version of the runtime the server has; without one there is no panel. */
  start(version) {
    this.#version = version;
    this.#show();
  }

  /* Takes the models on offer; what was measured of others is forgotten. */
  show(about, models) {
    const ids = (list) => list.map((one) => one.id).join();
    if (ids(models) !== ids(this.#models)) {
      this.#stop();
      this.#timed.clear();
      at("-limit").value = "";
    }
    [this.#about, this.#models] = [about, models];
    this.#show();
  }

  /* Lets the loaded models look at an image file, or at nothing. */
  look(image) {
    this.#image = image;
    return this.#predict([...this.#loaded.keys()]);
  }

  #show() {
    at("").hidden = !this.#version || !this.#models.length;
    if (at("").hidden) return;
    const bytes = this.#models.reduce((sum, one) => sum + 4 * one.parameters, 0);
    const size = bytes < 1e6 ? `${Math.ceil(bytes / 1e3)} kB` : `${Math.ceil(bytes / 1e6).toLocaleString("en")} MB`;
    at("-text").textContent = `Your device fetches all ${this.#models.length} models (${size}), runs each with onnxruntime-web ${this.#version} in one thread, and times it. The times stay here.`;
    this.#classifies = this.#about.inputs.kind === "images" && this.#about.inputs.task === "classification";
    at("-rows").classList.toggle("sees", this.#classifies);
    at("-metric").textContent = `test ${this.#about.metric.label}`;
    at("-rows").tBodies[0].replaceChildren(...this.#models.map((one) => {
      const value = one.test_value === null ? DASH : this.#page.figure(one.test_value);
      const row = element("tr", "", ...[one.name, value, DASH, DASH].map((cell) => element("td", "", cell)));
      row.dataset.model = one.id;
      return row;
    }));
    this.#models.forEach((one) => this.#showTime(one));
    this.#predict([...this.#loaded.keys()]);
    this.#choose();
  }

  // --- running ----------------------------------------------------------------------------------------------------------
  async #measure() {
    this.#stop();
    this.#timed.clear();
    this.#show();
    at("-problem").hidden = true;
    this.#setRunning(true);
    const models = this.#models, mine = (this.#runner = new Runner());
    let kept = 0;
    try {
      await mine.start(this.#version);
      for (const one of models) {
        this.#cell(one, 2).textContent = "fetching";
        const content = await (await this.#page.ask(`models/${one.id}.onnx`)).arrayBuffer();
        if (mine !== this.#runner) return; // it was stopped
        kept += content.byteLength;
        this.#cell(one, 2).textContent = "running";
        const says = await mine.load(one.id, content);
        await this.#time(mine, one);
        if (kept > MOST_KEPT_BYTES) await mine.drop(one.id);
        else this.#loaded.set(one.id, says);
        await this.#predict([one.id]);
      }
      for (let turn = 1; turn < TURNS; turn += 1) {
        for (const one of models.filter(({ id }) => this.#loaded.has(id))) await this.#time(mine, one);
      }
      this.#setRunning(false);
    } catch (error) {
      if (mine !== this.#runner) return;
      this.#stop();
      at("-problem").hidden = false;
      at("-problem").textContent = `The models could not be run here: ${error.message}`;
    }
  }

  async #time(runner, one) {
    const times = await runner.time(one.id);
    this.#timed.set(one.id, [...(this.#timed.get(one.id) ?? []), ...times]);
    this.#showTime(one);
    this.#choose();
  }

  #stop() {
    const runner = this.#runner;
    this.#runner = null;
    this.#loaded.clear();
    runner?.close();
    this.#setRunning(false);
    this.#models.forEach((one) => this.#showTime(one));
  }

  #setRunning(is) {
    this.#running = is;
    at("-run").textContent = is ? "Stop" : this.#timed.size ? "Run them again" : "Run them here";
  }

  async #predict(ids) {
    if (!this.#runner || !this.#classifies) return;
    const image = this.#image;
    const pixels = image && ids.length ? await this.#pixels(image) : null;
    for (const id of ids) {
      const names = this.#loaded.get(id)?.class_names;
      if (!names || image !== this.#image) return; // it was stopped, or the drawing has gone on
      const outputs = pixels ? await this.#runner.run(id, pixels).catch(() => null) : null;
      const cell = this.#cell({ id }, 3);
      if (cell && image === this.#image) cell.textContent = outputs ? sees(outputs, names) : DASH;
    }
  }

  /* One image as networks take it, channel by channel; nothing where it is of another size, as the server has it. */
  async #pixels(image) {
    const { channels, side } = this.#about.images;
    const picture = await createImageBitmap(image, { colorSpaceConversion: "none" }).catch(() => null);
    if (picture?.width !== side || picture.height !== side) return null;
    const context = new OffscreenCanvas(side, side).getContext("2d");
    context.drawImage(picture, 0, 0);
    const { data } = context.getImageData(0, 0, side, side), places = Array.from({ length: side * side }, (_, place) => 4 * place);
    if (channels === 1) return places.map((place) => Math.round(GREY.reduce((sum, part, colour) => sum + part * data[place + colour], 0)));
    return [0, 1, 2].flatMap((colour) => places.map((place) => data[place + colour]));
  }

  // --- showing and choosing ---------------------------------------------------------------------------------------------
  #cell(one, place) {
    return at("-rows").querySelector(`tr[data-model="${one.id}"]`)?.cells[place];
  }

  #showTime(one) {
    const cell = this.#cell(one, 2);
    if (cell) cell.textContent = this.#timed.has(one.id) ? milliseconds(this.#median(one)) : DASH;
  }

  #median(one) {
    const times = [...this.#timed.get(one.id)].sort((first, second) => first - second);
    return times[times.length >> 1];
  }

  #choose() {
    const timed = this.#models.filter((one) => this.#timed.has(one.id)), field = at("-limit"), card = at("-chosen");
    at("-csv").hidden = !timed.length;
    if (!timed.length) {
      card.replaceChildren(element("p", "sub", "What each model takes here becomes a budget, and a limit in milliseconds a choice."));
      return;
    }
    const time = (one) => this.#median(one), limit = Number(field.value.replace(",", "."));
    field.toggleAttribute("aria-invalid", field.value !== "" && !(limit > 0));
    const within = timed.filter((one) => !field.value || time(one) <= limit), chosen = within.at(-1);
    for (const row of at("-rows").tBodies[0].rows) row.classList.toggle("is-chosen", row.dataset.model === chosen?.id);
    if (!chosen) {
      const least = Math.min(...timed.map(time));
      card.replaceChildren(element("p", "eyebrow", "Nothing is that fast here"), element("p", "", `The fastest model so far takes ${milliseconds(least)}.`));
      return;
    }
    const take = element("button", "button", `Set the budget to ${charts.si(chosen.price)} MACs`);
    take.type = "button";
    take.addEventListener("click", () => this.#page.setMacs(chosen.price));
    card.replaceChildren(
      element("p", "eyebrow", `This browser gets the ${chosen.name} model`),
      element("p", "big", milliseconds(time(chosen)), " ", element("small", "", "here, median")),
      element("p", "sub", field.value ? `The largest of ${timed.length} that takes at most ${limit} ms: a budget of ${charts.si(chosen.price)} MACs.` : `The largest of ${timed.length}; a limit in milliseconds chooses another.`),
      ...this.#betterNote(chosen, within),
      element("div", "in-browser-buttons", this.#page.download(chosen.id, "onnx", "↓ ONNX", true), take),
    );
  }

  /* The largest is not always the best: what /api/choose calls better, among those that are fast enough here. */
  #betterNote(chosen, within) {
    const { label, more_is_better } = this.#about.metric, merit = (one) => (more_is_better ? 1 : -1) * one.validation_value;
    if (chosen.validation_value === null) return [];
    const smaller = within.slice(0, within.indexOf(chosen)).filter((one) => one.validation_value !== null && merit(one) > merit(chosen));
    const better = smaller.sort((one, other) => merit(other) - merit(one) || one.price - other.price)[0];
    if (!better) return [];
    const words = `The smaller ${better.name} model has the better validation ${label}: ${this.#page.figure(better.validation_value)} against ${this.#page.figure(chosen.validation_value)}.`;
    return [element("p", "note better", words)];
  }

  /* What fedfeast latency --measured reads. */
  #saveCsv() {
    const device = (navigator.userAgentData?.platform || navigator.platform || "browser").replace(/[",\r\n]/g, " ");
    const rows = this.#models.filter((one) => this.#timed.has(one.id)).map((one) => `${one.macs},"${device}, browser",${this.#median(one)}`);
    const link = element("a", "");
    link.href = URL.createObjectURL(new Blob([["model,device,latency_ms", ...rows, ""].join("\n")], { type: "text/csv" }));
    link.download = `${this.#about.name}-latency.csv`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }
}

/* The likeliest class and how sure the model is of it. */
function sees(outputs, names) {
  const most = Math.max(...outputs), sum = outputs.reduce((all, one) => all + Math.exp(one - most), 0);
  return `${names[outputs.indexOf(most)]} (${Math.round(100 / sum)} %)`;
}
