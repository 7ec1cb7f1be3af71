/* Instruction sets: the kernels of each, and those that this processor runs. Constant. */
#ifndef CPU_ISA_H
#define CPU_ISA_H

#include "backend/cpu/linear.h"
#include "backend/cpu/math.h"

typedef enum cpu_isa {
    ISA_PLAIN,
    ISA_AVX2,
    ISA_AVXVNNI, /* AVX2, and its dot product of int8 */
    ISA_AVX512,
    ISA_AMX,       /* AVX512, and tiles for products of int8 */
    ISA_AMX_MODEL, /* AVX2, and a plain C model of those tiles; for tests */
    ISA_AVX512_BF16,
    ISA_NEON,
    ISA_I8MM,
    N_ISAS
} cpu_isa;

/* Finds the instruction set of this name; for "auto" (or NULL) the best that runs here,
 * by the processor's features and vendor, never by a measurement, since it is part of the
 * numeric configuration. QUIRE_UNSUPPORTED for one that this processor (or build) lacks,
 * QUIRE_INVALID for an unknown name. */
quire_err cpu_isa_choose(const char *name, cpu_isa *out, quire_error *err);

const char *cpu_isa_name(cpu_isa isa);

/* The kernels of an instruction set that cpu_isa_choose returned. */
const math_kernels *cpu_isa_math(cpu_isa isa);
const linear_kernels *cpu_isa_linear(cpu_isa isa);

#endif
