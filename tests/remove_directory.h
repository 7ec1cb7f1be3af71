/* Removes directories that tests made. */
#ifndef TESTS_REMOVE_DIRECTORY_H
#define TESTS_REMOVE_DIRECTORY_H

#include <dirent.h>
#include <stdio.h>
#include <unistd.h>

#include "test.h"

/* Removes the files in a directory. */
static inline void empty_directory(const char *path) {
    DIR *d = opendir(path);
    assert_non_null(d);
    for (struct dirent *f; (f = readdir(d)) != NULL;) {
        char name[600];
        (void)snprintf(name, sizeof name, "%s/%s", path, f->d_name);
        (void)unlink(name); /* fails for . and .. */
    }
    closedir(d);
}

/* Removes a directory and its files; it must have no subdirectories. */
static inline void remove_directory(const char *path) {
    empty_directory(path);
    assert_int_equal(rmdir(path), 0);
}

#endif
