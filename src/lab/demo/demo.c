#include "lab/demo/demo.h"

#include <stdio.h>
#include <string.h>

#include "lab/demo/demo_parts.h"

static const struct {
    const char *name, *line;
    quire_err (*run)(const demo_options *o, quire_error *err);
} demos[] = {
    {"radix", "nine states of a prefix tree, in words", demo_radix},
    {"waste", "padding and dead slots of a static batch", demo_waste},
    {"latency", "when answers come: static against continuous batching", demo_latency},
    {"schedule", "what the planner gives each request, step by step", demo_schedule},
    {"wall", "memory by concurrency: reserved whole, grown, paged", demo_wall},
    {"alloc", "pages that requests take, against room for the longest", demo_alloc},
    {"table", "a block table while its sequence grows", demo_table},
    {"snapshot", "paged equal to contiguous, to the bit", demo_snapshot},
    {"cache", "time a token, with the cache and without any", demo_cache},
    {"sweep", "speed, latency and memory by batch and length", demo_sweep},
    {"tput", "tokens/s by how attention gets at keys and values", demo_tput},
};
enum { N_DEMOS = (int)(sizeof demos / sizeof *demos) };

void demo_options_init(demo_options *o) {
    *o = (demo_options){0};
    quire_options_init(&o->engine);
    o->engine.model = "builtin";
}

void demo_list(void) {
    for (int i = 0; i < N_DEMOS; i++) {
        printf("  %-9s %s\n", demos[i].name, demos[i].line);
    }
}

quire_err demo_read_numbers(const char *flag, const char *given, const char *own, demo_numbers *out, quire_error *err) {
    return figures_parse_list(flag, given != NULL ? given : own, out->v, &out->n, err);
}

quire_err demo_run(const demo_options *o, quire_error *err) {
    for (int i = 0; i < N_DEMOS; i++) {
        if (strcmp(o->name, demos[i].name) == 0) {
            return demos[i].run(o, err);
        }
    }
    return err_set(err, QUIRE_INVALID, -1, "%s: no such demonstration; `quire demo` lists them", o->name);
}
