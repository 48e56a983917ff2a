// A 3x3 convolution of stride one over channels-last bfloat16 images, or its gradient by the input.
//
// A tile is PIXELS neighbouring pixels (GROUPS images of LINES whole lines each) times OUT_OCTETS x 8 channels; a block
// computes one after another. The pixels' surroundings lie in shared memory once, a border of zeros around them, and the
// nine taps are nine shifted views of it: what a tap needs is an address away, not another read of the image.
//
// Shared memory holds cells of eight channels. A chunk of IN_OCTETS x 8 incoming channels is a row of planes, one for
// each octet, each a cell for every pixel; its weights are 8x8 matrices, one for each unit (octet, tap) and outgoing
// octet. Two units make a step of a tensor-core product. Chunks go round STAGES places: while one is multiplied, the next
// are being copied, those of the next tile too. Weights stay where all CHUNKS of them have room (KEPT), else they come
// along with each chunk. SPLITS blocks may share the chunks of a tile; the last of them adds up and goes on alone.
//
// Eight pixels that lie side by side in shared memory, a cell each, are a matrix of an operand, and eight of these a
// constant distance apart are what four warps multiply together (warpgroups.cuh): eight lines of eight columns; of images
// of 4x4 a line of sixteen of them, whose pixels then lie side by side. Where tiles have no such pixels (ORDERED), or the
// device no such products, every warp multiplies for itself, sixteen pixels at a time.
//
// Macros: WIDTH, HEIGHT, LINES, GROUPS, WARPS, ROW_TILES (16 pixels each, of a warp), IN_OCTETS, OUT_OCTETS, CHUNKS,
// STAGES, KEPT, SPLITS, BACKWARD; for what the features are made of on their way in: MADE; for what follows the product:
// STATISTICS, ADDED, MASKED, NORM (0; 1: rectifies what is stored; 2: what is summed; 3: neither).
//
// MADE says what a feature is, given one or two tensors and a few numbers a channel:
//   0  first
//   1  rectified first * a + b: a batch normalisation
//   2  rectified (rectified first * a + b) + second: the end of a residual block
//   3  rectified (rectified first * a + b) + second * c + d: the same where a normalisation is added
//      (2 and 3 where SIGNED is defined: first * a + b is added as it is)
//   4  first * a + second * b + c: the gradient by a normalisation's input, given the gradient by its output and the input
//   5  the same where first counts only while second * a + d is positive: a rectifier came after the normalisation
// What was made is stored too (MADE > 0), for others to read.

#include "primitives.cuh"
#include "sums.cuh"
#include "pixels.cuh"
#include "warpgroups.cuh"

#ifdef SIGNED
static_assert(MADE == 2 || MADE == 3, "only the end of a block is signed");
#endif

constexpr int CHANNELS = 8 * OUT_OCTETS;
// Planes lie so far apart that the cells which neighbouring threads copy fall into different banks.
constexpr int SHIFT = IN_OCTETS == 2 ? 4 : IN_OCTETS == 4 ? 2 : IN_OCTETS | 1;
constexpr int PLANE = HELD + ((SHIFT - HELD) % 8 + 8) % 8;
constexpr int UNITS = 9 * IN_OCTETS + (9 * IN_OCTETS) % 2;
constexpr int MATRIX = 9;  // cells from one matrix of weights to the next: eight, and one for the banks
constexpr int UNIT = (OUT_OCTETS * MATRIX) | 1;
constexpr int FEATURE_CELLS = IN_OCTETS * PLANE;
constexpr int WEIGHT_CELLS = UNITS * UNIT;
constexpr bool TWO = MADE > 1;
constexpr int NUMBERS = MADE == 0 ? 0 : MADE <= 2 ? 2 : MADE == 4 ? 3 : 4;  // a channel
constexpr int ALL_IN = 8 * IN_OCTETS * CHUNKS;
constexpr int STAGE = FEATURE_CELLS + (KEPT ? 0 : WEIGHT_CELLS);
constexpr int EXTRAS = ADDED + MASKED + (NORM > 0);  // tensors that what follows reads
constexpr int CHUNKS_A_SPLIT = (CHUNKS + SPLITS - 1) / SPLITS;
constexpr int ROW = OUT_OCTETS | 1;  // cells of a pixel's products on their way from registers to memory
constexpr int PASSED = OUT_OCTETS == 1 && ROW_TILES > 1 ? 32 : 16;  // pixels of a warp that go that way together
constexpr bool SUMS = STATISTICS || NORM;

