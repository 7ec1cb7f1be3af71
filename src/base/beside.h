/* Finds another program that is installed in the same directory. */
#ifndef BASE_BESIDE_H
#define BASE_BESIDE_H

#include <stddef.h>

/* The path of program `name` in the directory of this program's file, written to
 * path[0..n), if it is there and executable; else `name`, which execvp and posix_spawnp
 * look for in PATH. Any thread. */
const char *beside_find(const char *name, char *path, size_t n);

#endif
