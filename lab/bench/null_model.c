#include "lab/bench/null_model.h"

#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "model/decoder.h"

enum { N_VOCAB = 32, WIDTH = 16, ARGMAX = 3 };

typedef struct null_backend {
    backend head;
    null_model *owner;
    float logits[N_VOCAB];
    /* of the previous pass: its start, the wait for it, the last read of its rows */
    int64_t began_ns, began_cpu_ns, waited_ns, looked_ns;
    int32_t n_seqs, n_rows;
} null_backend;

static int64_t cpu_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int32_t lesser(int32_t a, int32_t b) {
    return a < b ? a : b;
}

/* The whole forward pass, since the model has no ops. */
static void step_begin(backend *base, const batch *rows) {
    null_backend *b = (null_backend *)base;
    null_model *n = b->owner;
    int64_t wall = clock_ns(), cpu = cpu_ns();
    if (b->began_ns > 0 && n->n_steps < n->cap) {
        n->steps[n->n_steps++] = (null_step){.wall_ns = wall - b->began_ns,
                                             .cpu_ns = cpu - b->began_cpu_ns,
                                             .collect_ns = b->looked_ns - b->waited_ns,
                                             .n_seqs = lesser(rows->n_seqs, b->n_seqs),
                                             .n_rows = lesser(rows->n_rows, b->n_rows)};
    }
    b->n_seqs = rows->n_seqs;
    b->n_rows = rows->n_rows;
    b->began_cpu_ns = cpu_ns();
    b->began_ns = clock_ns();
}

static void embed(backend *b, const embed_use *use) {
    (void)b, (void)use;
}

static void head(backend *b, buffer x, const norm *nm, const linear *w, float scale, float soft_cap) {
    (void)b, (void)x, (void)nm, (void)w, (void)scale, (void)soft_cap;
}

static void step_wait(backend *b) {
    ((null_backend *)b)->waited_ns = clock_ns();
}

static float *logits(backend *b, int32_t i) {
    (void)i;
    return ((null_backend *)b)->logits;
}

static int32_t argmax(const backend *b, int32_t i) {
    (void)b, (void)i;
    return ARGMAX;
}

static void buffer_read(backend *b, buffer a, int32_t row0, int32_t n, float *out) {
    null_backend *of = (null_backend *)b;
    (void)a;
    if (row0 + n == of->n_rows) {
        of->looked_ns = clock_ns();
    }
    memset(out, 0, (size_t)n * WIDTH * sizeof *out);
}

static void kv_copy(backend *b, const kv_copy_pair *pairs, int32_t n) {
    (void)b, (void)pairs, (void)n;
}

static decoder null_decoder;
static const backend_ops null_ops = {.name = "null",
                                     .step_begin = step_begin,
                                     .embed = embed,
                                     .head = head,
                                     .step_wait = step_wait,
                                     .logits = logits,
                                     .argmax = argmax,
                                     .buffer_read = buffer_read,
                                     .kv_copy = kv_copy};

quire_err null_model_open(int32_t max_steps, null_model **out) {
    null_model *n = mem_new(1, sizeof *n);
    null_backend *b = mem_new(1, sizeof *b);
    model *m = mem_new(1, sizeof *m);
    null_step *steps = mem_new((size_t)max_steps, sizeof *steps);
    if (!n || !b || !m || !steps) {
        mem_free(n);
        mem_free(b);
        mem_free(m);
        mem_free(steps);
        return QUIRE_NO_MEMORY;
    }
    b->head.ops = &null_ops;
    b->owner = n;
    b->logits[ARGMAX] = 1.0f;
    *m = (model){.b = &b->head, .decoder = &null_decoder};
    m->desc = desc_plain(1, 1, 1, WIDTH, 0);
    m->desc.d_model = WIDTH;
    m->desc.n_vocab = N_VOCAB;
    *n = (null_model){.m = m, .b = &b->head, .steps = steps, .cap = max_steps};
    *out = n;
    return QUIRE_OK;
}

void null_model_close(null_model *n) {
    if (n != NULL) {
        mem_free(n->m);
        mem_free(n->b);
        mem_free(n->steps);
        mem_free(n);
    }
}
