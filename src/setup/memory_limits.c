/* MCL_ONFAULT is outside POSIX. */
#define _DEFAULT_SOURCE

#include "setup/memory_limits.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#define PATH_BYTES 4096
/* threads that start later: the engine's, text, server, log, tiers */
#define N_STACKS  6
#define UNLIMITED ((int64_t)1 << 60) /* limits from here on count as no limit */

/* The number of the line "name N kB" in root/path, in bytes; -1 when there is none. */
static int64_t read_kib(const char *root, const char *path, const char *name) {
    char full[PATH_BYTES], line[256];
    int n = snprintf(full, sizeof full, "%s%s", root, path);
    FILE *f = n > 0 && (size_t)n < sizeof full ? fopen(full, "re") : NULL;
    int64_t bytes = -1;
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        size_t n_name = strlen(name);
        long long kib;
        if (strncmp(line, name, n_name) == 0 && sscanf(line + n_name, "%lld", &kib) == 1 && kib >= 0 &&
            kib < UNLIMITED / 1024) {
            bytes = kib * 1024;
        }
    }
    if (f != NULL) {
        fclose(f);
    }
    return bytes;
}

/* Takes over `bytes` as the room if that is less than before. */
static void bound_room(memory_room *room, int64_t bytes, memory_bound bound, int64_t limit) {
    if (room->bytes < 0 || bytes < room->bytes) {
        room->bytes = bytes > 0 ? bytes : 0;
        room->bound = bound;
        room->limit = limit;
    }
}

/* Address space that the stacks of later threads take, of which they touch little. */
static int64_t stack_bytes(void) {
    pthread_attr_t attr;
    size_t n = 0;
    if (pthread_attr_init(&attr) == 0) {
        (void)pthread_attr_getstacksize(&attr, &n);
        (void)pthread_attr_destroy(&attr);
    }
    return N_STACKS * (int64_t)n;
}

/* Bounds the room by what a soft limit leaves of the memory that the process has by this
 * line of its status. */
static void bound_by_rlimit(memory_room *room, const char *root, int resource, memory_bound bound,
                            const char *name) {
    struct rlimit limit;
    int64_t used = read_kib(root, "/proc/self/status", name);
    /* RLIM_INFINITY is the largest number */
    if (getrlimit(resource, &limit) == 0 && limit.rlim_cur < (rlim_t)UNLIMITED) {
        int64_t most = (int64_t)limit.rlim_cur;
        bound_room(room, most - (used > 0 ? used : 0) - room->stack_bytes, bound, most);
    }
}

void memory_room_read(const char *root, int64_t pending_bytes, memory_room *out) {
    *out = (memory_room){.bytes = -1, .bound = MEMORY_UNKNOWN, .stack_bytes = stack_bytes()};
    int64_t available = read_kib(root, "/proc/meminfo", "MemAvailable:");
    if (available >= 0) {
        bound_room(out, available - pending_bytes, MEMORY_OF_MACHINE, available);
    }
    cgroup_memory group;
    cgroup_memory_read(root, &group);
    if (group.limit >= 0) {
        bound_room(out, group.limit - group.used - pending_bytes, MEMORY_OF_CGROUP, group.limit);
        memcpy(out->file, group.file, sizeof out->file);
    }
    bound_by_rlimit(out, root, RLIMIT_AS, MEMORY_OF_RLIMIT_AS, "VmSize:");
    bound_by_rlimit(out, root, RLIMIT_DATA, MEMORY_OF_RLIMIT_DATA, "VmData:");
}

quire_err memory_room_explain(const memory_room *room, strbuf *out) {
    assert(room != NULL);
    if (room->bytes < 0) {
        return strbuf_add_str(out, "an unknown amount of memory");
    }
    TRY(strbuf_add_str(out, "the "));
    TRY(memory_print(room->bytes, out));
    if (room->bound == MEMORY_OF_MACHINE) {
        return strbuf_add_str(out, " that the machine has available");
    }
    bool is_cgroup = room->bound == MEMORY_OF_CGROUP, is_as = room->bound == MEMORY_OF_RLIMIT_AS;
    TRY(strbuf_addf(out, " that %s of ",
                    is_cgroup ? "the cgroup's limit"
                    : is_as   ? "the limit of address space"
                              : "the limit of data"));
    TRY(memory_print(room->limit, out));
    TRY(strbuf_addf(out, " (%s) leaves", is_cgroup ? room->file : is_as ? "ulimit -v" : "ulimit -d"));
    if (!is_cgroup) {
        TRY(strbuf_add_str(out, " beside stacks ("));
        TRY(memory_print(room->stack_bytes, out));
        TRY(strbuf_add_str(out, ")"));
    }
    return QUIRE_OK;
}

quire_err memory_print(int64_t bytes, strbuf *out) {
    static const char *const units[] = {"kB", "MB", "GB", "TB"};
    double v = (double)bytes / 1e3;
    int u = 0;
    while (v >= 999.95 && u < 3) {
        v /= 1e3;
        u++;
    }
    return bytes < 1000 ? strbuf_addf(out, "%lld bytes", (long long)bytes)
                        : strbuf_addf(out, "%.1f %s", v, units[u]);
}

quire_err memory_lock(bool late, quire_error *err) {
    struct rlimit limit;
    if (mlockall(late ? MCL_CURRENT | MCL_ONFAULT : MCL_CURRENT) == 0) {
        return QUIRE_OK;
    }
    int code = errno;
    char may[32] = "unlimited";
    if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
        (void)snprintf(may, sizeof may, "%llu KiB", (unsigned long long)limit.rlim_cur / 1024);
    }
    return err_set(err, QUIRE_NO_MEMORY, -1,
                   "--mlock: %s (ulimit -l: %s); raise it with `ulimit -l unlimited`, take fewer --kv-pages, "
                   "or leave --mlock out",
                   strerror(code), may);
}
