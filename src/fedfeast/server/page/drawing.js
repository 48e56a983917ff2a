/* The drawing pad: strokes become what the data set is made of, an 8 x 8 grid of how much ink lies in each cell. */
const SIDE = 256; // of the pad, in its own units
const PEN = 22; // width of a stroke
const INK_WIDTH = 4.4; // of a stroke in the digits' original bitmaps of 32 x 32
const STEP = 14; // of an arrow key

export class Pad {
  constructor(canvas, preview, onChange) {
    Object.assign(this, { canvas, preview, onChange });
    this.strokes = [];
    this.pen = { x: SIDE / 2, y: SIDE / 4, down: false };
    canvas.addEventListener("pointerdown", (event) => this.begin(event));
    canvas.addEventListener("pointermove", (event) => this.move(event));
    for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => { this.drawing = false; });
    canvas.addEventListener("keydown", (event) => this.key(event));
    for (const change of ["focus", "blur"]) canvas.addEventListener(change, () => this.show());
    this.show();
  }

  clear() {
    this.strokes = [];
    this.pen.down = false;
    this.changed();
  }

  begin(event) {
    this.canvas.setPointerCapture(event.pointerId);
    this.drawing = true;
    this.strokes.push([this.place(event)]);
    this.changed();
  }

  move(event) {
    if (!this.drawing) return;
    this.strokes.at(-1).push(this.place(event));
    this.changed();
  }

  place(event) {
    const area = this.canvas.getBoundingClientRect();
    return [((event.clientX - area.left) / area.width) * SIDE, ((event.clientY - area.top) / area.height) * SIDE];
  }

  key(event) {
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    const { pen } = this;
    if (event.key in moves) {
      const [right, down] = moves[event.key];
      pen.x = Math.min(Math.max(pen.x + right * STEP, 0), SIDE);
      pen.y = Math.min(Math.max(pen.y + down * STEP, 0), SIDE);
      if (pen.down) this.strokes.at(-1).push([pen.x, pen.y]);
    } else if (event.key === " ") {
      pen.down = !pen.down;
      if (pen.down) this.strokes.push([[pen.x, pen.y]]);
    } else if (event.key === "Delete" || event.key === "Backspace") {
      this.clear();
    } else {
      return;
    }
    event.preventDefault();
    this.changed();
  }

  changed() {
    this.show();
    this.onChange(this.strokes.length > 0);
  }

  show() {
    const style = getComputedStyle(this.canvas), context = this.canvas.getContext("2d");
    const scale = this.canvas.width / SIDE;
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, SIDE, SIDE);
    trace(context, this.strokes, PEN, style.getPropertyValue("color"));
    if (document.activeElement === this.canvas && this.canvas.matches(":focus-visible")) {
      context.beginPath();
      context.arc(this.pen.x, this.pen.y, PEN / 2 + 3, 0, 2 * Math.PI);
      context.lineWidth = this.pen.down ? 5 : 2;
      context.strokeStyle = "#e07b2a";
      context.stroke();
    }
    const cells = this.cells(), small = this.preview.getContext("2d"), image = small.createImageData(8, 8);
    cells.forEach((value, index) => image.data.set([value, value, value, 255], 4 * index));
    small.putImageData(image, 0, 0);
  }

  /* Centred, as tall as the digits of the data set, and averaged over cells. */
  cells() {
    const points = this.strokes.flat();
    if (!points.length) return new Uint8ClampedArray(64);
    const [xs, ys] = [0, 1].map((axis) => points.map((point) => point[axis]));
    const [left, right, top, bottom] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
    const room = 32 - INK_WIDTH, scale = Math.min(room / Math.max(bottom - top, right - left, 1), 0.5);
    const fine = 4, work = new OffscreenCanvas(32 * fine, 32 * fine), context = work.getContext("2d", { willReadFrequently: true });
    context.setTransform(fine, 0, 0, fine, 0, 0);
    const moved = this.strokes.map((stroke) => stroke.map(([x, y]) => [
      16 + (x - (left + right) / 2) * scale, 16 + (y - (top + bottom) / 2) * scale,
    ]));
    trace(context, moved, INK_WIDTH, "#fff");
    const pixels = context.getImageData(0, 0, work.width, work.height).data, cell = 4 * fine;
    const cells = new Uint8ClampedArray(64);
    for (let row = 0; row < 8; row += 1) {
      for (let column = 0; column < 8; column += 1) {
        let ink = 0;
        for (let y = row * cell; y < (row + 1) * cell; y += 1) {
          for (let x = column * cell; x < (column + 1) * cell; x += 1) ink += pixels[4 * (y * work.width + x) + 3];
        }
        cells[8 * row + column] = Math.round((Math.round((16 * ink) / (255 * cell * cell)) * 255) / 16);
      }
    }
    return cells;
  }

  blob() {
    return new Promise((resolve) => this.preview.toBlob(resolve, "image/png"));
  }
}

function trace(context, strokes, width, colour) {
  Object.assign(context, { lineWidth: width, lineCap: "round", lineJoin: "round", strokeStyle: colour, fillStyle: colour });
  for (const stroke of strokes) {
    context.beginPath();
    context.moveTo(...stroke[0]);
    for (const point of stroke.length > 1 ? stroke.slice(1) : [[stroke[0][0] + 0.01, stroke[0][1]]]) context.lineTo(...point);
    context.stroke();
  }
}
