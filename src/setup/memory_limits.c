#include "setup/memory_limits.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

/* Reads a file that contains one number; -1 when there is none, or the word "max". */
static int64_t read_number(const char *path) {
    FILE *f = fopen(path, "r");
    long long v = -1;
    if (f) {
        if (fscanf(f, "%lld", &v) != 1) {
            v = -1;
        }
        fclose(f);
    }
    return v;
}

/* The number of the line "name N" in a file; -1 when there is none. */
static int64_t read_named(const char *path, const char *name) {
    FILE *f = fopen(path, "r");
    char line[128], key[64];
    long long v, found = -1;
    while (f && fgets(line, sizeof line, f)) {
        if (sscanf(line, "%63s %lld", key, &v) == 2 && strcmp(key, name) == 0) {
            found = v;
        }
    }
    if (f) {
        fclose(f);
    }
    return found;
}

/* What a cgroup's limit leaves. Unused cached file pages count as used there, but the kernel frees them on demand. */
static int64_t cgroup_available(const char *limit_path, const char *used_path, const char *stat_path, const char *unused) {
    int64_t limit = read_number(limit_path), used = read_number(used_path);
    if (limit < 0 || used < 0 || limit > ((int64_t)1 << 60)) {
        return -1;
    }
    int64_t freeable = read_named(stat_path, unused);
    used -= freeable > 0 ? freeable : 0;
    return limit > used ? limit - used : 0;
}

int64_t memory_available(void) {
    int64_t kib = read_named("/proc/meminfo", "MemAvailable:");
    int64_t known[] = {
        kib < 0 ? -1 : kib * 1024,
        cgroup_available("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory.stat", "inactive_file"),
        cgroup_available("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes",
                         "/sys/fs/cgroup/memory/memory.stat", "total_inactive_file")};
    int64_t least = -1;
    for (int i = 0; i < 3; i++) {
        if (known[i] >= 0 && (least < 0 || known[i] < least)) {
            least = known[i];
        }
    }
    return least;
}

quire_err memory_lock(quire_error *err) {
    struct rlimit limit;
    if (mlockall(MCL_CURRENT) == 0) {
        return QUIRE_OK;
    }
    int code = errno;
    char may[32] = "unlimited";
    if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
        (void)snprintf(may, sizeof may, "%llu KiB", (unsigned long long)limit.rlim_cur / 1024);
    }
    return err_set(err, QUIRE_NO_MEMORY, -1,
                   "--mlock: %s (ulimit -l: %s); raise it with `ulimit -l unlimited`, take fewer --kv-pages, or leave --mlock out",
                   strerror(code), may);
}
