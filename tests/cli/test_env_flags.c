/* Flags from the environment: what a variable sets, what goes before it, and what is left
 * of a secret. */
#include <string.h>

#include "base/mem.h"
#include "cli/set_flag.h"
#include "test.h"

#define AT(member) .offset = offsetof(cli_options, member)

static const flag_choice token[] = {{"token", NULL, QUIRE_PREFIX_CACHE_TOKEN}, {0}};
static const flag own_flags[] = {
    {"--max-num-seqs --parallel -np", "N", "", FLAG_COUNT, AT(engine.max_seqs), .minimum = 1, .maximum = 100},
    {"--api-key", "KEY", "", FLAG_KEY, AT(api_keys), .secret = true},
    {"--out -o", "FILE", "", FLAG_TEXT, AT(out)},
    {"--prefix-cache", NULL, "", FLAG_CHOICE, AT(engine.prefix_cache), .choices = choices_prefix_cache},
    {"--enable-prefix-caching", NULL, "", FLAG_SYNONYM, AT(engine.prefix_cache), .choices = token},
    {"--echo", NULL, "", FLAG_SWITCH, AT(echo)},
    {"--stop", "TEXT", "", FLAG_FIELD_TEXTS, .field = "stop"},
    {"--port", "N", "", FLAG_COUNT, AT(server.port), .minimum = 0, .maximum = 65535},
    {"--metrics", NULL, "another server's", FLAG_TAKEN, .offset = 0},
    {0},
};
enum { MAX_NUM_SEQS, API_KEY, OUT, PREFIX_CACHE };
static const flag *const groups[] = {own_flags, flags_help, NULL};
static const command own = {.name = "own", .flags = groups, .options_size = sizeof(cli_options)};

/* Reads variables, of which the last is NULL, where one flag (or none) was given. */
static quire_err read_given(cli_options *o, const flag *given, char **variables, quire_error *err) {
    const flag *const list[] = {given, NULL};
    *o = (cli_options){0};
    return env_flags_read(o, &own, list, variables, err);
}

static void forget(cli_options *o) {
    for (int i = 0; i < o->n_secrets; i++) {
        mem_free(o->secrets[i]);
    }
    strbuf_deinit(&o->from_environment);
    body_deinit(&o->fields);
}

TEST(a_variable_sets_its_flag_by_any_long_name) {
    char first[] = "QUIRE_PARALLEL=8", second[] = "QUIRE_OUT=a=b", third[] = "QUIRE_STOP=x",
         other[] = "QUIRES_OUT=c", brief[] = "QUIRE_NP=9";
    char *variables[] = {other, first, brief, second, third, NULL};
    cli_options o;
    assert_int_equal(read_given(&o, NULL, variables, NULL), QUIRE_OK);
    assert_int_equal(o.engine.max_seqs, 8);
    assert_string_equal(o.out, "a=b");
    assert_string_equal(o.fields.members[0].json.p, "[\"x\"]");
    assert_string_equal(o.from_environment.p, "QUIRE_PARALLEL, QUIRE_OUT, QUIRE_STOP");
    forget(&o);
}

TEST(the_flags_own_name_goes_before_its_others_and_an_empty_variable_counts_as_none) {
    char first[] = "QUIRE_PARALLEL=8", second[] = "QUIRE_MAX_NUM_SEQS=9", empty[] = "QUIRE_OUT=";
    char *variables[] = {first, second, empty, NULL};
    cli_options o;
    assert_int_equal(read_given(&o, NULL, variables, NULL), QUIRE_OK);
    assert_int_equal(o.engine.max_seqs, 9);
    assert_null(o.out);
    forget(&o);
}

