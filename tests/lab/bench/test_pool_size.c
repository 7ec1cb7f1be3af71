/* The size of a pool counts the pages of all of a model's layer groups. */
#include <string.h>

#include "lab/bench/client.h"
#include "lab/bench/model_shape.h"
#include "test.h"

enum { PAGE = 16, LENGTH = 1000 };

static quire_options options_of(const char *model) {
    quire_options o;
    quire_options_init(&o);
    o.model = model;
    o.compute = QUIRE_COMPUTE_F32;
    o.kv_dtype = QUIRE_KV_F32;
    o.n_threads = 1;
    o.generation_config = "none";
    o.page_tokens = PAGE;
    o.max_seqs = 4;
    o.max_batched_tokens = 32;
    o.max_model_len = 2 * LENGTH;
    return o;
}

TEST(one_group_takes_the_pages_of_its_tokens) {
    quire_options o = options_of("builtin-small");
    quire_error err = {.message = ""};
    int32_t n = 0;
    assert_int_equal(pool_size_sequences(&o, "--rows", 4, 33, &n, &err), QUIRE_OK);
    assert_int_equal(n, 4 * 3);
}

/* Gemma 3's layers have windows but for every sixth. */
TEST(a_model_with_windows_takes_pages_of_every_group) {
    model_shape shape = model_shape_small(model_shape_find("gemma-3-1b", strlen("gemma-3-1b")));
    synthetic s;
    quire_engine *e = NULL;
    quire_error err = {.message = ""};
    int32_t longest = 0;
    assert_int_equal(synthetic_open(&shape, DTYPE_F32, &s, &err), QUIRE_OK);
    quire_options o = options_of(s.path);
    o.max_model_len = shape.sizes[SIZE_POSITIONS] < LENGTH ? shape.sizes[SIZE_POSITIONS] : LENGTH;
    assert_int_equal(pool_size_sequences(&o, "--rows", 1, o.max_model_len, &longest, &err), QUIRE_OK);
    o.n_pages = 10 * longest;
    if (quire_engine_open(&o, &e, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    const quire_info *info = quire_engine_info(e);
    assert_true(info->n_page_groups > 1);
    assert_int_equal(pool_size_sequence(&o, e, o.max_model_len), longest);
    /* behind a window nothing is kept */
    assert_true(longest < info->n_page_groups * (o.max_model_len / PAGE + 1));
    quire_engine_close(e);
    synthetic_close(&s);
}

TEST(more_pages_than_a_pool_can_have_are_refused_by_their_flag) {
    quire_options o = options_of("builtin-small");
    quire_error err = {.message = ""};
    int32_t n = 7;
    assert_int_equal(pool_size_sequences(&o, "--rows", 1 << 24, 16 * 200, &n, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.message, "--rows: takes 16777216 times 200 pages"));
    assert_int_equal(n, 7);
}

TEST_MAIN(NULL, NULL)
