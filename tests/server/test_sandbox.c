/* Sandboxes: the commands of /pool on the worked examples, and what is refused. */
#include <stdio.h>
#include <stdlib.h>

#include "base/rng.h"
#include "server/sandbox.h"
#include "test.h"
#include "json/json.h"

static sandboxes *all;
static strbuf out;
static quire_error err;
static int64_t now;

static int set_up(void **state) {
    (void)state;
    now = 1000;
    return sandboxes_open(&all) == QUIRE_OK ? 0 : -1;
}

static int tear_down(void **state) {
    (void)state;
    sandboxes_close(all);
    strbuf_deinit(&out);
    return 0;
}

static quire_err run(const char *body) {
    strbuf_clear(&out);
    err = (quire_error){.message = ""};
    return sandboxes_run(all, str_of(body), ++now, &out, &err);
}

/* The response of the last command; the caller puts it. */
static json_value *response(void) {
    json_value *o = json_document((str){out.p, out.n});
    assert_non_null(o);
    return o;
}

static char name[40];

static void open_sandbox(void) {
    assert_int_equal(run("{\"do\":\"open\"}"), QUIRE_OK);
    json_value *o = response();
    snprintf(name, sizeof name, "%s", json_get_str(o, "sandbox").p);
    json_drop(o);
}

/* Members of a command in the present sandbox, without quotes around names: do:new,... is
 * written 'do':'new',... */
static quire_err command(const char *members) {
    char body[600];
    int n = snprintf(body, sizeof body, "{'sandbox':'%s',%s}", name, members);
    assert_true(n > 0 && (size_t)n < sizeof body);
    for (char *p = body; *p != '\0'; p++) {
        *p = *p == '\'' ? '"' : *p;
    }
    return run(body);
}

static void do_it(const char *members) {
    if (command(members) != QUIRE_OK) {
        fail_msg("%s: %s", members, err.message);
    }
}

static void expect(int held, int free_pages, int cached, int unshared) {
    json_value *o = response(), *c = json_get(o, "counts");
    assert_int_equal((int)json_int64(json_get(c, "held")), held);
    assert_int_equal((int)json_int64(json_get(c, "free")), free_pages);
    assert_int_equal((int)json_int64(json_get(c, "cached")), cached);
    assert_int_equal((int)json_int64(json_get(c, "unshared")), unshared);
    json_value *pages = json_get(o, "pages");
    assert_int_equal(json_length(pages), (size_t)(held + cached));
    json_drop(o);
}

/* Of the first sequence listed. */
static int tokens_of_first(void) {
    json_value *o = response(), *first = json_at(json_get(o, "seqs"), 0);
    int n = (int)json_int64(json_get(first, "tokens"));
    json_drop(o);
    return n;
}

static int count_of_page(int page) {
    json_value *o = response(), *pages = json_get(o, "pages");
    int count = 0;
    for (size_t i = 0; i < json_length(pages); i++) {
        json_value *p = json_at(pages, i);
        if ((int)json_int64(json_at(p, 0)) == page) {
            count = (int)json_int64(json_at(p, 1));
        }
    }
    json_drop(o);
    return count;
}

static void append_to_four(void) {
    do_it("'do':'append','seq':1,'tokens':10");
    do_it("'do':'append','seq':2,'tokens':10");
    do_it("'do':'append','seq':3,'tokens':10");
    do_it("'do':'append','seq':4,'tokens':10");
}

TEST_WITHIN(worked_examples_1_and_2, set_up, tear_down) {
    open_sandbox();
    do_it("'do':'new','tokens':64,'story':0");
    do_it("'do':'fork','seq':1,'n':3");
    expect(4, 60, 0, 16);
    for (int page = 0; page < 4; page++) {
        assert_int_equal(count_of_page(page), 4);
    }
    append_to_four();
    expect(8, 56, 0, 20);
}

TEST_WITHIN(worked_examples_3_and_4, set_up, tear_down) {
    open_sandbox();
    do_it("'do':'new','tokens':64,'story':0");
    do_it("'do':'fork','seq':1,'n':3");
    do_it("'do':'write','seq':2");
    expect(5, 59, 0, 16);
    assert_int_equal(count_of_page(3), 3);
    assert_int_equal(count_of_page(4), 1);
    do_it("'do':'write','seq':3");
    do_it("'do':'write','seq':4");
    expect(7, 57, 0, 16);
    assert_int_equal(count_of_page(3), 1);
    append_to_four();
    expect(11, 53, 0, 20);
}

