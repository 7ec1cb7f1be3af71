#define _GNU_SOURCE /* syscall */
#include "backend/cpu/isa.h"

#include <stdbool.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CPUID_AVXVNNI (1u << 4)  /* in leaf 7.1, eax */
#define CPUID_AMX     (3u << 24) /* in leaf 7, edx: AMX_TILE and AMX_INT8 */
#define XCR0_TILES    (3u << 17) /* tile configuration and tile data */
/* arch_prctl code that requests a state component which processes lack by default; Linux
 * 5.16 */
#define ARCH_REQ_XCOMP_PERM 0x1023
#define XFEATURE_XTILEDATA  18
#elif defined(__aarch64__)
#include <sys/auxv.h>
#define HAS_DOT_PRODUCT (1u << 20) /* in AT_HWCAP: ASIMDDP, 8-bit products of ARMv8.2 */
#define HAS_I8MM        (1u << 13) /* in AT_HWCAP2: products of int8 matrices, ARMv8.6 */
#endif

typedef struct isa_entry {
    const char *name;
    bool (*runs)(void);
    bool (*is_chosen)(void); /* whether "auto" chooses it if it runs */
    const math_kernels *math;
    const linear_kernels *linear;
} isa_entry;

static bool always(void) {
    return true;
}

#if defined(__x86_64__)
static bool has_avx2(void) {
    unsigned a, b, c, d;
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) != 0;
}

#if defined(QUIRE_AVXVNNI) /* the compiler supports it */
static bool has_avxvnni(void) {
    unsigned a, b, c, d;
    return has_avx2() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & CPUID_AVXVNNI) != 0;
}
#endif

#ifdef SIMD_EMULATE /* AVX-512 through SIMDe, for tests that ask for it by name */
#define EMULATED true
#else
#define EMULATED false
#endif

static bool has_avx512(void) {
    return has_avx2() &&
           (EMULATED || (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                         __builtin_cpu_supports("avx512vnni")));
}

static bool has_avx512bf16(void) {
    return has_avx512() && (EMULATED || __builtin_cpu_supports("avx512bf16"));
}

#if defined(QUIRE_AMX) /* the compiler supports it */
static bool has_amx(void) {
    unsigned a, b, c, d;
    return has_avx512() && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & CPUID_AMX) == CPUID_AMX;
}

/* Whether the kernel saves tile registers for this process. The permission covers all its
 * threads and is never withdrawn. */
static bool may_use_amx(void) {
    uint32_t low, high;
    if (!has_amx()) {
        return false;
    }
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & XCR0_TILES) == XCR0_TILES &&
           syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}
#endif

#if defined(QUIRE_AMX_MODEL)
static bool never(void) {
    return false;
}
#endif

static bool is_native(void) {
    return !EMULATED;
}

/* Whether vdpbf16ps is fast. Intel's processors start a 512-bit vdpbf16ps only every
 * second cycle: measured on Emerald Rapids, 89 GOP/s per thread, against 178 with vfmadd
 * over weights widened to f32. The vendor decides, not a timing: the instruction gives
 * other bits, and results must not depend on a measurement. */
static bool is_dot_bf16_fast(void) {
    return !EMULATED && !__builtin_cpu_is("intel");
}
#elif defined(__aarch64__)
static bool has_neon(void) {
    return (getauxval(AT_HWCAP) & HAS_DOT_PRODUCT) != 0;
}

static bool has_i8mm(void) {
    return has_neon() && (getauxval(AT_HWCAP2) & HAS_I8MM) != 0;
}
#endif

/* In ascending order of preference. Entries without kernels are for other processors. */
static const isa_entry ISAS[N_ISAS] = {
    [ISA_PLAIN] = {"plain", always, always, &math_plain, &linear_plain},
#if defined(__x86_64__)
    [ISA_AVX2] = {"avx2", has_avx2, always, &math_avx2, &linear_avx2},
#if defined(QUIRE_AVXVNNI)
    [ISA_AVXVNNI] = {"avxvnni", has_avxvnni, is_native, &math_avx2, &linear_avxvnni},
#else
    [ISA_AVXVNNI] = {.name = "avxvnni"},
#endif
    [ISA_AVX512] = {"avx512", has_avx512, is_native, &math_avx512, &linear_avx512},
    [ISA_AVX512_BF16] = {"avx512bf16", has_avx512bf16, is_dot_bf16_fast, &math_avx512, &linear_avx512bf16},
#else
    [ISA_AVX2] = {.name = "avx2"},
    [ISA_AVXVNNI] = {.name = "avxvnni"},
    [ISA_AVX512] = {.name = "avx512"},
    [ISA_AVX512_BF16] = {.name = "avx512bf16"},
#endif
#if defined(QUIRE_AMX)
    [ISA_AMX] = {"amx", may_use_amx, is_native, &math_avx512, &linear_amx},
#else
    [ISA_AMX] = {.name = "amx"},
#endif
#if defined(QUIRE_AMX_MODEL) /* the build includes tests */
    [ISA_AMX_MODEL] = {"amx-model", has_avx2, never, &math_avx2, &linear_amx_model},
#else
    [ISA_AMX_MODEL] = {.name = "amx-model"},
#endif
#if defined(__aarch64__)
    [ISA_NEON] = {"neon", has_neon, always, &math_neon, &linear_neon},
    [ISA_I8MM] = {"i8mm", has_i8mm, always, &math_neon, &linear_i8mm}, /* as neon, except int8 products */
#else
    [ISA_NEON] = {.name = "neon"},
    [ISA_I8MM] = {.name = "i8mm"},
#endif
};

static bool runs_here(cpu_isa isa) {
    return ISAS[isa].runs != NULL && ISAS[isa].runs();
}

/* The reason why an instruction set does not run here. */
static const char *lack_of(cpu_isa isa) {
#if defined(QUIRE_AMX)
    if (isa == ISA_AMX && has_amx()) {
        return "this processor has it, but the kernel does not permit its tiles (Linux 5.16 and later do)";
    }
#endif
    return ISAS[isa].runs == NULL ? "this build does not have it" : "this processor does not have it";
}

quire_err cpu_isa_choose(const char *name, cpu_isa *out, quire_error *err) {
    bool is_auto = name == NULL || strcmp(name, "auto") == 0;
    for (int i = N_ISAS - 1; i >= 0; i--) {
        cpu_isa isa = (cpu_isa)i;
        if (is_auto ? runs_here(isa) && ISAS[isa].is_chosen() : strcmp(name, ISAS[isa].name) == 0) {
            *out = isa;
            return runs_here(isa) ? QUIRE_OK
                                  : err_set(err, QUIRE_UNSUPPORTED, -1, "--isa %s: %s; try --isa auto", name,
                                            lack_of(isa));
        }
    }
    return err_set(err, QUIRE_INVALID, -1,
                   "--isa %s: must be auto, plain, avx2, avxvnni, avx512, amx, avx512bf16, neon or i8mm",
                   name);
}

const char *cpu_isa_name(cpu_isa isa) {
    return ISAS[isa].name;
}

const math_kernels *cpu_isa_math(cpu_isa isa) {
    return ISAS[isa].math;
}

const linear_kernels *cpu_isa_linear(cpu_isa isa) {
    return ISAS[isa].linear;
}
