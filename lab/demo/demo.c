#include "lab/demo/demo.h"

static const struct {
    const char *name, *line;
    quire_err (*run)(const demo_options *o, quire_error *err);
    /* its flags, beside those of the model that is run */
    const char *takes;
    /* when it runs a model: never, with --prompts, always */
    enum { RUNS_NEVER, RUNS_PROMPTS, RUNS_ALWAYS } runs;
} demos[] = {
    {"radix", "nine states of a prefix tree, in words", demo_radix, "--page-size", RUNS_NEVER},
    {"waste", "padding and dead slots of a static batch", demo_waste,
     "--lengths --prompt-lengths --prompts --max-tokens", RUNS_PROMPTS},
    {"latency", "when answers come: static against continuous batching", demo_latency,
     "--lengths --prompt-lengths --prompts --max-tokens --max-num-seqs", RUNS_ALWAYS},
    {"schedule", "what the planner gives each request, step by step", demo_schedule,
     "--lengths --prompt-lengths --max-num-seqs --max-num-batched-tokens --kv-pages --page-size", RUNS_NEVER},
    {"wall", "memory by concurrency: reserved whole, grown, paged", demo_wall,
     "--lengths --prompts --max-tokens --batch --max-len --page-size --shape", RUNS_PROMPTS},
    {"alloc", "pages that requests take, against room for the longest", demo_alloc,
     "--lengths --prompts --max-tokens --max-len --kv-pages --page-size", RUNS_PROMPTS},
    {"table", "a block table while its sequence grows", demo_table,
     "--prompt-lengths --prompts --max-tokens --kv-pages --page-size", RUNS_PROMPTS},
    {"snapshot", "paged equal to contiguous, to the bit", demo_snapshot, "--prompt-lengths --max-tokens",
     RUNS_ALWAYS},
    {"cache", "time a token, with the cache and without any", demo_cache, "--context --runs", RUNS_ALWAYS},
    {"sweep", "speed, latency and memory by batch and length", demo_sweep,
     "--batch --context --lengths --runs", RUNS_ALWAYS},
    {"tput", "tokens/s by how attention gets at keys and values", demo_tput,
     "--batch --context --max-tokens --runs", RUNS_ALWAYS},
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

quire_err demo_read_numbers(const char *flag, const char *given, const char *own, demo_numbers *out,
                            quire_error *err) {
    return figures_parse_list(flag, given != NULL ? given : own, out->v, &out->n, err);
}

quire_err demo_read_one(const char *flag, const char *given, const char *own, demo_numbers *out,
                        quire_error *err) {
    TRY(demo_read_numbers(flag, given, own, out, err));
    const char *text = given != NULL ? given : own;
    return out->n == 1 ? QUIRE_OK
                       : err_set(err, QUIRE_INVALID, -1, "%s %s: must be one number here", flag, text);
}

/* Whether the word is among those that `words` has, one space apart. */
static bool demo_has_word(const char *words, const char *word) {
    size_t n = strlen(word);
    for (const char *at = strstr(words, word); at != NULL; at = strstr(at + n, word)) {
        if ((at == words || at[-1] == ' ') && (at[n] == ' ' || at[n] == 0)) {
            return true;
        }
    }
    return false;
}

/* A flag that a demonstration would not look at is refused. */
static quire_err demo_check_flags(const demo_options *o, const char *takes, quire_error *err) {
    const struct {
        const char *name;
        bool given;
    } flags[] = {{"--lengths", o->lengths != NULL},
                 {"--prompt-lengths", o->prompt_lengths != NULL},
                 {"--prompts", o->prompts != NULL},
                 {"--batch", o->batches != NULL},
                 {"--context", o->contexts != NULL},
                 {"--shape", o->shape != NULL},
                 {"--runs", o->n_runs > 0},
                 {"--max-tokens", o->n_tokens > 0},
                 {"--max-num-seqs", o->slots > 0},
                 {"--max-len", o->max_len > 0},
                 {"--max-num-batched-tokens", o->n_rows > 0},
                 {"--page-size", o->page_tokens > 0},
                 {"--kv-pages", o->n_pages > 0}};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        if (flags[i].given && !demo_has_word(takes, flags[i].name)) {
            return err_set(err, QUIRE_INVALID, -1, "demo %s does not use %s; it takes %s", o->name,
                           flags[i].name, takes);
        }
    }
    return o->prompts != NULL && (o->lengths != NULL || o->prompt_lengths != NULL)
               ? err_set(err, QUIRE_INVALID, -1,
                         "--prompts gives the lengths: leave out --lengths and --prompt-lengths")
               : QUIRE_OK;
}

/* So is a flag of the model, where none is run. */
static quire_err check_model_flags(const demo_options *o, bool only_prompts, quire_error *err) {
    demo_options none;
    demo_options_init(&none);
    const quire_options *e = &o->engine, *n = &none.engine;
    const char *given = strcmp(e->model, n->model) != 0 ? "--model"
                        : e->compute != n->compute      ? "--compute"
                        : e->kv_dtype != n->kv_dtype    ? "--kv-dtype"
                        : e->n_threads != n->n_threads  ? "--threads"
                                                        : NULL;
    return given == NULL ? QUIRE_OK
                         : err_set(err, QUIRE_INVALID, -1, "demo %s runs no model%s, so %s does nothing",
                                   o->name, only_prompts ? " without --prompts" : "", given);
}

quire_err demo_run(const demo_options *o, quire_error *err) {
    for (int i = 0; i < N_DEMOS; i++) {
        if (strcmp(o->name, demos[i].name) == 0) {
            TRY(demo_check_flags(o, demos[i].takes, err));
            if (demos[i].runs == RUNS_NEVER || (demos[i].runs == RUNS_PROMPTS && o->prompts == NULL)) {
                TRY(check_model_flags(o, demos[i].runs == RUNS_PROMPTS, err));
            }
            return demos[i].run(o, err);
        }
    }
    return err_set(err, QUIRE_INVALID, -1, "%s: no such demonstration; `quire demo` lists them", o->name);
}