TEST_WITHIN(worked_example_5, set_up, tear_down) {
    open_sandbox();
    do_it("'do':'new','tokens':60,'story':0");
    do_it("'do':'fork','seq':1,'n':3");
    append_to_four();
    expect(11, 53, 0, 20);
}

TEST_WITHIN(what_is_finished_is_cached_found_again_and_evicted, set_up, tear_down) {
    open_sandbox();
    do_it("'do':'new','tokens':40,'story':3");
    do_it("'do':'finish','seq':1");
    expect(0, 61, 3, 0);
    do_it("'do':'new','tokens':40,'story':3");
    /* all but the last token found; the part-filled page is copied before that one is
     * written */
    expect(3, 60, 1, 3);
    do_it("'do':'finish','seq':2");
    do_it("'do':'evict','n':2");
    expect(0, 63, 1, 0);
    do_it("'do':'evict','n':64"); /* more than there are */
    expect(0, 64, 0, 0);
    do_it("'do':'new','tokens':16,'story':3");
    do_it("'do':'page','page':0");
    json_value *o = response();
    const char *text = json_get_str(o, "text").p;
    assert_memory_equal(text, "Once upon a time", 16);
    assert_int_equal(json_length(json_get(o, "tokens")), 16);
    json_drop(o);
    do_it("'do':'reset'");
    expect(0, 64, 0, 0);
}

TEST_WITHIN(what_does_not_fit_is_refused_and_changes_nothing, set_up, tear_down) {
    open_sandbox();
    do_it("'do':'new','tokens':1024,'story':0");
    expect(64, 0, 0, 64);
    assert_int_equal(command("'do':'append','seq':1,'tokens':1"), QUIRE_NO_ROOM);
    /* its last page can be found: it would be copied */
    assert_int_equal(command("'do':'write','seq':1"), QUIRE_NO_ROOM);
    assert_int_equal(command("'do':'new','tokens':1,'story':1"), QUIRE_NO_ROOM);
    do_it("'do':'state'");
    expect(64, 0, 0, 64);
    assert_int_equal(tokens_of_first(), 1024);
    do_it("'do':'reset'");
    do_it("'do':'new','tokens':1020,'story':0");
    do_it("'do':'write','seq':1"); /* its last page is part-filled and its own */
    expect(64, 0, 0, 64);
    assert_int_equal(command("'do':'fork','seq':1,'n':64"), QUIRE_NO_ROOM);
    do_it("'do':'fork','seq':1,'n':63");
    expect(64, 0, 0, 64 * 64);
}

TEST_WITHIN(commands_out_of_range_are_refused, set_up, tear_down) {
    static const struct {
        const char *members, *param;
    } bad[] = {
        {"'do':'new','tokens':0,'story':0", "tokens"},
        {"'do':'new','tokens':-1,'story':0", "tokens"},
        {"'do':'new','tokens':1025,'story':0", "tokens"},
        {"'do':'new','tokens':99999999999999999999999999,'story':0", "tokens"},
        {"'do':'new','tokens':1e3,'story':0", "tokens"},
        {"'do':'new','tokens':'64','story':0", "tokens"},
        {"'do':'new','tokens':null,'story':0", "tokens"},
        {"'do':'new','story':0", "tokens"},
        {"'do':'new','tokens':64,'story':4", "story"},
        {"'do':'append','seq':2,'tokens':1", "seq"},
        {"'do':'append','seq':-9223372036854775808,'tokens':1", "seq"},
        {"'do':'append','seq':1,'tokens':9223372036854775807", "tokens"},
        {"'do':'fork','seq':1,'n':0", "n"},
        {"'do':'fork','seq':1,'n':65", "n"},
        {"'do':'finish','seq':7", "seq"},
        {"'do':'write','seq':[1]", "seq"},
        {"'do':'evict','n':-1", "n"},
        {"'do':'page','page':64", "page"},
        {"'do':'page','page':-1", "page"},
        {"'do':'explode'", "do"},
        {"'do':7", "do"},
    };
    open_sandbox();
    do_it("'do':'new','tokens':20,'story':0");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(command(bad[i].members), QUIRE_BAD_REQUEST);
        assert_string_equal(err.param, bad[i].param);
        assert_true(err.message[0] != '\0' && out.n == 0);
    }
    do_it("'do':'state'");
    expect(2, 62, 0, 2);
}

