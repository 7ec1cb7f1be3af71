/* The default number of threads: from affinity, cores and cgroup quota. */

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/thread_pool.h"
#include "base/topology.h"

#define PATH_BYTES 4096

/* Reads the first line of a file of numbers. */
static bool read_line(const char *directory, const char *name, char text[64]) {
    char path[PATH_BYTES + 32];
    (void)snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *f = fopen(path, "re");
    bool ok = f != NULL && fgets(text, 64, f) != NULL;
    if (f != NULL) {
        fclose(f);
    }
    return ok;
}

/* cgroup v2: one file, "quota period" or "max period". False: there is no quota. */
static bool read_quota_v2(const char *directory, double *cpus) {
    char text[64];
    long long quota, period;
    bool ok = read_line(directory, "cpu.max", text) && sscanf(text, "%lld %lld", &quota, &period) == 2 && quota > 0 && period > 0;
    *cpus = ok ? (double)quota / (double)period : *cpus;
    return ok;
}

/* cgroup v1: two files; no quota is -1. */
static bool read_quota_v1(const char *directory, double *cpus) {
    char text[64];
    long long quota, period;
    bool ok = read_line(directory, "cpu.cfs_quota_us", text) && sscanf(text, "%lld", &quota) == 1 &&
              read_line(directory, "cpu.cfs_period_us", text) && sscanf(text, "%lld", &period) == 1 && quota > 0 && period > 0;
    *cpus = ok ? (double)quota / (double)period : *cpus;
    return ok;
}

/* The least quota of the directory root/path and all its parents down to root; a parent's limit applies to its children. */
static double least_quota(const char *root, const char *path, bool (*read_quota)(const char *, double *), double cpus) {
    char directory[PATH_BYTES];
    int n = snprintf(directory, sizeof directory, "%s%s", root, path);
    if (n < 0 || (size_t)n >= sizeof directory) {
        return cpus;
    }
    size_t root_n = strlen(root);
    for (;;) {
        double quota = 0;
        if (read_quota(directory, &quota) && quota < cpus) {
            cpus = quota;
        }
        if (strlen(directory) <= root_n) {
            return cpus;
        }
        *strrchr(directory, '/') = '\0';
    }
}

static bool names_cpu(const char *controllers) {
    size_t n = strcspn(controllers, ",");
    return (n == 3 && strncmp(controllers, "cpu", 3) == 0) || (controllers[n] == ',' && names_cpu(controllers + n + 1));
}

/* /proc/self/cgroup has lines "id:controllers:path"; v2 has id 0 and no controllers. */
static double cgroup_limit(double cpus) {
    char line[PATH_BYTES];
    FILE *f = fopen("/proc/self/cgroup", "re");
    if (f == NULL) {
        return cpus;
    }
    while (fgets(line, sizeof line, f) != NULL) {
        char *controllers = strchr(line, ':');
        char *path = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
        if (path == NULL) {
            continue;
        }
        *path++ = '\0';
        path[strcspn(path, "\n")] = '\0';
        controllers++;
        if (*controllers == '\0') {
            cpus = least_quota("/sys/fs/cgroup", path, read_quota_v2, cpus);
        } else if (names_cpu(controllers)) {
            cpus = least_quota("/sys/fs/cgroup/cpu", path, read_quota_v1, cpus);
        }
    }
    fclose(f);
    return cpus;
}

int32_t thread_pool_cpus(void) {
    cpu_mask allowed;
    topology all;
    double cpus = 1;
    if (cpu_mask_get(pthread_self(), &allowed)) {
        topology_read("/sys", &allowed, &all);
        cpus = all.n_cores;
    }
    cpus = cgroup_limit(cpus);
    int32_t whole = (int32_t)cpus;
    whole += (double)whole < cpus; /* part of a processor is worth a thread */
    return whole > 1 ? whole : 1;
}
