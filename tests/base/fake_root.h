/* A directory of fake kernel files, removed after the test. nftw() needs _XOPEN_SOURCE:
 * include this first. */
#ifndef TESTS_BASE_FAKE_ROOT_H
#define TESTS_BASE_FAKE_ROOT_H

#ifndef _XOPEN_SOURCE
#define _XOPEN_SOURCE 700
#endif

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "test.h"

static char root[64];

static inline int make_root(void **state) {
    (void)state;
    strcpy(root, "/tmp/quire-root-XXXXXX");
    return mkdtemp(root) == NULL;
}

static inline int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at) {
    (void)st, (void)kind, (void)at;
    return remove(path);
}

static inline int remove_root(void **state) {
    (void)state;
    return nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Writes text to the file root/path, and makes the directories that it needs. */
static inline void put(const char *path, const char *text) {
    char full[2048];
    snprintf(full, sizeof full, "%s/%s", root, path);
    for (char *p = full + strlen(root) + 1; (p = strchr(p, '/')) != NULL; p++) {
        *p = '\0';
        mkdir(full, 0700);
        *p = '/';
    }
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

#define ROOT_TEST(name) TEST_WITHIN(name, make_root, remove_root)

#endif