// Distances between cells of a plane: images of 4x4 lie side by side where there are sixteen of them.
constexpr bool TOGETHER = WIDTH == 4 && GROUPS == 16 && WARPS % 4 == 0;
constexpr int COLUMN = TOGETHER ? GROUPS : 1, LINE = TOGETHER ? GROUPS * PITCH : PITCH;
constexpr int IMAGE = TOGETHER ? 1 : HELD_LINES * PITCH;
constexpr bool ORDERED = TOGETHER || (WIDTH % 8 == 0 && LINES % 8 == 0 && WARPS % 4 == 0);
constexpr bool GROUPED = ORDERED && HAS_GROUPS;
constexpr int NEXT_MATRIX = TOGETHER ? 8 : LINE;  // from eight pixels to the next eight of sixty-four
// Where a tile has one chunk, a warp finishes sixteen of its rows before it multiplies for the next: it holds fewer sums.
constexpr bool ONE_BY_ONE = GROUPED && CHUNKS == 1 && OUT_OCTETS > 1;
constexpr int HELD_TILES = ONE_BY_ONE ? 1 : ROW_TILES;  // of a warp's, whose sums it holds

static_assert(PIXELS == 16 * ROW_TILES * WARPS, "warps and pixels do not match");
static_assert(THREADS == LANES * WARPS, "threads and warps do not match");

constexpr int least_power(int number) { return number <= 1 ? 1 : 2 * least_power((number + 1) / 2); }

// The pixels that a row of products belongs to: sixteen of a tile, of which this is the first, and one of them.
DEVICE int first_of_rows(u32 sixteen) {
  if (!ORDERED) return 16 * sixteen;
  u32 group = sixteen / 4, quarter = sixteen % 4;
  if (TOGETHER) return group * WIDTH + quarter;  // of all images
  constexpr u32 ACROSS = WIDTH / 8;
  return (8 * (group / ACROSS) + 2 * quarter) * WIDTH + 8 * (group % ACROSS);
}
DEVICE int pixel_of_row(u32 row) {
  if (!ORDERED) return row;
  return TOGETHER ? row * WIDTH * HEIGHT : row / 8 * WIDTH + row % 8;
}
// Which sixteen rows a warp's tile is.
DEVICE u32 rows_of(u32 warp, u32 tile) {
  return ORDERED ? (warp / 4 * ROW_TILES + tile) * 4 + warp % 4 : warp * ROW_TILES + tile;
}

DEVICE int upper_left(u32 pixel) { return held_place(pixel, IMAGE, LINE, COLUMN); }

DEVICE void clear_border(Cell* features, int first_line) {
  Cell zero = {{0, 0, 0, 0}};
  for (u32 i = thread(); i < GROUPS * HELD_LINES * 2 * IN_OCTETS; i += THREADS) {
    u32 octet = i / 2 % IN_OCTETS, line = i / 2 / IN_OCTETS, image = line / HELD_LINES;
    features[octet * PLANE + image * IMAGE + line % HELD_LINES * LINE + i % 2 * (WIDTH + 1) * COLUMN] = zero;
  }
  bool above = first_line == 0, below = first_line + LINES == HEIGHT;
  if (!above && !below) return;
  for (u32 i = thread(); i < GROUPS * 2 * WIDTH * IN_OCTETS; i += THREADS) {
    u32 column = i % WIDTH, octet = i / WIDTH % IN_OCTETS, edge = i / WIDTH / IN_OCTETS % 2;
    u32 image = i / WIDTH / IN_OCTETS / 2, line = edge * (HELD_LINES - 1);
    if (edge ? below : above) features[octet * PLANE + image * IMAGE + line * LINE + (column + 1) * COLUMN] = zero;
  }
}

// How threads share a chunk's features: neighbours have the octets of a pixel, then of what lies beside it in shared memory.
constexpr u32 OCTETS = least_power(IN_OCTETS), BESIDE = TOGETHER ? GROUPS : WIDTH, AT_ONCE = THREADS / (OCTETS * BESIDE);
constexpr u32 FEATURE_LINES = TOGETHER ? HEIGHT * WIDTH : GROUPS * HELD_LINES;  // what goes on beyond these
constexpr u32 OWN_FEATURES = (FEATURE_LINES + AT_ONCE - 1) / AT_ONCE;  // of a thread
static_assert(AT_ONCE * OCTETS * BESIDE == THREADS, "threads do not cover whole lines");

