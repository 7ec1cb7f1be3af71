#include "cli/shell_completions.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "cli/set_flag.h"
#include "cli/shell_script.h"

void script_add(script *s, const char *format, ...) {
    char text[4096];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    quire_err e = n < 0 || (size_t)n >= sizeof text ? QUIRE_TOO_LARGE : strbuf_add(s->to, text, (size_t)n);
    s->e = s->e == QUIRE_OK ? e : s->e;
}

void script_add_quoted(script *s, const char *text, const char *quote) {
    for (; *text; text++) {
        if (*text == '\'') {
            script_add(s, "%s", quote);
        } else {
            script_add(s, "%c", *text);
        }
    }
}

void script_add_words(script *s, const flag *f) {
    const char *between = "";
    for (const flag_choice *c = f->choices; c->spelling; c++) {
        if (flag_choice_is_shown(f, c)) {
            script_add(s, "%s%s", between, c->spelling);
            between = " ";
        }
    }
}

static bool names_a_file(const char *value) {
    static const char *const words[] = {"FILE", "DIR", "PATH", "MODEL", "TRACE"};
    bool is = false;
    for (size_t i = 0; value && i < sizeof words / sizeof *words; i++) {
        is = is || strstr(value, words[i]) != NULL;
    }
    return is;
}

completed script_completed(const flag *f) {
    return f->type == FLAG_CHOICE || f->type == FLAG_NAME || f->type == FLAG_FIELD_CHOICE ? COMPLETED_WORDS
           : names_a_file(f->value)                                                       ? COMPLETED_FILES
                                                                                          : COMPLETED_NONE;
}

bool script_takes_file(const command *c) {
    return c->argument >= ARGUMENT_MODEL || c->argument == ARGUMENT_TRACE;
}

const command *script_command(const script *s, int i) {
    for (size_t k = 0; k < sizeof s->lists / sizeof *s->lists; k++) {
        for (const command *const *c = s->lists[k]; c && *c; c++, i--) {
            if (i == 0) {
                return *c;
            }
        }
    }
    return NULL;
}

const flag *script_flag(const command *c, int i) {
    for (const flag *const *group = c->flags; group && *group; group++) {
        for (const flag *f = *group; f->names; f++) {
            if (flag_is_own(f) && i-- == 0) {
                return f;
            }
        }
    }
    return NULL;
}

const char *script_function(const command *c, char buf[64]) {
    (void)snprintf(buf, 64, "%s", c->name);
    for (char *p = buf; *p; p++) {
        *p = *p == ' ' ? '_' : *p;
    }
    return buf;
}

quire_err completions_write(const char *shell, const command *const *commands, const command *const *others,
                            strbuf *to, quire_error *err) {
    static const struct {
        const char *name;
        void (*write)(script *s);
    } shells[] = {{"bash", completions_bash}, {"zsh", completions_zsh}, {"fish", completions_fish}};
    script s = {.to = to, .lists = {commands, others}};
    for (size_t i = 0; i < sizeof shells / sizeof *shells; i++) {
        if (strcmp(shells[i].name, shell) == 0) {
            shells[i].write(&s);
            return s.e == QUIRE_OK ? QUIRE_OK : err_set(err, s.e, -1, "out of memory");
        }
    }
    return err_set(err, QUIRE_INVALID, -1, "--completions %s: must be one of bash, zsh, fish", shell);
}
