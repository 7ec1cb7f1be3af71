/* Cgroup limits: the memory and processor time that the process's control groups allow.
 *
 * The limits of its own group and of all parents that are mounted here count, in version
 * 1, version 2 or both at once; the least one holds. They are read from the kernel's
 * files below a root directory, "" on a running system. Files may be missing, cut short
 * or wrong: such a file sets no limit. A group that no mount shows, as after a change of
 * namespaces, counts as the top of the mount, where a container's limit lies. Any thread;
 * nothing is cached. */
#ifndef BASE_CGROUP_H
#define BASE_CGROUP_H

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

#endif
