/* `quire bench speculation`: what drafting saves on a file of prompts, compared with
 * decoding without it. The output must be the same. */

#include "engine/ablations.h"
#include "lab/bench/client.h"
#include "lab/commands/lab_commands.h"
#include "json/json.h"

/* Prompts from a file, one per line: a plain text, or a JSON object with "prompt" or
 * "turns" (Spec-Bench's format; the first turn counts), and optionally "category".
 *
 * Owner: one thread. Texts are borrowed from the file's text and from the parsed
 * lines. */

enum { PROMPT_MAX_LINES = 1 << 16, PROMPT_MAX_CATEGORIES = 32 };

typedef struct prompt_line {
    str text;
    int32_t category; /* index in prompt_lines.categories; 0: none */
    json_value *json; /* holds the text; NULL: the file's text does */
} prompt_line;

/* Zero-initialised when empty. */
typedef struct prompt_lines {
    prompt_line *lines; /* [n] in file order */
    int32_t n;
    size_t cap;
    str categories[PROMPT_MAX_CATEGORIES]; /* [n_categories]; the first is "", for lines without a category */
    int32_t n_categories;
} prompt_lines;

typedef struct reader {
    prompt_lines *out;
    const char *name;
    int32_t number; /* number of the line, from 1 */
    int32_t most;
    int32_t n_kept[PROMPT_MAX_CATEGORIES];
    quire_error *err;
} reader;

static quire_err bench_speculation_fault(const reader *r, const char *what) {
    return err_set(r->err, QUIRE_BAD_FILE, r->number, "%s: line %d: %s", r->name, (int)r->number, what);
}

static quire_err find_category(const reader *r, str name, int32_t *out) {
    prompt_lines *p = r->out;
    for (*out = 0; *out < p->n_categories; ++*out) {
        if (str_eq(p->categories[*out], name)) {
            return QUIRE_OK;
        }
    }
    if (p->n_categories == PROMPT_MAX_CATEGORIES) {
        return bench_speculation_fault(r, "another category; a file may have 31 of them");
    }
    p->categories[p->n_categories++] = name;
    return QUIRE_OK;
}

/* Reads the prompt of a JSON object, which the line then owns. */
static quire_err read_object(const reader *r, str text, prompt_line *line) {
    line->json = json_document(text);
    json_value *turns = json_get(line->json, "turns"), *prompt = json_get(line->json, "prompt");
    json_value *found = turns != NULL ? json_at(turns, 0) : prompt;
    if (!json_is(line->json, JSON_KIND_OBJECT) || !json_is(found, JSON_KIND_TEXT) || json_str(found).n == 0) {
        return bench_speculation_fault(
            r, "must be a text, or a JSON object with a text as \"prompt\" or as the first of \"turns\"");
    }
    line->text = json_str(found);
    return find_category(r, json_get_str(line->json, "category"), &line->category);
}

static quire_err read_line(reader *r, str text) {
    prompt_line line = {.text = text};
    quire_err e = text.p[0] == '{' ? read_object(r, text, &line) : QUIRE_OK;
    bool keeps = e == QUIRE_OK && (r->most == 0 || r->n_kept[line.category] < r->most);
    if (keeps && r->out->n == PROMPT_MAX_LINES) {
        e = bench_speculation_fault(r, "a file may have 65,536 prompts");
        keeps = false;
    }
    r->n_kept[line.category] += keeps;
    if (!keeps) { /* a category borrows its name from its first line, which is kept */
        json_drop(line.json);
        return e;
    }
    e = mem_grow(&r->out->lines, &r->out->cap, (size_t)r->out->n + 1, sizeof *r->out->lines);
    if (e != QUIRE_OK) {
        json_drop(line.json);
        return err_set(r->err, e, -1, "%s: no memory for its prompts", r->name);
    }
    r->out->lines[r->out->n++] = line;
    return QUIRE_OK;
}

