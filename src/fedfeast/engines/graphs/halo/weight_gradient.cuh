// The gradient by the weights of a 3x3 convolution of stride one, over channels-last bfloat16 images.
//
// One of the two tensors, the narrow one, is seen through nine taps: its pixels' surroundings lie in shared memory once,
// a border of zeros around them, and a tap is an address away. A block sums over a part of all pixels the products of
// WIDE_TILES x WIDE_GROUPS x 16 channels of the wide tensor with all units (octet, tap) of the narrow one. Warps share
// the channels (WIDE_GROUPS), the units (UNIT_GROUPS, UNITS each) and the pixels (PIXEL_GROUPS).
//
// Weights of one size that several layers have are done in one launch, at most 18.
//
// Macros: WIDTH, HEIGHT, LINES, GROUPS (of pixels held at a time), NARROW_OCTETS, WIDE_TILES, WIDE_GROUPS, UNITS,
// UNIT_GROUPS, PIXEL_GROUPS, STAGES (of pixels under way).

#include "primitives.cuh"
#include "pixels.cuh"

constexpr int WIDE_OCTETS = 2 * WIDE_TILES * WIDE_GROUPS;
constexpr int WIDE_PLANE = PIXELS + 1;
constexpr int NARROW_PLANE = HELD | 1;
constexpr int STAGE = WIDE_OCTETS * WIDE_PLANE + NARROW_OCTETS * NARROW_PLANE;
constexpr int ALL_UNITS = 9 * NARROW_OCTETS;
constexpr int PAIRS = (UNITS + 1) / 2;

static_assert(THREADS == LANES * WIDE_GROUPS * UNIT_GROUPS * PIXEL_GROUPS, "threads and warps do not match");
static_assert(PIXELS % 16 == 0, "a product takes sixteen pixels");

DEVICE void clear_border(Cell* narrow) {
  for (u32 i = thread(); i < GROUPS * HELD_LINES * 2 * NARROW_OCTETS; i += THREADS) {
    u32 octet = i % NARROW_OCTETS, line = i / NARROW_OCTETS / 2, column = i / NARROW_OCTETS % 2 * (WIDTH + 1);
    narrow[octet * NARROW_PLANE + line * PITCH + column] = {{0, 0, 0, 0}};
  }
}

DEVICE void copy_pixels(
    Cell* stage, const u16* wide, const u16* narrow, int chunk, int num_images, int wide_channels, int narrow_channels) {
  constexpr int BANDS = HEIGHT / LINES;
  int first_image = chunk / BANDS * GROUPS, first_line = chunk % BANDS * LINES, first_pixel = chunk * PIXELS;
  int num_pixels = num_images * HEIGHT * WIDTH, first_channel = block_y() * 8 * WIDE_OCTETS;
#pragma unroll 4
  for (u32 i = thread(); i < PIXELS * WIDE_OCTETS; i += THREADS) {
    u32 octet = i % WIDE_OCTETS, pixel = i / WIDE_OCTETS;
    bool valid = (GROUPS == 1 || first_pixel + pixel < num_pixels) && first_channel + 8 * octet < wide_channels;
    u32 from = (first_pixel + pixel) * wide_channels + first_channel + 8 * octet;
    copy_cell(stage + octet * WIDE_PLANE + pixel, wide + (valid ? from : 0), valid);
  }
  Cell* to = stage + WIDE_OCTETS * WIDE_PLANE;
#pragma unroll 4
  for (u32 i = thread(); i < GROUPS * HELD_LINES * WIDTH * NARROW_OCTETS; i += THREADS) {
    u32 octet = i % NARROW_OCTETS, pixel = i / NARROW_OCTETS, column = pixel % WIDTH, line = pixel / WIDTH;
    u32 image = GROUPS == 1 ? 0 : line / HELD_LINES;
    int y = first_line + (int)(line - image * HELD_LINES) - 1;
    bool valid = y >= 0 && y < HEIGHT && (GROUPS == 1 || first_image + image < num_images);
    u32 from = (((first_image + image) * HEIGHT + y) * WIDTH + column) * narrow_channels + 8 * octet;
    copy_cell(to + octet * NARROW_PLANE + line * PITCH + column + 1, narrow + (valid ? from : 0), valid);
  }
}

