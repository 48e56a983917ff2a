/* Runs models on the visitor's device; the one script that may compile WebAssembly. */
const ARRAYS = { uint8: Uint8Array, int16: Int16Array, int64: BigInt64Array, float32: Float32Array };
const WARM_UPS = 3;
const SAMPLES = 5;
const LEAST_SAMPLE_MS = 10; // browsers' clocks tell tenths of a millisecond or less
const MOST_RUNS = 500; // of one sample

let ort = null;
const sessions = new Map();

const verbs = {
  async start({ base }) {
    ort = await import(`${base}ort.wasm.bundle.min.mjs`);
    Object.assign(ort.env, { logLevel: "error" });
    Object.assign(ort.env.wasm, { numThreads: 1, proxy: false, wasmPaths: { wasm: `${base}ort-wasm-simd-threaded.wasm` } });
  },
  async load({ name, model }) {
    const bytes = new Uint8Array(model);
    sessions.set(name, await ort.InferenceSession.create(bytes, { executionProviders: ["wasm"] }));
    return metadataOf(bytes);
  },
  async run({ name, values }) {
    const session = sessions.get(name);
    return [...(await predict(session, tensorOf(session, values))).data];
  },
  async time({ name }) {
    const session = sessions.get(name), { type } = session.inputMetadata[0];
    return timed(session, tensorOf(session, null, type === "uint8" ? 128 : 0));
  },
  async drop({ name }) {
    await sessions.get(name)?.release();
    sessions.delete(name);
  },
};

/* What an ONNX file says of itself, by name: fields number 14 of the protobuf message, which the runtime leaves out. */
function metadataOf(bytes) {
  const words = new TextDecoder(), found = {};
  const fields = function* (start, end) {
    let place = start;
    const number = () => {
      for (let value = 0, scale = 1; ; scale *= 128) {
        const byte = bytes[place++];
        value += (byte & 127) * scale;
        if (byte < 128) return value;
      }
    };
    while (place < end) {
      const key = number(), kind = key & 7;
      if (kind === 0) number();
      else if (kind === 1) place += 8;
      else if (kind === 5) place += 4;
      else {
        const size = number();
        yield [key >>> 3, place, place + size];
        place += size;
      }
    }
  };
  for (const [field, start, end] of fields(0, bytes.length)) {
    if (field !== 14) continue;
    const entry = Object.fromEntries([...fields(start, end)].map(([part, from, to]) => [part, words.decode(bytes.subarray(from, to))]));
    found[entry[1]] = JSON.parse(entry[2]);
  }
  return found;
}

/* One example as the model takes it: given values, or the same one everywhere. */
function tensorOf(session, values, filling) {
  const { type, shape } = session.inputMetadata[0], dims = [1, ...shape.slice(1)];
  const one = type === "int64" ? BigInt : Number;
  const data = values ? ARRAYS[type].from(values, one) : new ARRAYS[type](dims.reduce((all, size) => all * size, 1)).fill(one(filling));
  return new ort.Tensor(type, data, dims);
}

async function predict(session, tensor) {
  return (await session.run({ [session.inputNames[0]]: tensor }))[session.outputNames[0]];
}

/* Returns the milliseconds of a run, several times, each the mean of as many runs as the clock can tell. */
async function timed(session, tensor) {
  const sample = async (runs) => {
    const begun = performance.now();
    for (let done = 0; done < runs; done += 1) await predict(session, tensor);
    return (performance.now() - begun) / runs;
  };
  await sample(WARM_UPS);
  let runs = 1, one = await sample(runs);
  while (one * runs < LEAST_SAMPLE_MS && runs < MOST_RUNS) {
    runs = Math.min(runs * 4, MOST_RUNS);
    one = await sample(runs);
  }
  const times = [one];
  while (times.length < SAMPLES) times.push(await sample(runs));
  return times;
}

onmessage = async ({ data: { id, verb, given } }) => {
  try {
    postMessage({ id, answer: await verbs[verb](given) });
  } catch (error) {
    postMessage({ id, problem: error instanceof Error ? error.message : String(error) });
  }
};