// Goes over the cells of a chunk's features that a thread looks after; the border is nobody's.
template <typename Do>
DEVICE void for_features(int first_image, int first_line, int num_images, int incoming, int first_octet, Do act) {
  u32 octet = thread() % OCTETS, beside = thread() / OCTETS % BESIDE;
  u32 line = AT_ONCE == 1 ? 0 : thread() / (OCTETS * BESIDE);
  if (octet >= IN_OCTETS) return;
  bool is_channel = 8 * (first_octet + octet) < incoming;
  bool above = first_line == 0, below = first_line + LINES == HEIGHT;  // there is no image
  int line_stride = WIDTH * incoming, place = octet * PLANE + beside;
  int from = (first_image * HEIGHT + first_line) * line_stride + 8 * (first_octet + octet);
  if (TOGETHER) place += LINE + COLUMN, from += beside * HEIGHT * line_stride;
  else place += 1, from += (int)(beside * incoming) - line_stride;
#pragma unroll
  for (u32 number = 0; number < OWN_FEATURES; ++number, line += AT_ONCE) {
    if (OWN_FEATURES * AT_ONCE > FEATURE_LINES && line >= FEATURE_LINES) break;
    if (TOGETHER) {  // a line is a pixel of all images
      bool valid = is_channel && first_image + (int)beside < num_images;
      act(number, place + line / WIDTH * LINE + line % WIDTH * COLUMN, from + (int)line * incoming, valid, true);
      continue;
    }
    u32 image = GROUPS == 1 ? 0 : line / HELD_LINES, held = line - image * HELD_LINES;
    if ((held == 0 && above) || (held == HELD_LINES - 1 && below)) continue;
    bool valid = is_channel && (GROUPS == 1 || first_image + (int)image < num_images);
    // Two lines that are held of each image are not of the image.
    int source = from + ((int)line - 2 * (int)image) * line_stride;
    act(number, place + line * PITCH, source, valid, held > 0 && held < HELD_LINES - 1);
  }
}

// Where a unit's matrices lie. Two octets of one tap make a step, a plane apart; of a last octet without a partner two
// taps do, a column or a line apart, so that a step is a constant away from the step before.
DEVICE constexpr int unit_of(int octet, int tap) {
  return octet / 2 < IN_OCTETS / 2 ? (octet / 2 * 9 + tap) * 2 + octet % 2
                                   : 9 * (IN_OCTETS - 1) + (tap % 3 < 2 ? tap / 3 * 2 + tap % 3 : 6 + tap / 3);
}

DEVICE void copy_weights(Cell* to, const u16* weights, int incoming, int outgoing, int first_octet) {
  // Stored (outgoing, taps, incoming), and a cell is eight incoming channels; or, on the way back, seen as (incoming, taps
  // from the opposite corner, outgoing), and a cell is eight outgoing channels.
  constexpr u32 IN_ROW = BACKWARD ? OUT_OCTETS : IN_OCTETS, PADDED = least_power(IN_ROW);
  constexpr u32 ROWS = 9 * 8 * (BACKWARD ? IN_OCTETS : OUT_OCTETS), ROWS_A_TURN = THREADS / PADDED;
  u32 cell = thread() % PADDED;
  if (cell >= IN_ROW) return;
  int first_channel = block_y() * CHANNELS, row_size = BACKWARD ? outgoing : incoming;
  int first_row = 9 * (BACKWARD ? 8 * first_octet : first_channel);
  int column = BACKWARD ? first_channel + 8 * cell : 8 * (first_octet + cell);
  int rows = 9 * (BACKWARD ? incoming : outgoing) - first_row;
  bool is_column = column < row_size;
  const u16* from = weights + first_row * row_size + column;
#pragma unroll 2
  for (u32 row = thread() / PADDED; row < ROWS; row += ROWS_A_TURN) {
    u32 channel = row / 9, tap = row - 9 * channel;
    int octet = BACKWARD ? channel / 8 : cell, out_octet = BACKWARD ? cell : channel / 8;
    bool valid = is_column && (int)row < rows;
    int place = unit_of(octet, BACKWARD ? 8 - tap : tap) * UNIT + out_octet * MATRIX + channel % 8;
    copy_cell(to + place, valid ? from + row * row_size : weights, valid);
  }
}

// Begins the product of a chunk by four warps together, new or added, from a tile of each warp on. Channels that are missing
// are zeros.
DEVICE void begin_chunk_grouped(
    float (&sums)[HELD_TILES][OUT_OCTETS][4], const Cell* features, const Cell* chunk_weights, int first_tile, bool adds) {
  constexpr int PAIRED = IN_OCTETS / 2 * 9, LONE = (IN_OCTETS - 1) * PLANE;
  u64 weights = operand(chunk_weights, UNIT, MATRIX);
  u32 group = thread() / LANES / 4 * ROW_TILES + first_tile;
  begin_group();
#pragma unroll
  for (int tile = 0; tile < HELD_TILES; ++tile) {
    const Cell* first = features + upper_left(first_of_rows((group + tile) * 4));
    u64 by_octet = operand(first, PLANE, NEXT_MATRIX), by_column = operand(first + LONE, COLUMN, NEXT_MATRIX);
    u64 by_line = operand(first + LONE, LINE, NEXT_MATRIX), alone = operand(first + LONE, 0, NEXT_MATRIX);
#pragma unroll
    for (int step = 0; step < UNITS / 2; ++step) {
      u64 a;
      int rest = step - PAIRED;
      if (rest < 0) a = by_octet + step / 9 * 2 * PLANE + step % 9 / 3 * LINE + step % 3 * COLUMN;
      else if (rest < 3) a = by_column + rest * LINE;
      else a = rest == 3 ? by_line + 2 * COLUMN : alone + 2 * LINE + 2 * COLUMN;
      multiply_group<BACKWARD>(sums[tile], a, weights + 2 * step * UNIT, step > 0 || adds);
    }
  }
  commit_group();
}