KERNEL(weight_gradients)(
    const u16* wide0, const u16* narrow0, float* out0, const u16* wide1, const u16* narrow1, float* out1,
    const u16* wide2, const u16* narrow2, float* out2, const u16* wide3, const u16* narrow3, float* out3,
    const u16* wide4, const u16* narrow4, float* out4, const u16* wide5, const u16* narrow5, float* out5,
    const u16* wide6, const u16* narrow6, float* out6, const u16* wide7, const u16* narrow7, float* out7,
    const u16* wide8, const u16* narrow8, float* out8, const u16* wide9, const u16* narrow9, float* out9,
    const u16* wide10, const u16* narrow10, float* out10, const u16* wide11, const u16* narrow11, float* out11,
    const u16* wide12, const u16* narrow12, float* out12, const u16* wide13, const u16* narrow13, float* out13,
    const u16* wide14, const u16* narrow14, float* out14, const u16* wide15, const u16* narrow15, float* out15,
    const u16* wide16, const u16* narrow16, float* out16, const u16* wide17, const u16* narrow17, float* out17,
    const int* counted_images, int narrow_is_input, int num_images, int chunks_a_part, int wide_channels,
    int narrow_channels) {
  if (counted_images) num_images = *counted_images;  // of so many that there is room for: a captured launch serves any
  int chunks = (num_images + GROUPS - 1) / GROUPS * (HEIGHT / LINES);
  int layer = block_z();
  const u16* wide = layer == 0 ? wide0 : layer == 1 ? wide1 : layer == 2 ? wide2 : layer == 3 ? wide3 : layer == 4 ? wide4 : layer
      == 5 ? wide5 : layer == 6 ? wide6 : layer == 7 ? wide7 : layer == 8 ? wide8 : layer == 9 ? wide9 : layer
      == 10 ? wide10 : layer == 11 ? wide11 : layer == 12 ? wide12 : layer == 13 ? wide13 : layer == 14 ? wide14
      : layer == 15 ? wide15 : layer == 16 ? wide16 : wide17;
  const u16* narrow = layer == 0 ? narrow0 : layer == 1 ? narrow1 : layer == 2 ? narrow2 : layer == 3 ? narrow3 : layer == 4 ? narrow4
      : layer == 5 ? narrow5 : layer == 6 ? narrow6 : layer == 7 ? narrow7 : layer == 8 ? narrow8 : layer == 9 ?
      narrow9 : layer == 10 ? narrow10 : layer == 11 ? narrow11 : layer == 12 ? narrow12 : layer == 13 ?
      narrow13 : layer == 14 ? narrow14 : layer == 15 ? narrow15 : layer == 16 ? narrow16 : narrow17;
  float* out = layer == 0 ? out0 : layer == 1 ? out1 : layer == 2 ? out2 : layer == 3 ? out3 : layer == 4 ? out4 : layer == 5 ?
      out5 : layer == 6 ? out6 : layer == 7 ? out7 : layer == 8 ? out8 : layer == 9 ? out9 : layer == 10 ? out10
      : layer == 11 ? out11 : layer == 12 ? out12 : layer == 13 ? out13 : layer == 14 ? out14 : layer == 15 ?
      out15 : layer == 16 ? out16 : out17;
  bool is_input = narrow_is_input >> layer & 1;
  Cell* shared = reinterpret_cast<Cell*>(shared_memory());
  int warp = thread_index() / LANES, lane = thread_index() % LANES;
  int pixel_group = warp % PIXEL_GROUPS, unit_group = warp / PIXEL_GROUPS % UNIT_GROUPS;
  int wide_group = warp / PIXEL_GROUPS / UNIT_GROUPS;
  int first_unit = unit_group * UNITS;

  float sums[WIDE_TILES][UNITS][4];
#pragma unroll
  for (int tile = 0; tile < WIDE_TILES; ++tile)
#pragma unroll
    for (int unit = 0; unit < UNITS; ++unit)
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[tile][unit][i] = 0.0f;

  // Units are (tap, octet); a lane looks after the first or the second of a pair, and after half of the pixels.
  int unit_places[PAIRS];
#pragma unroll
  for (int pair = 0; pair < PAIRS; ++pair) {
    int unit = first_unit + 2 * pair + lane / 16;
    if (unit >= ALL_UNITS) unit = 0;
    int tap = unit / NARROW_OCTETS, octet = unit % NARROW_OCTETS;
    unit_places[pair] = WIDE_OCTETS * WIDE_PLANE + octet * NARROW_PLANE + tap / 3 * PITCH + tap % 3;
  }
  int wide_place = (2 * WIDE_TILES * wide_group + lane / 8 % 2) * WIDE_PLANE + lane / 16 * 8 + lane % 8;

  int first = block_x() * chunks_a_part, last = first + chunks_a_part < chunks ? first + chunks_a_part : chunks;
  for (int stage = 0; stage < STAGES; ++stage) clear_border(shared + stage * STAGE + WIDE_OCTETS * WIDE_PLANE);
  auto copy_chunk = [&](int turn) {
    if (first + turn < last) {
      Cell* stage = shared + turn % STAGES * STAGE;
      copy_pixels(stage, wide, narrow, first + turn, num_images, wide_channels, narrow_channels);
    }
    copy_commit();
  };
  for (int turn = 0; turn < STAGES - 1; ++turn) copy_chunk(turn);
  for (int turn = 0; first + turn < last; ++turn) {
    copy_wait<STAGES - 2>();
    synchronise();  // this chunk is there for all, and none is still busy with the one before
    copy_chunk(turn + STAGES - 1);
    const Cell* stage = shared + turn % STAGES * STAGE;
    for (int step = pixel_group; step < PIXELS / 16; step += PIXEL_GROUPS) {
      u32 a[WIDE_TILES][4];
#pragma unroll
      for (int tile = 0; tile < WIDE_TILES; ++tile)
        load_matrices_transposed(a[tile], stage + wide_place + 2 * tile * WIDE_PLANE + 16 * step);
      int pixel = held_place(16 * step + lane / 8 % 2 * 8 + lane % 8);
#pragma unroll
      for (int pair = 0; pair < PAIRS; ++pair) {
        u32 b[4];
        load_matrices_transposed(b, stage + unit_places[pair] + pixel);
#pragma unroll
        for (int tile = 0; tile < WIDE_TILES; ++tile) {
          multiply(sums[tile][2 * pair], a[tile], b[0], b[1]);
          if (2 * pair + 1 < UNITS) multiply(sums[tile][2 * pair + 1], a[tile], b[2], b[3]);
        }
      }
    }
  }
  synchronise();

  // The groups of pixels hand their sums to the first, one after another.
  constexpr int VALUES = WIDE_TILES * UNITS * 4;
  float* handed = reinterpret_cast<float*>(shared) + (warp / PIXEL_GROUPS) * VALUES * LANES + lane;
  for (int group = 1; group < PIXEL_GROUPS; ++group) {
    if (pixel_group == group)
#pragma unroll
      for (int i = 0; i < VALUES; ++i) handed[i * LANES] = sums[i / 4 / UNITS][i / 4 % UNITS][i % 4];
    synchronise();
    if (pixel_group == 0)
#pragma unroll
      for (int i = 0; i < VALUES; ++i) sums[i / 4 / UNITS][i / 4 % UNITS][i % 4] += handed[i * LANES];
    synchronise();
  }
  if (pixel_group != 0) return;
  out += (long)block_x() * 9 * wide_channels * narrow_channels;
#pragma unroll
  for (int tile = 0; tile < WIDE_TILES; ++tile) {
#pragma unroll
    for (int unit = 0; unit < UNITS; ++unit) {
      int tap = (first_unit + unit) / NARROW_OCTETS, octet = (first_unit + unit) % NARROW_OCTETS;
      if (first_unit + unit >= ALL_UNITS) continue;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
        int wide_channel = (block_y() * WIDE_OCTETS + 2 * (WIDE_TILES * wide_group + tile)) * 8 + row;
        int narrow_channel = 8 * octet + column;
        if (wide_channel >= wide_channels || narrow_channel >= narrow_channels) continue;
        // Stored (outgoing, taps, incoming); seen from the input, the gradient's taps count from the opposite corner.
        int place = is_input ? (wide_channel * 9 + tap) * narrow_channels + narrow_channel
                             : (narrow_channel * 9 + 8 - tap) * wide_channels + wide_channel;
        out[place] = sums[tile][unit][i];
      }
    }
  }
}
