/* Renders with the settings of chat templates, at the time that test vectors assume. */
#ifndef TESTS_JINJA_RENDER_H
#define TESTS_JINJA_RENDER_H

#include "jinja/jinja.h"

static const jinja_options chat = {.trim_blocks = true, .lstrip_blocks = true};

/* The time that the test vectors assume. */
static const struct tm clock_at = {
    .tm_year = 126, .tm_mon = 10, .tm_mday = 21, .tm_hour = 10, .tm_min = 30, .tm_wday = 6, .tm_yday = 324};

static quire_err render(const char *source, const char *variables, strbuf *out, quire_error *err) {
    jinja_program *p;
    TRY(jinja_open(str_of(source), chat, &p, err));
    quire_err e = jinja_render(p, str_of(variables), &clock_at, out, NULL, err);
    jinja_close(p);
    return e;
}

#endif
