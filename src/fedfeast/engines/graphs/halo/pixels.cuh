// A tile of pixels in shared memory: GROUPS images of LINES whole lines each, with a border of one pixel around them.

constexpr int LANES = 32;
constexpr int PITCH = WIDTH + 2;  // cells from one line to the next
constexpr int HELD_LINES = LINES + 2;
constexpr int HELD = GROUPS * HELD_LINES * PITCH;
constexpr int PIXELS = GROUPS * LINES * WIDTH;

// Unsigned, so that the compiler sees what divisions by constants leave the same from one turn of a loop to the next.
DEVICE u32 thread() { return thread_index(); }

// The cell of a pixel's upper left neighbour.
DEVICE int held_place(u32 pixel) {
  u32 line = pixel / WIDTH, image = GROUPS == 1 ? 0 : line / LINES;
  return (image * HELD_LINES + line - image * LINES) * PITCH + pixel % WIDTH;
}
