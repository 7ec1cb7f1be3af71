/* Log lines on stderr: "quire: message". Any thread; a line is written whole. On a terminal
 * control characters in it are shown as escapes. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

typedef enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG } log_level;

/* Lines above level are dropped. Default LOG_INFO. Set once, in main. */
void log_set_level(log_level level);
void log_line(log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