DEVICE void load_weights(u32 (&r)[4], const Cell* place) {
  if (BACKWARD) load_matrices_transposed(r, place);
  else load_matrices(r, place);
}

DEVICE void load_last_weights(u32 (&r)[2], const Cell* place) {
  if (BACKWARD) load_two_matrices_transposed(r, place);
  else load_two_matrices(r, place);
}

// Where a lane's rows of features begin: lanes from sixteen on look after the second unit of a step.
struct Starts {
  const Cell *octet, *column, *line, *none;  // the second unit is an octet, a column or a line further on, or missing

  DEVICE const Cell* of(int step) const {
    constexpr int PAIRED = IN_OCTETS / 2 * 9;
    if (step < PAIRED) return octet + step / 9 * 2 * PLANE + step % 9 / 3 * LINE + step % 3 * COLUMN;
    int rest = step - PAIRED;
    if (rest < 3) return column + rest * LINE;
    return rest == 3 ? line + 2 * COLUMN : none + 2 * LINE + 2 * COLUMN;
  }
};

DEVICE void multiply_chunk(
    float (&sums)[HELD_TILES][OUT_OCTETS][4], const Cell* features, const Cell* chunk_weights,
    const int (&places)[ROW_TILES], int octets) {
  u32 lane = thread() % LANES, second = lane / 16;
  // Matrices of weights: two units of one octet, then the same of the next octet, where there is one.
  const Cell* first_weights = chunk_weights + lane / 8 % 2 * UNIT + lane % 8;
  const Cell* weights = first_weights + lane / 16 * MATRIX;
  Starts starts[ROW_TILES];
#pragma unroll
  for (int tile = 0; tile < ROW_TILES; ++tile) {
    const Cell* first = features + places[tile];
    const Cell* lone = first + (IN_OCTETS - 1) * PLANE;
    starts[tile] = {first + second * PLANE, lone + second * COLUMN, lone + second * LINE, lone};
  }
#pragma unroll
  for (int step = 0; step < UNITS / 2; ++step) {
    if (step % 9 == 0 && step / 9 * 2 >= octets) break;
    u32 a[ROW_TILES][4];
#pragma unroll
    for (int tile = 0; tile < ROW_TILES; ++tile) load_matrices(a[tile], starts[tile].of(step));
#pragma unroll
    for (int octet = 0; octet + 1 < OUT_OCTETS; octet += 2) {
      u32 b[4];
      load_weights(b, weights + 2 * step * UNIT + octet * MATRIX);
#pragma unroll
      for (int tile = 0; tile < ROW_TILES; ++tile) {
        multiply(sums[tile][octet], a[tile], b[0], b[1]);
        multiply(sums[tile][octet + 1], a[tile], b[2], b[3]);
      }
    }
    if (OUT_OCTETS % 2) {
      u32 b[2];
      load_last_weights(b, first_weights + 2 * step * UNIT + (OUT_OCTETS - 1) * MATRIX);
#pragma unroll
      for (int tile = 0; tile < ROW_TILES; ++tile) multiply(sums[tile][OUT_OCTETS - 1], a[tile], b[0], b[1]);
    }
  }
}

// Four floats of shared memory.
DEVICE void load_four(float (&values)[4], const float* from) {
  Cell four = load_shared_cell(from);
#pragma unroll
  for (int i = 0; i < 4; ++i) values[i] = as_float(four.words[i]);
}

DEVICE void unpack(float (&values)[8], Cell cell) {
#pragma unroll
  for (int i = 0; i < 4; ++i) values[2 * i] = low_of(cell.words[i]), values[2 * i + 1] = high_of(cell.words[i]);
}

// All ones for each of two rectified bfloat16 values that is positive: no sign, so that 0x7fff more sets the first bit.
DEVICE u32 where_positive(u32 pair) { return spread_signs(pair + 0x7fff7fffu); }

// A normalisation of the incoming features and what was found of it, or of a gradient by it.
struct Norm {
  const float *mean, *inverse_deviation, *scale, *shift, *shift_gradient, *scale_gradient;
};

