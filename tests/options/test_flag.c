/* Options as rows: values read, shown and checked; the engine's rows by themselves. */
#include <math.h>
#include <string.h>

#include "options/engine_flags.h"
#include "test.h"

typedef struct sample {
    bool is_on;
    int32_t count, power;
    double part;
    int64_t us, bytes, gib;
    quire_compute compute;
    const char *text, *isa;
} sample;

#define AT(member) .offset = offsetof(sample, member)

enum { ON, COUNT, POWER, PART, US, BYTES, GIB, COMPUTE, TEXT, ISA, N_ROWS };
static const flag rows[] = {
    [ON] = {"--on", NULL, "", FLAG_SWITCH, AT(is_on)},
    [COUNT] = {"--count -n", "N", "", FLAG_COUNT, AT(count), .minimum = 1, .maximum = 9, .number = 3},
    [POWER] = {"--power", "N", "", FLAG_POWER_OF_TWO, AT(power), .minimum = 1, .maximum = 256, .number = 16},
    [PART] = {"--part", "X", "", FLAG_PART, AT(part), .minimum = 0.5, .maximum = 1, .number = 0.75},
    [US] = {"--ms", "MS", "", FLAG_MILLISECONDS, AT(us), .minimum = 0, .maximum = 10, .number = 1500},
    [BYTES] = {"--bytes", "BYTES", "", FLAG_BYTES, AT(bytes), .minimum = 1024, .number = 65536},
    [GIB] = {"--gib", "GIB", "", FLAG_GIB, AT(gib), .number = 0x1p30},
    [COMPUTE] = {"--compute", NULL, "", FLAG_CHOICE, AT(compute), .choices = choices_compute},
    [TEXT] = {"--text", "TEXT", "", FLAG_TEXT, AT(text), .text = "a"},
    [ISA] = {"--isa", NULL, "", FLAG_NAME, AT(isa), .choices = choices_isa, .text = "auto"},
};

static sample defaults(void) {
    sample s;
    memset(&s, 0xa5, sizeof s);
    for (int i = 0; i < N_ROWS; i++) {
        flag_set_default(&rows[i], &s);
    }
    return s;
}

TEST(defaults_are_those_of_the_rows_and_pass_their_checks) {
    static const char *const shown[] = {
        [COUNT] = "3", [POWER] = "16",     [PART] = "0.75", [US] = "1.5",  [BYTES] = "64K",
        [GIB] = "1",   [COMPUTE] = "auto", [TEXT] = "a",    [ISA] = "auto"};
    const sample s = defaults();
    char text[32];
    assert_false(s.is_on);
    assert_false(flag_show_option(&rows[ON], &s, text, sizeof text));
    for (int i = COUNT; i < N_ROWS; i++) {
        assert_true(flag_show_option(&rows[i], &s, text, sizeof text));
        assert_string_equal(text, shown[i]);
        assert_int_equal(flag_check_option(&rows[i], &s, NULL), QUIRE_OK);
    }
}

static void refused(int row, const char *text, const char *what) {
    sample s = defaults(), before = s;
    quire_error err = {0};
    assert_int_equal(flag_set_option(&rows[row], "--x", text, &s, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.message, what));
    assert_int_equal(strncmp(err.message, "--x ", 4), 0);
    assert_memory_equal(&s, &before, sizeof s);
}

TEST(texts_are_read_by_type) {
    sample s = defaults();
    assert_int_equal(flag_set_option(&rows[ON], "--on", NULL, &s, NULL), QUIRE_OK);
    assert_true(s.is_on);
    assert_int_equal(flag_set_option(&rows[ON], "--on", "off", &s, NULL), QUIRE_OK);
    assert_false(s.is_on);
    assert_int_equal(flag_set_option(&rows[COUNT], "-n", "9", &s, NULL), QUIRE_OK);
    assert_int_equal(s.count, 9);
    assert_int_equal(flag_set_option(&rows[US], "--ms", "2.5", &s, NULL), QUIRE_OK);
    assert_int_equal(s.us, 2500);
    assert_int_equal(flag_set_option(&rows[BYTES], "--bytes", "1.5k", &s, NULL), QUIRE_OK);
    assert_int_equal(s.bytes, 1536);
    assert_int_equal(flag_set_option(&rows[GIB], "--gib", "2", &s, NULL), QUIRE_OK);
    assert_int_equal(s.gib, (int64_t)2 << 30);
    assert_int_equal(flag_set_option(&rows[GIB], "--gib", "512M", &s, NULL), QUIRE_OK);
    assert_int_equal(s.gib, (int64_t)512 << 20);
    assert_int_equal(flag_set_option(&rows[COMPUTE], "--compute", "bfloat16", &s, NULL), QUIRE_OK);
    assert_int_equal(s.compute, QUIRE_COMPUTE_BF16);
    assert_int_equal(flag_set_option(&rows[ISA], "--isa", "avx2", &s, NULL), QUIRE_OK);
    assert_string_equal(s.isa, "avx2");
}

