#include "check/check_table.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "backend/cpu/isa.h"
#include "model/arch.h"

/* ---- kernels ---- */

/* Whether the running instruction set's table has another function than the plain twins'
 * at this place. */
static bool has_own(const void *table, const void *plain, size_t offset) {
    return memcmp((const char *)table + offset, (const char *)plain + offset, sizeof(void (*)(void))) != 0;
}

static bool is_math_fast(cpu_isa isa, size_t offset) {
    return has_own(cpu_isa_math(isa), cpu_isa_math(ISA_PLAIN), offset);
}

static bool is_product_fast(cpu_isa isa) {
    return has_own(cpu_isa_linear(isa), cpu_isa_linear(ISA_PLAIN), offsetof(linear_kernels, product));
}

#define ONE_BODY SIZE_MAX /* no table has it: every instruction set runs the same C */
#define PRODUCT  (SIZE_MAX - 1)

/* The operations of a model, and where the kernel that does the work lies in the
 * tables. */
static const struct operation {
    const char *name;
    size_t kernel;
} operations[] = {
    {"products", PRODUCT},
    {"attention", offsetof(math_kernels, attention_tile)},
    {"RMS norm", offsetof(math_kernels, norm_rms)},
    {"layer norm", offsetof(math_kernels, norm_layer)},
    {"rotary embedding", offsetof(math_kernels, rotate)},
    {"gated activation", offsetof(math_kernels, gate_up)},
    {"activation", offsetof(math_kernels, activate)},
    {"caps and scales", offsetof(math_kernels, scale_cap)},
    {"sums of experts", offsetof(math_kernels, add_scaled)},
    {"rows of embeddings", ONE_BODY},
    {"choice of experts", ONE_BODY},
};
enum { N_OPERATIONS = sizeof operations / sizeof *operations };

static bool is_fast(cpu_isa isa, const struct operation *o) {
    return o->kernel == PRODUCT ? is_product_fast(isa)
                                : o->kernel != ONE_BODY && is_math_fast(isa, o->kernel);
}

/* Which operations a model has. */
static void mark(const model_desc *d, bool used[N_OPERATIONS]) {
    const attend_desc *a = &d->attend;
    const bool norms_heads = a->qk_norm != QK_NORM_NONE;
    bool has_experts = d->moe.n_used > 0 && desc_attention_layer(d) != NULL,
         has_dense = desc_widest_ff(d) > 0;
    bool has_caps = a->cap > 0 || d->head.cap > 0 || d->embed.scale != 0 || d->head.scale != 0;
    const bool has[N_OPERATIONS] = {
        true,
        true,
        d->norm.kind == NORM_RMS || (norms_heads && a->qk_norm_type == NORM_RMS) || a->v_norm,
        d->norm.kind == NORM_LAYER || (norms_heads && a->qk_norm_type == NORM_LAYER),
        d->n_ropes > 0,
        !d->ungated || has_experts,
        d->ungated && has_dense,
        has_caps,
        has_experts,
        true,
        has_experts};
    for (int i = 0; i < N_OPERATIONS; i++) {
        used[i] |= has[i];
    }
}

/* ---- rows ---- */

enum { MAX_ROWS = 128 };

static struct {
    int n_models;
    double worst;
    bool used[N_OPERATIONS];
} rows[MAX_ROWS];

void check_table_add(const char *where, const char *path, const char *runs_as, double difference) {
    model_file *f;
    model_desc d;
    quire_error err;
    printf("| %s | %s | %.1e |\n", where, runs_as != NULL ? runs_as : "rows", difference);
    if (model_file_open(path, &f, &err) != QUIRE_OK) {
        return;
    }
    bool described = model_describe(f, &d, &err) == QUIRE_OK;
    for (size_t i = 0; described && i < MAX_ROWS && arch_at(i) != NULL; i++) {
        if (strcmp(arch_at(i)->gguf[0], d.architecture) == 0) {
            rows[i].n_models++;
            rows[i].worst = difference > rows[i].worst ? difference : rows[i].worst;
            mark(&d, rows[i].used);
        }
    }
    model_file_close(f);
}

/* The names of an architecture up to the first NULL, each as code. */
static void print_names(const char *const *names) {
    for (int i = 0; i < ARCH_MAX_NAMES && names[i] != NULL; i++) {
        printf("%s`%s`", i > 0 ? ", " : "", names[i]);
    }
}

static void print_operations(cpu_isa isa, const bool *used, bool fast) {
    const char *before = "";
    for (int i = 0; i < N_OPERATIONS; i++) {
        if (used[i] && is_fast(isa, &operations[i]) == fast) {
            printf("%s%s", before, operations[i].name);
            before = ", ";
        }
    }
    printf(" |");
}

static bool has_towers(const arch *a) {
    for (int i = 0; i < ARCH_MAX_NAMES && a->hf[i] != NULL; i++) {
        if (strstr(a->hf[i], "ForConditionalGeneration") != NULL) {
            return true;
        }
    }
    return false;
}

void check_table_begin(void) {
    printf("| test model | runs as | largest difference of a logit from the reference |\n|---|---|--:|\n");
}

void check_table_end(void) {
    cpu_isa isa;
    quire_error err;
    if (cpu_isa_choose("auto", &isa, &err) != QUIRE_OK) {
        return;
    }
    printf("\n| architecture | `general.architecture` in GGUF | `architectures` in config.json | largest "
           "difference (test models) | not "
           "read | "
           "fast kernels (%s) | plain |\n|---|---|---|--:|---|---|---|\n",
           cpu_isa_name(isa));
    for (size_t i = 0; i < MAX_ROWS && arch_at(i) != NULL; i++) {
        const arch *a = arch_at(i);
        printf("| %s | ", a->gguf[0]);
        print_names(a->gguf);
        printf(" | ");
        print_names(a->hf);
        if (rows[i].n_models > 0) {
            printf(" | %.1e (%d) | ", rows[i].worst, rows[i].n_models);
        } else {
            printf(" | not measured | ");
        }
        printf("%s | ", has_towers(a) ? "towers for images and sound" : "");
        print_operations(isa, rows[i].used, true);
        printf(" ");
        print_operations(isa, rows[i].used, false);
        printf("\n");
    }
}

const char *check_table_reason(const char *why, const char *path) {
    size_t n = strlen(path);
    return strncmp(why, path, n) == 0 && strncmp(why + n, ": ", 2) == 0 ? why + n + 2 : why;
}
