/* Hidden states of selected rows: every instruction set has the bits of the plain C
 * version, however rows are batched. */
#include <string.h>

#include "base/mem.h"
#include "model/model.h"
#include "test.h"

enum { N = 24, CHUNK = 9, PAGE = 16 };

/* Runs 24 tokens in steps of at most `chunk` rows; out [N, d_model] gets each row's
 * hidden state, read from the last row of a step to its first. */
static void run(const char *isa, int32_t chunk, float **out, int32_t *width) {
    quire_error err = {0};
    model_file *f;
    backend *b;
    model *m;
    kv_layout layout;
    backend_options bo = {.compute = COMPUTE_F32, .isa = isa, .n_threads = 1};
    step_limits limits = {.max_rows = N, .max_seqs = 1, .max_out = 1};
    assert_int_equal(model_file_open("models/builtin-small.gguf", &f, &err), QUIRE_OK);
    assert_int_equal(backend_cpu_open(&bo, &b, &err), QUIRE_OK);
    assert_int_equal(model_open(f, b, 256, &m, &err), QUIRE_OK);
    model_file_close(f);
    const model_desc *d = model_description(m);
    assert_int_equal(kv_layout_init(d, kv_both(DTYPE_F32), PAGE, &layout, &err), QUIRE_OK);
    assert_int_equal(b->ops->step_open(b, &limits, &layout, d->n_vocab, &err), QUIRE_OK);
    assert_int_equal(b->ops->kv_open(b, 4, &err), QUIRE_OK);
    *width = d->d_model;
    *out = mem_new((size_t)N * (size_t)d->d_model, sizeof(float));
    const int32_t pages[] = {2, 1};
    for (int32_t done = 0; done < N;) {
        int32_t n = N - done < chunk ? N - done : chunk, tokens[N], positions[N], rows[N], last = n - 1;
        kv_slot slots[N];
        attn_item work[N];
        float *read = mem_new((size_t)n * (size_t)d->d_model, sizeof(float));
        for (int32_t i = 0; i < n; i++) {
            int32_t p = done + i;
            tokens[i] = 5 + 71 * p;
            positions[i] = p;
            slots[i] = (kv_slot){(int64_t)pages[p / PAGE] * PAGE + p % PAGE};
            rows[i] = n - 1 - i;
        }
        batch_seq seq = {.row0 = 0, .n_rows = n, .n_tokens = done + n, .pages = {pages}};
        batch q = {.n_rows = n,
                   .n_seqs = 1,
                   .n_out = 1,
                   .tokens = tokens,
                   .positions = positions,
                   .n_axes = 1,
                   .slots = {slots},
                   .seqs = &seq,
                   .out_rows = &last,
                   .work = work};
        q.n_work = batch_plan_work(&seq, 1, 16, work, N);
        model_forward(m, &q);
        b->ops->step_wait(b);
        for (int32_t i = 0; i < n; i++) {
            b->ops->buffer_read(b, model_hidden(m), rows[i], 1, read + (size_t)i * (size_t)*width);
            memcpy(*out + (size_t)(done + rows[i]) * (size_t)*width, read + (size_t)i * (size_t)*width,
                   (size_t)*width * sizeof(float));
        }
        mem_free(read);
        done += n;
    }
    model_close(m);
    b->ops->close(b);
}

TEST(chosen_rows_are_those_of_the_plain_twin) {
    static const char *const isas[] = {"plain", "auto"};
    float *base, *other;
    int32_t width;
    run("plain", N, &base, &width);
    for (int32_t p = 1; p < N; p++) {
        assert_memory_not_equal(base, base + (size_t)p * (size_t)width, (size_t)width * sizeof(float));
    }
    for (int i = 0; i < 2; i++) {
        for (int32_t chunk = 1; chunk <= N; chunk += CHUNK) {
            run(isas[i], chunk, &other, &width);
            assert_memory_equal(base, other, (size_t)N * (size_t)width * sizeof(float));
            mem_free(other);
        }
    }
    mem_free(base);
}

TEST_MAIN(NULL, NULL)