/* Reads all non-empty lines of text. name: the file's, for messages. most: lines kept per
 * category, the first ones; 0: all. text must live until prompt_lines_deinit. BAD_FILE
 * names the line; NO_MEMORY. Deinit *out even after a failure. */
static quire_err prompt_lines_read(str text, const char *name, int32_t most, prompt_lines *out,
                                   quire_error *err) {
    reader r = {.out = out, .name = name, .most = most, .err = err};
    *out = (prompt_lines){.n_categories = 1};
    while (text.n > 0) {
        str line = figures_next_line(&text);
        r.number++;
        if (line.n > 0) {
            TRY(read_line(&r, line));
        }
    }
    return out->n > 0 ? QUIRE_OK : err_set(err, QUIRE_BAD_FILE, -1, "%s: there is no prompt in it", name);
}

static void prompt_lines_deinit(prompt_lines *p) {
    for (int32_t i = 0; i < p->n; i++) {
        json_drop(p->lines[i].json);
    }
    mem_free(p->lines);
    *p = (prompt_lines){0};
}

typedef struct bench_speculation_options {
    cli_options cli;
    engine_ablations off;
    const char *methods; /* "ngram,suffix", each with its defaults */
    const char *name;    /* name of the file of prompts; NULL: the built-in prompts */
    int32_t n_decode;    /* tokens of each answer */
    int32_t n_each;      /* prompts per category, the first ones; 0: all */
    double temperature;
} bench_speculation_options;

enum { MAX_WAYS = 3, SEED = 1 };

static const char built_in_prompts[] =
    "the cat sat on the mat and the dog sat on the mat and the cat sat on the mat and the dog sat on the\n"
    "Once upon a time there was a prince. The prince looked at her and said that he would come again. Once "
    "upon a time there was a\n"
    "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 1, 2, 3, 4, 5, 6, 7, 8,\n"
    "It was late in the evening when the old man\n"
    "The house stood on a hill, and from its windows\n"
    "\"Where have you been?\" she asked.\n";

LAB_DEFAULTS(bench_speculation, .methods = "ngram,suffix", .n_decode = 64)

/* Totals of a way for the prompts of a category. */
typedef struct tally {
    int64_t n_prompts, n_tokens; /* tokens after the first of each answer */
    int64_t n_steps;             /* steps that computed them */
    int64_t n_guessed, n_accepted;
    /* part of n_tokens, for prompts whose answers arrived step by step in every way */
    int64_t n_timed;
    int64_t n_late; /* number of other prompts */
    double seconds; /* time of n_timed */
} tally;

/* A way of answering, without drafts or by a method. */
typedef struct way {
    const char *name;
    const char *speculative_config; /* NULL: without drafts */
    client client;
    bool is_open;
    int32_t *ids; /* [n_decode] the last answer */
    tally last;   /* its counts; n_late: many of its tokens were found at a time, so its times mean nothing */
    tally tallies[PROMPT_MAX_CATEGORIES];
} way;

typedef struct speculation {
    const bench_speculation_options *o;
    prompt_lines prompts;
    way ways[MAX_WAYS]; /* the first is without drafts */
    int32_t n_ways;
} speculation;

/* ---- ways ---- */

/* Methods by name, with their defaults. */
static const struct method {
    const char *name, *config;
} methods[] = {{"ngram", "{\"method\":\"ngram\"}"}, {"suffix", "{\"method\":\"suffix\"}"}};

enum { N_METHODS = sizeof methods / sizeof *methods };

static void add_way(speculation *b, const char *name, const char *config) {
    b->ways[b->n_ways].name = name;
    b->ways[b->n_ways++].speculative_config = config;
}

