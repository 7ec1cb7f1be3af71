#include "cli/standard_files.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"

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
