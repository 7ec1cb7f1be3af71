/* Traces of a forward pass: which ops ran, the bytes and operations of each, and that
 * tracing changes no bit. */
#include <stdlib.h>
#include <string.h>

#include "lab/bench/model_runner.h"
#include "test.h"

enum { N = 20, MAX_OPS = 400 };

static model_runner open_model(void) {
    quire_options engine;
    model_runner b;
    quire_error err;
    quire_options_init(&engine);
    engine.model = "builtin-small";
    engine.compute = QUIRE_COMPUTE_F32;
    engine.kv_dtype = QUIRE_KV_F32;
    engine.n_threads = 2;
    const model_runner_options o = {
        .engine = &engine, .page_tokens = 16, .n_pages = 4, .max_rows = N, .max_seqs = 1, .max_len = 64};
    if (model_runner_open(&o, &b, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    return b;
}

static void forward(model_runner *b, int32_t first, int32_t n, const int32_t *tokens, float *logits) {
    static const int32_t pages[] = {3, 1};
    const runner_part part = {.tokens = tokens, .first = first, .n_rows = n, .pages = pages, .n_logits = 1};
    assert_int_equal(model_runner_forward(b, &part, 1), QUIRE_OK);
    memcpy(logits, model_runner_logits(b, 0), (size_t)b->desc->n_vocab * sizeof *logits);
}

TEST(a_trace_notes_each_op_of_a_pass_and_changes_no_bit) {
    model_runner b = open_model();
    const model_desc *d = b.desc;
    int32_t tokens[N];
    op_time ops[MAX_OPS];
    op_trace trace = {.ops = ops, .cap = MAX_OPS};
    float *plain = calloc((size_t)d->n_vocab, sizeof *plain),
          *traced = calloc((size_t)d->n_vocab, sizeof *traced);
    model_runner_prompt(&b, 1, N, tokens);
    forward(&b, 0, N - 2, tokens, plain);
    forward(&b, N - 2, 2, tokens, plain);
    forward(&b, 0, N - 2, tokens, traced);
    b.b->ops->trace(b.b, &trace);
    forward(&b, N - 2, 2, tokens, traced);
    assert_memory_equal(plain, traced, (size_t)d->n_vocab * sizeof *plain);

    const cache_desc *cache = &d->caches[0];
    const int32_t d_ff = d->layers[0].d_ff, n_heads = d->layers[0].n_heads;
    static const op_kind layer[] = {OP_NORM_LINEARS, OP_ROPE_STORE,   OP_ATTENTION,
                                    OP_LINEAR_ADD,   OP_FEED_FORWARD, OP_LINEAR_ADD};
    /* rows, matrices, multiplication and addition */
    int64_t gate_operations = (int64_t)2 * 2 * 2 * d_ff * d->d_model;
    int64_t kv_bytes = (int64_t)N * 2 * cache->n_kv_heads * cache->d_key * 4, pairs = (N - 1) + N;
    assert_int_equal(trace.n, 2 + 6 * d->n_layers);
    assert_int_equal(ops[0].kind, OP_EMBED);
    for (int32_t i = 0; i < 6 * d->n_layers; i++) {
        const op_time *op = &ops[1 + i];
        assert_int_equal(op->kind, layer[i % 6]);
        assert_int_equal(op->n_rows, 2);
        assert_true(op->ns >= op->rows_ns && op->rows_ns >= 0 && op->start_ns >= op[-1].start_ns + op[-1].ns);
        if (op->kind == OP_FEED_FORWARD) {
            assert_int_equal(op->operations, gate_operations);
            assert_true(op->bytes >= (int64_t)2 * d_ff * d->d_model && op->rows_ns > 0);
        } else if (op->kind == OP_ATTENTION) {
            assert_int_equal(op->bytes, kv_bytes);
            assert_int_equal(op->operations, 4 * pairs * n_heads * cache->d_key);
        }
    }
    assert_int_equal(ops[trace.n - 1].kind, OP_HEAD);
    assert_int_equal(ops[trace.n - 1].n_rows, 1);

    b.b->ops->trace(b.b, NULL);
    forward(&b, N - 2, 2, tokens, traced);
    assert_int_equal(trace.n, 2 + 6 * d->n_layers);
    free(plain);
    free(traced);
    model_runner_close(&b);
}

TEST(a_full_trace_takes_no_more) {
    model_runner b = open_model();
    op_time ops[3] = {{.kind = N_OPS}, {.kind = N_OPS}, {.kind = N_OPS}};
    op_trace trace = {.ops = ops, .cap = 2};
    float *logits = calloc((size_t)b.desc->n_vocab, sizeof *logits);
    int32_t tokens[N];
    model_runner_prompt(&b, 1, N, tokens);
    b.b->ops->trace(b.b, &trace);
    forward(&b, 0, 3, tokens, logits);
    assert_int_equal(trace.n, 2);
    assert_int_equal(ops[2].kind, N_OPS);
    free(logits);
    model_runner_close(&b);
}

TEST_MAIN(NULL, NULL)
