/* Log lines on stderr. Any thread; each line is written in one piece. Control characters
 * are shown as escapes (LOG_PLAIN: only on a terminal).
 *
 *   LOG_PLAIN  quire: message                                     output of a command
 *   LOG_TEXT   2026-01-31T12:00:00.123Z info quire: message id=7  log of a server
 *   LOG_JSON   {"time":"2026-01-31T12:00:00.123Z","level":"info","message":"message",
 *               "id":"7"}
 *
 * Between log_start and log_stop lines go through a bounded queue to a thread that writes
 * them, so that no caller waits for a slow reader of stderr. Lines that arrive at a full
 * queue are dropped; the log reports how many. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include <stdbool.h>
#include <stddef.h>

#include "quire_err.h"

typedef enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG } log_level;
typedef enum log_format { LOG_PLAIN, LOG_TEXT, LOG_JSON } log_format;

/* A field of a line, written after the message: name=value, or "name":"value" in JSON.
 * Texts are borrowed for the call. */
typedef struct log_field {
    const char *name;
    const char *value; /* NULL: the field is left out */
    bool is_number;    /* JSON writes it without quotes */
} log_field;

/* Drops lines whose level is above `level`, by default LOG_INFO. For main, once. */
void log_set_level(log_level level);
/* Sets the format of lines, by default LOG_PLAIN. For main, once. */
void log_set_format(log_format format);
/* Logs a formatted message of at most some 2,000 bytes. Out of memory: it is lost. */
void log_line(log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Logs a message, of any length, with fields. */
void log_event(log_level level, const char *message, const log_field *fields, size_t n_fields);

/* Starts the writer's thread. QUIRE_NO_MEMORY: no thread was started; callers keep
 * writing their lines themselves. For one thread, once before log_stop. */
quire_err log_start(void);
/* Writes queued lines for up to a second and ends the thread; afterwards callers write
 * their lines themselves. */
void log_stop(void);

#endif
