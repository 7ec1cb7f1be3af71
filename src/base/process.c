#include "base/process.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* Reads the beginning of a file as text; false when there is none. */
static bool read_start(const char *path, char *text, size_t size) {
    FILE *f = fopen(path, "re");
    size_t n = f != NULL ? fread(text, 1, size - 1, f) : 0;
    text[n] = '\0';
    if (f != NULL) {
        fclose(f);
    }
    return n > 0;
}

/* When the system was started, in unix time; negative: not known. */
static double booted_s(void) {
    char line[256];
    double s = -1.0;
    FILE *f = fopen("/proc/stat", "re");
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        if (sscanf(line, "btime %lf", &s) == 1) {
            break;
        }
    }
    if (f != NULL) {
        fclose(f);
    }
    return s;
}

/* Fields 14, 15 and 22 to 24 of proc_pid_stat(5), counted from after the program's name,
 * which may hold anything. */
static void read_stat(process_numbers *p) {
    char text[2048];
    uint64_t user, system, started, virtual_bytes;
    int64_t pages;
    double ticks = (double)sysconf(_SC_CLK_TCK);
    const char *at = read_start("/proc/self/stat", text, sizeof text) ? strrchr(text, ')') : NULL;
    if (at == NULL || ticks <= 0 ||
        sscanf(at + 1,
               " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %" SCNu64 " %" SCNu64
               " %*d %*d %*d %*d %*d %*d %" SCNu64 " %" SCNu64 " %" SCNd64,
               &user, &system, &started, &virtual_bytes, &pages) != 5) {
        return;
    }
    double boot_s = booted_s();
    p->cpu_s = (double)(user + system) / ticks;
    p->started_s = boot_s >= 0 ? boot_s + (double)started / ticks : -1.0;
    p->virtual_bytes = (int64_t)virtual_bytes;
    p->resident_bytes = pages * (int64_t)sysconf(_SC_PAGESIZE);
}

static int64_t count_files(void) {
    DIR *d = opendir("/proc/self/fd");
    int64_t n = -1;
    if (d != NULL) {
        n = 0;
        for (const struct dirent *entry; (entry = readdir(d)) != NULL;) {
            n += entry->d_name[0] != '.';
        }
        closedir(d);
        n--; /* the descriptor of this list */
    }
    return n;
}

process_numbers process_read(void) {
    process_numbers p = {-1.0, -1.0, -1, -1, -1, -1};
    struct rlimit limit;
    read_stat(&p);
    p.n_files = count_files();
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
        p.max_files = (int64_t)limit.rlim_cur;
    }
    return p;
}

const char *beside_find(const char *name, char *path, size_t n) {
    ssize_t length = readlink("/proc/self/exe", path, n);
    if (length <= 0 || (size_t)length >= n) {
        return name;
    }
    path[length] = 0;
    char *file = strrchr(path, '/') + 1; /* the link is a path from the root */
    size_t room = n - (size_t)(file - path);
    int written = snprintf(file, room, "%s", name);
    return written > 0 && (size_t)written < room && access(path, X_OK) == 0 ? path : name;
}
