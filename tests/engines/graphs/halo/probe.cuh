// A product of matrices with every way of loading them: what the emulation is tested with.
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
