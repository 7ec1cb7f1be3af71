/* Lines of Azure's traces: a time and two lengths. */
#include "file/show.h"
#include "lab/sim/trace_lines.h"

#define HEADER "TIMESTAMP,ContextTokens,GeneratedTokens"

bool trace_csv_is_header(str line) {
    return str_is(line, HEADER);
}

/* Takes a number of at most max_digits digits off the front of *s. */
static bool take_number(str *s, size_t max_digits, int64_t *out) {
    size_t n = 0;
    int64_t v = 0;
    for (; n < s->n && n < max_digits && s->p[n] >= '0' && s->p[n] <= '9'; n++) {
        v = 10 * v + (s->p[n] - '0');
    }
    *s = (str){s->p + n, s->n - n};
    *out = v;
    return n > 0;
}

static bool take_char(str *s, char c) {
    bool there = s->n > 0 && s->p[0] == c;
    *s = there ? (str){s->p + 1, s->n - 1} : *s;
    return there;
}

/* Days from 1970-01-01 in the Gregorian calendar. */
static int64_t day_number(int64_t year, int64_t month, int64_t day) {
    static const int16_t before[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
    int64_t y = month > 2 ? year : year - 1; /* leap days up to the last February */
    return 365 * (year - 1970) + (y / 4 - y / 100 + y / 400) - (1969 / 4 - 1969 / 100 + 1969 / 400) +
           before[month - 1] + day - 1;
}

/* "2023-11-16 18:17:03.9799600" in microseconds since 1970. */
static bool take_time(str *s, int64_t *us) {
    int64_t part[6];
    for (int i = 0; i < 6; i++) {
        static const char after[] = "-- ::";
        if (!take_number(s, i == 0 ? 4 : 2, &part[i]) || (i < 5 && !take_char(s, after[i]))) {
            return false;
        }
    }
    static const int64_t least[] = {1970, 1, 1, 0, 0, 0}, most[] = {9999, 12, 31, 23, 59, 60};
    for (int i = 0; i < 6; i++) {
        if (part[i] < least[i] || part[i] > most[i]) {
            return false;
        }
    }
    *us = (((day_number(part[0], part[1], part[2]) * 24 + part[3]) * 60 + part[4]) * 60 + part[5]) * 1000000;
    if (take_char(s, '.')) {
        size_t before = s->n;
        int64_t fraction;
        if (!take_number(s, 12, &fraction)) {
            return false;
        }
        for (size_t digits = before - s->n; digits != 6; digits += digits < 6 ? 1 : (size_t)-1) {
            fraction = digits < 6 ? fraction * 10 : fraction / 10;
        }
        *us += fraction;
    }
    return true;
}

quire_err trace_csv_line(trace_builder *b, str line, const char *where, quire_error *err) {
    int64_t us, n_prompt, n_output;
    bool good = take_time(&line, &us) && take_char(&line, ',') && take_number(&line, 10, &n_prompt) &&
                take_char(&line, ',') && take_number(&line, 10, &n_output) && line.n == 0;
    if (!good || n_prompt < 1) {
        return err_set(err, QUIRE_BAD_FILE, -1,
                       "%s: must be a time, a number of prompt tokens from 1 on and one of answer tokens, as "
                       "in 2023-11-16 18:17:03.97,4808,10; "
                       "repair that line",
                       where);
    }
    if (n_prompt > TRACE_MAX_TOKENS || n_output > TRACE_MAX_TOKENS) {
        return err_set(err, QUIRE_TOO_LARGE, -1, "%s: more than %s tokens", where,
                       show_count(TRACE_MAX_TOKENS).text);
    }
    quire_err e = trace_build_start(b, us, str_of(""));
    e = e == QUIRE_OK ? trace_build_new(b, (int32_t)n_prompt) : e;
    trace_build_answer(b);
    e = e == QUIRE_OK ? trace_build_new(b, (int32_t)n_output) : e;
    e = e == QUIRE_OK ? trace_build_end(b) : e;
    return e == QUIRE_OK ? e : err_set(err, e, -1, "%s: %s", where, quire_err_text(e));
}