// Writes down what a chunk's features are made with: NUMBERS rows of ALL_IN.
DEVICE void find_numbers(float* numbers, Norm norm, Norm added, int incoming, float count) {
  for (u32 i = thread(); i < ALL_IN; i += THREADS) {
    bool valid = i < incoming;
    float factor = valid ? norm.inverse_deviation[i] * norm.scale[i] : 0.0f;
    float constant = valid ? norm.shift[i] - norm.mean[i] * factor : 0.0f;
    float* row = numbers + i;
    if (MADE >= 4) {
      float slope = valid ? norm.inverse_deviation[i] * norm.scale_gradient[i] / count : 0.0f;
      float mean_gradient = valid ? norm.shift_gradient[i] / count : 0.0f;
      row[0] = factor, row[ALL_IN] = -factor * slope;
      row[2 * ALL_IN] = factor * ((valid ? norm.mean[i] : 0.0f) * slope - mean_gradient);
      if (MADE == 5) row[3 * ALL_IN] = constant;
    } else {
      row[0] = factor, row[ALL_IN] = constant;
      if (MADE == 3) {
        float added_factor = valid ? added.inverse_deviation[i] * added.scale[i] : 0.0f;
        row[2 * ALL_IN] = added_factor, row[3 * ALL_IN] = valid ? added.shift[i] - added.mean[i] * added_factor : 0.0f;
      }
    }
  }
}

DEVICE float rectified(float value) { return value > 0.0f ? value : 0.0f; }

// Makes features of two channels from those of one or two tensors.
DEVICE u32 make_features(u32 first, u32 second, const float (&numbers)[NUMBERS + 1][4], int channel) {
  float one[2] = {low_of(first), high_of(first)}, two[2] = {low_of(second), high_of(second)};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    auto number = [&](int which) { return numbers[which % (NUMBERS + 1)][channel + i]; };
#ifdef SIGNED
    if (MADE <= 3) one[i] = one[i] * number(0) + number(1);
#else
    if (MADE <= 3) one[i] = rectified(one[i] * number(0) + number(1));
#endif
    if (MADE == 2) one[i] = rectified(one[i] + two[i]);
    if (MADE == 3) one[i] = rectified(one[i] + two[i] * number(2) + number(3));
    if (MADE == 5 && !(two[i] * number(0) + number(3) > 0.0f)) one[i] = 0.0f;
    if (MADE >= 4) one[i] = one[i] * number(0) + two[i] * number(1) + number(2);
  }
  return pack(one[0], one[1]);
}

// What follows the product for eight channels of a pixel.
struct Tail {
  float factor[8], constant[8];  // of the norm's affine map
  float first[8], second[8];

  DEVICE Cell finish(Cell cell, const Cell (&others)[EXTRAS + 1]) {
    float values[8], other[8], raw[8];
    if (ADDED || NORM == 1) unpack(values, cell);
    if (ADDED) {
      unpack(other, others[0]);
#pragma unroll
      for (int i = 0; i < 8; ++i) values[i] += other[i];
    }
    if (NORM) {
      unpack(raw, others[ADDED + MASKED]);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        other[i] = raw[i] * factor[i] + constant[i];
        if (NORM == 1) values[i] = other[i] > 0.0f ? values[i] : 0.0f;
      }
    }
    if (ADDED || NORM == 1) {
#pragma unroll
      for (int i = 0; i < 4; ++i) cell.words[i] = pack(values[2 * i], values[2 * i + 1]);
    }
    if (MASKED) {
#pragma unroll
      for (int i = 0; i < 4; ++i) cell.words[i] &= where_positive(others[ADDED].words[i]);
    }
    if (SUMS) {
      unpack(values, cell);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        if (NORM == 2 && !(other[i] > 0.0f)) continue;
        first[i] += values[i];
        second[i] += values[i] * (STATISTICS ? values[i] : raw[i]);
      }
    }
    return cell;
  }
};

// Rounds the products of sixteen pixels and stores them, a row for each pixel.
DEVICE void store_products(Cell* rows, const float (&sums)[OUT_OCTETS][4]) {
  Cell* row = rows + thread() % 16 * ROW;
#pragma unroll
  for (int octet = 0; octet + 1 < OUT_OCTETS; octet += 2) {
    u32 four[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) four[i] = pack(sums[octet + i / 2][i % 2 * 2], sums[octet + i / 2][i % 2 * 2 + 1]);
    store_matrices(row + octet + thread() % LANES / 16, four);
  }
  if (OUT_OCTETS % 2) {
    const float(&last)[4] = sums[OUT_OCTETS - 1];
    u32 two[2] = {pack(last[0], last[1]), pack(last[2], last[3])};
    store_two_matrices(row + OUT_OCTETS - 1, two);
  }
}

DEVICE void clear(float (&sums)[HELD_TILES][OUT_OCTETS][4]) {
#pragma unroll
  for (int i = 0; i < HELD_TILES * OUT_OCTETS * 4; ++i) sums[i / 4 / OUT_OCTETS][i / 4 % OUT_OCTETS][i % 4] = 0.0f;
}