static quire_err choose_ways(speculation *b, quire_error *err) {
    add_way(b, "none", NULL);
    if (b->o->cli.engine.speculative_config != NULL) {
        add_way(b, "as given", b->o->cli.engine.speculative_config);
        return QUIRE_OK;
    }
    int32_t list[N_METHODS], n;
    TRY(FIGURES_PARSE_NAMES("--methods", b->o->methods, methods, list, &n, err));
    for (int32_t i = 0; i < n; i++) {
        add_way(b, methods[list[i]].name, methods[list[i]].config);
    }
    return QUIRE_OK;
}

/* Opens the way's engine, with its share of the memory for pages. */
static quire_err open_way(speculation *b, way *w, quire_error *err) {
    quire_options o = b->o->cli.engine;
    o.speculative_config = w->speculative_config;
    o.prefix_cache = QUIRE_PREFIX_CACHE_NONE;
    o.memory_utilization /= b->n_ways;
    w->ids = mem_new((size_t)b->o->n_decode, sizeof *w->ids);
    TRY(mem_check_for(w->ids, "the answers", err));
    TRY(client_open(&o, b->o->off, NULL, &w->client, err));
    w->is_open = true;
    return QUIRE_OK;
}

static void close_way(way *w) {
    if (w->is_open) {
        client_close(&w->client);
    }
    mem_free(w->ids);
}

/* ---- answers ---- */

/* Answers the prompt. prompt_steps: steps before
 * the first token; if negative, it is determined from a way without drafts, which takes
 * one step per token. */
static quire_err answer_prompt(const speculation *b, way *w, const int32_t *ids, size_t n,
                               int64_t *prompt_steps, quire_error *err) {
    quire_stats before, after;
    char seed[16], temperature[16];
    sent a = {.ids = w->ids};
    snprintf(seed, sizeof seed, "%d", SEED);
    snprintf(temperature, sizeof temperature, "%g", b->o->temperature);
    const client_field fields[] = {
        {"ignore_eos", "true"}, {"seed", seed}, {"temperature", temperature}, {NULL, NULL}};
    quire_engine_stats(w->client.engine, &before);
    TRY(client_send_fields(&w->client, ids, (int32_t)n, b->o->n_decode, fields, &a, err));
    TRY(client_await(&w->client, 1, err));
    quire_engine_stats(w->client.engine, &after);
    if (a.n_seen != a.n_output) {
        return err_set(err, QUIRE_INVALID, -1,
                       "--max-tokens %d: the model has no room for them after a prompt of %zu tokens",
                       (int)a.n_output, n);
    }
    int64_t n_steps = after.steps - before.steps;
    *prompt_steps = *prompt_steps < 0 ? n_steps - (a.n_seen - 1) : *prompt_steps;
    w->last = (tally){.n_prompts = 1,
                      .n_tokens = a.n_seen - a.n_first,
                      .n_steps = n_steps - *prompt_steps,
                      .n_guessed = after.draft_tokens - before.draft_tokens,
                      .n_accepted = after.draft_accepted - before.draft_accepted,
                      .n_timed = a.n_seen - a.n_first,
                      .n_late = 2 * a.n_looks < n_steps - *prompt_steps, /* this thread read too late */
                      .seconds = (double)(a.last_us - a.first_us) * 1e-6};
    return QUIRE_OK;
}

static void add_tally(tally *sum, const tally *t) {
    sum->n_prompts += t->n_prompts;
    sum->n_tokens += t->n_tokens;
    sum->n_steps += t->n_steps;
    sum->n_guessed += t->n_guessed;
    sum->n_accepted += t->n_accepted;
    sum->n_timed += t->n_timed;
    sum->n_late += t->n_late;
    sum->seconds += t->seconds;
}

/* Adds the last answers, their times only if all of them are meaningful, so that speeds
 * are of the same prompts. */
