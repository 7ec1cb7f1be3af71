#include "lab/bench/resident.h"

#include <stdbool.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

void resident_reset(void) {
    FILE *f = fopen("/proc/self/clear_refs", "w");
    if (f != NULL) {
        (void)fputs("5", f); /* of proc(5): the peak is set to what is resident now */
        (void)fclose(f);
    }
}

int64_t resident_peak_bytes(void) {
    FILE *f = fopen("/proc/self/status", "r");
    char line[128];
    long long kilobytes = -1;
    while (f != NULL && kilobytes < 0 && fgets(line, sizeof line, f) != NULL) {
        if (sscanf(line, "VmHWM: %lld kB", &kilobytes) != 1) {
            kilobytes = -1;
        }
    }
    if (f != NULL) {
        (void)fclose(f);
    }
    return kilobytes < 0 ? -1 : kilobytes * 1024;
}

static bool write_all(int fd, const void *bytes, size_t n) {
    for (size_t done = 0; done < n;) {
        ssize_t some = write(fd, (const char *)bytes + done, n - done);
        if (some <= 0) {
            return false;
        }
        done += (size_t)some;
    }
    return true;
}

static bool read_all(int fd, void *bytes, size_t n) {
    for (size_t done = 0; done < n;) {
        ssize_t some = read(fd, (char *)bytes + done, n - done);
        if (some <= 0) {
            return false;
        }
        done += (size_t)some;
    }
    return true;
}

quire_err resident_apart(quire_err (*run)(void *context, quire_error *err), void *context, void *result,
                         size_t n, quire_error *err) {
    int ends[2];
    quire_err e = QUIRE_INTERNAL;
    (void)fflush(NULL);
    if (pipe(ends) != 0) {
        return err_set(err, QUIRE_IO, -1, "no pipe to a child process");
    }
    pid_t child = fork();
    if (child == 0) {
        quire_error own = {.message = ""};
        resident_reset();
        e = run(context, &own);
        bool sent = write_all(ends[1], &e, sizeof e) && write_all(ends[1], &own, sizeof own) &&
                    write_all(ends[1], result, n);
        _exit(sent ? 0 : 1);
    }
    (void)close(ends[1]);
    quire_error own;
    if (child < 0) {
        (void)err_set(err, QUIRE_INTERNAL, -1, "no child process");
    } else if (!read_all(ends[0], &e, sizeof e) || !read_all(ends[0], &own, sizeof own) ||
               !read_all(ends[0], result, n)) {
        e = err_set(err, QUIRE_INTERNAL, -1, "a child process ended in the middle of its run");
    } else if (e != QUIRE_OK) {
        *err = own;
    }
    (void)close(ends[0]);
    if (child > 0) {
        (void)waitpid(child, NULL, 0);
    }
    return e;
}