TEST(wrong_texts_are_refused_and_change_nothing) {
    refused(ON, "2", "1 or 0");
    refused(COUNT, "0", "from 1 to 9");
    refused(COUNT, "3x", "whole number");
    refused(COUNT, "99999999999999999999", "whole number");
    refused(POWER, "24", "power of two");
    refused(PART, "nan", "number");
    refused(PART, "0.4", "from 0.5 to 1");
    refused(US, "-1", "from 0 to 10");
    refused(BYTES, "1", "at least 1024");
    refused(BYTES, "1X", "K, M, G or T");
    refused(BYTES, "9999999T", "size");
    refused(GIB, "-1", "GiB");
    refused(COMPUTE, "fp64", "auto, f32, bf16, int8, fp8");
    refused(ISA, "mmx", "auto, plain");
}

static void invalid(int row, const sample *s, const char *what) {
    quire_error err = {0};
    assert_int_equal(flag_check_option(&rows[row], s, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.message, what));
}

TEST(values_that_no_text_could_have_set_are_found) {
    sample s = defaults();
    s.count = 10;
    s.power = 17;
    s.part = (double)NAN;
    s.us = -1;
    s.bytes = INT64_MIN;
    s.gib = INT64_MAX;
    s.compute = (quire_compute)99;
    s.text = s.isa = NULL;
    invalid(COUNT, &s, "--count 10");
    invalid(POWER, &s, "--power 17");
    invalid(PART, &s, "--part");
    invalid(US, &s, "--ms");
    invalid(BYTES, &s, "--bytes");
    invalid(GIB, &s, "--gib");
    invalid(COMPUTE, &s, "--compute 99");
    invalid(TEXT, &s, "NULL");
    invalid(ISA, &s, "NULL");
    s.isa = "mmx";
    invalid(ISA, &s, "mmx");
}

/* Every row of the engine: a default that passes, choices that are read back, no other
 * row's member, and a name that finds it. */
TEST(the_engines_rows_are_sound) {
    unsigned char taken[sizeof(quire_options)] = {0};
    quire_options o = {.size = sizeof o};
    char text[64];
    for (const flag *const *group = engine_flags; *group != NULL; group++) {
        for (const flag *f = *group; f->names != NULL; f++) {
            const char *names = f->names;
            while (*names != 0) {
                str name = flag_next_name(&names);
                char copy[64] = {0};
                memcpy(copy, name.p, name.n);
                assert_true(strncmp(copy, "--", 2) != 0 || engine_flag_find(copy + 2) == f);
            }
            if (flag_is_option(f)) {
                assert_int_equal(taken[f->offset]++, 0);
                flag_set_default(f, &o);
                assert_int_equal(flag_check_option(f, &o, NULL), QUIRE_OK);
            }
            for (const flag_choice *c = f->choices;
                 c != NULL && c->spelling != NULL && f->type == FLAG_CHOICE; c++) {
                assert_int_equal(flag_set_option(f, "--x", c->spelling, &o, NULL), QUIRE_OK);
                assert_true(flag_show_option(f, &o, text, sizeof text));
                assert_int_equal(flag_choice_find(f->choices, text)->value, c->value);
            }
        }
    }
    assert_ptr_equal(engine_flag_find("max_num_seqs"), engine_flag_find("--parallel"));
    assert_null(engine_flag_find("max-num-seq"));
    assert_null(engine_flag_find("a-name-that-is-longer-than-any-that-there-is-and-than-the-room-for-it"));
}

TEST_MAIN(NULL, NULL)