static void add_answers(speculation *b, int32_t category) {
    bool is_late = false;
    for (int32_t i = 0; i < b->n_ways; i++) {
        is_late = is_late || b->ways[i].last.n_late > 0;
    }
    for (int32_t i = 0; i < b->n_ways; i++) {
        tally *t = &b->ways[i].last;
        t->n_late = is_late;
        t->n_timed = is_late ? 0 : t->n_timed;
        t->seconds = is_late ? 0 : t->seconds;
        add_tally(&b->ways[i].tallies[category], t);
    }
}

/* Answers a prompt in every way. */
static quire_err answer_by_all(speculation *b, int32_t line, quire_error *err) {
    const prompt_line *p = &b->prompts.lines[line];
    int64_t prompt_steps = -1;
    int32_t *ids;
    size_t n_ids;
    TRY(quire_tokenize(b->ways[0].client.engine, p->text.p, p->text.n, true, &ids, &n_ids, err));
    quire_err e = QUIRE_OK;
    for (int32_t i = 0; e == QUIRE_OK && i < b->n_ways; i++) {
        e = answer_prompt(b, &b->ways[i], ids, n_ids, &prompt_steps, err);
        if (e == QUIRE_OK &&
            memcmp(b->ways[i].ids, b->ways[0].ids, (size_t)b->o->n_decode * sizeof *b->ways[0].ids) != 0) {
            e = err_set(err, QUIRE_INTERNAL, line,
                        "prompt %d: the answer with guesses by %s is another than without", (int)line + 1,
                        b->ways[i].name);
        }
    }
    if (e == QUIRE_OK) {
        add_answers(b, p->category);
    }
    quire_free(ids);
    return e;
}

/* ---- figures ---- */

static double bench_speculation_over(double a, double b) {
    return b > 0 ? a / b : TABLE_ABSENT;
}

static void bench_speculation_print_tally(const bench_table *sh, const char *category, const way *w,
                                          const tally *t, const tally *plain) {
    double speed = bench_speculation_over((double)t->n_timed, t->seconds);
    TABLE_ROW(
        sh, TXT(category), TXT(w->name), NUM(t->n_prompts),
        NUM(w->speculative_config != NULL ? (double)t->n_guessed : TABLE_ABSENT),
        NUM(100.0 * bench_speculation_over((double)t->n_accepted, (double)t->n_guessed)),
        NUM(bench_speculation_over((double)t->n_tokens, (double)t->n_steps)), NUM(speed),
        NUM(bench_speculation_over(speed, bench_speculation_over((double)plain->n_timed, plain->seconds))),
        TXT(w->speculative_config != NULL ? "equal" : ""));
}

static void print_all(const speculation *b) {
    TABLE(sh, "speculation", b->o->cli.json, WORD("category", "prompts of", 18), WORD("method", "method", 8),
          KEY("prompts", "prompts", 7, 0), FIGURE("guessed", "guessed", 8, 0, "tokens"),
          FIGURE("accepted", "accepted %", 10, 1, "%"),
          FIGURE("tokens_per_step", "tokens/step", 11, 2, "tokens/step"),
          FIGURE("speed", "tokens/s", 9, 1, "tokens/s"), FIGURE("of_none", "of none", 7, 2, "x"),
          REMARK("output", "output", 0));
    const quire_info *info = b->ways[0].client.info;
    tally sums[MAX_WAYS] = {0};
    table_begin(&sh, NULL);
    for (int32_t k = 0; k < b->prompts.n_categories; k++) {
        char name[64];
        str category = b->prompts.categories[k];
        snprintf(name, sizeof name, "%.*s", (int)(category.n < sizeof name ? category.n : sizeof name - 1),
                 category.p);
        for (int32_t i = 0; i < b->n_ways; i++) {
            const tally *t = &b->ways[i].tallies[k];
            add_tally(&sums[i], t);
            if (k > 0 && t->n_prompts > 0) {
                bench_speculation_print_tally(&sh, name, &b->ways[i], t, &b->ways[0].tallies[k]);
            }
        }
    }
    for (int32_t i = 0; i < b->n_ways; i++) {
        bench_speculation_print_tally(&sh, "all", &b->ways[i], &sums[i], &sums[0]);
    }
    table_note(&sh,
               "%s: %d prompts, %d tokens after each at temperature %g, one request at a time, each prompt "
               "by every way in turn; %s, compute %s, KV %s; %s. tokens/step and tokens/s: after the first "
               "token. Every output compared with that without guesses.",
               b->o->name != NULL ? b->o->name : "built-in prompts", (int)b->prompts.n, (int)b->o->n_decode,
               b->o->temperature, info->model_name != NULL ? info->model_name : b->o->cli.engine.model,
               info->compute, info->kv_dtype, info->backend);
    if (sums[0].n_late > 0) {
        table_note(
            &sh,
            "tokens/s: without the %d prompts to which some answer was found many tokens at a time, as on a "
            "busy machine, or where a step takes less time than it takes to wake the thread that reads.",
            (int)sums[0].n_late);
    }
}

