/* Instruction sets, their kernels, and which of them this processor runs. Constant. */
#ifndef CPU_ISA_H
#define CPU_ISA_H

#include "backend/cpu/linear.h"
#include "backend/cpu/math.h"

typedef enum cpu_isa {
    ISA_PLAIN,
    ISA_AVX2,
    ISA_AVXVNNI, /* AVX2 with its int8 dot product */
    ISA_AVX512,
    ISA_AMX,       /* AVX512 with tiles for int8 products */
    ISA_AMX_MODEL, /* AVX2 with a plain C model of those tiles; for tests */
    ISA_AVX512_BF16,
    ISA_NEON,
    ISA_I8MM,
    N_ISAS
} cpu_isa;

/* Finds an instruction set by name. "auto" or NULL: the best one that runs here, by the
 * processor's features and vendor and never by measurement, since it is part of the
 * numeric configuration. QUIRE_UNSUPPORTED: this processor or build lacks it.
 * QUIRE_INVALID: unknown name. */
quire_err cpu_isa_choose(const char *name, cpu_isa *out, quire_error *err);

const char *cpu_isa_name(cpu_isa isa);

/* The kernels of an instruction set from cpu_isa_choose. */
const math_kernels *cpu_isa_math(cpu_isa isa);
const linear_kernels *cpu_isa_linear(cpu_isa isa);

#endif
