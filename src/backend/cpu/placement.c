#include "backend/cpu/placement.h"

#include <string.h>

/* Takes the first n_threads processors of `all` that are in `in` (NULL: any). False:
 * there are fewer. */
static bool placement_take(const topology *all, const cpu_mask *in, cpu_placement *out) {
    int32_t n = 0;
    for (int32_t i = 0; i < all->n_cpus && n < out->n_threads; i++) {
        if (in == NULL || cpu_mask_has(in, all->cpus[i].cpu)) {
            out->cpus[n++] = all->cpus[i].cpu;
        }
    }
    out->is_bound = n == out->n_threads;
    return out->is_bound;
}

static quire_err take_list(const char *list, const topology *all, cpu_placement *out, quire_error *err) {
    cpu_mask wanted, there = {{0}};
    quire_err e = cpu_mask_parse(list, &wanted, err);
    if (e != QUIRE_OK) {
        return err_prefix(err, e, "--cpu-bind takes auto, none or a list");
    }
    for (int32_t i = 0; i < all->n_cpus; i++) {
        cpu_mask_add(&there, all->cpus[i].cpu);
    }
    for (int32_t cpu = 0; cpu < TOPOLOGY_MAX_CPUS; cpu++) {
        if (cpu_mask_has(&wanted, cpu) && !cpu_mask_has(&there, cpu)) {
            char may[64];
            cpu_mask_print(&there, may, sizeof may);
            return err_set(err, QUIRE_INVALID, -1,
                           "--cpu-bind %s: processor %d is not among those that this process may use: %s",
                           list, cpu, may);
        }
    }
    int32_t n = cpu_mask_count(&wanted);
    out->n_threads = out->n_threads == 0 ? n : out->n_threads;
    return placement_take(all, &wanted, out)
               ? QUIRE_OK
               : err_set(err, QUIRE_INVALID, -1,
                         "--cpu-bind %s: it names %d processor%s for %d threads; lower --threads", list, n,
                         n == 1 ? "" : "s", out->n_threads);
}

static uint64_t nodes_of(const topology *all, const cpu_placement *p) {
    uint64_t nodes = 0;
    for (int32_t i = 0; i < all->n_cpus; i++) {
        bool runs = !p->is_bound;
        for (int32_t k = 0; k < p->n_threads && !runs; k++) {
            runs = p->cpus[k] == all->cpus[i].cpu;
        }
        nodes |= runs ? (uint64_t)1 << all->cpus[i].node : 0;
    }
    return nodes;
}

quire_err cpu_placement_choose(const char *bind, int32_t n_threads, int32_t n_usual, const topology *all,
                               cpu_placement *out, quire_error *err) {
    bool is_none = bind == NULL || strcmp(bind, "none") == 0, is_auto = !is_none && strcmp(bind, "auto") == 0;
    out->is_bound = false;
    out->n_threads = n_threads;
    if (!is_none && !is_auto) {
        TRY(take_list(bind, all, out, err));
    } else if (n_threads == 0) {
        out->n_threads = n_usual;
    }
    if (is_auto && (out->n_threads == all->n_cores || out->n_threads == all->n_cpus)) {
        (void)placement_take(all, NULL, out);
    }
    out->nodes = nodes_of(all, out);
    return QUIRE_OK;
}
