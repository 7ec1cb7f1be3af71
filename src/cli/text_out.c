#include "cli/text_out.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"

void text_out_init(text_out *t) {
    *t = (text_out){.is_terminal = isatty(STDOUT_FILENO) != 0};
}

void text_out_deinit(text_out *t) {
    strbuf_deinit(&t->shown);
    *t = (text_out){0};
}

static quire_err cli_text_out_print(str text, quire_error *err) {
    if ((text.n == 0 || fwrite(text.p, 1, text.n, stdout) == text.n) && fflush(stdout) == 0) {
        return QUIRE_OK;
    }
    return err_set(err, QUIRE_IO, -1, "standard output could not be written: %s", strerror(errno));
}

quire_err text_out_add(text_out *t, str piece, quire_error *err) {
    if (!t->is_terminal) {
        return cli_text_out_print(piece, err);
    }
    strbuf_clear(&t->shown);
    if (visible_add(&t->seen, piece.p, piece.n, &t->shown) != QUIRE_OK) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for what is printed");
    }
    return t->shown.n > 0 ? cli_text_out_print((str){t->shown.p, t->shown.n}, err) : QUIRE_OK;
}

quire_err text_out_end_line(text_out *t, quire_error *err) {
    strbuf_clear(&t->shown);
    if (visible_end(&t->seen, &t->shown) != QUIRE_OK || strbuf_add_char(&t->shown, '\n') != QUIRE_OK) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for what is printed");
    }
    return cli_text_out_print((str){t->shown.p, t->shown.n}, err);
}

quire_err text_out_print(str text, quire_error *err) {
    text_out t;
    text_out_init(&t);
    quire_err e = text_out_add(&t, text, err);
    e = e == QUIRE_OK ? text_out_end_line(&t, err) : e;
    text_out_deinit(&t);
    return e;
}

/* Handles SIGPIPE, of standard output or of some socket. Calls only async-signal-safe
 * functions. */
static void on_closed_pipe(int signal_number) {
    static const char message[] = "quire: standard output could not be written: the pipe was closed\n";
    (void)signal_number;
    int before = errno;
    struct pollfd output = {.fd = STDOUT_FILENO};
    if (poll(&output, 1, 0) == 1 && (output.revents & (POLLERR | POLLHUP))) {
        ssize_t n = write(STDERR_FILENO, message, sizeof message - 1);
        (void)n;
        _exit(1);
    }
    errno = before;
}

void standard_files_open(void) {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF) {
            /* the lowest free number, so fd; writing to it fails as before */
            int opened = open("/dev/null", O_RDONLY);
            (void)opened;
        }
    }
    struct sigaction action = {.sa_handler = on_closed_pipe};
    sigaction(SIGPIPE, &action, NULL);
    signal(SIGXFSZ, SIG_IGN); /* a file over its limit is an error of the write */
}

int standard_files_finish(int status) {
    bool failed = ferror(stdout) != 0;
    bool flushed = fflush(stdout) == 0;
    if (status != 0 || (!failed && flushed)) {
        return status;
    }
    log_line(LOG_ERROR, "standard output could not be written: %s",
             flushed ? "its disk is full, or it was closed" : strerror(errno));
    return 1;
}
