#include "options/flag.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/err.h"

#define MICROSECONDS(f) ((f)->type == FLAG_SECONDS ? 1e6 : 1e3) /* microseconds in the flag's unit */

str flag_next_name(const char **names) {
    str s = {*names, strcspn(*names, " ")};
    *names += s.n + (s.p[s.n] == ' ');
    return s;
}

bool flag_is(const flag *f, str name) {
    assert(f != NULL);
    bool is = false;
    for (const char *names = f->names; *names;) {
        is = str_eq(flag_next_name(&names), name) || is;
    }
    return is;
}

bool flag_is_switch(const flag *f) {
    return f->type == FLAG_SWITCH || f->type == FLAG_FIELD_SWITCH || f->type == FLAG_FIELD_PRESET ||
           f->type == FLAG_SYNONYM || f->type == FLAG_TAKEN;
}

bool flag_is_option(const flag *f) {
    return f->type <= FLAG_SCALED && f->type != FLAG_SYNONYM;
}

bool flag_is_own(const flag *f) {
    return f->type != FLAG_SYNONYM && f->type < FLAG_TAKEN;
}

/* ---- choices ---- */

static bool same_value(const flag_choice *a, const flag_choice *b) {
    return a->text != NULL && b->text != NULL ? strcmp(a->text, b->text) == 0
                                              : a->text == b->text && a->value == b->value;
}

bool flag_choice_is_shown(const flag *f, const flag_choice *c) {
    assert(f != NULL);
    if (f->type != FLAG_CHOICE && f->type != FLAG_NAME) {
        return f->type == FLAG_FIELD_CHOICE;
    }
    if (f->others != NULL) {
        return strcmp(c->spelling, c->text) == 0;
    }
    const flag_choice *first = f->choices;
    while (!same_value(first, c)) {
        first++;
    }
    return first == c;
}

const flag_choice *flag_choice_find(const flag_choice *choices, const char *spelling) {
    assert(choices != NULL);
    for (; choices->spelling != NULL; choices++) {
        if (strcmp(choices->spelling, spelling) == 0) {
            return choices;
        }
    }
    return NULL;
}

const char *flag_choice_name(const flag_choice *choices, int value) {
    assert(choices != NULL);
    for (; choices->spelling != NULL; choices++) {
        if (choices->value == value) {
            return choices->spelling;
        }
    }
    return "?";
}

void flag_list_choices(const flag *f, bool shown, char *out, size_t n) {
    assert(f != NULL);
    size_t used = 0;
    out[0] = 0;
    for (const flag_choice *c = f->choices; c->spelling != NULL && used < n; c++) {
        if (flag_choice_is_shown(f, c) == shown) {
            used += (size_t)snprintf(out + used, n - used, "%s%s", used > 0 ? ", " : "", c->spelling);
        }
    }
}

static quire_err flag_refuse_choice(const flag *f, const char *name, const char *text, quire_error *err) {
    char all[128], others[256];
    flag_list_choices(f, true, all, sizeof all);
    if (f->others == NULL) {
        return err_set(err, QUIRE_INVALID, -1, "%s %s: must be one of %s", name, text, all);
    }
    flag_list_choices(f, false, others, sizeof others);
    return err_set(err, QUIRE_INVALID, -1, "%s %s: must be one of %s; or %s: %s", name, text, all, f->others,
                   others);
}

static quire_err flag_find_choice(const flag *f, const char *name, const char *text, const flag_choice **out,
                                  quire_error *err) {
    *out = flag_choice_find(f->choices, text);
    return *out != NULL ? QUIRE_OK : flag_refuse_choice(f, name, text, err);
}

/* ---- texts to values ---- */

quire_err flag_parse_number(const char *name, const char *text, double *out, quire_error *err) {
    char *end;
    double v = strtod(text, &end);
    if (end == text || *end != 0 || !isfinite(v)) {
        return err_set(err, QUIRE_INVALID, -1, "%s %s: must be a number", name, text);
    }
    *out = v;
    return QUIRE_OK;
}

quire_err flag_parse_integer(const char *name, const char *text, int64_t *out, quire_error *err) {
    char *end;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (end == text || *end != 0 || errno == ERANGE) {
        return err_set(err, QUIRE_INVALID, -1, "%s %s: must be a whole number", name, text);
    }
    *out = v;
    return QUIRE_OK;
}

