/* Memory limits of this process: how much it may still allocate, and locking what it
 * has. */
#ifndef SETUP_MEMORY_LIMITS_H
#define SETUP_MEMORY_LIMITS_H

#include <stdint.h>

#include "base/err.h"
#include "base/process.h"
#include "base/str.h"

typedef enum memory_bound {
    MEMORY_UNKNOWN,
    MEMORY_OF_MACHINE,
    MEMORY_OF_CGROUP,      /* base/process.h */
    MEMORY_OF_RLIMIT_AS,   /* address space: mapped files count too */
    MEMORY_OF_RLIMIT_DATA, /* memory that is private and writable */
} memory_bound;

/* The memory that the process may still allocate, and the limit that decides it. */
typedef struct memory_room {
    int64_t bytes;                /* -1: unknown */
    memory_bound bound;           /* what leaves least */
    int64_t limit;                /* bytes: the limit that leaves `bytes` of it */
    int64_t stack_bytes;          /* MEMORY_OF_RLIMIT_*: already taken off for threads that start later */
    char file[CGROUP_FILE_BYTES]; /* MEMORY_OF_CGROUP: that sets the limit */
} memory_room;

/* Reads how much memory is left: what the kernel estimates as available, and what the
 * limits of cgroups, RLIMIT_AS and RLIMIT_DATA leave. pending_bytes will be needed
 * although the kernel takes them for free: of mapped files, and of buffers that were not
 * touched yet. In the two limits of the process they count already. The kernel's files
 * are read below root, "" on a running system. Any thread. */
void memory_room_read(const char *root, int64_t pending_bytes, memory_room *out);
/* Appends, for people: "the 21.3 GB that the machine has available". Errors of
 * strbuf_add. */
quire_err memory_room_explain(const memory_room *room, strbuf *out);
/* Appends a number of bytes for people: "21.3 GB". A GB is 10^9 bytes. Errors of
 * strbuf_add. */
quire_err memory_print(int64_t bytes, strbuf *out);

/* Locks all mapped memory: weights, pages, buffers, program. late: what was not touched
 * yet is locked once it is; else all of it takes memory now. QUIRE_NO_MEMORY: the process
 * may not lock so much; err says what allows it. */
quire_err memory_lock(bool late, quire_error *err);

#endif
