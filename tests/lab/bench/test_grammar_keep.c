/* Grammars that are kept at a time are of different schemas, all are counted, and what is
 * resident grows by no less than they count. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/bench/grammar_keep.h"
#include "test.h"
#include "json/json.h"

enum { N_MADE = 2000, N_KEPT = 1000 };

static int compare(const void *x, const void *y) {
    const strbuf *a = x, *b = y;
    int c = memcmp(a->p, b->p, a->n < b->n ? a->n : b->n);
    return c != 0 ? c : (a->n > b->n) - (a->n < b->n);
}

TEST(made_schemas_are_different_and_the_same_each_time) {
    static strbuf made[N_MADE];
    strbuf again = {0};
    for (int32_t i = 0; i < N_MADE; i++) {
        assert_int_equal(grammar_keep_schema(i, &made[i]), QUIRE_OK);
        json_value *v = json_document((str){made[i].p, made[i].n});
        assert_true(json_length(json_get(v, "properties")) >= 4);
        json_drop(v);
    }
    assert_int_equal(grammar_keep_schema(7, &again), QUIRE_OK);
    assert_int_equal(compare(&again, &made[7]), 0);
    qsort(made, N_MADE, sizeof *made, compare);
    for (int32_t i = 1; i < N_MADE; i++) {
        assert_int_not_equal(compare(&made[i - 1], &made[i]), 0);
    }
    for (int32_t i = 0; i < N_MADE; i++) {
        strbuf_deinit(&made[i]);
    }
    strbuf_deinit(&again);
}

TEST(all_that_are_asked_for_are_kept_and_counted) {
    grammar_kept one, many;
    quire_error err;
    assert_int_equal(grammar_keep_run(NULL, 1, &one, &err), QUIRE_OK);
    assert_int_equal(grammar_keep_run(NULL, N_KEPT, &many, &err), QUIRE_OK);
    assert_int_equal(one.n, 1);
    assert_int_equal(many.n, N_KEPT);
    assert_true(many.grammar_bytes > one.grammar_bytes * 200);
    assert_true(many.growth_bytes < 0 || many.growth_bytes > (int64_t)many.grammar_bytes / 4);
}

TEST(schemas_of_files_come_again_until_there_are_enough) {
    static const char lines[] = "{\"schema\":{\"type\":\"integer\"}}\n{\"schema\":{\"enum\":[\"a\",\"b\"]}}"
                                "\n{\"schema\":{\"pattern\":1}}\n";
    static const char none[] = "{\"schema\":{\"type\":1}}\n";
    char path[] = "/tmp/quire-keep-XXXXXX";
    grammar_kept kept;
    quire_error err;
    int fd = mkstemp(path);
    FILE *f = fdopen(fd, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(lines, 1, sizeof lines - 1, f), sizeof lines - 1);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(grammar_keep_run(path, 7, &kept, &err), QUIRE_OK);
    assert_int_equal(kept.n, 7);
    f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(none, 1, sizeof none - 1, f), sizeof none - 1);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(grammar_keep_run(path, 7, &kept, &err), QUIRE_INVALID);
    (void)remove(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(made_schemas_are_different_and_the_same_each_time),
        cmocka_unit_test(all_that_are_asked_for_are_kept_and_counted),
        cmocka_unit_test(schemas_of_files_come_again_until_there_are_enough),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
