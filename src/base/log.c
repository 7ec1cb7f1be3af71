#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/visible.h"

#define PREFIX     "quire: "
#define LINE_BYTES 2048 /* longer lines are cut */

static _Atomic int max_level = LOG_INFO;

void log_set_level(log_level level) {
    atomic_store_explicit(&max_level, (int)level, memory_order_relaxed);
}

/* Writes a line in one write, unless the pipe is nearly full. */
static void write_all(const char *line, size_t n) {
    for (size_t done = 0; done < n;) {
        ssize_t w = write(STDERR_FILENO, line + done, n - done);
        if (w <= 0) {
            return;
        }
        done += (size_t)w;
    }
}

/* Writes a line to a terminal: escapes control characters in names from files and requests. */
static void write_visible(const char *line, size_t n) {
    visible v = {0};
    strbuf shown = {0};
    if (visible_add(&v, line, n, &shown) == QUIRE_OK && visible_end(&v, &shown) == QUIRE_OK && strbuf_add_char(&shown, '\n') == QUIRE_OK) {
        write_all(shown.p, shown.n);
    }
    strbuf_deinit(&shown);
}

void log_line(log_level level, const char *format, ...) {
    if ((int)level > atomic_load_explicit(&max_level, memory_order_relaxed)) {
        return;
    }
    char line[LINE_BYTES] = PREFIX;
    size_t at = sizeof PREFIX - 1;
    size_t room = sizeof line - at - 1; /* the newline takes one */
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line + at, room, format, args);
    va_end(args);
    if (n < 0) {
        return;
    }
    at += (size_t)n < room ? (size_t)n : room - 1;
    if (isatty(STDERR_FILENO)) {
        write_visible(line, at);
    } else {
        line[at++] = '\n';
        write_all(line, at);
    }
}
