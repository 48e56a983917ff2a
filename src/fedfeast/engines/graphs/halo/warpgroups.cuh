// Products of four warps together, for devices that have them: both operands are read where they lie in shared memory.
//
// An operand is made of matrices of eight rows of sixteen bytes, each 128 bytes in one piece. Along the eight-by-eight
// matrices of a row (of the sum's inner index, two of them) and of a column they lie a stride apart.
#pragma once

typedef unsigned long long u64;

#ifndef FEDFEAST_EMULATED

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
constexpr bool HAS_GROUPS = true;
#else
constexpr bool HAS_GROUPS = false;
#endif

// Where an operand lies; strides in cells. What is added to it moves it by as many cells.
DEVICE u64 operand(const void* shared, int inner_stride, int outer_stride) {
  return (shared_address(shared) & 0x3ffff) / 16 | (u64)inner_stride << 16 | (u64)outer_stride << 32;
}

// What this thread wrote to shared memory will be there for products after the next synchronise().
DEVICE void show_to_groups() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// Products go on in the background from begin to wait; the sums are theirs meanwhile.
DEVICE void begin_group() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void commit_group() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
DEVICE void wait_for_group() { asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory"); }

// For 1 to 16 octets: the sums, their names in an instruction, the names of what follows, the number of channels.
#define SUMS_1 "+f"(sums[0][0]), "+f"(sums[0][1]), "+f"(sums[0][2]), "+f"(sums[0][3])
#define NAMES_1 "%0, %1, %2, %3"
#define OPERANDS_1 "%4, %5"
#define ADDS_1 "%6"
#define NUMBER_1 "8"
#define SUMS_2 SUMS_1, "+f"(sums[1][0]), "+f"(sums[1][1]), "+f"(sums[1][2]), "+f"(sums[1][3])
#define NAMES_2 NAMES_1 ", %4, %5, %6, %7"
#define OPERANDS_2 "%8, %9"
#define ADDS_2 "%10"
#define NUMBER_2 "16"
#define SUMS_3 SUMS_2, "+f"(sums[2][0]), "+f"(sums[2][1]), "+f"(sums[2][2]), "+f"(sums[2][3])
#define NAMES_3 NAMES_2 ", %8, %9, %10, %11"
#define OPERANDS_3 "%12, %13"
#define ADDS_3 "%14"
#define NUMBER_3 "24"
#define SUMS_4 SUMS_3, "+f"(sums[3][0]), "+f"(sums[3][1]), "+f"(sums[3][2]), "+f"(sums[3][3])
#define NAMES_4 NAMES_3 ", %12, %13, %14, %15"
#define OPERANDS_4 "%16, %17"
#define ADDS_4 "%18"
#define NUMBER_4 "32"
#define SUMS_5 SUMS_4, "+f"(sums[4][0]), "+f"(sums[4][1]), "+f"(sums[4][2]), "+f"(sums[4][3])
#define NAMES_5 NAMES_4 ", %16, %17, %18, %19"
#define OPERANDS_5 "%20, %21"
#define ADDS_5 "%22"
#define NUMBER_5 "40"
#define SUMS_6 SUMS_5, "+f"(sums[5][0]), "+f"(sums[5][1]), "+f"(sums[5][2]), "+f"(sums[5][3])
#define NAMES_6 NAMES_5 ", %20, %21, %22, %23"
#define OPERANDS_6 "%24, %25"
#define ADDS_6 "%26"
#define NUMBER_6 "48"
#define SUMS_7 SUMS_6, "+f"(sums[6][0]), "+f"(sums[6][1]), "+f"(sums[6][2]), "+f"(sums[6][3])
#define NAMES_7 NAMES_6 ", %24, %25, %26, %27"
#define OPERANDS_7 "%28, %29"
#define ADDS_7 "%30"
#define NUMBER_7 "56"
#define SUMS_8 SUMS_7, "+f"(sums[7][0]), "+f"(sums[7][1]), "+f"(sums[7][2]), "+f"(sums[7][3])
#define NAMES_8 NAMES_7 ", %28, %29, %30, %31"
#define OPERANDS_8 "%32, %33"
#define ADDS_8 "%34"
#define NUMBER_8 "64"
#define SUMS_9 SUMS_8, "+f"(sums[8][0]), "+f"(sums[8][1]), "+f"(sums[8][2]), "+f"(sums[8][3])
#define NAMES_9 NAMES_8 ", %32, %33, %34, %35"
#define OPERANDS_9 "%36, %37"
#define ADDS_9 "%38"
#define NUMBER_9 "72"
#define SUMS_10 SUMS_9, "+f"(sums[9][0]), "+f"(sums[9][1]), "+f"(sums[9][2]), "+f"(sums[9][3])
#define NAMES_10 NAMES_9 ", %36, %37, %38, %39"
#define OPERANDS_10 "%40, %41"
#define ADDS_10 "%42"
#define NUMBER_10 "80"
#define SUMS_11 SUMS_10, "+f"(sums[10][0]), "+f"(sums[10][1]), "+f"(sums[10][2]), "+f"(sums[10][3])
#define NAMES_11 NAMES_10 ", %40, %41, %42, %43"
#define OPERANDS_11 "%44, %45"
#define ADDS_11 "%46"
#define NUMBER_11 "88"
#define SUMS_12 SUMS_11, "+f"(sums[11][0]), "+f"(sums[11][1]), "+f"(sums[11][2]), "+f"(sums[11][3])
#define NAMES_12 NAMES_11 ", %44, %45, %46, %47"
#define OPERANDS_12 "%48, %49"
#define ADDS_12 "%50"
#define NUMBER_12 "96"
#define SUMS_13 SUMS_12, "+f"(sums[12][0]), "+f"(sums[12][1]), "+f"(sums[12][2]), "+f"(sums[12][3])
#define NAMES_13 NAMES_12 ", %48, %49, %50, %51"
#define OPERANDS_13 "%52, %53"
#define ADDS_13 "%54"
#define NUMBER_13 "104"
#define SUMS_14 SUMS_13, "+f"(sums[13][0]), "+f"(sums[13][1]), "+f"(sums[13][2]), "+f"(sums[13][3])
#define NAMES_14 NAMES_13 ", %52, %53, %54, %55"
#define OPERANDS_14 "%56, %57"
#define ADDS_14 "%58"
#define NUMBER_14 "112"
#define SUMS_15 SUMS_14, "+f"(sums[14][0]), "+f"(sums[14][1]), "+f"(sums[14][2]), "+f"(sums[14][3])
#define NAMES_15 NAMES_14 ", %56, %57, %58, %59"
#define OPERANDS_15 "%60, %61"
#define ADDS_15 "%62"
#define NUMBER_15 "120"
#define SUMS_16 SUMS_15, "+f"(sums[15][0]), "+f"(sums[15][1]), "+f"(sums[15][2]), "+f"(sums[15][3])
#define NAMES_16 NAMES_15 ", %60, %61, %62, %63"
#define OPERANDS_16 "%64, %65"
#define ADDS_16 "%66"
#define NUMBER_16 "128"
#define JOINED_(one, other) one##other
#define JOINED(one, other) JOINED_(one, other)
#define OF_OCTETS(name) JOINED(name, OUT_OCTETS)

// sums = a b or, where it adds, sums += a b, for a of 64 by 16 and b of 16 by OUT_OCTETS x 8 values; a warp has the sums
// of sixteen rows, spread over its lanes as those of multiply(). The matrices of b are transposed where TRANSPOSED is 1.
#define MULTIPLY_GROUP(TRANSPOSED)                                                                 \
  asm volatile("{\n.reg .pred adds;\nsetp.ne.u32 adds, " OF_OCTETS(ADDS_) ", 0;\n"                 \
               "wgmma.mma_async.sync.aligned.m64n" OF_OCTETS(NUMBER_) "k16.f32.bf16.bf16 "         \
               "{" OF_OCTETS(NAMES_) "}, " OF_OCTETS(OPERANDS_) ", adds, 1, 1, 0, " #TRANSPOSED ";\n}" \
               : OF_OCTETS(SUMS_)                                                                  \
               : "l"(a), "l"(b), "r"((u32)adds))

template <bool TRANSPOSED>
DEVICE void multiply_group(float (&sums)[OUT_OCTETS][4], u64 a, u64 b, bool adds) {
  if (TRANSPOSED) MULTIPLY_GROUP(1);
  else MULTIPLY_GROUP(0);
}

#else

DEVICE void begin_group() {}
DEVICE void commit_group() {}
DEVICE void wait_for_group() {}
template <bool TRANSPOSED>
DEVICE void multiply_group(float (&)[OUT_OCTETS][4], u64, u64, bool) {}

#endif
#endif
