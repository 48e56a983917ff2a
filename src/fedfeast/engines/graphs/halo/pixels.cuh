// A tile of pixels in shared memory: GROUPS images of LINES whole lines each, with a border of one pixel around them.

constexpr int LANES = 32;
constexpr int PITCH = WIDTH + 2;  // cells from one line to the next
constexpr int HELD_LINES = LINES + 2;
constexpr int HELD = GROUPS * HELD_LINES * PITCH;
constexpr int PIXELS = GROUPS * LINES * WIDTH;

// Unsigned, so that the compiler sees what divisions by constants leave the same from one turn of a loop to the next.
DEVICE u32 thread() { return thread_index(); }

// The cell of a pixel's upper left neighbour, given the distances between cells of images, lines and columns.
DEVICE int held_place(u32 pixel, int image_stride = HELD_LINES * PITCH, int line_stride = PITCH, int column_stride = 1) {
  u32 line = pixel / WIDTH, image = GROUPS == 1 ? 0 : line / LINES;
  return image * image_stride + (line - image * LINES) * line_stride + pixel % WIDTH * column_stride;
}