TEST(a_given_flag_keeps_variables_of_what_sets_the_same_unread) {
    char first[] = "QUIRE_MAX_NUM_SEQS=many", second[] = "QUIRE_ENABLE_PREFIX_CACHING=1";
    char *seqs[] = {first, NULL}, *cache[] = {second, NULL};
    cli_options o;
    assert_int_equal(read_given(&o, &own_flags[MAX_NUM_SEQS], seqs, NULL), QUIRE_OK);
    assert_int_equal(o.engine.max_seqs, 0);
    forget(&o);
    assert_int_equal(read_given(&o, &own_flags[PREFIX_CACHE], cache, NULL), QUIRE_OK);
    assert_int_equal(o.engine.prefix_cache, QUIRE_PREFIX_CACHE_NONE);
    forget(&o);
    assert_int_equal(read_given(&o, &own_flags[OUT], cache, NULL), QUIRE_OK);
    assert_int_equal(o.engine.prefix_cache, QUIRE_PREFIX_CACHE_TOKEN);
    forget(&o);
}

TEST(a_secret_is_erased_where_it_stood) {
    char key[] = "QUIRE_API_KEY=hush";
    char *variables[] = {key, NULL};
    cli_options o;
    assert_int_equal(read_given(&o, NULL, variables, NULL), QUIRE_OK);
    assert_string_equal(o.api_keys[0], "hush");
    assert_memory_equal(key, "QUIRE_API_KEY=\0\0\0\0", sizeof key - 1);
    forget(&o);
    char unread[] = "QUIRE_API_KEY=hush";
    variables[0] = unread;
    assert_int_equal(read_given(&o, &own_flags[API_KEY], variables, NULL), QUIRE_OK);
    assert_memory_equal(unread, "QUIRE_API_KEY=\0\0\0\0", sizeof unread - 1);
    assert_int_equal(o.server.n_api_keys, 0);
    forget(&o);
}

TEST(switches_take_words) {
    static const struct {
        char variable[24];
        quire_err e;
        bool on;
    } cases[] = {{"QUIRE_ECHO=1", QUIRE_OK, true},      {"QUIRE_ECHO=Yes", QUIRE_OK, true},
                 {"QUIRE_ECHO=on", QUIRE_OK, true},     {"QUIRE_ECHO=0", QUIRE_OK, false},
                 {"QUIRE_ECHO=FALSE", QUIRE_OK, false}, {"QUIRE_ECHO=off", QUIRE_OK, false},
                 {"QUIRE_ECHO=2", QUIRE_INVALID, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char variable[24], *variables[] = {variable, NULL};
        quire_error err;
        cli_options o;
        memcpy(variable, cases[i].variable, sizeof variable);
        assert_int_equal(read_given(&o, NULL, variables, &err), cases[i].e);
        assert_int_equal(o.echo, cases[i].on);
        assert_true(cases[i].e == QUIRE_OK ||
                    strstr(err.message, "QUIRE_ECHO 2: must be 1 or 0") == err.message);
        forget(&o);
    }
}

TEST(errors_name_the_variable) {
    char variable[] = "QUIRE_MAX_NUM_SEQS=1000", *variables[] = {variable, NULL};
    quire_error err;
    cli_options o;
    assert_int_equal(read_given(&o, NULL, variables, &err), QUIRE_INVALID);
    assert_string_equal(err.message, "QUIRE_MAX_NUM_SEQS 1000: must be a whole number from 1 to 100");
    forget(&o);
}

TEST(what_is_no_flag_of_ours_is_not_read) {
    char help[] = "QUIRE_HELP=1", metrics[] = "QUIRE_METRICS=1", link[] = "QUIRE_PORT=tcp://10.0.0.1:80";
    char *variables[] = {help, metrics, link, NULL};
    cli_options o;
    assert_int_equal(read_given(&o, NULL, variables, NULL), QUIRE_OK);
    assert_false(o.help);
    assert_int_equal(o.from_environment.n, 0);
    assert_int_equal(env_flags_read(&o, &own, (const flag *const[]){NULL}, NULL, NULL), QUIRE_OK);
}

TEST(short_names_have_no_variable) {
    strbuf name = {0};
    quire_err e = QUIRE_OK;
    assert_false(env_flags_name(str_of("-np"), &name, &e));
    assert_true(env_flags_name(str_of("--max-num-seqs"), &name, &e));
    assert_int_equal(e, QUIRE_OK);
    assert_string_equal(name.p, "QUIRE_MAX_NUM_SEQS");
    strbuf_deinit(&name);
}

TEST_MAIN(NULL, NULL)