static quire_err flag_read_count(const flag *f, const char *name, const char *text, int32_t *out,
                                 quire_error *err) {
    int64_t v;
    TRY(flag_parse_integer(name, text, &v, err));
    bool power = f->type == FLAG_POWER_OF_TWO;
    if ((double)v < f->minimum || (double)v > f->maximum || (power && (v & (v - 1)) != 0)) {
        return err_set(err, QUIRE_INVALID, -1, "%s %s: must be %s from %.0f to %.0f", name, text,
                       power ? "a power of two" : "a whole number", f->minimum, f->maximum);
    }
    *out = (int32_t)v;
    return QUIRE_OK;
}

static quire_err read_part(const flag *f, const char *name, const char *text, double *out, quire_error *err) {
    double v;
    TRY(flag_parse_number(name, text, &v, err));
    if (v < f->minimum || v > f->maximum) {
        return err_set(err, QUIRE_INVALID, -1, "%s %s: must be from %g to %g", name, text, f->minimum,
                       f->maximum);
    }
    *out = v;
    return QUIRE_OK;
}

static quire_err flag_read_bytes(const flag *f, const char *name, const char *text, int64_t *out,
                                 quire_error *err) {
    static const char letters[] = "KMGT";
    char *end;
    double v = strtod(text, &end), unit = f->type == FLAG_GIB ? 0x1p30 : 1.0;
    const char *letter = end != text && *end != 0
                             ? strchr(letters, *end >= 'a' && *end <= 'z' ? *end - 'a' + 'A' : *end)
                             : NULL;
    if (letter != NULL) {
        unit = ldexp(1.0, 10 * (int)(letter - letters + 1));
        end++;
    }
    if (end == text || *end != 0 || !isfinite(v) || v < 0 || v * unit > 0x1p62) {
        return err_set(err, QUIRE_INVALID, -1,
                       "%s %s: must be a size: %s, or a number followed by K, M, G or T", name, text,
                       f->type == FLAG_GIB ? "GiB" : "bytes");
    }
    if (v * unit < f->minimum) {
        return err_set(err, QUIRE_INVALID, -1, "%s %s: must be at least %.0f bytes", name, text, f->minimum);
    }
    *out = (int64_t)(v * unit);
    return QUIRE_OK;
}

quire_err flag_parse_switch(const char *name, const char *text, bool *out, quire_error *err) {
    static const char *const words[] = {"0", "1", "false", "true", "no", "yes", "off", "on"};
    for (int i = 0; i < (int)(sizeof words / sizeof *words); i++) {
        if (text == NULL || strcasecmp(words[i], text) == 0) {
            *out = text == NULL || i % 2 == 1;
            return QUIRE_OK;
        }
    }
    return err_set(err, QUIRE_INVALID, -1, "%s %s: must be 1 or 0 (or true, yes, on, false, no, off)", name,
                   text);
}

/* Parses text into *at, the option's member of the struct. */
static quire_err flag_read_value(const flag *f, const char *name, const char *text, void *at,
                                 quire_error *err) {
    double number;
    const flag_choice *choice = f->choices;
    switch (f->type) {
    case FLAG_SWITCH:
        return flag_parse_switch(name, text, at, err);
    case FLAG_COUNT:
    case FLAG_POWER_OF_TWO:
        return flag_read_count(f, name, text, at, err);
    case FLAG_PART:
        return read_part(f, name, text, at, err);
    case FLAG_SECONDS:
    case FLAG_MILLISECONDS:
        TRY(read_part(f, name, text, &number, err));
        *(int64_t *)at = (int64_t)(number * MICROSECONDS(f));
        return QUIRE_OK;
    case FLAG_BYTES:
    case FLAG_GIB:
        return flag_read_bytes(f, name, text, at, err);
    case FLAG_CHOICE:
        TRY(flag_find_choice(f, name, text, &choice, err));
        *(int *)at = choice->value;
        return QUIRE_OK;
    case FLAG_NAME:
        TRY(flag_find_choice(f, name, text, &choice, err));
        *(const char **)at = choice->text;
        return QUIRE_OK;
    case FLAG_SYNONYM:
        if (choice->text != NULL) {
            *(const char **)at = choice->text;
        } else {
            *(int *)at = choice->value;
        }
        return QUIRE_OK;
    default:
        *(const char **)at = text;
        return QUIRE_OK;
    }
}

quire_err flag_set_option(const flag *f, const char *name, const char *text, void *options,
                          quire_error *err) {
    return flag_read_value(f, name, text, (char *)options + f->offset, err);
}

/* ---- defaults and checks ---- */

