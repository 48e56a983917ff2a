// What the emulation and the compiler are tested with: each primitive, and each mistake that must show.
#include "primitives.cuh"

// c = a b for a of ROWS by DEPTH (row after row) and b of DEPTH by COLUMNS, both bfloat16; one warp does 16 by 8.
// Where `transposed`, a is stored by columns and b by rows (so that .trans is needed), else b is stored by columns.
KERNEL(product)(const u16* a, const u16* b, float* c, int rows, int columns, int depth, int transposed) {
    char* shared = shared_memory();
    const int lane = thread_index() % 32, warp = thread_index() / 32;
    const int row0 = 16 * block_x(), column0 = 8 * (block_y() * (THREADS / 32) + warp);
    char* shared_a = shared + warp * (16 * 16 + 16 * 8) * 2;
    char* shared_b = shared_a + 16 * 16 * 2;
    float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    for (int k = 0; k < depth; k += 16) {
        synchronise_warp();
        const int outer = lane / 2, half = lane % 2;  // 16 lines of two cells
        if (transposed)
            copy_cell(shared_a + lane * 16, a + (k + outer) * rows + row0 + 8 * half, true);
        else
            copy_cell(shared_a + lane * 16, a + (row0 + outer) * depth + k + 8 * half, true);
        if (lane < 16) {
            if (transposed)
                copy_cell(shared_b + lane * 16, b + (k + lane) * columns + column0, column0 < columns);
            else
                copy_cell(shared_b + lane * 16, b + (column0 + lane / 2) * depth + k + 8 * (lane % 2), column0 < columns);
        }
        copy_commit();
        copy_wait<0>();
        synchronise_warp();
        u32 from_a[4], from_b[2];
        const int matrix = lane / 8, line = lane % 8;
        if (transposed) {
            load_matrices_transposed(from_a, shared_a + ((matrix / 2 * 8 + line) * 2 + matrix % 2) * 16);
            load_two_matrices_transposed(from_b, shared_b + (lane % 16) * 16);
        } else {
            load_matrices(from_a, shared_a + ((matrix % 2 * 8 + line) * 2 + matrix / 2) * 16);
            load_two_matrices(from_b, shared_b + (line * 2 + matrix % 2) * 16);
        }
        multiply(sums, from_a, from_b[0], from_b[1]);
    }
    if (column0 >= columns) return;
    float* out = c + (row0 + lane / 4) * columns + column0 + 2 * (lane % 4);
    out[0] = sums[0];
    out[1] = sums[1];
    out[8 * columns] = sums[2];
    out[8 * columns + 1] = sums[3];
}

// What was loaded by matrices is stored by matrices, four and then two, elsewhere in shared memory.
KERNEL(pass_matrices)(const u16* values, u16* out) {
    char* shared = shared_memory();
    const int lane = thread_index();
    copy_cell(shared + 16 * lane, values + 8 * lane, true);
    copy_commit();
    copy_wait<0>();
    synchronise_warp();
    u32 four[4], two[2];
    load_matrices(four, shared + 16 * lane);
    load_two_matrices(two, shared + 16 * (lane % 16));
    store_matrices(shared + 512 + 16 * (31 - lane), four);
    store_two_matrices(shared + 1024 + 16 * (lane % 16), two);
    synchronise_warp();
    store_cell(out + 8 * lane, load_shared_cell(shared + 512 + 16 * lane));
    if (lane < 16) store_cell(out + 256 + 8 * lane, load_shared_cell(shared + 1024 + 16 * lane));
}

// Pairs of bfloat16 from floats, and what the other functions of one value make of them.
KERNEL(convert)(const float* values, u32* pairs, float* lows, float* highs, float* rounded, float* roots, int count) {
    const int i = block_x() * THREADS + thread_index();
    if (i >= count) return;
    pairs[i] = pack(values[i], values[count - 1 - i]);
    lows[i] = low_of(pairs[i]);
    highs[i] = high_of(pairs[i]);
    rounded[i] = low_of(pack(values[i], 0.0f));
    roots[i] = reciprocal_sqrt(values[i]);
}

// The sum of all values, and three for every two warps: of a warp by shuffles, of a block in shared memory, of all blocks by the last to arrive.
KERNEL(sum)(const float* values, float* partial, float* total, int* counter, float scale) {
    float* of_warps = (float*)shared_memory();
    if (thread_index() == 0)
        for (int warp = 0; warp < THREADS / 32; warp += 2) store_two(of_warps + warp, 1.0f, as_float(0x40000000u));
    synchronise();
    float value = values[block_x() * THREADS + thread_index()] * scale;
    for (int mask = 16; mask > 0; mask /= 2) value += shuffle_xor(value, mask);
    if (thread_index() % 32 == 0) of_warps[thread_index() / 32] += value;  // to one, or to two
    synchronise();
    if (thread_index() != 0) return;
    value = 0.0f;
    for (int warp = 0; warp < THREADS / 32; warp++) value += of_warps[warp];
    partial[block_x()] = value;
    fence();
    if (atomic_add(counter, 1) != grid_x() - 1) return;
    fence();
    float all = 0.0f;
    for (int block = 0; block < grid_x(); block++) all += load_fresh(partial + block);
    *total = all;
    *counter = 0;
}

// Where each block says who it is.
KERNEL(places)(int* out) {
    int* own = out + ((block_z() * grid_y() + block_y()) * grid_x() + block_x()) * 4;
    if (thread_index() == THREADS - 1) own[0] = block_x(), own[1] = block_y(), own[2] = block_z(), own[3] = grid_z();
}

// Cells through shared memory to the thread of the next warp; each flag leaves out what makes it right.
KERNEL(pass_on)(const char* in, char* out, int without_wait, int without_barrier, int overwritten) {
    char* shared = shared_memory();
    const int thread = thread_index();
    copy_cell(shared + 16 * thread, in + 16 * thread, thread % 2 == 0);
    copy_commit();
    if (overwritten) {
        copy_cell(shared + 16 * thread, in, true);
        copy_commit();
        copy_wait<1>();
    } else if (!without_wait)
        copy_wait<0>();
    if (!without_barrier) synchronise();
    store_cell(out + 16 * thread, load_shared_cell(shared + 16 * ((thread + 32) % THREADS)));
}

// Eight rows that lie `distance` bytes apart.
KERNEL(rows)(int distance) {
    u32 loaded[4];
    load_matrices(loaded, shared_memory() + thread_index() % 8 * distance);
}

// What must be refused.
KERNEL(faults)(const char* global, int fault) {
    char* shared = shared_memory();
    u32 loaded[2];
    if (fault == 0) copy_cell(shared + 8, global, true);
    if (fault == 1) load_two_matrices(loaded, shared + SHARED_BYTES);
    if (fault == 2) store_cell(shared - 16, load_cell(global));
    if (fault == 3) shared[SHARED_BYTES + thread_index()] = 0;
    if (fault == 4 && thread_index() % 32 != 5) synchronise_warp();
    if (fault == 5) load_shared_cell(global);
    if (fault == 6) copy_cell(shared, global + 2, true);
}