// Adds up the products of the blocks that share a tile, in the order of the blocks; says whether this one came last.
DEVICE bool add_splits(float (&sums)[HELD_TILES][OUT_OCTETS][4], float* workspace, int* counters, int* last) {
  constexpr int VALUES = HELD_TILES * OUT_OCTETS * 4;
  int tile = block_y() * grid_x() + block_x();
  float* place = workspace + (long)tile * SPLITS * VALUES * THREADS + thread();
#pragma unroll
  for (int i = 0; i < VALUES; ++i)
    place[(block_z() * VALUES + i) * THREADS] = sums[i / 4 / OUT_OCTETS][i / 4 % OUT_OCTETS][i % 4];
  fence();
  synchronise();
  if (thread() == 0) *last = atomic_add(counters + tile, 1) == SPLITS - 1;
  synchronise();
  if (*last == 0) return false;
  fence();
  if (thread() == 0) counters[tile] = 0;
  clear(sums);
  for (int split = 0; split < SPLITS; ++split)
#pragma unroll
    for (int i = 0; i < VALUES; ++i)
      sums[i / 4 / OUT_OCTETS][i / 4 % OUT_OCTETS][i % 4] += load_fresh(place + (split * VALUES + i) * THREADS);
  synchronise();
  return true;
}

KERNEL(convolve)(
    const u16* features, const u16* second_features, u16* made, const float* in_mean, const float* in_inverse_deviation,
    const float* in_scale, const float* in_shift, const float* in_shift_gradient, const float* in_scale_gradient,
    const float* added_mean, const float* added_inverse_deviation, const float* added_scale, const float* added_shift,
    const u16* weights, u16* out, const u16* added, const u16* masked_by, const u16* norm_features, const float* mean,
    const float* inverse_deviation, const float* scale, const float* shift, float* workspace, float* partials,
    int* counters, float* first_out, float* second_out, const int* counted_images, int num_images, int incoming, int outgoing,
    float epsilon) {
  if (counted_images) num_images = *counted_images;  // of so many that there is room for: a captured launch serves any
  constexpr int BANDS = HEIGHT / LINES;  // of an image, one above the other
  // Shared memory: stages, kept weights, numbers, products on their way out.
  Cell* shared = reinterpret_cast<Cell*>(shared_memory());
  Cell* kept = shared + STAGES * STAGE;
  float* numbers = reinterpret_cast<float*>(kept + (KEPT ? CHUNKS * WEIGHT_CELLS : 0));
  Cell* rows = reinterpret_cast<Cell*>(numbers + NUMBERS * ALL_IN);
  int warp = thread() / LANES, lane = thread() % LANES, num_pixels = num_images * HEIGHT * WIDTH;
  int tiles = (num_images + GROUPS - 1) / GROUPS * BANDS, first_line = block_x() % BANDS * LINES;  // of all its tiles
  int first_chunk = block_z() * CHUNKS_A_SPLIT;
  int chunks = CHUNKS - first_chunk < CHUNKS_A_SPLIT ? CHUNKS - first_chunk : CHUNKS_A_SPLIT;
  int turns = (tiles - block_x() + grid_x() - 1) / grid_x() * chunks;  // a chunk of a tile each

  if (MADE) {
    Norm norm = {in_mean, in_inverse_deviation, in_scale, in_shift, in_shift_gradient, in_scale_gradient};
    Norm added_norm = {added_mean, added_inverse_deviation, added_scale, added_shift};
    find_numbers(numbers, norm, added_norm, incoming, (float)num_pixels);
  }
  auto clear_odd_unit = [&](Cell* weights) {  // which is there for evenness
    if (UNITS > 9 * IN_OCTETS)
      for (u32 i = thread(); i < UNIT; i += THREADS) weights[(UNITS - 1) * UNIT + i] = {{0, 0, 0, 0}};
  };
  for (int stage = 0; stage < STAGES; ++stage) {
    clear_border(shared + stage * STAGE, first_line);
    if (!KEPT) clear_odd_unit(shared + stage * STAGE + FEATURE_CELLS);
  }
  if (KEPT && turns > 0)  // else nobody waits for the copies, which would come over the sums
    for (int chunk = 0; chunk < CHUNKS; ++chunk) {
      clear_odd_unit(kept + chunk * WEIGHT_CELLS);
      copy_weights(kept + chunk * WEIGHT_CELLS, weights, incoming, outgoing, chunk * IN_OCTETS);
    }
  // Blocks that share a tile have no other.
  auto tile_of = [&](int turn) { return SPLITS > 1 ? 0 : turn / CHUNKS; };
  auto chunk_of = [&](int turn) { return SPLITS > 1 ? first_chunk + turn : turn % CHUNKS; };
  auto place_of_tile = [&](int turn) { return block_x() + tile_of(turn) * grid_x(); };
  auto image_of = [&](int turn) { return place_of_tile(turn) / BANDS * GROUPS; };
  auto copy_turn = [&](int turn) {
    if (turn < turns) {
      Cell* stage = shared + turn % STAGES * STAGE;
      int octet = chunk_of(turn) * IN_OCTETS;
      if (!MADE)
        for_features(image_of(turn), first_line, num_images, incoming, octet, [&](u32, int place, int from, bool valid, bool) {
          copy_cell(stage + place, features + (valid ? from : 0), valid);
        });
      if (!KEPT) copy_weights(stage + FEATURE_CELLS, weights, incoming, outgoing, octet);
    }
    copy_commit();
  };
  // What features are made of waits in registers while the chunk before is multiplied.
  Cell waiting[MADE ? OWN_FEATURES : 1][TWO ? 2 : 1] = {};
  auto load_turn = [&](int turn) {
    if (!MADE || turn >= turns) return;
    for_features(image_of(turn), first_line, num_images, incoming, chunk_of(turn) * IN_OCTETS,
                 [&](u32 number, int, int from, bool valid, bool) {
                   if (!valid) return;
                   waiting[number][0] = load_now(features + from);
                   if (TWO) waiting[number][1] = load_now(second_features + from);
                 });
  };
  auto make_turn = [&](int turn) {
    Cell* stage = shared + turn % STAGES * STAGE;
    int octet = chunk_of(turn) * IN_OCTETS;
    const float* own_numbers = numbers + 8 * (octet + thread() % OCTETS % IN_OCTETS);
#pragma unroll
    for (int half = 0; half < 2; ++half) {  // of the channels: the numbers of all take too many registers
      float four[NUMBERS + 1][4];
#pragma unroll
      for (int i = 0; i < NUMBERS; ++i) load_four(four[i], own_numbers + i * ALL_IN + 4 * half);
#pragma unroll
      for (u32 number = 0; number < OWN_FEATURES; ++number)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          u32& first = waiting[number][0].words[2 * half + i];
          first = make_features(first, waiting[number][TWO ? 1 : 0].words[2 * half + i], four, 2 * i);
        }
    }
    for_features(image_of(turn), first_line, num_images, incoming, octet,
                 [&](u32 number, int place, int from, bool valid, bool is_own) {
                   store_cell(stage + place, valid ? waiting[number][0] : Cell{{0, 0, 0, 0}});
                   if (valid && is_own && block_y() == 0) store_cell(made + from, waiting[number][0]);
                 });
  };
  // One ahead even where there is but one place.
  constexpr int AHEAD = STAGES > 1 ? STAGES - 1 : 1;
  for (int turn = 0; turn < AHEAD; ++turn) copy_turn(turn);
  load_turn(0);

  int places[ROW_TILES];
  float sums[HELD_TILES][OUT_OCTETS][4];
