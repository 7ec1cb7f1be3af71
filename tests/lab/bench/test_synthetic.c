/* Models made in memory: an engine can open them, their weights have the right size, and
 * their output is finite and not constant. */
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "core/quant.h"
#include "file/model_file.h"
#include "lab/bench/model_runner.h"
#include "lab/bench/model_shape.h"
#include "test.h"

static model_shape small; /* Llama's */

static synthetic open_small(dtype type) {
    synthetic s;
    quire_error err;
    if (synthetic_open(&small, type, &s, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    return s;
}

/* The mean and the deviation of a tensor's weights. */
static void measure(const tensor_view *t, double *mean, double *deviation) {
    float row[512];
    double sum = 0, squares = 0;
    size_t n_in = (size_t)t->dims[1], row_bytes = t->n_bytes / (size_t)t->dims[0];
    for (int64_t i = 0; i < t->dims[0]; i++) {
        assert_int_equal(
            quant_dequantise(t->type, (const uint8_t *)t->data + (size_t)i * row_bytes, n_in, row), QUIRE_OK);
        for (size_t j = 0; j < n_in; j++) {
            sum += row[j];
            squares += (double)row[j] * row[j];
        }
    }
    double n = (double)t->dims[0] * (double)n_in;
    *mean = sum / n;
    *deviation = sqrt(squares / n - *mean * *mean);
}

TEST(weights_have_the_deviation_that_keeps_activations_as_large_as_they_are) {
    for (int i = 0; i < N_SPEED_TYPES; i++) {
        synthetic s = open_small(speed_types[i].file);
        model_file *f;
        quire_error err;
        double mean, deviation;
        assert_int_equal(model_file_open(s.path, &f, &err), QUIRE_OK);
        assert_int_equal(model_file_n_tensors(f), 3 + 9 * small.sizes[SIZE_LAYERS]);
        const tensor_view *t = model_file_find(f, "blk.1.ffn_gate.weight");
        assert_non_null(t);
        assert_int_equal(t->type, speed_types[i].file);
        measure(t, &mean, &deviation);
        assert_true(fabs(mean) < 0.1 / 16);
        assert_true(deviation > 0.5 / 16 && deviation < 2.0 / 16); /* 1 / sqrt(256) */
        model_file_close(f);
        synthetic_close(&s);
    }
}

TEST(a_model_made_in_memory_runs_and_says_different_things) {
    for (int i = 0; i < N_SPEED_TYPES; i++) {
        synthetic s = open_small(speed_types[i].file);
        quire_options engine;
        model_runner b;
        quire_error err;
        quire_options_init(&engine);
        engine.model = s.path;
        engine.compute = speed_type_compute(&speed_types[i]);
        engine.kv_dtype = QUIRE_KV_F32;
        engine.n_threads = 1;
        const model_runner_options o = {
            .engine = &engine, .page_tokens = 16, .n_pages = 4, .max_rows = 8, .max_seqs = 1, .max_len = 64};
        if (model_runner_open(&o, &b, &err) != QUIRE_OK) {
            fail_msg("%s", err.message);
        }
        synthetic_close(&s); /* the engine has its own copy */
        int32_t tokens[8];
        static const int32_t pages[] = {2};
        model_runner_prompt(&b, 1, 8, tokens);
        const runner_part part = {.tokens = tokens, .n_rows = 8, .pages = pages, .n_logits = 1};
        assert_int_equal(model_runner_forward(&b, &part, 1), QUIRE_OK);
        const float *logits = model_runner_logits(&b, 0);
        float least = logits[0], most = logits[0];
        for (int32_t j = 0; j < small.sizes[SIZE_VOCABULARY]; j++) {
            assert_true(isfinite(logits[j]));
            least = fminf(least, logits[j]);
            most = fmaxf(most, logits[j]);
        }
        assert_true(most - least > 0.1f && most - least < 100.0f);
        model_runner_close(&b);
    }
}

TEST(a_closed_model_is_gone_from_this_process) {
    synthetic s = open_small(DTYPE_Q4_0);
    char path[sizeof s.path];
    memcpy(path, s.path, sizeof path);
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    close(fd);
    synthetic_close(&s);
    assert_int_equal(open(path, O_RDONLY), -1);
}

TEST(a_model_that_memory_does_not_hold_is_refused_before_it_is_made) {
    model_shape huge = small;
    huge.sizes[SIZE_VOCABULARY] = INT32_MAX;
    huge.sizes[SIZE_MODEL] = 1 << 20;
    synthetic s;
    quire_error err;
    assert_int_equal(synthetic_open(&huge, DTYPE_BF16, &s, &err), QUIRE_NO_MEMORY);
    assert_non_null(strstr(err.message, "MB of memory"));
    assert_int_equal(s.fd, -1);
}

int main(void) {
    small = model_shape_small(model_shape_llama);
    return tests_run(NULL, NULL);
}