#define AT(member) .offset = offsetof(bench_speculation_options, member)

static const flag bench_speculation_flags[] = {
    {"--prompts", "FILE",
     "a prompt a line: text, or JSON with \"prompt\" or \"turns\", and perhaps \"category\"", TEXT(name)},
    {"--methods", "LIST", "methods of speculation, each with its defaults", TEXT(methods)},
    {"--max-tokens -n", "N", "tokens of each answer", COUNT(n_decode, 2, 1 << 20)},
    {"--each", "N", "prompts of a category, the first of them; 0: all", COUNT(n_each, 0, 1 << 16)},
    {"--temperature --temp", "T", "0: the likeliest token", FLAG_PART, AT(temperature), .minimum = 0,
     .maximum = 2},
    {0},
};

static quire_err bench_speculation_run(const cli_options *cli, quire_error *err) {
    const bench_speculation_options *o = (const void *)cli;
    if (cli->engine.speculative_config != NULL) {
        TRY(unused_flags_refuse(cli, "--methods", "with --speculative-config, which is measured alone", err));
    }
    const char *name = o->name != NULL ? o->name : "built-in prompts";
    strbuf text = {0};
    speculation *b = mem_new(1, sizeof *b);
    TRY(mem_check_for(b, "the measurement", err));
    *b = (speculation){.o = o};
    quire_err e = o->name != NULL ? files_read_text(o->name, &text, err) : QUIRE_OK;
    TRY_DONE(e, choose_ways(b, err));
    str prompts = o->name == NULL ? str_of(built_in_prompts) : (str){text.n > 0 ? text.p : "", text.n};
    TRY_DONE(e, prompt_lines_read(prompts, name, o->n_each, &b->prompts, err));
    for (int32_t i = 0; i < b->n_ways; i++) {
        TRY_DONE(e, open_way(b, &b->ways[i], err));
    }
    for (int32_t i = 0; i < b->prompts.n; i++) {
        TRY_DONE(e, answer_by_all(b, i, err));
    }
    print_all(b);
done:
    for (int32_t i = 0; i < b->n_ways; i++) {
        close_way(&b->ways[i]);
    }
    prompt_lines_deinit(&b->prompts);
    mem_free(b);
    strbuf_deinit(&text);
    return e;
}

LAB_COMMAND(bench_speculation, "bench speculation", " [MODEL]", ARGUMENT_MODEL_OR_BUILTIN,
            "what guessing tokens saves on a file of prompts, with the same output",
            "  quire bench speculation model.gguf --prompts spec_bench.jsonl --each 4\n"
            "  quire bench speculation --speculative-config "
            "'{\"method\":\"suffix\",\"num_speculative_tokens\":8}' --json\n",
            FLAGS_MODEL, flags_ablations, bench_speculation_flags, flags_json, flags_compute, FLAGS_KV,
            FLAGS_MACHINE, FLAGS_BATCH, FLAGS_MEMORY);
