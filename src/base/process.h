/* What the system counts of this process: processor time, memory, descriptors; and the
 * programs that are installed beside it. */
#ifndef BASE_PROCESS_H
#define BASE_PROCESS_H

#include <stddef.h>
#include <stdint.h>

/* Negative: not known here. */
typedef struct process_numbers {
    double cpu_s;     /* of all threads, user and system */
    double started_s; /* unix time */
    int64_t virtual_bytes, resident_bytes;
    int64_t n_files, max_files; /* open descriptors, and the soft limit; an unlimited one is not known */
} process_numbers;

/* Reads /proc. O(open descriptors). Any thread. */
process_numbers process_read(void);

/* The path of program `name` in the directory of this program's file, written to
 * path[0..n), if it is there and executable; else `name`, which execvp and posix_spawnp
 * look for in PATH. Any thread. */
const char *beside_find(const char *name, char *path, size_t n);

#endif
