#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <json-c/json.h>
#include <math.h>

#include "engine/sampler.h"

static sampling_params params(float temperature) {
    sampling_params p;
    sampling_params_init(&p);
    p.temperature = temperature;
    return p;
}

static int32_t pick(const float *logits, int32_t n, sampling_params p, uint64_t seed, uint32_t position) {
    sampler *s;
    int32_t token = -1;
    assert_int_equal(sampler_open(n, &s), QUIRE_OK);
    assert_int_equal(sampler_pick(s, logits, &p, (sample_key){seed, 0, position}, NULL, 0, &token), QUIRE_OK);
    sampler_close(s);
    return token;
}

static void greedy_takes_the_lowest_id_of_equals(void **state) {
    (void)state;
    assert_int_equal(pick((float[]){1, 3, 2, 3}, 4, params(0), 1, 1), 1);
}

static void rows_that_are_no_logits_are_refused(void **state) {
    (void)state;
    float rows[][3] = {{1, NAN, 2}, {1, INFINITY, 2}, {-INFINITY, -INFINITY, -INFINITY}};
    sampler *s;
    int32_t token;
    sampling_params greedy = params(0), warm = params(1);
    assert_int_equal(sampler_open(3, &s), QUIRE_OK);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(sampler_pick(s, rows[i], &greedy, (sample_key){0}, NULL, 0, &token), QUIRE_NUMERIC);
        assert_int_equal(sampler_pick(s, rows[i], &warm, (sample_key){0}, NULL, 0, &token), QUIRE_NUMERIC);
    }
    sampler_close(s);
}

static void forbidden_tokens_are_never_chosen(void **state) {
    (void)state;
    float logits[] = {5, 4, 3};
    int32_t forbidden[] = {0, 2, 0}, token;
    sampler *s;
    assert_int_equal(sampler_open(3, &s), QUIRE_OK);
    for (uint32_t i = 0; i < 100; i++) {
        sampling_params p = params(i % 2 ? 1.0f : 0.0f);
        p.top_k = i % 3 ? 2 : 0;
        assert_int_equal(sampler_pick(s, logits, &p, (sample_key){i, 0, i}, forbidden, 3, &token), QUIRE_OK);
        assert_int_equal(token, 1);
    }
    sampler_close(s);
}

static void a_seed_fixes_the_token_and_its_position_changes_it(void **state) {
    (void)state;
    float logits[64] = {0};
    int differ = 0;
    for (uint32_t i = 0; i < 64; i++) {
        assert_int_equal(pick(logits, 64, params(1), 7, i), pick(logits, 64, params(1), 7, i));
        differ += pick(logits, 64, params(1), 7, i) != pick(logits, 64, params(1), 8, i);
    }
    assert_true(differ > 48);
}

static void draws_follow_the_distribution(void **state) {
    (void)state;
    float logits[] = {logf(0.5f), logf(0.25f), logf(0.125f), logf(0.125f)};
    double expected[] = {0.5, 0.25, 0.125, 0.125}, chi = 0;
    int32_t counts[4] = {0}, n = 20000, token;
    sampling_params p = params(1);
    sampler *s;
    assert_int_equal(sampler_open(4, &s), QUIRE_OK);
    for (int32_t i = 0; i < n; i++) {
        assert_int_equal(sampler_pick(s, logits, &p, (sample_key){42, 0, (uint32_t)i}, NULL, 0, &token), QUIRE_OK);
        counts[token]++;
    }
    for (int i = 0; i < 4; i++) {
        double d = counts[i] - expected[i] * n;
        chi += d * d / (expected[i] * n);
    }
    assert_true(chi < 16.3); /* three degrees of freedom, p = 0.001; the seed is fixed, so it passes or fails for good */
    sampler_close(s);
}

/* ---- reference distributions ---- */

static double number(json_object *v) {
    if (json_object_is_type(v, json_type_string)) {
        const char *t = json_object_get_string(v);
        return strcmp(t, "nan") == 0 ? (double)NAN : t[0] == '-' ? -(double)INFINITY : (double)INFINITY;
    }
    return json_object_get_double(v);
}

/* false when the case uses a parameter that this sampler does not have. */
static bool read_params(json_object *from, sampling_params *p) {
    *p = params(1);
    json_object_object_foreach(from, key, value) {
        if (strcmp(key, "temperature") == 0) {
            p->temperature = (float)json_object_get_double(value);
        } else if (strcmp(key, "top_k") == 0) {
            p->top_k = json_object_get_int(value);
        } else if (strcmp(key, "top_p") == 0) {
            p->top_p = (float)json_object_get_double(value);
        } else if (strcmp(key, "min_p") == 0) {
            p->min_p = (float)json_object_get_double(value);
        } else {
            return false;
        }
    }
    return true;
}

static void compare_case(json_object *c, const sampling_params *p) {
    json_object *logits = json_object_object_get(c, "logits"), *kept = json_object_object_get(c, "kept");
    json_object *probs = json_object_object_get(c, "probs");
    int32_t n = (int32_t)json_object_array_length(logits);
    float *row = malloc((size_t)n * sizeof *row);
    const float *got;
    sampler *s;
    assert_int_equal(sampler_open(n, &s), QUIRE_OK);
    for (int32_t i = 0; i < n; i++) {
        row[i] = (float)number(json_object_array_get_idx(logits, (size_t)i));
    }
    quire_err e = sampler_distribution(s, row, p, NULL, 0, &got);
    if (!kept) {
        assert_int_not_equal(e, QUIRE_OK);
    } else {
        assert_int_equal(e, QUIRE_OK);
        size_t k = 0;
        for (int32_t i = 0; i < n; i++) {
            bool expected = k < json_object_array_length(kept) && json_object_get_int(json_object_array_get_idx(kept, k)) == i;
            double want = expected ? json_object_get_double(json_object_array_get_idx(probs, k++)) : 0.0;
            if ((!expected && got[i] != 0.0f) || !(fabs((double)got[i] - want) <= 2e-5 * want + 1e-7)) {
                fail_msg("%s: token %d has %g, expected %g", json_object_get_string(json_object_object_get(c, "name")), (int)i, (double)got[i], want);
            }
        }
    }
    sampler_close(s);
    free(row);
}

static void distributions_equal_the_references(void **state) {
    (void)state;
    const char *shared = getenv("QUIRE_SHARED");
    char path[512];
    snprintf(path, sizeof path, "%s/golden/sampling/cases.jsonl", shared ? shared : "../shared");
    FILE *f = fopen(path, "r");
    if (!f) {
        print_message("SKIP: %s is not here\n", path);
        skip();
    }
    char *line = NULL;
    size_t cap = 0;
    int n = 0;
    while (getline(&line, &cap, f) > 0) {
        json_object *c = json_tokener_parse(line), *err = json_object_object_get(c, "error");
        sampling_params p;
        bool about_logits = !err || strcmp(json_object_get_string(err), "logits") == 0;
        if (about_logits && read_params(json_object_object_get(c, "params"), &p)) {
            compare_case(c, &p);
            n++;
        }
        json_object_put(c);
    }
    free(line);
    fclose(f);
    print_message("%d cases\n", n);
    assert_true(n > 50);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_takes_the_lowest_id_of_equals),
        cmocka_unit_test(rows_that_are_no_logits_are_refused),
        cmocka_unit_test(forbidden_tokens_are_never_chosen),
        cmocka_unit_test(a_seed_fixes_the_token_and_its_position_changes_it),
        cmocka_unit_test(draws_follow_the_distribution),
        cmocka_unit_test(distributions_equal_the_references),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