TEST_WITHIN(what_is_no_command_is_refused, set_up, tear_down) {
    static const char *const bad[] = {"",
                                      "{",
                                      "[]",
                                      "1",
                                      "null",
                                      "\"open\"",
                                      "{\"do\":\"open\"} x",
                                      "{\"do\":{\"do\":{\"do\":{\"do\":1}}}}",
                                      "{'do':'open'}"};
    char huge[SANDBOX_BODY_BYTES + 2];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(run(bad[i]), QUIRE_BAD_REQUEST);
    }
    memset(huge, ' ', sizeof huge - 1);
    huge[sizeof huge - 1] = '\0';
    assert_int_equal(run(huge), QUIRE_BAD_REQUEST);
    assert_int_equal(run("{\"do\":\"state\"}"), QUIRE_NOT_FOUND);
    assert_int_equal(run("{\"do\":\"state\",\"sandbox\":\"\"}"), QUIRE_NOT_FOUND);
    assert_int_equal(run("{\"do\":\"state\",\"sandbox\":\"00000000000000000000000000000000\"}"),
                     QUIRE_NOT_FOUND);
}

TEST_WITHIN(sandboxes_are_bounded_and_given_up_when_idle, set_up, tear_down) {
    char first[40], second[40];
    open_sandbox();
    memcpy(first, name, sizeof first);
    open_sandbox();
    memcpy(second, name, sizeof second);
    for (int i = 2; i < SANDBOX_MAX; i++) {
        open_sandbox();
    }
    memcpy(name, first, sizeof name);
    do_it("'do':'state'"); /* used now: the second is the one unused longest */
    open_sandbox();
    memcpy(name, second, sizeof name);
    assert_int_equal(command("'do':'state'"), QUIRE_NOT_FOUND);
    memcpy(name, first, sizeof name);
    do_it("'do':'state'");
    now += SANDBOX_IDLE_US + 10;
    assert_int_equal(command("'do':'state'"), QUIRE_NOT_FOUND);
}

/* Any commands in any order: the responses stay valid and the counts agree. */
TEST_WITHIN(random_commands_keep_the_counts_right, set_up, tear_down) {
    uint64_t seed = rng_os_seed();
    printf("seed %llu\n", (unsigned long long)seed);
    open_sandbox();
    for (int i = 0; i < 20000; i++) {
        static const char *const forms[] = {
            "'do':'new','tokens':%d,'story':%d", "'do':'append','seq':%d,'tokens':%d",
            "'do':'fork','seq':%d,'n':%d",       "'do':'write','seq':%d,'n':%d",
            "'do':'finish','seq':%d,'n':%d",     "'do':'evict','n':%d,'x':%d"};
        static int newest = 1;
        char text[120];
        int what = (int)(rng_next(&seed) % 8), seq = newest - (int)(rng_next(&seed) % 8);
        what = what > 5 ? 4 : what;
        int a = what == 0 || what == 5 ? 1 + (int)(rng_next(&seed) % 90) : seq,
            b = 1 + (int)(rng_next(&seed) % 3);
        snprintf(text, sizeof text, forms[what], a, what == 1 ? b * 9 : b);
        if (command(text) != QUIRE_OK) {
            assert_true(err.code == QUIRE_BAD_REQUEST || err.code == QUIRE_NO_ROOM);
            continue;
        }
        json_value *o = response(), *c = json_get(o, "counts"), *seqs = json_get(o, "seqs");
        int held = (int)json_int64(json_get(c, "held")), cached = (int)json_int64(json_get(c, "cached"));
        int unshared = 0;
        assert_int_equal(held + cached + (int)json_int64(json_get(c, "free")), 64);
        assert_int_equal(json_length(json_get(o, "pages")), (size_t)(held + cached));
        for (size_t k = 0; k < json_length(seqs); k++) {
            json_value *s = json_at(seqs, k);
            int id = (int)json_int64(json_get(s, "id"));
            newest = id > newest ? id : newest;
            unshared += (int)json_int64(json_get(s, "pages"));
        }
        assert_int_equal((int)json_int64(json_get(c, "unshared")), unshared);
        json_drop(o);
    }
}

TEST_MAIN(NULL, NULL)
