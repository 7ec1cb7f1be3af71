#include "cli/tty.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include "base/ring.h"
#include "base/utf8.h"
#include "cli/files.h"

#define MARK_PASTES   "\033[?2004h"
#define UNMARK_PASTES "\033[?2004l"

/* Signals handled during the chat, and signals that end the program at once. */
static const int chat_signals[] = {SIGINT, SIGTERM, SIGHUP, SIGWINCH};
static const int fatal_signals[] = {SIGQUIT, SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};
enum {
    N_CHAT = sizeof chat_signals / sizeof *chat_signals,
    N_FATAL = sizeof fatal_signals / sizeof *fatal_signals
};

static struct {
    FILE *out;
    bool plain, edits;
    wake changed; /* rung by the handlers, so that a signal before a wait is not missed */
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

/* Restores the terminal and the signal's former handler, and raises the signal again.
 * Calls only async-signal-safe functions. */
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
    (void)raise(signal_number); /* delivered when this handler returns */
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
        /* a signal that was ignored, for example by nohup, stays ignored */
        if (tty.chat_before[i].sa_handler == SIG_IGN) {
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

/* The pending signal; TTY_INPUT: none. */
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
            return TTY_INPUT; /* the following read reports the error */
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

/* ---- the file of lines typed ---- */

/* Makes the missing directories of path. Failures show when the file is opened. */
static void input_history_make_directories(char *path) {
    for (char *p = strchr(path + 1, '/'); p; p = strchr(p + 1, '/')) {
        *p = 0;
        (void)mkdir(path, 0700);
        *p = '/';
    }
}

/* Opens and locks the file. Returns the descriptor; -1: errno has the reason. */
static int input_history_open_locked(const char *path, bool writes) {
    int fd = open(path, O_CLOEXEC | O_NONBLOCK | (writes ? O_RDWR | O_CREAT : O_RDONLY), 0600);
    int locked = -1;
    while (fd >= 0 && (locked = flock(fd, writes ? LOCK_EX : LOCK_SH)) != 0 && errno == EINTR) {
    }
    if (fd >= 0 && locked != 0) {
        int cause = errno;
        close(fd);
        errno = cause;
        return -1;
    }
    return fd;
}

static bool write_at(int fd, off_t at, const strbuf *text) {
    for (size_t n = 0; n < text->n;) {
        ssize_t done = pwrite(fd, text->p + n, text->n - n, at + (off_t)n);
        if (done < 0 && errno != EINTR) {
            return false;
        }
        n += done > 0 ? (size_t)done : 0;
    }
    return true;
}

/* Appends the last lines of a file of `size` bytes to out: at most `most` bytes. */
static quire_err input_history_read_end(int fd, size_t size, size_t most, strbuf *out) {
    /* begins a byte earlier, which may be the end of a line */
    size_t from = size > most ? size - most - 1 : 0, n = 0;
    TRY(strbuf_reserve(out, size - from + 1));
    while (n < size - from) {
        ssize_t done = pread(fd, out->p + n, size - from - n, (off_t)(from + n));
        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done < 0) {
            return QUIRE_IO;
        }
        if (done == 0) {
            break;
        }
        n += (size_t)done;
    }
    /* drops the rest of a line whose beginning is missing */
    const char *end = from > 0 ? memchr(out->p, '\n', n) : NULL;
    size_t skipped = end ? (size_t)(end + 1 - out->p) : from > 0 ? n : 0;
    memmove(out->p, out->p + skipped, n - skipped);
    out->n = n - skipped;
    out->p[out->n] = 0;
    return QUIRE_OK;
}

/* ---- reading ---- */

static quire_err input_history_decode(str line, strbuf *scratch, strbuf *entry) {
    strbuf_clear(scratch);
    strbuf_clear(entry);
    for (size_t i = 0; i < line.n; i++) {
        bool escaped = line.p[i] == '\\' && i + 1 < line.n && (line.p[i + 1] == 'n' || line.p[i + 1] == '\\');
        i += escaped;
        TRY(strbuf_add_char(scratch, escaped && line.p[i] == 'n' ? '\n' : line.p[i]));
    }
    return utf8_add_lossy(entry, (str){scratch->n ? scratch->p : "", scratch->n});
}

static quire_err take_lines(str text, input_history_take take, void *user) {
    strbuf scratch = {0}, entry = {0};
    quire_err e = QUIRE_OK;
    while (text.n > 0) {
        const char *end = memchr(text.p, '\n', text.n);
        str line = {text.p, end ? (size_t)(end - text.p) : text.n};
        TRY_DONE(e, input_history_decode(line, &scratch, &entry));
        if (entry.n > 0) {
            TRY_DONE(e, take(user, (str){entry.p, entry.n}));
        }
        size_t used = line.n + (end != NULL);
        text = (str){text.p + used, text.n - used};
    }
done:
    strbuf_deinit(&scratch);
    strbuf_deinit(&entry);
    return e;
}

quire_err input_history_read(const char *path, input_history_take take, void *user, quire_error *err) {
    struct stat is;
    strbuf text = {0};
    int fd = input_history_open_locked(path, false);
    if (fd < 0) {
        return errno == ENOENT ? QUIRE_OK : files_failed(path, err);
    }
    quire_err e = fstat(fd, &is) == 0 ? QUIRE_OK : QUIRE_IO;
    if (e == QUIRE_OK && S_ISREG(is.st_mode)) {
        e = input_history_read_end(fd, (size_t)is.st_size, INPUT_HISTORY_MAX_BYTES, &text);
    }
    e = e == QUIRE_IO ? files_failed(path, err) : e;
    close(fd); /* unlocked before the entries are used, so that other processes can write */
    TRY_DONE(e, take_lines((str){text.n ? text.p : "", text.n}, take, user));
done:
    strbuf_deinit(&text);
    return e == QUIRE_NO_MEMORY ? err_set(err, e, -1, "%s: out of memory", path) : e;
}

/* ---- writing ---- */

static quire_err input_history_encode(str entry, bool after_half_line, strbuf *line) {
    if (after_half_line) {
        TRY(strbuf_add_char(line, '\n'));
    }
    for (size_t i = 0; i < entry.n; i++) {
        char c = entry.p[i];
        TRY(c == '\n' || c == '\\' ? strbuf_add_str(line, c == '\n' ? "\\n" : "\\\\")
                                   : strbuf_add_char(line, c));
    }
    return strbuf_add_char(line, '\n');
}

/* Keeps the newest half of a full file: copies it to the beginning, then truncates the
 * file, so that no new entry is lost if the process ends in between. */
static quire_err shorten(int fd, size_t size) {
    strbuf kept = {0};
    quire_err e = input_history_read_end(fd, size, INPUT_HISTORY_MAX_BYTES / 2, &kept);
    if (e == QUIRE_OK && (!write_at(fd, 0, &kept) || ftruncate(fd, (off_t)kept.n) != 0)) {
        e = QUIRE_IO;
    }
    strbuf_deinit(&kept);
    return e;
}

/* Appends an entry to the open and locked file. */
static quire_err add_locked(int fd, str entry) {
    struct stat is;
    char last = '\n';
    strbuf line = {0};
    if (fstat(fd, &is) != 0) {
        return QUIRE_IO;
    }
    bool is_file = S_ISREG(is.st_mode);
    if (is_file && is.st_size > 0 && pread(fd, &last, 1, is.st_size - 1) != 1) {
        return QUIRE_IO;
    }
    quire_err e = input_history_encode(entry, last != '\n', &line);
    if (e == QUIRE_OK && !write_at(fd, is.st_size, &line)) {
        e = QUIRE_IO;
    }
    size_t size = (size_t)is.st_size + line.n;
    strbuf_deinit(&line);
    return e == QUIRE_OK && is_file && size > INPUT_HISTORY_MAX_BYTES ? shorten(fd, size) : e;
}

quire_err input_history_add(const char *path, str entry, quire_error *err) {
    if (entry.n == 0 || entry.n > INPUT_HISTORY_ENTRY_BYTES) {
        return QUIRE_OK;
    }
    int fd = input_history_open_locked(path, true);
    if (fd < 0 && errno == ENOENT) {
        strbuf copy = {0};
        if (strbuf_add_str(&copy, path) == QUIRE_OK) {
            input_history_make_directories(copy.p);
        }
        strbuf_deinit(&copy);
        fd = input_history_open_locked(path, true);
    }
    if (fd < 0) {
        return files_failed(path, err);
    }
    quire_err e = add_locked(fd, entry);
    e = e == QUIRE_IO   ? files_failed(path, err)
        : e == QUIRE_OK ? e
                        : err_set(err, e, -1, "%s: out of memory", path);
    close(fd);
    return e;
}
