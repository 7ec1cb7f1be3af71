/* What the system allows this process and counts of it: the limits of its control groups;
 * its processor time, memory and descriptors.
 *
 * The limits of its own group and of all parents that are mounted here count, in version
 * 1, version 2 or both at once; the least one holds. They are read from the kernel's
 * files below a root directory, "" on a running system. Files may be missing, cut short
 * or wrong: such a file sets no limit. A group that no mount shows, as after a change of
 * namespaces, counts as the top of the mount, where a container's limit lies. Any thread;
 * nothing is cached. */
#ifndef BASE_PROCESS_H
#define BASE_PROCESS_H

#include <stddef.h>
#include <stdint.h>

#define CGROUP_FILE_BYTES 256

typedef struct cgroup_memory {
    int64_t limit; /* bytes; -1: there is no limit */
    /* by all processes of that group, without cached pages of files, which the kernel
     * drops on demand */
    int64_t used;
    /* the file that sets the limit; a longer name is cut in front, which "..." shows */
    char file[CGROUP_FILE_BYTES];
} cgroup_memory;

/* Finds the limit that leaves least of memory. memory.high counts as memory.max does:
 * beyond it the kernel slows the process down. */
void cgroup_memory_read(const char *root, cgroup_memory *out);

/* The processors' worth of time that the group may use, or `most` if that is less.
 * Sets of processors (cpuset) are not read: the kernel applies them to each thread's
 * affinity. */
double cgroup_cpus(const char *root, double most);

/* ---- counts, and the programs that are installed beside this one ---- */

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
