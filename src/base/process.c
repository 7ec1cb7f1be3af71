/* Finds the process's control groups in /proc/self/cgroup, their mounts in mountinfo. */
#include "base/process.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/str.h"

#define PATH_BYTES   4096 /* longest path that the kernel opens */
#define NUMBER_BYTES 64
#define NO_LIMIT     ((int64_t)1 << 60) /* version 1 of cgroups writes no limit as a number near 2^63 */

/* Called for the directory of the process's group and of each parent group. */
typedef void visit_fn(void *context, const char *directory, bool is_v2);

/* ---- files ---- */

static FILE *open_in(const char *directory, const char *name) {
    char path[PATH_BYTES];
    int n = snprintf(path, sizeof path, "%s/%s", directory, name);
    return n > 0 && (size_t)n < sizeof path ? fopen(path, "re") : NULL;
}

/* Reads a file's first line. */
static bool cgroup_read_line(const char *directory, const char *name, char text[NUMBER_BYTES]) {
    FILE *f = open_in(directory, name);
    bool ok = f != NULL && fgets(text, NUMBER_BYTES, f) != NULL;
    if (f != NULL) {
        fclose(f);
    }
    return ok;
}

/* Parses a number of bytes that a newline may end; -1: no number, or at least
 * NO_LIMIT. */
static int64_t parse_bytes(const char *text) {
    char *end;
    errno = 0;
    unsigned long long v = strtoull(text, &end, 10);
    bool is_number = text[0] >= '0' && text[0] <= '9' && (*end == '\n' || *end == '\0');
    return is_number && errno == 0 && v < (unsigned long long)NO_LIMIT ? (int64_t)v : -1;
}

static int64_t cgroup_read_bytes(const char *directory, const char *name) {
    char text[NUMBER_BYTES];
    return cgroup_read_line(directory, name, text) ? parse_bytes(text) : -1;
}

/* Returns the sum of the lines `inactive` and `active` of a group's memory.stat. */
static int64_t read_cached(const char *directory, const char *inactive, const char *active) {
    FILE *f = open_in(directory, "memory.stat");
    char line[128];
    int64_t sum = 0;
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        char *number = strchr(line, ' ');
        if (number != NULL) {
            *number++ = '\0';
            int64_t v = strcmp(line, inactive) == 0 || strcmp(line, active) == 0 ? parse_bytes(number) : -1;
            sum += v > 0 ? v : 0;
        }
    }
    if (f != NULL) {
        fclose(f);
    }
    return sum;
}

/* ---- the process's groups ---- */

/* Whether `word` is in a comma-separated list. */
static bool cgroup_has_word(const char *list, const char *word) {
    size_t n = strlen(word);
    for (const char *p = list; p != NULL; p = strchr(p, ','), p = p != NULL ? p + 1 : NULL) {
        if (strncmp(p, word, n) == 0 && (p[n] == ',' || p[n] == '\0')) {
            return true;
        }
    }
    return false;
}

/* The process's groups in version 2, and in version 1 for one controller. NULL: none. */
typedef struct groups {
    char *v2, *v1; /* paths from the hierarchy's root, such as "/a/b"; owned */
} groups;

/* /proc/self/cgroup has lines "id:controllers:path"; version 2 has no controllers. */
static void groups_read(const char *root, const char *controller, groups *out) {
    FILE *f = open_in(root, "proc/self/cgroup");
    char *line = NULL;
    size_t cap = 0;
    *out = (groups){NULL, NULL};
    while (f != NULL && getline(&line, &cap, f) > 0) {
        char *controllers = strchr(line, ':');
        char *path = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
        if (path == NULL || path[1] != '/') {
            continue;
        }
        *path++ = '\0';
        path[strcspn(path, "\n")] = '\0';
        char **to = *++controllers == '\0'                     ? &out->v2
                    : cgroup_has_word(controllers, controller) ? &out->v1
                                                               : NULL;
        if (to != NULL && *to == NULL) {
            *to = mem_dup(path, strlen(path));
        }
    }
    free(line);
    if (f != NULL) {
        fclose(f);
    }
}

/* ---- mounts ---- */

/* Returns the next word of *rest and moves *rest past it; "" at the end. */
static char *next_word(char **rest) {
    char *word = *rest, *end = word + strcspn(word, " \n");
    *rest = *end != '\0' ? end + 1 : end;
    *end = '\0';
    return word;
}

