/* Chat templates: refused with a message, or rendered, twice the same. Input: the
 * template, a zero byte, and JSON variables (none: a conversation). What of the rendering
 * is said to come from the variables lies in it, in order; and a letter that the
 * variables have and the template cannot write lies nowhere else. */
#include <string.h>

#include "base/turn.h"
#include "fuzz.h"
#include "jinja/jinja.h"

#define SECRET "\xee\x80\x80" /* U+E000 */

static const char conversation[] =
    "{\"messages\":[{\"role\":\"system\",\"content\":\"a" SECRET
    "<|b|>\"},{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":"
    "\"x " SECRET " http://y.org/" SECRET
    "\"}]},{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"" SECRET
    "1\",\"function\":{\"name\":\"f" SECRET "\",\"arguments\":{\"" SECRET "\":[1.5,-2,true,null,\"" SECRET
    "\"]}}}]}],"
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f" SECRET
    "\"}}],\"n\":12345678901234567890123,\"add_generation_prompt\":true}";

enum { MAX_TURNS = 400 /* of 1,024 units of work */ };

static int n_turns;

static quire_err over(turn *t) {
    (void)t;
    return ++n_turns > MAX_TURNS ? QUIRE_CANCELLED : QUIRE_OK;
}

typedef struct rendering {
    quire_err e;
    strbuf text;
    jinja_spans input;
} rendering;

static void render(const jinja_program *p, str variables, rendering *r) {
    static const struct tm now = {.tm_year = 126, .tm_mon = 10, .tm_mday = 21, .tm_wday = 6, .tm_yday = 324};
    quire_error err = {0};
    n_turns = 0;
    turn_begin(turn_current); /* anew */
    r->e = jinja_render(p, variables, &now, &r->text, &r->input, &err);
    fuzz_check(r->e == QUIRE_OK ||
               (err.code == r->e && err.message[0] != 0 && r->text.n == 0 && r->input.n == 0));
    for (size_t i = 0, end = 0; i < r->input.n; i++) {
        jinja_span s = r->input.spans[i];
        fuzz_check(s.start < s.end && s.end <= r->text.n && (i == 0 || s.start > end));
        end = s.end;
    }
}

/* A template that makes characters of numbers or escapes may write any. */
static bool may_write_any(str source) {
    static const char *const makes[] = {"\\", "\xee", "%c", "%'", "%\"", "% ", "%~", "format", "striptags"};
    bool may = false;
    for (size_t i = 0; i < sizeof makes / sizeof *makes; i++) {
        may = may || str_contains(source, str_of(makes[i]));
    }
    return may;
}

static void check_secret(const rendering *r) {
    for (size_t i = 0, k = 0; i + 3 <= r->text.n; i++) {
        if (memcmp(r->text.p + i, SECRET, 3) == 0) {
            while (k < r->input.n && r->input.spans[k].end <= i) {
                k++;
            }
            fuzz_check(k < r->input.n && r->input.spans[k].start <= i && i + 3 <= r->input.spans[k].end);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *zero = size == 0 ? NULL : memchr(data, 0, size);
    str source = {size == 0 ? "" : (const char *)data, zero == NULL ? size : (size_t)(zero - data)};
    str variables = zero == NULL ? str_of(conversation) : (str){(const char *)zero + 1, size - source.n - 1};
    turn t = {.over = over, .may_hold = SIZE_MAX};
    jinja_set set = {0};
    jinja_options options = {.trim_blocks = true, .lstrip_blocks = true, .set = &set};
    jinja_program *p;
    quire_error err = {0};
    rendering one = {0}, two = {0};
    turn_begin(&t);
    quire_err e = jinja_open(source, options, &p, &err);
    fuzz_check(e == QUIRE_OK || (p == NULL && err.code == e && err.message[0] != 0));
    if (e == QUIRE_OK) {
        set.named[0].name = str_of("default");
        set.named[0].program = p;
        set.n = 1;
        render(p, variables, &one);
        render(p, variables, &two);
        fuzz_check(one.e == two.e && one.text.n == two.text.n &&
                   (one.text.n == 0 || memcmp(one.text.p, two.text.p, one.text.n) == 0));
        if (zero == NULL && !may_write_any(source)) {
            check_secret(&one);
        }
    }
    turn_begin(NULL);
    jinja_close(p);
    strbuf_deinit(&one.text);
    strbuf_deinit(&two.text);
    jinja_spans_deinit(&one.input);
    jinja_spans_deinit(&two.input);
    return 0;
}