#pragma unroll
  for (int tile = 0; tile < ROW_TILES; ++tile)
    places[tile] = upper_left(first_of_rows(rows_of(warp, tile)) + pixel_of_row(lane % 16));
  clear(sums);

  // A lane finishes the same eight channels of several pixels.
  constexpr int PIXELS_AT_ONCE = LANES / OUT_OCTETS < PASSED ? LANES / OUT_OCTETS : PASSED;  // pixels
  constexpr int ROUNDS = (PASSED + PIXELS_AT_ONCE - 1) / PIXELS_AT_ONCE;
  // Rounds under way together: of six cells, or of three where registers hold what the next features are made of.
  constexpr int MOST = EXTRAS == 0 ? ROUNDS : (TWO ? 3 : 6) / EXTRAS, LOADED = ROUNDS < MOST ? ROUNDS : MOST;
  int octet = lane % OUT_OCTETS, first_row = lane / OUT_OCTETS, channel = block_y() * CHANNELS + 8 * octet;
  bool at_work = lane < PIXELS_AT_ONCE * OUT_OCTETS && channel < outgoing;
  Tail tail = {};
  if (NORM && at_work) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      tail.factor[i] = inverse_deviation[channel + i] * scale[channel + i];
      tail.constant[i] = shift[channel + i] - mean[channel + i] * tail.factor[i];
    }
  }
  // What follows the product is read while that is under way: the first rounds of a warp's first rows.
  Cell others[LOADED][EXTRAS + 1];
  int targets[LOADED];  // where a round's pixels go, or -1
  auto load_others = [&](int first_pixel, int tile, int pass, int first) {
#pragma unroll
    for (int i = 0; i < LOADED; ++i) {
      int row = first_row + (first + i) * PIXELS_AT_ONCE, own = pass * PASSED + row;  // of those that go together, of the warp
      int pixel = first_pixel + first_of_rows(rows_of(warp, tile + own / 16)) + pixel_of_row(own % 16);
      bool valid = at_work && first + i < ROUNDS && row < PASSED && pixel < num_pixels;
      targets[i] = valid ? pixel * outgoing + channel : -1;
      if (!EXTRAS || !valid) continue;
      if (ADDED) others[i][0] = load_now(added + targets[i]);
      if (MASKED) others[i][ADDED] = load_now(masked_by + targets[i]);
      if (NORM) others[i][ADDED + MASKED] = load_now(norm_features + targets[i]);
    }
  };
  Cell* warp_rows = rows + warp * PASSED * ROW;
  auto finish = [&](int first_pixel, int tile) {
    // From the fragments to pixels' channels in a row.
#pragma unroll
    for (int pass = 0; pass < 16 * HELD_TILES / PASSED; ++pass) {
#pragma unroll
      for (int sixteen = 0; sixteen < PASSED / 16; ++sixteen)
        store_products(warp_rows + 16 * sixteen * ROW, sums[pass * PASSED / 16 + sixteen]);
      synchronise_warp();
#pragma unroll
      for (int first = 0; first < ROUNDS; first += LOADED) {
        if (pass + first > 0) load_others(first_pixel, tile, pass, first);
#pragma unroll
        for (int i = 0; i < LOADED; ++i) {
          if (targets[i] < 0) continue;
          Cell product = load_shared_cell(warp_rows + (first_row + (first + i) * PIXELS_AT_ONCE) * ROW + octet);
          store_cell(out + targets[i], tail.finish(product, others[i]));
        }
      }
      synchronise_warp();
    }
  };
  bool goes_on = SPLITS == 1 || turns > 0 || block_z() == 0;  // one of those that share a tile beyond the last image
  if (MADE) synchronise();  // the numbers are there
  for (int turn = 0; turn < turns; ++turn) {
    copy_wait<AHEAD - 1>();
    if (MADE) make_turn(turn);
    if (GROUPED) show_to_groups();
    synchronise();  // this chunk is there for all, and none is still busy with the one before
    if (STAGES > 1) copy_turn(turn + AHEAD);
    load_turn(turn + 1);
    auto copy_next = [&] {  // where there is one place alone
      if (STAGES > 1 || turn + 1 == turns) return;
      synchronise();
      copy_turn(turn + 1);
    };
    const Cell* stage = shared + turn % STAGES * STAGE;
    int chunk = chunk_of(turn), first_pixel = place_of_tile(turn) * PIXELS;
    const Cell* chunk_weights = KEPT ? kept + chunk * WEIGHT_CELLS : stage + FEATURE_CELLS;
    if (ONE_BY_ONE) {
      for (int tile = 0; tile < ROW_TILES; ++tile) {
        begin_chunk_grouped(sums, stage, chunk_weights, tile, false);
        load_others(first_pixel, tile, 0, 0);
        wait_for_group();
        finish(first_pixel, tile);
      }
      copy_next();
      continue;
    }
    bool is_last = SPLITS > 1 ? turn + 1 == chunks : turn % CHUNKS + 1 == CHUNKS;
    if (GROUPED) begin_chunk_grouped(sums, stage, chunk_weights, 0, SPLITS > 1 ? turn > 0 : turn % CHUNKS > 0);
    else multiply_chunk(sums, stage, chunk_weights, places, incoming / 8 - chunk * IN_OCTETS);
    if (is_last && SPLITS == 1) load_others(first_pixel, 0, 0, 0);
    if (GROUPED) wait_for_group();
    if (!is_last) {
      copy_next();
      continue;
    }
    if (SPLITS > 1) goes_on = add_splits(sums, workspace, counters + grid_y(), reinterpret_cast<int*>(rows));
    if (!goes_on) break;
    if (SPLITS > 1) load_others(first_pixel, 0, 0, 0);  // for the one that goes on alone
    finish(first_pixel, 0);
    if (!GROUPED) clear(sums);
    copy_next();
  }
  if (SUMS) {
    if (SPLITS > 1 && !goes_on) return;
    synchronise();
    float* gathered = reinterpret_cast<float*>(shared);
    int lines = WARPS * PIXELS_AT_ONCE, line = warp * PIXELS_AT_ONCE + first_row;
    if (lane < PIXELS_AT_ONCE * OUT_OCTETS)
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        float second = tail.second[i];
        if (NORM && at_work) second = (second - mean[channel + i] * tail.first[i]) * inverse_deviation[channel + i];
        gathered[line * 2 * CHANNELS + 8 * octet + i] = tail.first[i];
        gathered[line * 2 * CHANNELS + CHANNELS + 8 * octet + i] = second;
      }
    synchronise();
    Totals<CHANNELS> totals = {partials, counters, first_out, second_out, outgoing};
    totals.add(gathered, lines, (float)num_pixels, epsilon);
  }
}
