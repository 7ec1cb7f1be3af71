/* Temporary directories are removed when they are no longer needed and when a signal ends
 * the process. */
#include <stdio.h>

#include <sys/wait.h>
#include <unistd.h>

#include "lab/bench/temporary.h"
#include "test.h"

static void write_file(const temporary *t) {
    char path[sizeof t->path + 8];
    (void)snprintf(path, sizeof path, "%s/file", t->path);
    FILE *f = fopen(path, "w");
    if (f != NULL) {
        (void)fputs("text", f);
        (void)fclose(f);
    }
}

TEST(a_directory_is_removed_with_its_files) {
    temporary t;
    sigset_t now;
    quire_error err = {.message = ""};
    assert_int_equal(temporary_make(&t, &err), QUIRE_OK);
    write_file(&t);
    assert_int_equal(access(t.path, F_OK), 0);
    temporary_remove(&t);
    assert_int_equal(access(t.path, F_OK), -1);
    assert_int_equal(pthread_sigmask(SIG_BLOCK, NULL, &now), 0);
    assert_int_equal(sigismember(&now, SIGTERM), 0);
}

/* What the other process does until it is ended; fd gets the path of its directory. */
static void wait_to_be_ended(int fd) {
    temporary t;
    quire_error err = {.message = ""};
    if (temporary_make(&t, &err) != QUIRE_OK) {
        _exit(1);
    }
    write_file(&t);
    if (write(fd, t.path, sizeof t.path) != (ssize_t)sizeof t.path) {
        _exit(1);
    }
    (void)kill(getpid(), SIGTERM);
    (void)sleep(60);
    _exit(1);
}

TEST(a_signal_that_ends_the_process_removes_the_directory) {
    char path[sizeof((temporary *)NULL)->path];
    int fds[2], status = 0;
    assert_int_equal(pipe(fds), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        wait_to_be_ended(fds[1]);
    }
    (void)close(fds[1]);
    assert_int_equal(read(fds[0], path, sizeof path), sizeof path);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    assert_int_equal(access(path, F_OK), -1);
    (void)close(fds[0]);
}

TEST_MAIN(NULL, NULL)
