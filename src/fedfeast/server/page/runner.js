/* A worker that runs models on this device. */
export class Runner {
  #worker;
  #waiting = new Map();
  #asked = 0;

  constructor() {
    this.#worker = new Worker("runtime/worker.js", { type: "module" });
    this.#worker.addEventListener("message", ({ data: { id, answer, problem } }) => {
      const { resolve, reject } = this.#waiting.get(id);
      this.#waiting.delete(id);
      if (problem === undefined) resolve(answer);
      else reject(new Error(problem));
    });
    this.#worker.addEventListener("error", (event) => this.#end(event.message ?? "The worker could not be loaded."));
  }

  /* Loads the runtime of a version from this server. */
  start(version) { return this.#ask("start", { base: new URL(`runtime/${version}/`, document.baseURI).href }); }
  /* Takes the bytes of an ONNX file; returns what it says of itself. */
  load(name, model) { return this.#ask("load", { name, model }, [model]); }
  /* Returns the outputs for one example as the model takes it. */
  run(name, values) { return this.#ask("run", { name, values }); }
  /* Returns the milliseconds of one example, several times. */
  time(name) { return this.#ask("time", { name }); }
  drop(name) { return this.#ask("drop", { name }); }
  close() {
    this.#worker.terminate();
    this.#end("It was stopped.");
  }

  #ask(verb, given, moved = []) {
    return new Promise((resolve, reject) => {
      const id = (this.#asked += 1);
      this.#waiting.set(id, { resolve, reject });
      this.#worker.postMessage({ id, verb, given }, moved);
    });
  }

  #end(reason) {
    for (const { reject } of this.#waiting.values()) reject(new Error(reason));
    this.#waiting.clear();
  }
}
