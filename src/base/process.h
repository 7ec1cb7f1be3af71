/* What the system knows about this process: the limits of its control groups; its
 * processor time, memory and file descriptors.
 *
 * The limits of its own group and of all mounted parents apply, in version 1, version 2
 * or both; the lowest wins. They are read from the kernel's files below a root directory,
 * "" on a running system. A file that is missing, cut short or malformed sets no limit. A
 * group outside every mount, as after a change of namespaces, counts as the top of the
 * mount, where a container's limit lies. Any thread; nothing is cached. */
#ifndef BASE_PROCESS_H
#define BASE_PROCESS_H

#include <stddef.h>
#include <stdint.h>

#define CGROUP_FILE_BYTES 256

typedef struct cgroup_memory {
    int64_t limit; /* bytes; -1: there is no limit */
    /* bytes that the group uses, without the page cache, which the kernel can drop */
    int64_t used;
    /* the file that sets the limit; a longer path loses its beginning to "..." */
    char file[CGROUP_FILE_BYTES];
} cgroup_memory;

/* Finds the memory limit that leaves the least unused. memory.high counts like
 * memory.max, since the kernel slows down processes beyond it. */
void cgroup_memory_read(const char *root, cgroup_memory *out);

/* Returns how many processors' time the process may use, at most `most`. Sets of
 * processors (cpuset) are not read: they show in each thread's affinity. */
double cgroup_cpus(const char *root, double most);

/* ---- counters, and programs installed beside this one ---- */

/* Counters of the process. A negative value is unknown on this system. */
typedef struct process_numbers {
    double cpu_s;     /* seconds of processor time of all threads, user and system */
    double started_s; /* Unix time at which the process started */
    int64_t virtual_bytes, resident_bytes;
    int64_t n_files, max_files; /* open descriptors; the soft limit, negative if there is none */
} process_numbers;

/* Reads /proc. O(open descriptors). Any thread. */
process_numbers process_read(void);

/* Returns the path of the program `name` in this program's directory, written to
 * path[0..n), if it is executable; else `name`, for execvp to find in PATH. Any
 * thread. */
const char *beside_find(const char *name, char *path, size_t n);

#endif
