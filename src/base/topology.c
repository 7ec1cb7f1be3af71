/* pthread_setaffinity_np() and syscall() are outside POSIX. */

#define _GNU_SOURCE

#include "base/topology.h"

#include <assert.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FILE_BYTES 4096 /* the kernel's own limit for such a file */

/* ---- sets ---- */

int32_t cpu_mask_count(const cpu_mask *m) {
    int32_t n = 0;
    for (size_t i = 0; i < sizeof m->words / sizeof *m->words; i++) {
        n += __builtin_popcountll(m->words[i]);
    }
    return n;
}

/* Parses a processor's number at *p and moves *p past it. -1: none, or out of range. */
static int32_t parse_cpu(const char **p) {
    int32_t v = -1;
    for (; **p >= '0' && **p <= '9'; (*p)++) {
        v = (v < 0 ? 0 : v * 10) + (**p - '0');
        if (v >= TOPOLOGY_MAX_CPUS) {
            return -1;
        }
    }
    return v;
}

quire_err cpu_mask_parse(const char *text, cpu_mask *out, quire_error *err) {
    cpu_mask m = {{0}};
    const char *p = text;
    for (;;) {
        const char *start = p;
        int32_t first = parse_cpu(&p), last = first;
        if (first >= 0 && *p == '-') {
            p++;
            last = parse_cpu(&p);
        }
        if (first < 0 || last < first || (*p != ',' && *p != 0)) {
            return err_set(
                err, QUIRE_INVALID, start - text,
                "at \"%.32s\": must be processor numbers below %d, or ranges of them, such as 0-3,8", start,
                TOPOLOGY_MAX_CPUS);
        }
        for (int32_t cpu = first; cpu <= last; cpu++) {
            cpu_mask_add(&m, cpu);
        }
        if (*p++ == 0) {
            *out = m;
            return QUIRE_OK;
        }
    }
}

void cpu_mask_print(const cpu_mask *m, char *out, size_t n) {
    size_t used = 0;
    out[0] = 0;
    for (int32_t cpu = 0; cpu < TOPOLOGY_MAX_CPUS; cpu++) {
        if (!cpu_mask_has(m, cpu)) {
            continue;
        }
        int32_t last = cpu;
        while (last + 1 < TOPOLOGY_MAX_CPUS && cpu_mask_has(m, last + 1)) {
            last++;
        }
        char range[32];
        int k = last == cpu ? snprintf(range, sizeof range, "%s%d", used ? "," : "", cpu)
                            : snprintf(range, sizeof range, "%s%d-%d", used ? "," : "", cpu, last);
        if (used + (size_t)k + sizeof ".." > n) {
            (void)snprintf(out + used, n - used, "..");
            return;
        }
        memcpy(out + used, range, (size_t)k + 1);
        used += (size_t)k;
        cpu = last;
    }
}

bool cpu_mask_get(pthread_t thread, cpu_mask *out) {
    cpu_mask m = {{0}};
    if (pthread_getaffinity_np(thread, sizeof m, (cpu_set_t *)(void *)&m) != 0) {
        return false;
    }
    *out = m;
    return true;
}

bool cpu_mask_set(pthread_t thread, const cpu_mask *m) {
    return pthread_setaffinity_np(thread, sizeof *m, (const cpu_set_t *)(const void *)m) == 0;
}

/* ---- the kernel's files ---- */

/* Reads root/devices/system/<kind><number><rest>, a list of processors. False: it is
 * missing or invalid. */
static bool topology_read_list(const char *root, const char *kind, int32_t number, const char *rest,
                               cpu_mask *out) {
    char path[FILE_BYTES], text[FILE_BYTES + 1];
    int n = snprintf(path, sizeof path, "%s/devices/system/%s%d%s", root, kind, (int)number, rest);
    FILE *f = n > 0 && (size_t)n < sizeof path ? fopen(path, "re") : NULL;
    if (f == NULL) {
        return false;
    }
    size_t n_text = fread(text, 1, FILE_BYTES, f);
    fclose(f);
    text[n_text] = 0;
    text[strcspn(text, "\n")] = 0;
    quire_error unused;
    return cpu_mask_parse(text, out, &unused) == QUIRE_OK;
}

/* Returns the processor's index among the allowed processors of its core. */
static int32_t read_sibling(const char *root, int32_t cpu, const cpu_mask *allowed) {
    cpu_mask core;
    int32_t before = 0;
    if (topology_read_list(root, "cpu/cpu", cpu, "/topology/thread_siblings_list", &core)) {
        for (int32_t i = 0; i < cpu; i++) {
            before += cpu_mask_has(&core, i) && cpu_mask_has(allowed, i);
        }
    }
    return before;
}

static int by_place(const void *a, const void *b) {
    const topology_cpu *x = a, *y = b;
    int32_t d = x->sibling != y->sibling ? x->sibling - y->sibling
                : x->node != y->node     ? x->node - y->node
                                         : x->cpu - y->cpu;
    return (d > 0) - (d < 0);
}

void topology_read(const char *root, const cpu_mask *allowed, topology *out) {
    assert(out != NULL);
    out->n_cpus = out->n_cores = 0;
    for (int32_t cpu = 0; cpu < TOPOLOGY_MAX_CPUS; cpu++) {
        if (cpu_mask_has(allowed, cpu)) {
            int32_t sibling = read_sibling(root, cpu, allowed);
            out->cpus[out->n_cpus++] = (topology_cpu){.cpu = cpu, .sibling = sibling};
            out->n_cores += sibling == 0;
        }
    }
    for (int32_t node = 1; node < TOPOLOGY_MAX_NODES; node++) {
        cpu_mask near;
        bool is_known = topology_read_list(root, "node/node", node, "/cpulist", &near);
        for (int32_t i = 0; is_known && i < out->n_cpus; i++) {
            if (cpu_mask_has(&near, out->cpus[i].cpu)) {
                out->cpus[i].node = node;
            }
        }
    }
    qsort(out->cpus, (size_t)out->n_cpus, sizeof *out->cpus, by_place);
}

/* ---- memory: system calls, to avoid a dependency on libnuma ---- */

#define KERNEL_NODES 1024 /* the kernel's maximum: it refuses a mask with fewer bits than it has nodes */
#define WORD_BITS    (8 * sizeof(unsigned long))

uint64_t numa_nodes(void) {
    unsigned long words[KERNEL_NODES / WORD_BITS] = {0};
    if (syscall(SYS_get_mempolicy, NULL, words, (unsigned long)KERNEL_NODES, NULL,
                (unsigned long)MPOL_F_MEMS_ALLOWED) != 0) {
        return 0;
    }
    uint64_t nodes = 0;
    for (size_t i = 0; i < 64 / WORD_BITS; i++) {
        nodes |= (uint64_t)words[i] << (i * WORD_BITS);
    }
    return nodes;
}

bool numa_interleave(void *p, size_t n_bytes, uint64_t nodes) {
    unsigned long words[64 / WORD_BITS];
    for (size_t i = 0; i < 64 / WORD_BITS; i++) {
        words[i] = (unsigned long)(nodes >> (i * WORD_BITS));
    }
    /* the kernel reads one bit fewer than this says */
    return syscall(SYS_mbind, p, n_bytes, (unsigned long)MPOL_INTERLEAVE, words, 64UL + 1, 0UL) == 0;
}
