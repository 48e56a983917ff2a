// Two sums a channel over all pixels, finished by the last block of a column of blocks in a fixed order.

template <int CHANNELS>
struct Totals {
  static constexpr int VALUES = 2 * CHANNELS;
  static constexpr int SHARERS = THREADS / VALUES > 0 ? THREADS / VALUES : 1;  // threads that add up one value

  float* partials;  // (columns of blocks, blocks of a column, VALUES)
  int* counters;    // one for each column of blocks, zero before and after
  float *first_out, *second_out;
  int num_channels;

  // Adds up lines of VALUES each, read by a function of their place; leaves SHARERS lines in shared memory.
  template <typename Read>
  DEVICE void add_lines(float* shares, int lines, Read read) {
    for (int i = thread_index(); i < SHARERS * VALUES; i += THREADS) {
      float total = 0.0f;
#pragma unroll 8
      for (int line = i / VALUES; line < lines; line += SHARERS) total += read(line * VALUES + i % VALUES);
      shares[i] = total;
    }
    synchronise();
  }

  DEVICE float total_of(const float* shares, int value) {
    float total = 0.0f;
#pragma unroll
    for (int sharer = 0; sharer < SHARERS; ++sharer) total += shares[sharer * VALUES + value];
    return total;
  }

  // Takes a block's own sums from shared memory: (lines, VALUES), and behind them room for SHARERS lines and one number.
  DEVICE void add(float* gathered, int lines, float count, float epsilon) {
    float *column = partials + (long)block_y() * grid_x() * VALUES, *shares = gathered + lines * VALUES;
    int* last = reinterpret_cast<int*>(shares + SHARERS * VALUES);
    add_lines(shares, lines, [&](int place) { return gathered[place]; });
    for (int i = thread_index(); i < VALUES; i += THREADS) column[(long)block_x() * VALUES + i] = total_of(shares, i);
    fence();
    synchronise();
    if (thread_index() == 0) *last = atomic_add(counters + block_y(), 1) == grid_x() - 1;
    synchronise();
    if (*last == 0) return;
    fence();
    if (thread_index() == 0) counters[block_y()] = 0;
    add_lines(shares, grid_x(), [&](int place) { return load_fresh(column + place); });
    for (int i = thread_index(); i < CHANNELS; i += THREADS) {
      int channel = block_y() * CHANNELS + i;
      if (channel >= num_channels) continue;
      float first = total_of(shares, i), second = total_of(shares, CHANNELS + i);
      if (STATISTICS) {
        first /= count;
        float variance = second / count - first * first;
        second = reciprocal_sqrt((variance > 0.0f ? variance : 0.0f) + epsilon);
      }
      first_out[channel] = first;
      second_out[channel] = second;
    }
  }
};