void flag_set_default(const flag *f, void *options) {
    assert(f != NULL);
    void *at = (char *)options + f->offset;
    switch (f->type) {
    case FLAG_SWITCH:
        *(bool *)at = false;
        break;
    case FLAG_COUNT:
    case FLAG_POWER_OF_TWO:
        *(int32_t *)at = (int32_t)f->number;
        break;
    case FLAG_PART:
        *(double *)at = f->number;
        break;
    case FLAG_SECONDS:
    case FLAG_MILLISECONDS:
    case FLAG_BYTES:
    case FLAG_GIB:
        *(int64_t *)at = (int64_t)f->number;
        break;
    case FLAG_CHOICE:
        *(int *)at = (int)f->number;
        break;
    default:
        *(const char **)at = f->text;
    }
}

/* Writes a number of bytes with the largest unit that leaves a whole number. */
static void flag_show_bytes(const flag *f, int64_t v, char *out, size_t n) {
    static const char letters[] = " KMGT";
    int k = 0;
    while (v != 0 && k < 4 && v % 1024 == 0) {
        v /= 1024;
        k++;
    }
    bool plain = k == 0 || (f->type == FLAG_GIB && k == 3);
    (void)snprintf(out, n, "%lld%.*s", (long long)v, plain ? 0 : 1, letters + k);
}

bool flag_show_option(const flag *f, const void *options, char *out, size_t n) {
    assert(f != NULL);
    const void *at = (const char *)options + f->offset;
    const char *text = NULL;
    switch (f->type) {
    case FLAG_SWITCH:
        return false;
    case FLAG_COUNT:
    case FLAG_POWER_OF_TWO:
        (void)snprintf(out, n, "%d", (int)*(const int32_t *)at);
        return true;
    case FLAG_PART:
        (void)snprintf(out, n, "%g", *(const double *)at);
        return true;
    case FLAG_SECONDS:
    case FLAG_MILLISECONDS:
        (void)snprintf(out, n, "%.10g", (double)*(const int64_t *)at / MICROSECONDS(f));
        return true;
    case FLAG_BYTES:
    case FLAG_GIB:
        flag_show_bytes(f, *(const int64_t *)at, out, n);
        return true;
    case FLAG_CHOICE:
        text = flag_choice_name(f->choices, *(const int *)at);
        break;
    default:
        text = *(const char *const *)at;
    }
    (void)snprintf(out, n, "%s", text != NULL ? text : "");
    return text != NULL && strcmp(text, "?") != 0;
}

/* Valid values are those whose text, as flag_show_option writes it, can be parsed. */
quire_err flag_check_option(const flag *f, const void *options, quire_error *err) {
    char name[64], text[64];
    union {
        int i;
        double d;
        int64_t n;
        const char *p;
    } unused;
    const char *names = f->names;
    str own = flag_next_name(&names);
    (void)snprintf(name, sizeof name, "%.*s", (int)own.n, own.p);
    bool is_text =
        f->type == FLAG_TEXT || f->type == FLAG_NAME || (f->type >= FLAG_LIST && f->type <= FLAG_SCALED);
    const char *given = is_text ? *(const char *const *)((const char *)options + f->offset) : NULL;
    if (is_text && given == NULL) {
        return f->text == NULL
                   ? QUIRE_OK
                   : err_set(err, QUIRE_INVALID, -1, "%s: NULL; quire_options_init sets the default", name);
    }
    if (f->type == FLAG_NAME) {
        const flag_choice *c = f->choices;
        while (c->spelling != NULL && strcmp(c->text, given) != 0) {
            c++;
        }
        return c->spelling != NULL ? QUIRE_OK : flag_refuse_choice(f, name, given, err);
    }
    if (is_text || f->type == FLAG_SWITCH) {
        return QUIRE_OK;
    }
    if (f->type == FLAG_CHOICE && !flag_show_option(f, options, text, sizeof text)) {
        (void)snprintf(text, sizeof text, "%d", *(const int *)((const char *)options + f->offset));
    } else {
        (void)flag_show_option(f, options, text, sizeof text);
    }
    return flag_read_value(f, name, text, &unused, err);
}

void flags_set_defaults(const flag *const *groups, void *options) {
    for (; *groups != NULL; groups++) {
        for (const flag *f = *groups; f->names != NULL; f++) {
            if (flag_is_option(f)) {
                flag_set_default(f, options);
            }
        }
    }
}

quire_err flags_check(const flag *const *groups, const void *options, quire_error *err) {
    for (; *groups != NULL; groups++) {
        for (const flag *f = *groups; f->names != NULL; f++) {
            if (flag_is_option(f)) {
                TRY(flag_check_option(f, options, err));
            }
        }
    }
    return QUIRE_OK;
}
