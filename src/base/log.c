#include "base/log.h"

#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/str.h"
#include "base/utf8.h"

/* Writes log lines to stderr: directly or, between log_start and log_stop, on a separate
 * thread. log.h has the guarantees. */

#define MAX_LINES 1024    /* most lines in the queue */
#define STOP_US   1000000 /* how long log_stop waits for a slow reader */
#define READY_MS  100     /* while stderr is not ready, how often the thread checks for log_stop */
/* bytes that a pipe accepts in one write if poll reports it ready (PIPE_BUF on Linux) */
#define PIECE_BYTES 4096

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    strbuf lines[MAX_LINES]; /* a ring: n lines wait, from `first` on */
    size_t first, n;
    int64_t n_lost; /* lost lines that log_writer_put has not reported to a caller yet */
    bool is_running;
    pthread_t thread;
    _Atomic int64_t stop_at_us; /* when log_stop gives up; 0: it was not called */
} writer = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* Writes p[0..n) to stderr, in one call unless a pipe is nearly full. Blocks. */
static void write_now(const char *p, size_t n) {
    for (size_t done = 0; done < n;) {
        ssize_t w = write(STDERR_FILENO, p + done, n - done);
        if (w <= 0) {
            return;
        }
        done += (size_t)w;
    }
}

/* Waits until stderr accepts PIECE_BYTES. False: log_stop's time is over. */
static bool wait_until_ready(void) {
    for (;;) {
        struct pollfd p = {.fd = STDERR_FILENO, .events = POLLOUT};
        int64_t stop_at_us = atomic_load(&writer.stop_at_us);
        bool is_over = stop_at_us > 0 && clock_us() >= stop_at_us;
        if (poll(&p, 1, is_over ? 0 : READY_MS) > 0) {
            return true; /* also if the pipe has no reader: then write fails */
        }
        if (is_over) {
            return false;
        }
    }
}

static void write_when_ready(const char *p, size_t n) {
    for (size_t done = 0; done < n;) {
        size_t piece = n - done < PIECE_BYTES ? n - done : PIECE_BYTES;
        if (!wait_until_ready()) {
            return;
        }
        write_now(p + done, piece);
        done += piece;
    }
}

/* ---- the thread ---- */

/* Waits for a line and takes it from the queue. False: log_stop was called, none is
 * left. */
static bool log_writer_take(strbuf *line) {
    pthread_mutex_lock(&writer.lock);
    while (writer.n == 0 && writer.is_running) {
        pthread_cond_wait(&writer.changed, &writer.lock);
    }
    bool got = writer.n > 0;
    if (got) {
        *line = writer.lines[writer.first];
        writer.first = (writer.first + 1) % MAX_LINES;
        writer.n--;
    }
    pthread_mutex_unlock(&writer.lock);
    return got;
}

static void *log_writer_run(void *arg) {
    (void)arg;
    for (strbuf line; log_writer_take(&line); strbuf_deinit(&line)) {
        write_when_ready(line.p, line.n);
    }
    return NULL;
}

quire_err log_start(void) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_mutex_lock(&writer.lock); /* the new thread waits for this lock */
    atomic_store(&writer.stop_at_us, 0);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* other threads handle signals */
    bool failed = pthread_create(&writer.thread, NULL, log_writer_run, NULL) != 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    writer.is_running = !failed;
    pthread_mutex_unlock(&writer.lock);
    return failed ? QUIRE_NO_MEMORY : QUIRE_OK;
}

void log_stop(void) {
    pthread_mutex_lock(&writer.lock);
    bool was_running = writer.is_running;
    writer.is_running = false;
    atomic_store(&writer.stop_at_us, clock_us() + STOP_US);
    pthread_cond_signal(&writer.changed);
    pthread_mutex_unlock(&writer.lock);
    if (was_running) {
        pthread_join(writer.thread, NULL);
    }
}

/* ---- any thread ---- */

/* Moves a line into the queue, or counts it as lost. False: no thread runs, so the caller
 * writes it. *n_lost: lost lines that the caller reports. */
static bool put_in_queue(strbuf *line, int64_t n_reported, int64_t *n_lost) {
    pthread_mutex_lock(&writer.lock);
    bool is_running = writer.is_running, is_lost = line->n == 0 || (is_running && writer.n == MAX_LINES);
    if (is_lost) {
        writer.n_lost += n_reported > 0 ? n_reported : 1;
    } else {
        *n_lost = writer.n_lost;
        writer.n_lost = 0;
    }
    if (is_running && !is_lost) {
        writer.lines[(writer.first + writer.n++) % MAX_LINES] = *line;
        *line = (strbuf){0};
        pthread_cond_signal(&writer.changed);
    }
    pthread_mutex_unlock(&writer.lock);
    return is_running;
}

/* Writes a line, or queues it while the writer's thread runs, without waiting for stderr.
 * Takes over *line; an empty one, for which memory was out, counts as lost. n_reported:
 * the number of lost lines that this line reports, mostly 0; if it is lost, they count
 * again. Returns the number of lost lines not returned before, or 0 if this one is lost.
 * Any thread. */
static int64_t log_writer_put(strbuf *line, int64_t n_reported) {
    int64_t n_lost = 0;
    if (!put_in_queue(line, n_reported, &n_lost)) {
        write_now(line->p, line->n);
    }
    strbuf_deinit(line);
    return n_lost;
}

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

/* Appends text, with escapes for control characters and invalid UTF-8. */
static quire_err add_visible(strbuf *line, str text) {
    visible v = {0};
    TRY(visible_add(&v, text.p, text.n, line));
    return visible_end(&v, line);
}

/* As add_visible, on one line; quoted: with a backslash before quotes and backslashes. */
static quire_err log_add_escaped(strbuf *line, str text, bool quoted) {
    strbuf shown = {0};
    quire_err e = add_visible(&shown, text);
    for (size_t i = 0; e == QUIRE_OK && i < shown.n; i++) {
        char c = shown.p[i];
        if (c == '\n' || c == '\t') {
            e = strbuf_add_str(line, c == '\n' ? "\\n" : "\\t");
        } else {
            if (quoted && (c == '"' || c == '\\')) {
                TRY_DONE(e, strbuf_add_char(line, '\\'));
            }
            TRY_DONE(e, strbuf_add_char(line, c));
        }
    }
done:
    strbuf_deinit(&shown);
    return e;
}

static quire_err log_add_quoted(strbuf *line, str text) {
    TRY(strbuf_add_char(line, '"'));
    TRY(log_add_escaped(line, text, true));
    return strbuf_add_char(line, '"');
}

/* Whether a field's value needs no quotes in LOG_TEXT. */
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

/* Logs the number of lost lines. Returns the number of lines lost since. */
static int64_t put_lost(int64_t n_lost) {
    strbuf line = {0};
    char number[24];
    snprintf(number, sizeof number, "%" PRId64, n_lost);
    const log_field lines = {.name = "lines", .value = number, .is_number = true};
    if (log_write_line(&line, LOG_WARN,
                       str_of("log lines were lost because standard error was read too slowly"), &lines,
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
