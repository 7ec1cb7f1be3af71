#include "base/log.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base/log_writer.h"
#include "base/visible.h"

#define LINE_BYTES 2048 /* longer messages are cut */

static _Atomic int max_level = LOG_INFO;
static _Atomic int line_format = LOG_PLAIN;

void log_set_level(log_level level) {
    atomic_store_explicit(&max_level, (int)level, memory_order_relaxed);
}

void log_set_format(log_format format) {
    atomic_store_explicit(&line_format, (int)format, memory_order_relaxed);
}

static bool log_is_wanted(log_level level) {
    return (int)level <= atomic_load_explicit(&max_level, memory_order_relaxed);
}

/* ---- parts of a line ---- */

/* Appends a text with control characters, and bytes that are no UTF-8, as escapes. */
static quire_err add_visible(strbuf *line, str text) {
    visible v = {0};
    TRY(visible_add(&v, text.p, text.n, line));
    return visible_end(&v, line);
}

/* The same on one line, with backslashes before quotes and backslashes if the text is
 * quoted. */
static quire_err log_add_escaped(strbuf *line, str text, bool quoted) {
    strbuf shown = {0};
    quire_err e = add_visible(&shown, text);
    for (size_t i = 0; e == QUIRE_OK && i < shown.n; i++) {
        char c = shown.p[i];
        if (c == '\n' || c == '\t') {
            e = strbuf_add_str(line, c == '\n' ? "\\n" : "\\t");
        } else {
            e = quoted && (c == '"' || c == '\\') ? strbuf_add_char(line, '\\') : QUIRE_OK;
            e = e == QUIRE_OK ? strbuf_add_char(line, c) : e;
        }
    }
    strbuf_deinit(&shown);
    return e;
}

static quire_err log_add_quoted(strbuf *line, str text) {
    TRY(strbuf_add_char(line, '"'));
    TRY(log_add_escaped(line, text, true));
    return strbuf_add_char(line, '"');
}

/* Whether a value can stand in a line without quotes. */
static bool log_is_bare(const char *value) {
    for (const char *p = value; *p != '\0'; p++) {
        if (*p <= ' ' || *p > '~' || *p == '"' || *p == '\\' || *p == '=') {
            return false;
        }
    }
    return *value != '\0';
}

static quire_err add_time(strbuf *line) {
    struct timespec now;
    struct tm day;
    char text[32];
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &day);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &day);
    return strbuf_addf(line, "%s.%03dZ", text, (int)(now.tv_nsec / 1000000));
}

/* ---- lines ---- */

static const char *const level_names[] = {
    [LOG_ERROR] = "error", [LOG_WARN] = "warning", [LOG_INFO] = "info", [LOG_DEBUG] = "debug"};

static quire_err add_text_fields(strbuf *line, const log_field *fields, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const char *value = fields[i].value;
        if (value != NULL) {
            TRY(strbuf_addf(line, " %s=", fields[i].name));
            TRY(log_is_bare(value) ? strbuf_add_str(line, value) : log_add_quoted(line, str_of(value)));
        }
    }
    return QUIRE_OK;
}

static quire_err log_write_plain(strbuf *line, str message) {
    TRY(strbuf_add_str(line, "quire: "));
    return isatty(STDERR_FILENO) ? add_visible(line, message) : strbuf_add(line, message.p, message.n);
}

static quire_err log_write_text(strbuf *line, log_level level, str message) {
    TRY(add_time(line));
    TRY(strbuf_addf(line, " %s quire: ", level_names[level]));
    return log_add_escaped(line, message, false);
}

static quire_err log_write_json(strbuf *line, log_level level, str message, const log_field *fields,
                                size_t n) {
    TRY(strbuf_add_str(line, "{\"time\":\""));
    TRY(add_time(line));
    TRY(strbuf_addf(line, "\",\"level\":\"%s\",\"message\":", level_names[level]));
    TRY(log_add_quoted(line, message));
    for (size_t i = 0; i < n; i++) {
        const char *value = fields[i].value;
        if (value != NULL) {
            TRY(strbuf_addf(line, ",\"%s\":", fields[i].name));
            TRY(fields[i].is_number ? strbuf_add_str(line, value) : log_add_quoted(line, str_of(value)));
        }
    }
    return strbuf_add_char(line, '}');
}

static quire_err log_write_line(strbuf *line, log_level level, str message, const log_field *fields,
                                size_t n) {
    log_format format = (log_format)atomic_load_explicit(&line_format, memory_order_relaxed);
    if (format == LOG_JSON) {
        TRY(log_write_json(line, level, message, fields, n));
    } else {
        TRY(format == LOG_TEXT ? log_write_text(line, level, message) : log_write_plain(line, message));
        TRY(add_text_fields(line, fields, n));
    }
    return strbuf_add_char(line, '\n');
}

/* Reports lost lines; returns how many more were lost meanwhile. */
static int64_t put_lost(int64_t n_lost) {
    strbuf line = {0};
    char number[24];
    snprintf(number, sizeof number, "%" PRId64, n_lost);
    const log_field lines = {.name = "lines", .value = number, .is_number = true};
    if (log_write_line(&line, LOG_WARN,
                       str_of("lines of the log were lost: standard error was read too slowly"), &lines,
                       1) != QUIRE_OK) {
        strbuf_clear(&line);
    }
    return log_writer_put(&line, n_lost);
}

void log_event(log_level level, const char *message, const log_field *fields, size_t n_fields) {
    strbuf line = {0};
    if (!log_is_wanted(level)) {
        return;
    }
    if (log_write_line(&line, level, str_of(message), fields, n_fields) != QUIRE_OK) {
        strbuf_clear(&line);
    }
    for (int64_t n_lost = log_writer_put(&line, 0); n_lost > 0;) {
        n_lost = put_lost(n_lost);
    }
}

void log_line(log_level level, const char *format, ...) {
    char message[LINE_BYTES - sizeof "quire: "];
    if (!log_is_wanted(level)) {
        return;
    }
    va_list args;
    va_start(args, format);
    int n = vsnprintf(message, sizeof message, format, args);
    va_end(args);
    if (n >= 0) {
        log_event(level, message, NULL, 0);
    }
}
