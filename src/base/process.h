/* What the system counts of this process: processor time, memory, descriptors. */
#ifndef BASE_PROCESS_H
#define BASE_PROCESS_H

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

#endif
