/* The CPU backend's own struct, shared by its op files.
 *
 * One file an op. Each op has a plain C twin and SIMD versions compiled from one source for AVX2 and AVX-512 (simd.h); `k` is the table picked at open. */
#ifndef CPU_CPU_H
#define CPU_CPU_H

#include "backend/backend.h"
#include "base/team.h"

typedef enum cpu_isa { ISA_PLAIN, ISA_AVX2, ISA_AVX512, N_ISAS } cpu_isa;

struct math_kernels;   /* math.h: norm, exp, silu, rope, attention */
struct linear_kernels; /* linear.h: products and activation formats */

/* An activation buffer: f32 [limits.max_rows, width]. */
typedef struct cpu_act {
    int32_t width;
    float *rows;
} cpu_act;

#define CPU_MAX_ACTS 64

typedef struct cpu_backend {
    backend base; /* first: a backend* is a cpu_backend* */
    cpu_isa isa;
    const struct math_kernels *math;
    const struct linear_kernels *linear;
    team *team;
    char description[96];

    int32_t n_acts;
    cpu_act acts[CPU_MAX_ACTS];
    step_limits limits;
    kv_layout layout;
    int32_t n_vocab;
    uint8_t *kv;          /* n_pages * layout.page_bytes */
    int32_t n_pages;
    float *logits;        /* [limits.max_out, n_vocab] */
    const batch *batch;   /* of the step that runs */
    int64_t weight_bytes, step_bytes;

    struct cpu_linear_state *linear_state; /* linear.c: scratch and the list of loaded weights */
    struct cpu_attention_state *attention_state; /* attention.c: scratch and partials */
    struct cpu_owned *owned; /* list of loaded norms, embeddings and ropes */
} cpu_backend;

/* ---- implemented in linear*.c ---- */
/* The products' table for an instruction set. */
const struct linear_kernels *cpu_linear_kernels(cpu_isa isa);
quire_err cpu_linear_load(backend *b, const tensor_view *weight, const tensor_view *bias, linear **out, quire_error *err);
void cpu_linear_close(cpu_backend *b);
/* Sizes the scratch for max_rows rows of the widest loaded weights; called by step_open. */
quire_err cpu_linear_step_open(cpu_backend *b);
void cpu_norm_linears(backend *b, act x, const norm *nm, const linear_use *uses, int32_t n);
void cpu_linear_add(backend *b, act a, const linear_use *w, float scale, act x);
void cpu_norm_gate_up(backend *b, act x, const norm *nm, const linear_use *gate, const linear_use *up, act_kind f, act h);
void cpu_head(backend *b, act x, const norm *nm, const linear *w, float scale, float soft_cap);

/* ---- implemented in norm.c: one row, out may be x ---- */
void cpu_norm_row(const cpu_backend *b, const norm *nm, const float *x, int32_t width, float *out);

#endif
