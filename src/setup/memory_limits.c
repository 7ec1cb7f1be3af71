#include "setup/memory_limits.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
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

static int64_t meminfo_available(void) {
    FILE *f = fopen("/proc/meminfo", "r");
    char line[128];
    long long kib = -1;
    while (f && kib < 0 && fgets(line, sizeof line, f)) {
        if (strncmp(line, "MemAvailable:", 13) == 0) {
            kib = strtoll(line + 13, NULL, 10);
        }
    }
    if (f) {
        fclose(f);
    }
    return kib < 0 ? -1 : kib * 1024;
}

/* The value of a line "name N" in a cgroup's memory.stat; 0 when there is none. */
static int64_t read_stat(const char *path, const char *name) {
    FILE *f = fopen(path, "r");
    char key[64];
    long long v, found = 0;
    while (f && fscanf(f, "%63s %lld", key, &v) == 2) {
        if (strcmp(key, name) == 0) {
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
    used -= read_stat(stat_path, unused);
    return limit > used ? limit - used : 0;
}

int64_t memory_available(void) {
    int64_t known[] = {
        meminfo_available(),
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
