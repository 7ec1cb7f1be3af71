#include "cli/tty.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "base/wake.h"

#define MARK_PASTES   "\033[?2004h"
#define UNMARK_PASTES "\033[?2004l"

/* Signals with a handler while the chat lasts, while a line is edited, and those that end
 * the program at once. */
static const int chat_signals[] = {SIGINT, SIGTERM, SIGHUP, SIGWINCH};
static const int fatal_signals[] = {SIGQUIT, SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};
enum {
    N_CHAT = sizeof chat_signals / sizeof *chat_signals,
    N_FATAL = sizeof fatal_signals / sizeof *fatal_signals
};

static struct {
    FILE *out;
    bool plain, edits;
    wake changed; /* rung by the handler, so that no signal is missed before a wait */
    struct termios found;
    struct sigaction chat_before[N_CHAT], fatal_before[N_FATAL], suspend_before;
} tty;

static volatile sig_atomic_t end_signal, interrupted, resized, suspends;

static void on_signal(int signal_number) {
    int before = errno;
    if (signal_number == SIGWINCH) {
        resized = 1;
    } else if (signal_number == SIGTSTP) {
        suspends = 1;
    } else {
        end_signal = signal_number == SIGINT ? end_signal : signal_number;
        interrupted = 1;
    }
    wake_ring(&tty.changed);
    errno = before;
}

/* Restores the terminal, and the signal's former handler. Calls only async-signal-safe
 * functions. */
static void on_fatal(int signal_number) {
    int fd = fileno(tty.out);
    if (!tty.plain) {
        ssize_t n = write(fd, UNMARK_PASTES, sizeof UNMARK_PASTES - 1);
        (void)n;
    }
    (void)tcsetattr(STDIN_FILENO, TCSANOW, &tty.found);
    for (int i = 0; i < N_FATAL; i++) {
        if (fatal_signals[i] == signal_number) {
            (void)sigaction(signal_number, &tty.fatal_before[i], NULL);
        }
    }
    (void)raise(signal_number); /* comes when this handler returns */
}

quire_err tty_open(FILE *out, bool plain, quire_error *err) {
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    tty.out = out;
    tty.plain = plain;
    end_signal = interrupted = resized = suspends = 0;
    if (tcgetattr(STDIN_FILENO, &tty.found) != 0 || wake_init(&tty.changed) != QUIRE_OK) {
        return err_set(err, QUIRE_IO, -1, "the terminal cannot be used: %s", strerror(errno));
    }
    for (int i = 0; i < N_CHAT; i++) {
        (void)sigaction(chat_signals[i], &action, &tty.chat_before[i]);
        if (tty.chat_before[i].sa_handler == SIG_IGN) { /* as nohup has it */
            (void)sigaction(chat_signals[i], &tty.chat_before[i], NULL);
        }
    }
    return QUIRE_OK;
}

void tty_close(void) {
    tty_rest();
    for (int i = 0; i < N_CHAT; i++) {
        (void)sigaction(chat_signals[i], &tty.chat_before[i], NULL);
    }
    wake_deinit(&tty.changed);
    if (end_signal) {
        (void)raise((int)end_signal);
    }
}

void tty_edit(void) {
    struct sigaction suspend = {.sa_handler = on_signal, .sa_flags = SA_RESTART},
                     fatal = {.sa_handler = on_fatal};
    if (tty.edits) {
        return;
    }
    (void)sigaction(SIGTSTP, &suspend, &tty.suspend_before);
    for (int i = 0; i < N_FATAL; i++) {
        (void)sigaction(fatal_signals[i], &fatal, &tty.fatal_before[i]);
    }
    if (!tty.plain) {
        (void)fputs(MARK_PASTES, tty.out);
        (void)fflush(tty.out);
    }
    tty.edits = true;
}

void tty_rest(void) {
    if (!tty.edits) {
        return;
    }
    if (!tty.plain) {
        (void)fputs(UNMARK_PASTES, tty.out);
        (void)fflush(tty.out);
    }
    for (int i = 0; i < N_FATAL; i++) {
        (void)sigaction(fatal_signals[i], &tty.fatal_before[i], NULL);
    }
    (void)sigaction(SIGTSTP, &tty.suspend_before, NULL);
    tty.edits = false;
}

/* The signal that waits to be handled; TTY_INPUT: none. */
static tty_event next_signal(void) {
    if (end_signal) {
        return TTY_END;
    }
    volatile sig_atomic_t *const flags[] = {&interrupted, &suspends, &resized};
    static const tty_event events[] = {TTY_INTERRUPT, TTY_SUSPEND, TTY_RESIZED};
    for (int i = 0; i < 3; i++) {
        if (*flags[i]) {
            *flags[i] = 0;
            return events[i];
        }
    }
    return TTY_INPUT;
}

tty_event tty_wait(void) {
    for (;;) {
        tty_event e = next_signal();
        if (e != TTY_INPUT) {
            return e;
        }
        struct pollfd fds[] = {{.fd = STDIN_FILENO, .events = POLLIN},
                               {.fd = tty.changed.fd, .events = POLLIN}};
        if (poll(fds, 2, -1) < 0 && errno != EINTR) {
            return TTY_INPUT; /* reading reports what is wrong */
        }
        if (fds[1].revents) {
            (void)wake_wait(&tty.changed, 0);
        } else if (fds[0].revents) {
            return TTY_INPUT;
        }
    }
}

void tty_suspend(void) {
    tty_rest();
    (void)raise(SIGTSTP);
    tty_edit();
}

void tty_clear_line(void) {
    (void)fputs(tty.plain ? "\r" : "\r\033[J", tty.out);
    (void)fflush(tty.out);
}

const volatile int *tty_interrupted(void) {
    return &interrupted;
}

void tty_forget_interrupt(void) {
    interrupted = end_signal != 0;
}
