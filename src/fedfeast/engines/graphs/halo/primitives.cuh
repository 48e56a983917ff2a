// What the kernels of this folder are written with: one name for each instruction of the device that they use.
//
// NVRTC compiles this file without any header of CUDA. The tests compile the kernels with FEDFEAST_EMULATED for a CPU;
// then emulation.hpp, which lies beside the tests, has the same names.
#pragma once

typedef unsigned int u32;
typedef unsigned short u16;

struct alignas(16) Cell {  // eight bfloat16 values
    u32 words[4];
};

#ifdef FEDFEAST_EMULATED
#include "emulation.hpp"
#else

#define KERNEL(name) extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS) name
#define DEVICE __device__ __forceinline__

alignas(128) extern __shared__ char dynamic_shared_memory[];

DEVICE char* shared_memory() { return dynamic_shared_memory; }
DEVICE int thread_index() { return threadIdx.x; }
DEVICE int block_x() { return blockIdx.x; }
DEVICE int block_y() { return blockIdx.y; }
DEVICE int block_z() { return blockIdx.z; }
DEVICE int grid_x() { return gridDim.x; }
DEVICE int grid_y() { return gridDim.y; }
DEVICE int grid_z() { return gridDim.z; }

DEVICE void synchronise() { __syncthreads(); }
DEVICE void synchronise_warp() { __syncwarp(); }

DEVICE u32 shared_address(const void* shared) { return (u32)__cvta_generic_to_shared(shared); }

// Sixteen bytes from global to shared memory, in the background; zeros where not valid, and then global is not read.
DEVICE void copy_cell(void* shared, const void* global, bool valid) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)), "l"(global),
                 "r"(valid ? 16 : 0)
                 : "memory");
}

// The copies since the last commit become a group.
DEVICE void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// All of this thread's groups but the last N have arrived.
template <int N>
DEVICE void copy_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

// Four matrices of 8 by 8 values: lane 8 i + j gives the address of row j of matrix i, sixteen bytes; lane l gets
// from each matrix the two values of row l / 4 that begin at column 2 (l % 4).
DEVICE void load_matrices(u32 (&r)[4], const void* shared_row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(shared_row))
                 : "memory");
}

// The same of the transposed matrices: lane l gets rows 2 (l % 4) and the next of column l / 4.
DEVICE void load_matrices_transposed(u32 (&r)[4], const void* shared_row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(shared_row))
                 : "memory");
}

// Two matrices: lanes 0 to 15 give the addresses.
DEVICE void load_two_matrices(u32 (&r)[2], const void* shared_row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(shared_address(shared_row))
                 : "memory");
}

DEVICE void load_two_matrices_transposed(u32 (&r)[2], const void* shared_row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(shared_address(shared_row))
                 : "memory");
}

#if __CUDA_ARCH__ < 900
// The lanes tell one another where the rows are.
template <int MATRICES>
DEVICE void store_each(void* shared_row, const u32 (&r)[MATRICES]) {
    u32 own = shared_address(shared_row), lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < MATRICES; ++i) {
        u32 row = __shfl_sync(0xffffffffu, own, 8 * i + lane / 4);
        asm volatile("st.shared.u32 [%0], %1;" ::"r"(row + 4 * (lane % 4)), "r"(r[i]) : "memory");
    }
}
#endif

// The way back of load_matrices: lane 8 i + j gives the address of row j of matrix i.
DEVICE void store_matrices(void* shared_row, const u32 (&r)[4]) {
#if __CUDA_ARCH__ >= 900
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(shared_row)),
                 "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
                 : "memory");
#else
    store_each(shared_row, r);
#endif
}

// Two matrices: lanes 0 to 15 give the addresses.
DEVICE void store_two_matrices(void* shared_row, const u32 (&r)[2]) {
#if __CUDA_ARCH__ >= 900
    asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(shared_address(shared_row)), "r"(r[0]),
                 "r"(r[1])
                 : "memory");
#else
    store_each(shared_row, r);
#endif
}

// sums += a b, for a of 16 by 16 and b of 16 by 8 values, spread over the lanes of a warp.
DEVICE void multiply(float (&sums)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

DEVICE float shuffle_xor(float value, int mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }

DEVICE int atomic_add(int* global, int value) { return atomicAdd(global, value); }
DEVICE void fence() { __threadfence(); }

// What other blocks wrote, read past this multiprocessor's own cache.
DEVICE float load_fresh(const float* global) {
    float value;
    asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(value) : "l"(global) : "memory");
    return value;
}

// Sixteen bytes of global memory that no kernel writes meanwhile; the compiler reads them no later than here.
DEVICE Cell load_now(const void* global) {
    Cell cell;
    asm volatile("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(cell.words[0]), "=r"(cell.words[1]), "=r"(cell.words[2]), "=r"(cell.words[3])
                 : "l"(global));
    return cell;
}

// Sixteen bytes at once, of global or of shared memory.
DEVICE Cell load_cell(const void* address) { return *reinterpret_cast<const Cell*>(address); }
DEVICE Cell load_shared_cell(const void* address) { return *reinterpret_cast<const Cell*>(address); }
DEVICE void store_cell(void* address, Cell cell) { *reinterpret_cast<Cell*>(address) = cell; }

DEVICE void store_two(float* shared, float first, float second) {
    *reinterpret_cast<float2*>(shared) = make_float2(first, second);
}
DEVICE float as_float(u32 bits) { return __uint_as_float(bits); }

// The first bit of each half, all over the half.
DEVICE u32 spread_signs(u32 pair) {
    u32 spread;
    asm("prmt.b32 %0, %1, 0, 0xbb99;" : "=r"(spread) : "r"(pair));
    return spread;
}

// Two values rounded to the nearest bfloat16, ties to even.
DEVICE u32 pack(float low, float high) {
    u32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

DEVICE float low_of(u32 pair) { return __uint_as_float(pair << 16); }
DEVICE float high_of(u32 pair) { return __uint_as_float(pair & 0xffff0000u); }
DEVICE float reciprocal_sqrt(float value) { return rsqrtf(value); }

#endif