/* Replaces the escapes \ooo of mountinfo, in place. */
static void unescape(char *text) {
    char *to = text;
    for (const char *from = text; *from != '\0'; to++) {
        bool is_escape = from[0] == '\\' && from[1] >= '0' && from[1] <= '3' && from[2] >= '0' &&
                         from[2] <= '7' && from[3] >= '0' && from[3] <= '7';
        *to = is_escape ? (char)((from[1] - '0') * 64 + (from[2] - '0') * 8 + (from[3] - '0')) : *from;
        from += is_escape ? 4 : 1;
    }
    *to = '\0';
}

typedef struct mount {
    const char *top;   /* the group that the mount point shows */
    const char *point; /* the directory where the hierarchy is mounted */
    bool is_v2;
} mount;

/* Parses a line of mountinfo in place: "36 35 98:0 TOP POINT options optional.. - type
 * source options". False: it mounts no cgroups, or version 1 without the controller. */
static bool parse_mount(char *line, const char *controller, mount *out) {
    char *rest = line, *top = NULL, *point = NULL, *word;
    for (int i = 0; i < 6; i++) {
        word = next_word(&rest);
        top = i == 3 ? word : top;
        point = i == 4 ? word : point;
    }
    do {
        word = next_word(&rest);
    } while (*word != '\0' && strcmp(word, "-") != 0);
    const char *type = next_word(&rest);
    (void)next_word(&rest);
    const char *options = next_word(&rest);
    out->is_v2 = strcmp(type, "cgroup2") == 0;
    if ((!out->is_v2 && (strcmp(type, "cgroup") != 0 || !cgroup_has_word(options, controller))) ||
        top[0] != '/' || point[0] != '/') {
        return false;
    }
    unescape(top);
    unescape(point);
    out->top = top;
    out->point = point;
    return true;
}

/* Returns a group's path relative to a mount's top, "" for the top itself. NULL: the
 * group is outside the mount. */
static const char *below(const char *top, const char *path) {
    size_t n = strcmp(top, "/") == 0 ? 0 : strlen(top);
    const char *rest = strncmp(path, top, n) == 0 && (path[n] == '/' || path[n] == '\0') ? path + n : NULL;
    for (const char *up = rest; up != NULL && (up = strstr(up, "/..")) != NULL; up += 3) {
        if (up[3] == '/' || up[3] == '\0') {
            return NULL;
        }
    }
    return rest != NULL && strcmp(rest, "/") == 0 ? "" : rest;
}

/* Visits the directory root/point/rest and its parents, up to root/point. */
static void visit_all(const char *root, const mount *m, const char *rest, visit_fn *fn, void *context) {
    char directory[PATH_BYTES];
    int top_n = snprintf(directory, sizeof directory, "%s%s", root, m->point);
    if (top_n < 0 || (size_t)top_n >= sizeof directory) {
        return;
    }
    size_t n = strlen(rest), room = sizeof directory - (size_t)top_n;
    while (n >= room) { /* such a directory cannot be opened, but its parents can */
        do {
            n--;
        } while (n > 0 && rest[n] != '/');
    }
    memcpy(directory + top_n, rest, n);
    directory[(size_t)top_n + n] = '\0';
    for (;;) {
        fn(context, directory, m->is_v2);
        if (strlen(directory) <= (size_t)top_n) {
            return;
        }
        *strrchr(directory, '/') = '\0';
    }
}

/* Visits the process's groups in all mounts with the controller; is_shown: in mounts that
 * contain its group; false: the tops of all mounts. */
static bool visit_mounts(const char *root, const char *controller, const groups *own, bool is_shown,
                         visit_fn *fn, void *context) {
    FILE *f = open_in(root, "proc/self/mountinfo");
    char *line = NULL;
    size_t cap = 0;
    bool any = false;
    mount m;
    while (f != NULL && getline(&line, &cap, f) > 0) {
        const char *path = parse_mount(line, controller, &m) ? (m.is_v2 ? own->v2 : own->v1) : NULL;
        const char *rest = path == NULL ? NULL : is_shown ? below(m.top, path) : "";
        if (rest != NULL) {
            visit_all(root, &m, rest, fn, context);
            any = true;
        }
    }
    free(line);
    if (f != NULL) {
        fclose(f);
    }
    return any;
}

