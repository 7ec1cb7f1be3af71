/* OUT.part and OUT, in a directory of their own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli/batch_part.h"
#include "test.h"

enum { N = 3 * BATCH_AHEAD };

static const char about[] = "{\"prompts\":\"in\",\"sha256\":\"00\",\"request\":{\"n\":1}}";
static char folder[] = "/tmp/quire_part_XXXXXX", out[64], part[80], info[96];
static uint64_t seed;

static int make_folder(void **state) {
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(out, sizeof out, "%s/out", folder);
    snprintf(part, sizeof part, "%s.part", out);
    snprintf(info, sizeof info, "%s.info", part);
    seed = (uint64_t)time(NULL);
    print_message("seed %llu\n", (unsigned long long)seed);
    return 0;
}

static int remove_folder(void **state) {
    (void)state;
    (void)unlink(out);
    (void)unlink(part);
    (void)unlink(info);
    return rmdir(folder);
}

static uint32_t below(uint32_t n) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33) % n;
}

/* The line of prompt i: of any length, and its own. */
static str line_of(size_t i) {
    static char line[400];
    int n =
        snprintf(line, sizeof line, "{\"index\":%zu,\"text\":\"%0*d\"}", i, 1 + (int)(i * 37 % 300), (int)i);
    return (str){line, (size_t)n};
}

static void open_part(bool resume, batch_part *p) {
    quire_error err = {0};
    quire_err e = batch_part_open(out, resume, str_of(about), p, &err);
    if (e != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
}

/* Reads what the part has; how many lines, each marked in has. */
static size_t read_part(batch_part *p, bool *has) {
    size_t n = 0, index;
    bool is_error, more = true;
    for (;; n++) {
        assert_int_equal(batch_part_next(p, &index, &is_error, &more, NULL), QUIRE_OK);
        if (!more) {
            return n;
        }
        assert_true(index < N && !has[index] && !is_error);
        has[index] = true;
    }
}

/* Adds what is missing in an order that runs at most BATCH_AHEAD ahead, until `most` are
 * there. */
static void add_some(batch_part *p, bool *has, size_t most) {
    size_t oldest = 0;
    while (p->n < most) {
        for (; oldest < N && has[oldest]; oldest++) {
        }
        size_t end = oldest + BATCH_AHEAD < N ? oldest + BATCH_AHEAD : N,
               i = oldest + below((uint32_t)(end - oldest));
        i = below(3) == 0 ? oldest : i;
        if (!has[i]) {
            assert_int_equal(batch_part_add(p, i, line_of(i), NULL), QUIRE_OK);
            has[i] = true;
        }
    }
}

static void expect_all(void) {
    static char line[512];
    FILE *f = fopen(out, "rb");
    assert_non_null(f);
    for (size_t i = 0; i < N; i++) {
        str wanted = line_of(i);
        assert_non_null(fgets(line, sizeof line, f));
        assert_int_equal(strlen(line), wanted.n + 1);
        assert_memory_equal(line, wanted.p, wanted.n);
    }
    assert_int_equal(fgetc(f), EOF);
    fclose(f);
    assert_int_not_equal(access(part, F_OK), 0);
    assert_int_not_equal(access(info, F_OK), 0);
}

static void append(const char *path, const char *text, size_t times) {
    FILE *f = fopen(path, "ab");
    for (size_t i = 0; i < times; i++) {
        assert_true(fputs(text, f) >= 0);
    }
    fclose(f);
}

TEST(answers_in_any_order_with_breaks_and_cut_lines_come_out_in_order) {
    bool *has = calloc(N, sizeof *has);
    size_t n_before = 0;
    for (int run = 0; run < 4; run++) {
        batch_part p;
        open_part(run > 0, &p);
        memset(has, 0, N);
        assert_int_equal(read_part(&p, has), n_before);
        n_before = run < 3 ? n_before + below(N / 3) : N;
        add_some(&p, has, n_before);
        if (run < 3) {
            batch_part_close(&p);
            append(part, "{\"index\":3,\"te", 1 + below(2) * 1000);
            continue;
        }
        assert_int_equal(batch_part_finish(&p, NULL), QUIRE_OK);
        batch_part_close(&p);
    }
    expect_all();
    free(has);
}

/* The part becomes OUT as it is. */
TEST(answers_in_order_keep_nothing_of_a_cut_line_that_was_longer) {
    bool *has = calloc(N, sizeof *has);
    batch_part p;
    open_part(false, &p);
    assert_int_equal(batch_part_add(&p, 0, line_of(0), NULL), QUIRE_OK);
    batch_part_close(&p);
    append(part, "{\"index\":1,\"text\":\"cut ", (size_t)N * 20);
    open_part(true, &p);
    assert_int_equal(read_part(&p, has), 1);
    for (size_t i = 1; i < N; i++) {
        assert_int_equal(batch_part_add(&p, i, line_of(i), NULL), QUIRE_OK);
    }
    assert_true(p.in_order);
    assert_int_equal(batch_part_finish(&p, NULL), QUIRE_OK);
    batch_part_close(&p);
    expect_all();
    free(has);
}

TEST(a_part_without_answers_goes_and_another_runs_stays) {
    batch_part p;
    quire_error err;
    (void)unlink(out);
    open_part(false, &p);
    batch_part_close(&p);
    assert_int_not_equal(access(part, F_OK), 0);
    assert_int_not_equal(access(info, F_OK), 0);
    open_part(false, &p);
    assert_int_equal(batch_part_add(&p, 0, line_of(0), NULL), QUIRE_OK);
    batch_part_close(&p);
    assert_int_equal(batch_part_check(out, false, &err), QUIRE_INVALID);
    assert_int_equal(batch_part_open(out, false, str_of(about), &p, &err), QUIRE_INVALID);
    assert_int_equal(batch_part_open(out, true, str_of("{\"prompts\":\"in\",\"sha256\":\"01\"}"), &p, &err),
                     QUIRE_INVALID);
    assert_non_null(strstr(err.message, "other prompts"));
    struct stat s;
    assert_int_equal(stat(part, &s), 0);
    assert_int_equal(s.st_size, line_of(0).n + 1);
    assert_int_equal(access(info, F_OK), 0);
}

TEST_MAIN(make_folder, remove_folder)
