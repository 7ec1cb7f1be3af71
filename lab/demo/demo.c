#include "lab/demo/demo.h"

#include "lab/bench/client.h"

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

static void demo_defaults(cli_options *o) {
    quire_options_init(&o->engine);
    o->engine.model = "builtin";
}

quire_err demo_read_numbers(const char *name, const char *given, const char *own, demo_numbers *out,
                            quire_error *err) {
    return figures_parse_list(name, given != NULL ? given : own, out->v, &out->n, err);
}

quire_err demo_read_one(const char *name, const char *given, const char *own, demo_numbers *out,
                        quire_error *err) {
    TRY(demo_read_numbers(name, given, own, out, err));
    const char *text = given != NULL ? given : own;
    return out->n == 1 ? QUIRE_OK
                       : err_set(err, QUIRE_INVALID, -1, "%s %s: must be one number here", name, text);
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

#define AT(member) .offset = offsetof(demo_options, member)

static const flag demo_flags[] = {
    {"--lengths", "LIST", "tokens of the answers (alloc: of whole sequences)", TEXT(lengths)},
    {"--prompt-lengths", "LIST", "tokens of the prompts", TEXT(prompt_lengths)},
    {"--prompts", "FILE", "prompts, one a line that the model answers (waste, latency, wall, alloc, table)",
     TEXT(prompts)},
    {"--batch", "LIST", "sequences at once", TEXT(batches)},
    {"--context", "LIST", "tokens of a sequence, before those that are measured", TEXT(contexts)},
    {"--shape", "L,H,D", "wall: layers, KV heads and head width in 16 bits (32,32,128)", TEXT(shape)},
    {"--runs", "N", "runs per measured figure", COUNT(n_runs, 1, 64)},
    {"--model -m", "MODEL", "the model that is run", TEXT(cli.engine.model)},
    {"--max-tokens -n", "N", "most tokens of an answer; of table: tokens after the prompt",
     COUNT(n_tokens, 1, 1 << 20)},
    {"--max-len", "N", "room for the longest sequence; without: 2048", COUNT(max_len, 1, 1 << 24)},
    {"--max-num-seqs", "N", "sequences that run at once; without: 4", COUNT(slots, 1, 1 << 16)},
    {"--max-num-batched-tokens", "N", "rows a step; without: schedule: 8", COUNT(n_rows, 1, 1 << 20)},
    {"--kv-pages", "N", "pages of the pool", COUNT(n_pages, 1, 1 << 20)},
    {"--page-size", "N", "tokens a page holds; without: 16, schedule 4, radix 1", PAGE_SIZE(page_tokens)},
    {0},
};
enum { N_DEMO_FLAGS = (int)(sizeof demo_flags / sizeof *demo_flags) };

/* A flag that a demonstration would not look at is refused, as is one of the model where
 * none is run. */
static quire_err demo_check_flags(const demo_options *o, const char *takes, bool runs, bool runs_prompts,
                                  quire_error *err) {
    for (const flag *const *f = o->cli.given; f != NULL && *f != NULL; f++) {
        char name[32];
        snprintf(name, sizeof name, "%.*s", (int)strcspn((*f)->names, " "), (*f)->names);
        bool is_own = *f >= demo_flags && *f < demo_flags + N_DEMO_FLAGS && strcmp(name, "--model") != 0;
        if (is_own && !demo_has_word(takes, name)) {
            return err_set(err, QUIRE_INVALID, -1, "demo %s does not use %s; it takes %s", o->cli.argument,
                           name, takes);
        }
        if (!is_own && !runs && strcmp(name, "--json") != 0) {
            return err_set(err, QUIRE_INVALID, -1, "demo %s runs no model%s, so %s does nothing",
                           o->cli.argument, runs_prompts ? " without --prompts" : "", name);
        }
    }
    return o->prompts != NULL && (o->lengths != NULL || o->prompt_lengths != NULL)
               ? err_set(err, QUIRE_INVALID, -1,
                         "--prompts gives the lengths: leave out --lengths and --prompt-lengths")
               : QUIRE_OK;
}

static quire_err demo_run(const cli_options *cli, quire_error *err) {
    const demo_options *o = (const void *)cli;
    if (cli->argument == NULL) {
        printf("quire demo NAME [flags]\n\n");
    }
    for (int i = 0; i < N_DEMOS; i++) {
        if (cli->argument == NULL) {
            printf("  %-9s %s\n", demos[i].name, demos[i].line);
        } else if (strcmp(cli->argument, demos[i].name) == 0) {
            bool runs_prompts = demos[i].runs == RUNS_PROMPTS,
                 runs = demos[i].runs == RUNS_ALWAYS || (runs_prompts && o->prompts != NULL);
            TRY(demo_check_flags(o, demos[i].takes, runs, runs_prompts, err));
            return demos[i].run(o, err);
        }
    }
    return cli->argument == NULL
               ? QUIRE_OK
               : err_set(err, QUIRE_INVALID, -1, "%s: no such demonstration; `quire demo` lists them",
                         cli->argument);
}

LAB_COMMAND(demo, "demo", " [NAME]", ARGUMENT_NAME, "demonstrations of paging and continuous batching",
            "  quire demo                                             lists the demonstrations\n"
            "  quire demo radix --page-size 4\n"
            "  quire demo waste --lengths 10,199,25,199 --max-tokens 200 --json\n",
            demo_flags, flags_compute, FLAGS_KV, flags_threads, flags_json, flags_help);

/* ---- lengths from prompts ---- */

/* --prompts FILE: the lengths of waste and latency from prompts that the model
 * answers. */

enum { MAX_LINE = 1 << 16, CAP = 200 };

/* One line on its way, with at most cap tokens of answer; its length to prompts. */
static quire_err demo_prompts_ask(client *c, const char *text, size_t n, int32_t cap, demo_numbers *prompts,
                                  sent *s, quire_error *err) {
    static const client_field fields[] = {{"seed", "1"}, {NULL, NULL}};
    int32_t *ids;
    size_t n_ids;
    TRY(quire_tokenize(c->engine, text, n, true, &ids, &n_ids, err));
    quire_err e =
        n_ids == 0 || n_ids > 1 << 20
            ? err_set(err, QUIRE_INVALID, -1, "--prompts: line %d has %zu tokens", (int)prompts->n + 1, n_ids)
            : client_send_fields(c, ids, (int32_t)n_ids, cap, fields, s, err);
    quire_free(ids);
    TRY(e);
    prompts->v[prompts->n++] = (int32_t)n_ids;
    return QUIRE_OK;
}

/* Every line that is not empty. */
static quire_err ask_all(client *c, FILE *f, int32_t cap, demo_numbers *prompts, sent *answers,
                         quire_error *err) {
    static char line[MAX_LINE];
    while (fgets(line, sizeof line, f) != NULL) {
        size_t n = strcspn(line, "\r\n");
        if (n == sizeof line - 1 || prompts->n == FIGURES_MAX_POINTS) {
            return err_set(err, QUIRE_INVALID, -1, "--prompts: at most %d lines of %d bytes",
                           FIGURES_MAX_POINTS, MAX_LINE - 2);
        }
        if (n > 0) {
            TRY(demo_prompts_ask(c, line, n, cap, prompts, &answers[prompts->n], err));
        }
    }
    return prompts->n > 0 ? QUIRE_OK : err_set(err, QUIRE_INVALID, -1, "--prompts: there is no prompt in it");
}

quire_err demo_answer_prompts(const demo_options *o, int32_t cap, demo_numbers *prompts,
                              demo_numbers *lengths, quire_error *err) {
    sent answers[FIGURES_MAX_POINTS] = {{0}};
    quire_options engine = o->cli.engine;
    client c;
    FILE *f = fopen(o->prompts, "r");
    if (f == NULL) {
        return err_set(err, QUIRE_NOT_FOUND, -1, "%s: cannot be read", o->prompts);
    }
    prompts->n = 0;
    engine.memory_utilization = 0.05;
    quire_err e = client_open(&engine, (engine_ablations){0}, &c, err);
    if (e == QUIRE_OK) {
        e = ask_all(&c, f, cap, prompts, answers, err);
        quire_err awaited = client_await(&c, prompts->n, e == QUIRE_OK ? err : &(quire_error){.message = ""});
        e = e == QUIRE_OK ? awaited : e;
        client_close(&c);
    }
    fclose(f);
    for (int32_t i = 0; i < prompts->n; i++) {
        lengths->v[i] = answers[i].n_answer > 0 ? answers[i].n_answer : 1;
    }
    lengths->n = prompts->n;
    return e;
}

quire_err demo_read_wholes(const demo_options *o, const char *own, demo_numbers *out, quire_error *err) {
    if (o->prompts == NULL) {
        return demo_read_numbers("--lengths", o->lengths, own, out, err);
    }
    demo_numbers answers;
    TRY(demo_answer_prompts(o, demo_or(o->n_tokens, CAP), out, &answers, err));
    for (int32_t i = 0; i < out->n; i++) {
        out->v[i] += answers.v[i];
    }
    return QUIRE_OK;
}