static void cgroup_visit(const char *root, const char *controller, visit_fn *fn, void *context) {
    groups own;
    groups_read(root, controller, &own);
    if (!visit_mounts(root, controller, &own, true, fn, context)) {
        (void)visit_mounts(root, controller, &own, false, fn, context);
    }
    mem_free(own.v1);
    mem_free(own.v2);
}

/* ---- memory ---- */

typedef struct memory_search {
    cgroup_memory *best;
    size_t root_n;
} memory_search;

/* Records a limit if it leaves less memory than earlier ones. */
static void note_limit(const memory_search *s, const char *directory, const char *name, int64_t limit,
                       int64_t used) {
    cgroup_memory *best = s->best;
    if (limit < 0 || (best->limit >= 0 && best->limit - best->used <= limit - used)) {
        return;
    }
    best->limit = limit;
    best->used = used;
    char path[PATH_BYTES + NUMBER_BYTES];
    int n = snprintf(path, sizeof path, "%s/%s", directory + s->root_n, name);
    size_t length = (size_t)n < sizeof path ? (size_t)n : sizeof path - 1, cut = 0;
    if (length >= sizeof best->file) {
        cut = length - (sizeof best->file - 1);
        memcpy(path + cut, "...", 3);
    }
    memcpy(best->file, path + cut, length - cut + 1);
}

static void visit_memory(void *context, const char *directory, bool is_v2) {
    int64_t used = cgroup_read_bytes(directory, is_v2 ? "memory.current" : "memory.usage_in_bytes");
    int64_t cached = is_v2 ? read_cached(directory, "inactive_file", "active_file")
                           : read_cached(directory, "total_inactive_file", "total_active_file");
    used = used > cached ? used - cached : 0;
    if (is_v2) {
        note_limit(context, directory, "memory.max", cgroup_read_bytes(directory, "memory.max"), used);
        note_limit(context, directory, "memory.high", cgroup_read_bytes(directory, "memory.high"), used);
    } else {
        note_limit(context, directory, "memory.limit_in_bytes",
                   cgroup_read_bytes(directory, "memory.limit_in_bytes"), used);
    }
}

void cgroup_memory_read(const char *root, cgroup_memory *out) {
    *out = (cgroup_memory){.limit = -1};
    cgroup_visit(root, "memory", visit_memory, &(memory_search){out, strlen(root)});
}

/* ---- processors ---- */

/* Version 2 has one file, "quota period" or "max period"; version 1 has a file for each,
 * and a quota of -1 means no limit. */
static void visit_cpu(void *context, const char *directory, bool is_v2) {
    char quota[NUMBER_BYTES], period[NUMBER_BYTES] = "";
    double *least = context;
    if (!cgroup_read_line(directory, is_v2 ? "cpu.max" : "cpu.cfs_quota_us", quota) ||
        (!is_v2 && !cgroup_read_line(directory, "cpu.cfs_period_us", period))) {
        return;
    }
    char *behind = is_v2 ? strchr(quota, ' ') : NULL;
    if (behind != NULL) {
        *behind = '\0';
    }
    int64_t us = parse_bytes(quota), of_us = parse_bytes(behind != NULL ? behind + 1 : period);
    if (us > 0 && of_us > 0 && (double)us / (double)of_us < *least) {
        *least = (double)us / (double)of_us;
    }
}

double cgroup_cpus(const char *root, double most) {
    double least = most;
    cgroup_visit(root, "cpu", visit_cpu, &least);
    return least;
}

/* ---- the system's counters of this process ---- */

/* Reads the first size - 1 bytes of a file as text. False: it cannot be read. */
static bool read_start(const char *path, char *text, size_t size) {
    FILE *f = fopen(path, "re");
    size_t n = f != NULL ? fread(text, 1, size - 1, f) : 0;
    text[n] = '\0';
    if (f != NULL) {
        fclose(f);
    }
    return n > 0;
}

/* Returns the Unix time at which the system started; negative: unknown. */
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

/* Reads fields 14, 15 and 22 to 24 of proc_pid_stat(5), counted from the end of the
 * program's name, which may contain spaces and brackets. */
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
        n--; /* do not count the descriptor of this directory */
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
    char *file = strrchr(path, '/') + 1; /* the link is an absolute path */
    size_t room = n - (size_t)(file - path);
    int written = snprintf(file, room, "%s", name);
    return written > 0 && (size_t)written < room && access(path, X_OK) == 0 ? path : name;
}
