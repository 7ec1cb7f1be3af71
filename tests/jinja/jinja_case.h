/* For tests of templates: expects a rendered text or an error. */
#ifndef TESTS_JINJA_JINJA_CASE_H
#define TESTS_JINJA_JINJA_CASE_H

#include <stdlib.h>

#include "jinja/render.h"
#include "test.h"

static inline void expect(const char *source, const char *variables, const char *want) {
    strbuf out = {0};
    quire_error err = {0};
    quire_err e = render(source, variables, &out, &err);
    if (e != QUIRE_OK || !str_is((str){out.p, out.n}, want)) {
        fail_msg("%s\n%s\ngot  \"%.*s\" %s\nmust \"%s\"", source, variables, (int)out.n,
                 out.n > 0 ? out.p : "", err.message, want);
    }
    strbuf_deinit(&out);
}

static inline void refuse(const char *source, const char *variables, quire_err code, const char *words) {
    strbuf out = {0};
    quire_error err = {0};
    quire_err e = render(source, variables, &out, &err);
    if (e != code || err.code != code || strstr(err.message, words) == NULL || out.n > 0) {
        fail_msg("%s\ngot  %s \"%s\" (%.*s)\nmust %s \"%s\"", source, quire_err_text(e), err.message,
                 (int)(out.n > 99 ? 99 : out.n), out.n > 0 ? out.p : "", quire_err_name(code), words);
    }
    strbuf_deinit(&out);
}

#endif
