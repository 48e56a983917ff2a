// The device's primitives on a CPU: the threads of a block are fibers of one thread, run in a shuffled order.
//
// A warp's lanes run one after another up to the next primitive that all of them take part in; that is then carried
// out for all at once, with the layouts of PTX. Warps run one after another up to the next synchronise(). Orders differ
// from block to block and from step to step, so that what depends on an order shows. Copies to shared memory arrive
// when they are waited for, no sooner (or at once, on request: whoever overwrites what is still read then shows).
#pragma once
#include <algorithm>
#include <cmath>
#include <csetjmp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <type_traits>
#include <utility>
#include <vector>

#include <sys/mman.h>
#include <ucontext.h>

#define KERNEL(name) extern "C" __attribute__((noinline)) void name
#define DEVICE inline

using std::max;
using std::min;

namespace emulation {

enum class Step {
    running,
    done,
    block_barrier,
    warp_barrier,
    load_four,
    load_four_transposed,
    load_two,
    load_two_transposed,
    store_four,
    store_two,
    multiply,
    shuffle,
    begin_group,
    multiply_group,
    commit_group,
    wait_for_group,
};

inline const char* const STEP_NAMES[] = {
    "running", "the kernel's end", "synchronise", "synchronise_warp", "load_matrices", "load_matrices_transposed",
    "load_two_matrices", "load_two_matrices_transposed", "store_matrices", "store_two_matrices", "multiply", "shuffle_xor", "begin_group", "multiply_group",
    "commit_group", "wait_for_group",
};

struct Copy {
    char* shared;
    const void* global;
    bool valid;
};

// A product of four warps, as far as one thread is concerned.
struct Product {
    float (*sums)[4];
    unsigned long long a, b;
    int octets;
    bool transposed, adds;
};

constexpr std::size_t STACK_BYTES = 256 * 1024;
constexpr std::size_t PAGE_BYTES = 4096;
constexpr std::size_t MARGIN_BYTES = 4096;  // around shared memory, to see what is written beside it
constexpr std::uint16_t NOT_WRITTEN = 0x7fc1;  // a NaN in bfloat16, and twice in float32
constexpr int LANES = 32;

struct Fiber {
    int index = 0;
    Step step = Step::running;
    bool started = false;
    std::jmp_buf place;
    ucontext_t beginning;
    // What this lane brings to the step it waits at.
    const char* row = nullptr;
    std::uint32_t* loaded = nullptr;
    const std::uint32_t* stored = nullptr;
    float* sums = nullptr;
    const std::uint32_t* a = nullptr;
    std::uint32_t b[2] = {0, 0};
    float value = 0.0f;
    int mask = 0;
    // Copies under way: of closed groups first, how many each group holds, then those of the open group.
    std::vector<Copy> copies;
    std::vector<std::size_t> groups;
    std::size_t open = 0;
    std::vector<Product> products;  // under way
};

struct Machine {
    std::vector<Fiber*> fibers;
    Fiber* current = nullptr;
    std::jmp_buf scheduler;
    ucontext_t scheduler_context;
    void (*body)(void*) = nullptr;
    void* body_data = nullptr;
    int threads = 0;
    int grid[3] = {1, 1, 1};
    int block[3] = {0, 0, 0};
    std::vector<char> storage;
    char* shared = nullptr;
    std::size_t shared_bytes = 0;
    bool early_copies = false;
    std::uint32_t noise = 1;
    // Of all launches since the library was loaded.
    long long multiplications = 0;
    long long row_groups = 0;       // of eight rows, loaded by ldmatrix
    long long row_group_passes = 0;  // passes over shared memory's banks that these took: as many, without conflicts
};

inline Machine machine;

[[noreturn]] inline void fail(const char* message) {
    const int thread = machine.current ? machine.current->index : -1;
    std::fprintf(stderr, "emulation: %s (block %d %d %d, thread %d)\n", message, machine.block[0], machine.block[1],
                 machine.block[2], thread);
    std::fflush(stderr);
    std::abort();
}

// A fiber gives way to the scheduler, which resumes it when its step has been carried out.
__attribute__((noinline)) inline void wait_at(Step step) {
    Fiber* fiber = machine.current;
    fiber->step = step;
    if (_setjmp(fiber->place) == 0) _longjmp(machine.scheduler, 1);
}

inline void run_fiber() {
    for (;;) {
        machine.body(machine.body_data);
        wait_at(Step::done);
    }
}

__attribute__((noinline)) inline void resume(Fiber* fiber) {
    machine.current = fiber;
    fiber->step = Step::running;
    if (_setjmp(machine.scheduler) == 0) {
        if (fiber->started) _longjmp(fiber->place, 1);
        fiber->started = true;
        swapcontext(&machine.scheduler_context, &fiber->beginning);
    }
}

inline Fiber* new_fiber(int index) {
    Fiber* fiber = new Fiber;
    fiber->index = index;
    void* stack = mmap(nullptr, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (stack == MAP_FAILED || mprotect(stack, PAGE_BYTES, PROT_NONE) != 0) fail("no memory for a thread's stack");
    getcontext(&fiber->beginning);
    fiber->beginning.uc_stack.ss_sp = stack;
    fiber->beginning.uc_stack.ss_size = STACK_BYTES;
    fiber->beginning.uc_link = nullptr;
    makecontext(&fiber->beginning, run_fiber, 0);
    return fiber;
}

inline std::uint32_t draw() {
    machine.noise ^= machine.noise << 13;
    machine.noise ^= machine.noise >> 17;
    machine.noise ^= machine.noise << 5;
    return machine.noise;
}

inline void check_alignment(const void* address) {
    if (reinterpret_cast<std::uintptr_t>(address) % 16 != 0) fail("a 16-byte access is not aligned to 16 bytes");
}

inline void check_shared(const void* address) {
    check_alignment(address);
    const char* byte = static_cast<const char*>(address);
    if (byte < machine.shared || byte + 16 > machine.shared + machine.shared_bytes)
        fail("an access to shared memory lies outside of the block's shared memory");
}

// Of an address that may be global: it must not lie in the margins of shared memory.
inline void check_margins(const void* address) {
    check_alignment(address);
    const char* byte = static_cast<const char*>(address);
    const char* end = machine.shared + machine.shared_bytes;
    if ((byte < machine.shared && byte + 16 > machine.shared - MARGIN_BYTES) ||
        (byte + 16 > end && byte < end + MARGIN_BYTES))
        fail("an access to shared memory lies outside of the block's shared memory");
}

inline void carry_out(const Copy& copy) {
    if (copy.valid)
        std::memcpy(copy.shared, copy.global, 16);
    else
        std::memset(copy.shared, 0, 16);
}

inline float bf16(std::uint32_t bits) {
    const std::uint32_t word = bits << 16;
    float value;
    std::memcpy(&value, &word, 4);
    return value;
}

inline std::uint32_t rounded(float value) {
    std::uint32_t word;
    std::memcpy(&word, &value, 4);
    if ((word & 0x7fffffffu) > 0x7f800000u) return 0x7fffu;  // the device's NaN
    return (word + 0x7fffu + ((word >> 16) & 1u)) >> 16;
}

// Eight rows of 16 bytes are read in one pass where they lie in different banks.
inline void count_passes(Fiber* const* lanes) {
    int rows_at[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    int passes = 1;
    for (int i = 0; i < 8; i++) {
        bool seen = false;
        for (int j = 0; j < i; j++) seen = seen || lanes[j]->row == lanes[i]->row;
        if (!seen) passes = std::max(passes, ++rows_at[reinterpret_cast<std::uintptr_t>(lanes[i]->row) / 16 % 8]);
    }
    machine.row_groups++;
    machine.row_group_passes += passes;
}

inline void load(Fiber* const* lanes, int count, bool transposed) {
    for (int matrix = 0; matrix < count; matrix++) {
        std::uint16_t values[8][8];
        for (int row = 0; row < 8; row++) {
            machine.current = lanes[8 * matrix + row];
            check_shared(machine.current->row);
            std::memcpy(values[row], machine.current->row, 16);
        }
        count_passes(lanes + 8 * matrix);
        for (int lane = 0; lane < LANES; lane++) {
            const int group = lane / 4, pair = 2 * (lane % 4);
            const std::uint32_t low = transposed ? values[pair][group] : values[group][pair];
            const std::uint32_t high = transposed ? values[pair + 1][group] : values[group][pair + 1];
            lanes[lane]->loaded[matrix] = low | high << 16;
        }
    }
}

inline void store(Fiber* const* lanes, int count) {
    for (int matrix = 0; matrix < count; matrix++) {
        count_passes(lanes + 8 * matrix);
        for (int lane = 0; lane < LANES; lane++) {
            machine.current = lanes[8 * matrix + lane / 4];
            check_shared(machine.current->row);
            char* row = const_cast<char*>(machine.current->row);
            std::memcpy(row + 4 * (lane % 4), lanes[lane]->stored + matrix, 4);
        }
    }
}

inline void multiply_matrices(Fiber* const* lanes) {
    float a[16][16], b[16][8];
    for (int lane = 0; lane < LANES; lane++) {
        const int group = lane / 4, pair = 2 * (lane % 4);
        const Fiber& fiber = *lanes[lane];
        for (int part = 0; part < 4; part++) {
            float* at = &a[group + 8 * (part % 2)][pair + 8 * (part / 2)];
            at[0] = bf16(fiber.a[part] & 0xffffu);
            at[1] = bf16(fiber.a[part] >> 16);
        }
        for (int part = 0; part < 2; part++) {
            b[pair + 8 * part][group] = bf16(fiber.b[part] & 0xffffu);
            b[pair + 8 * part + 1][group] = bf16(fiber.b[part] >> 16);
        }
    }
    for (int row = 0; row < 16; row++) {
        float sums[8] = {0, 0, 0, 0, 0, 0, 0, 0};
        for (int k = 0; k < 16; k++)
            for (int column = 0; column < 8; column++) sums[column] += a[row][k] * b[k][column];
        for (int column = 0; column < 8; column++)
            lanes[row % 8 * 4 + column / 2]->sums[row / 8 * 2 + column % 2] += sums[column];
    }
    machine.multiplications++;
}

inline void carry_out_for_warp(Fiber* const* lanes) {
    float values[LANES];
    switch (lanes[0]->step) {
        case Step::load_four: return load(lanes, 4, false);
        case Step::load_four_transposed: return load(lanes, 4, true);
        case Step::load_two: return load(lanes, 2, false);
        case Step::load_two_transposed: return load(lanes, 2, true);
        case Step::store_four: return store(lanes, 4);
        case Step::store_two: return store(lanes, 2);
        case Step::multiply: return multiply_matrices(lanes);
        case Step::shuffle:
            for (int lane = 0; lane < LANES; lane++) values[lane] = lanes[lane]->value;
            for (int lane = 0; lane < LANES; lane++) lanes[lane]->value = values[(lane ^ lanes[lane]->mask) % LANES];
            return;
        default: return;
    }
}

// Runs a warp until all of its lanes wait at synchronise() or are done.
inline void run_warp(Fiber* const* lanes) {
    for (;;) {
        const std::uint32_t order = draw();
        int waiting = 0, ended = 0;
        for (int i = 0; i < LANES; i++) {
            Fiber* fiber = lanes[(i * (order % 16 * 2 + 1) + order / 16) % LANES];
            if (fiber->step != Step::done) resume(fiber);
            waiting += fiber->step == Step::block_barrier;
            ended += fiber->step == Step::done;
        }
        if (waiting + ended == LANES) return;
        for (int lane = 1; lane < LANES; lane++) {
            if (lanes[lane]->step != lanes[0]->step) {
                machine.current = lanes[lane];
                static char message[200];
                std::snprintf(message, sizeof message, "the lanes of a warp diverge: lane 0 is at %s, lane %d at %s",
                              STEP_NAMES[int(lanes[0]->step)], lane, STEP_NAMES[int(lanes[lane]->step)]);
                fail(message);
            }
        }
        carry_out_for_warp(lanes);
    }
}

inline void check_unwritten(const char* from, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; i += 2)
        if (std::memcmp(from + i, &NOT_WRITTEN, 2) != 0) fail("something was written beside the block's shared memory");
}

inline void run_block() {
    std::uint16_t* fill = reinterpret_cast<std::uint16_t*>(machine.shared - MARGIN_BYTES);
    std::fill(fill, fill + (machine.shared_bytes + 2 * MARGIN_BYTES) / 2, NOT_WRITTEN);
    for (int i = 0; i < machine.threads; i++) {
        Fiber* fiber = machine.fibers[i];
        fiber->step = Step::running;
        fiber->copies.clear();
        fiber->groups.clear();
        fiber->products.clear();
        fiber->open = 0;
    }
    std::vector<int> order(machine.threads / LANES);
    for (std::size_t i = 0; i < order.size(); i++) order[i] = int(i);
    for (bool alive = true; alive;) {
        alive = false;
        for (std::size_t i = order.size(); i > 1; i--) std::swap(order[i - 1], order[draw() % i]);
        for (int warp : order) run_warp(&machine.fibers[warp * LANES]);
        for (int i = 0; i < machine.threads; i++) alive = alive || machine.fibers[i]->step != Step::done;
    }
    machine.current = nullptr;
    check_unwritten(machine.shared - MARGIN_BYTES, MARGIN_BYTES);
    check_unwritten(machine.shared + machine.shared_bytes, MARGIN_BYTES);
}

inline void run_grid(const int* grid, int threads, int shared_bytes, bool early_copies) {
    if (threads <= 0 || threads % LANES != 0 || threads > 1024) fail("a block has 32 to 1024 threads, in whole warps");
    if (shared_bytes < 0 || shared_bytes % 2 != 0) fail("the size of shared memory is an even number of bytes");
    for (int i = int(machine.fibers.size()); i < threads; i++) machine.fibers.push_back(new_fiber(i));
    machine.threads = threads;
    machine.early_copies = early_copies;
    machine.storage.resize(std::size_t(shared_bytes) + 2 * MARGIN_BYTES + 128);
    machine.shared_bytes = std::size_t(shared_bytes);
    const std::uintptr_t start = reinterpret_cast<std::uintptr_t>(machine.storage.data()) + MARGIN_BYTES;
    machine.shared = reinterpret_cast<char*>((start + 127) / 128 * 128);
    std::copy(grid, grid + 3, machine.grid);
    const long long blocks = 1ll * grid[0] * grid[1] * grid[2];
    std::vector<long long> order(blocks);
    machine.noise = 12345;
    for (long long i = 0; i < blocks; i++) order[i] = i;
    for (long long i = blocks; i > 1; i--) std::swap(order[i - 1], order[draw() % i]);
    for (long long number : order) {
        machine.block[0] = int(number % grid[0]);
        machine.block[1] = int(number / grid[0] % grid[1]);
        machine.block[2] = int(number / grid[0] / grid[1]);
        machine.noise = std::uint32_t(number) * 2654435761u + 1;
        machine.noise += machine.noise == 0;
        run_block();
    }
}

// Kinds of arguments, as emulated.py counts them.
template <class A>
constexpr char kind_of() {
    if constexpr (std::is_pointer_v<A>) return 'p';
    else if constexpr (std::is_same_v<A, float>) return 'f';
    else {
        static_assert(std::is_integral_v<A> && sizeof(A) == 4, "a kernel takes pointers, int and float");
        return 'i';
    }
}

template <class... A, std::size_t... I>
const char* launch(void (*kernel)(A...), const int* grid, int threads, int shared_bytes, int early_copies,
                   const char* kinds, void** arguments, std::index_sequence<I...>) {
    static const char expected[] = {kind_of<A>()..., '\0'};
    if (std::strcmp(kinds, expected) != 0) return expected;
    static std::mutex one_at_a_time;
    std::lock_guard<std::mutex> lock(one_at_a_time);
    auto body = [&] { kernel(*static_cast<std::remove_cv_t<A>*>(arguments[I])...); };
    machine.body = [](void* data) { (*static_cast<decltype(body)*>(data))(); };
    machine.body_data = &body;
    run_grid(grid, threads, shared_bytes, early_copies != 0);
    return nullptr;
}

template <class... A>
const char* launch(void (*kernel)(A...), const int* grid, int threads, int shared_bytes, int early_copies,
                   const char* kinds, void** arguments) {
    return launch(kernel, grid, threads, shared_bytes, early_copies, kinds, arguments, std::index_sequence_for<A...>());
}

}  // namespace emulation

extern "C" inline void __attribute__((used)) emulation_counts(long long* counts) {
    counts[0] = emulation::machine.multiplications;
    counts[1] = emulation::machine.row_groups;
    counts[2] = emulation::machine.row_group_passes;
}

inline char* shared_memory() { return emulation::machine.shared; }
inline int thread_index() { return emulation::machine.current->index; }
inline int block_x() { return emulation::machine.block[0]; }
inline int block_y() { return emulation::machine.block[1]; }
inline int block_z() { return emulation::machine.block[2]; }
inline int grid_x() { return emulation::machine.grid[0]; }
inline int grid_y() { return emulation::machine.grid[1]; }
inline int grid_z() { return emulation::machine.grid[2]; }

inline void synchronise() { emulation::wait_at(emulation::Step::block_barrier); }
inline void synchronise_warp() { emulation::wait_at(emulation::Step::warp_barrier); }

inline void copy_cell(void* shared, const void* global, bool valid) {
    emulation::check_shared(shared);
    emulation::check_alignment(global);
    const emulation::Copy copy{static_cast<char*>(shared), global, valid};
    if (emulation::machine.early_copies) return emulation::carry_out(copy);
    emulation::machine.current->copies.push_back(copy);
    emulation::machine.current->open++;
}

inline void copy_commit() {
    emulation::Fiber* fiber = emulation::machine.current;
    fiber->groups.push_back(fiber->open);
    fiber->open = 0;
}

template <int N>
inline void copy_wait() {
    emulation::Fiber* fiber = emulation::machine.current;
    if (fiber->groups.size() <= N) return;
    const std::size_t closed = fiber->groups.size() - N;
    std::size_t arrived = 0;
    for (std::size_t i = 0; i < closed; i++) arrived += fiber->groups[i];
    for (std::size_t i = 0; i < arrived; i++) emulation::carry_out(fiber->copies[i]);
    fiber->copies.erase(fiber->copies.begin(), fiber->copies.begin() + std::ptrdiff_t(arrived));
    fiber->groups.erase(fiber->groups.begin(), fiber->groups.begin() + std::ptrdiff_t(closed));
}

namespace emulation {
inline void load_by(Step step, u32* r, const void* row) {
    machine.current->loaded = r;
    machine.current->row = static_cast<const char*>(row);
    wait_at(step);
}
}  // namespace emulation

inline void load_matrices(u32 (&r)[4], const void* shared_row) {
    emulation::load_by(emulation::Step::load_four, r, shared_row);
}
inline void load_matrices_transposed(u32 (&r)[4], const void* shared_row) {
    emulation::load_by(emulation::Step::load_four_transposed, r, shared_row);
}
inline void load_two_matrices(u32 (&r)[2], const void* shared_row) {
    emulation::load_by(emulation::Step::load_two, r, shared_row);
}
inline void load_two_matrices_transposed(u32 (&r)[2], const void* shared_row) {
    emulation::load_by(emulation::Step::load_two_transposed, r, shared_row);
}

namespace emulation {
inline void store_by(Step step, const u32* r, void* row) {
    machine.current->stored = r;
    machine.current->row = static_cast<const char*>(row);
    wait_at(step);
}
}  // namespace emulation

inline void store_matrices(void* shared_row, const u32 (&r)[4]) {
    emulation::store_by(emulation::Step::store_four, r, shared_row);
}
inline void store_two_matrices(void* shared_row, const u32 (&r)[2]) {
    emulation::store_by(emulation::Step::store_two, r, shared_row);
}

inline void multiply(float (&sums)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    emulation::Fiber* fiber = emulation::machine.current;
    fiber->sums = sums;
    fiber->a = a;
    fiber->b[0] = b0;
    fiber->b[1] = b1;
    emulation::wait_at(emulation::Step::multiply);
}

namespace emulation {
// The cell of an operand that holds eight values of a row.
inline const char* cell_of(unsigned long long operand, int outer, int inner, int row) {
    const unsigned long long cell = (operand & 0x3fff) + inner * (operand >> 16 & 0x3fff) + outer * (operand >> 32 & 0x3fff);
    const char* place = machine.shared + 16 * (cell + row);
    check_shared(place);
    return place;
}

inline void row_of(float (&values)[16], unsigned long long operand, int row) {
    for (int inner = 0; inner < 2; inner++) {
        std::uint16_t eight[8];
        std::memcpy(eight, cell_of(operand, row / 8, inner, row % 8), 16);
        for (int i = 0; i < 8; i++) values[8 * inner + i] = bf16(eight[i]);
    }
}

inline void column_of(float (&values)[16], unsigned long long operand, int column) {
    for (int i = 0; i < 16; i++) {
        std::uint16_t value;
        std::memcpy(&value, cell_of(operand, column / 8, i / 8, i % 8) + 2 * (column % 8), 2);
        values[i] = bf16(value);
    }
}

inline void carry_out(const Product& product) {
    const int thread = machine.current->index, lane = thread % LANES;
    float rows[2][16], column[16];
    for (int half = 0; half < 2; half++) row_of(rows[half], product.a, thread / LANES % 4 * 16 + 8 * half + lane / 4);
    for (int octet = 0; octet < product.octets; octet++)
        for (int second = 0; second < 2; second++) {
            const int number = 8 * octet + 2 * (lane % 4) + second;
            if (product.transposed) column_of(column, product.b, number);
            else row_of(column, product.b, number);
            for (int half = 0; half < 2; half++) {
                float sum = 0.0f;
                for (int k = 0; k < 16; k++) sum += rows[half][k] * column[k];
                float& total = product.sums[octet][2 * half + second];
                total = product.adds ? total + sum : sum;
            }
        }
    if (lane == 0) machine.multiplications += product.octets;
}
}  // namespace emulation

#ifndef EMULATED_GROUPS
#define EMULATED_GROUPS 1
#endif
constexpr bool HAS_GROUPS = EMULATED_GROUPS;

inline unsigned long long operand(const void* shared, int inner_stride, int outer_stride) {
    emulation::check_shared(shared);
    const unsigned long long cell = (static_cast<const char*>(shared) - emulation::machine.shared) / 16;
    return cell | (unsigned long long)inner_stride << 16 | (unsigned long long)outer_stride << 32;
}
inline void show_to_groups() {}
inline void begin_group() { emulation::wait_at(emulation::Step::begin_group); }

template <bool TRANSPOSED, int OCTETS>
inline void multiply_group(float (&sums)[OCTETS][4], unsigned long long a, unsigned long long b, bool adds) {
    emulation::wait_at(emulation::Step::multiply_group);
    emulation::Fiber* fiber = emulation::machine.current;
    fiber->products.push_back({sums, a, b, OCTETS, TRANSPOSED, adds});
    if (!emulation::machine.early_copies) return;
    emulation::carry_out(fiber->products.back());
    fiber->products.pop_back();
}

inline void commit_group() { emulation::wait_at(emulation::Step::commit_group); }

inline void wait_for_group() {
    emulation::wait_at(emulation::Step::wait_for_group);
    for (const emulation::Product& product : emulation::machine.current->products) emulation::carry_out(product);
    emulation::machine.current->products.clear();
}

inline float shuffle_xor(float value, int mask) {
    emulation::Fiber* fiber = emulation::machine.current;
    fiber->value = value;
    fiber->mask = mask;
    emulation::wait_at(emulation::Step::shuffle);
    return fiber->value;
}

inline int atomic_add(int* global, int value) { return std::exchange(*global, *global + value); }
inline void fence() {}
inline float load_fresh(const float* global) { return *static_cast<const volatile float*>(global); }

inline Cell load_cell(const void* address) {
    Cell cell;
    emulation::check_margins(address);
    std::memcpy(&cell, address, 16);
    return cell;
}
inline Cell load_shared_cell(const void* address) {
    emulation::check_shared(address);
    return load_cell(address);
}
inline Cell load_now(const void* address) { return load_cell(address); }
inline void store_cell(void* address, Cell cell) {
    emulation::check_margins(address);
    std::memcpy(address, &cell, 16);
}

inline void store_two(float* shared, float first, float second) {
    if (reinterpret_cast<std::uintptr_t>(shared) % 8 != 0) emulation::fail("an 8-byte access is not aligned to 8 bytes");
    shared[0] = first;
    shared[1] = second;
}
inline u32 spread_signs(u32 pair) { return (pair >> 31) * 0xffff0000u | (pair >> 15 & 1) * 0xffffu; }
inline float as_float(u32 bits) {
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
}

inline u32 pack(float low, float high) { return emulation::rounded(low) | emulation::rounded(high) << 16; }
inline float low_of(u32 pair) { return emulation::bf16(pair & 0xffffu); }
inline float high_of(u32 pair) { return emulation::bf16(pair >> 16); }
inline float reciprocal_sqrt(float value) { return 1.0f / std::sqrt(value); }
