/* `quire bench profile`: where the time of a step goes, by stage, compared with what the
 * machine could do.
 *
 * A real engine runs prompts and then decodes them together; the backend records its ops
 * (op_trace), the engine its own part (engine_profile). Text processing is not included,
 * since it runs on other threads. */

#include "base/rng.h"
#include "lab/bench/lab.h"
#include "lab/bench/model_shape.h"
#include "lab/bench/op_profile.h"
#include "lab/commands/measures.h"

typedef struct bench_profile_options {
    cli_options cli;
    const char *type;  /* type of its weights: "q4_0" */
    const char *shape; /* shape of a random model: a name of model_shape.h */
    int32_t batch;     /* sequences that decode together */
    int32_t n_prompt;  /* tokens of each prompt */
    int32_t n_shared;  /* leading tokens shared by all prompts */
    int32_t n_steps;   /* decodes measured */
    bool per_layer;
} bench_profile_options;

enum { SPARE_PAGES = 64, SPARE_PASSES = 16, MAX_LAYER_OPS = 8, FIRST_SEED = 1 };

static void bench_profile_defaults(cli_options *cli) {
    bench_profile_options *o = (void *)cli;
    *o = (bench_profile_options){
        .cli = o->cli, .type = "q4_0", .shape = "1.1b", .batch = 32, .n_prompt = 128, .n_steps = 32};
    o->cli.engine.model = NULL;
}

/* State of a profile: the model and its engine, and the ops of the current phase. */
typedef struct profile {
    const bench_profile_options *o;
    const speed_type *type; /* of a model with random weights; NULL: the model is a file */
    lab l;
    op_trace trace;
    lab_request *requests; /* [batch] */
    int32_t *tokens;       /* [batch * n_prompt] */
    step_costs prompt, decode;
} profile;

/* ---- running ---- */

static quire_err open_lab(profile *p, const quire_options *given, quire_error *err) {
    const bench_profile_options *o = p->o;
    quire_options e = *given;
    int32_t max_len = o->n_prompt + o->n_steps + 2;
    e.max_seqs = o->batch;
    e.prefix_cache = QUIRE_PREFIX_CACHE_TOKEN; /* the prompts of decodes are already cached */
    e.n_pages = o->batch * (max_len / e.page_tokens + 1) + SPARE_PAGES;
    return lab_open(&e, (engine_ablations){0}, max_len, &p->l, err);
}

static quire_err bench_profile_make_room(profile *p, quire_error *err) {
    const bench_profile_options *o = p->o;
    int32_t n_layers = p->l.desc->n_layers;
    int64_t most = o->batch > o->n_steps ? o->batch : o->n_steps,
            passes = most * (o->n_prompt / 64 + 1) + SPARE_PASSES,
            n_ops = passes * (2 + MAX_LAYER_OPS * (int64_t)n_layers);
    if (n_ops > INT32_MAX) {
        return err_set(
            err, QUIRE_INVALID, -1,
            "--batch %d, --prompt %d and --steps %d: %lld ops to note, at most %d can be; ask for less",
            (int)o->batch, (int)o->n_prompt, (int)o->n_steps, (long long)n_ops, INT32_MAX);
    }
    p->trace.cap = (int32_t)n_ops;
    p->trace.ops = mem_new((size_t)p->trace.cap, sizeof *p->trace.ops);
    p->requests = mem_new((size_t)o->batch, sizeof *p->requests);
    p->tokens = mem_new((size_t)o->batch * (size_t)o->n_prompt, sizeof *p->tokens);
    p->prompt.n_layers = p->decode.n_layers = n_layers;
    if (o->per_layer) {
        p->decode.layers = mem_new((size_t)n_layers * N_STAGES, sizeof *p->decode.layers);
    }
    if (p->trace.ops == NULL || p->requests == NULL || p->tokens == NULL ||
        (o->per_layer && p->decode.layers == NULL)) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for a trace");
    }
    uint64_t draw = FIRST_SEED;
    for (int32_t i = 0; i < o->batch * o->n_prompt; i++) {
        bool is_shared = i >= o->n_prompt && i % o->n_prompt < o->n_shared;
        p->tokens[i] = is_shared ? p->tokens[i % o->n_prompt]
                                 : (int32_t)(rng_next(&draw) % (uint64_t)p->l.desc->n_vocab);
    }
    return QUIRE_OK;
}

/* Traces all prompts with n_output tokens each, at_once of them together. *out: means of
 * their largest passes. */
static quire_err run_phase(profile *p, int32_t n_output, int32_t at_once, step_costs *out, quire_error *err) {
    const bench_profile_options *o = p->o;
    engine_profile before, after;
    lab_result result;
    for (int32_t i = 0; i < o->batch; i++) {
        p->requests[i] = (lab_request){.tokens = p->tokens + (size_t)i * (size_t)o->n_prompt,
                                       .n_tokens = o->n_prompt,
                                       .n_output = n_output,
                                       .after = -1};
    }
    p->trace.n = 0;
    p->l.b->ops->trace(p->l.b, &p->trace); /* the engine is idle */
    engine_profile_read(p->l.x.e, &before);
    quire_err e = lab_run(&p->l, p->requests, o->batch, at_once, &result, err);
    engine_profile_read(p->l.x.e, &after);
    const engine_profile *from = result.going.steps > 0 ? &result.going : &before;
    p->l.b->ops->trace(p->l.b, NULL);
    lab_forget(p->requests, o->batch);
    TRY(e);
    double steps = after.steps > from->steps ? (double)(after.steps - from->steps) : 1;
    out->n_rows = op_profile_most_rows(p->trace.ops, p->trace.n);
    op_profile_add(p->trace.ops, p->trace.n, out);
    /* between requests of a single token the engine waits for the next one */
    out->n_gaps = n_output > 1 ? out->n_gaps : 0;
    op_profile_finish(out, (double)(after.plan_ns - from->plan_ns) / steps * 1e-3,
                      (double)(after.sample_ns - from->sample_ns) / steps * 1e-3,
                      (double)(after.commit_ns - from->commit_ns) / steps * 1e-3);
    return QUIRE_OK;
}

static quire_err run_model(profile *p, const quire_options *given, quire_error *err) {
    TRY(open_lab(p, given, err));
    TRY(bench_profile_make_room(p, err));
    TRY(run_phase(p, 1, 1, &p->prompt, err));
    /* first run, not measured: the system clears each page of memory at its first use */
    step_costs first = {.n_layers = p->decode.n_layers};
    TRY(run_phase(p, 2, p->o->batch, &first, err));
    return run_phase(p, p->o->n_steps + 1, p->o->batch, &p->decode, err);
}

/* Opens the model, or makes one, and runs it; the lab stays open. */
static quire_err run_profile(profile *p, quire_error *err) {
    const bench_profile_options *o = p->o;
    quire_options own = o->cli.engine;
    synthetic s;
    TRY(shaped_open(&o->cli, o->shape, o->type, own.model == NULL ? SHAPED_IDS : SHAPED_NOT, &own, &s, err));
    p->type = own.model == s.path ? speed_type_find(o->type, strlen(o->type)) : NULL;
    quire_err e = run_model(p, &own, err);
    synthetic_close(&s);
    return e;
}

static void close_profile(profile *p) {
    lab_close(&p->l);
    mem_free(p->trace.ops);
    mem_free(p->requests);
    mem_free(p->tokens);
    mem_free(p->decode.layers);
}

/* ---- printing ---- */

/* The least time that the machine needs for a stage, relative to the time that it
 * took. */
static double fraction(const stage_cost *c, const roofline *r, double peak) {
    double bytes_us = c->bytes / r->read.best * 1e6, operations_us = c->operations / peak * 1e6;
    return c->us > 0 && c->bytes > 0 ? (bytes_us > operations_us ? bytes_us : operations_us) / c->us
                                     : TABLE_ABSENT;
}

static double rate(double amount, double us) {
    return amount > 0 && us > 0 ? amount / us * 1e-3 : TABLE_ABSENT;
}

/* part: the machine's limit as a part of the time; absent if the stage has none. */
static void bench_profile_print_row(const bench_table *t, const char *phase, const char *name,
                                    const stage_cost *c, double whole_us, double part) {
    TABLE_ROW(t, TXT(phase), TXT(name), isnan(part) ? NUM(c->us) : LIMITED(c->us, part * c->us, part),
              NUM(100 * c->us / whole_us), NUM(rate(c->bytes, c->us)), NUM(rate(c->operations, c->us)),
              NUM(100 * part));
}

/* Keys and values of int8 are multiplied as int8, all others in f32. */
static double attention_peak(const profile *p, const roofline *r) {
    return p->l.layout.types.key == DTYPE_I8 ? r->int8.best : r->f32.best;
}

static void print_step(const profile *p, const step_costs *c, const roofline *r, const char *what,
                       double peak) {
    char heading[160];
    TABLE(t, "profile", p->o->cli.json, WORD("phase", NULL, 0), WORD("stage", "stage", 20),
          FIGURE("time", "us/step", 9, 1, "us"), FIGURE("share", "share %", 7, 1, "%"),
          FIGURE("read_rate", "GB/s", 6, 1, "GB/s"), FIGURE("compute_rate", "GOP/s", 7, 1, "GOP/s"),
          FIGURE("limit", "of limit %", 10, 0, ""));
    snprintf(heading, sizeof heading, "\n%s: steps of %d rows, the mean of the faster half (%d)", what,
             (int)c->n_rows, (int)c->n_steps);
    table_begin(&t, heading);
    stage_cost all = {0};
    for (stage s = 0; s < N_STAGES; s++) {
        const stage_cost *k = &c->stages[s];
        bench_profile_print_row(&t, what, stage_names[s], k, c->us,
                                fraction(k, r, s == STAGE_ATTENTION ? attention_peak(p, r) : peak));
        all = (stage_cost){all.us + k->us, all.bytes + k->bytes, all.operations + k->operations};
    }
    bench_profile_print_row(&t, what, "all", &all, c->us, fraction(&all, r, peak));
    table_note(&t, "products %.1f%%, attention %.1f%%, sampling %.1f%%, everything else %.1f%%",
               100 * op_profile_share(c, STAGE_IS_PRODUCT), 100 * op_profile_share(c, STAGE_IS_ATTENTION),
               100 * op_profile_share(c, STAGE_IS_SAMPLING), 100 * op_profile_share(c, STAGE_IS_OTHER));
}

static void print_layers(const profile *p) {
    TABLE(t, "profile", p->o->cli.json, KEY("layer", "layer", 5, 0), FIGURE("qkv", "q k v", 8, 1, "us"),
          FIGURE("rope", "rope", 7, 1, "us"), FIGURE("attention", "attention", 9, 1, "us"),
          FIGURE("output", "output", 8, 1, "us"), FIGURE("gate_up", "gate up", 8, 1, "us"),
          FIGURE("down", "down", 8, 1, "us"), FIGURE("all", "all", 9, 1, "us"),
          FIGURE("read_rate", "GB/s", 6, 1, "GB/s"));
    table_begin(&t, "\ndecode, microseconds a layer, each product with its rows");
    for (int32_t i = 0; i < p->decode.n_layers; i++) {
        const stage_cost *l = p->decode.layers + (size_t)i * N_STAGES;
        double us = 0, bytes = 0;
        for (stage s = 0; s < N_STAGES; s++) {
            us += l[s].us;
            bytes += l[s].bytes;
        }
        TABLE_ROW(&t, NUM(i), NUM(l[STAGE_QKV_ROWS].us + l[STAGE_QKV].us), NUM(l[STAGE_ROPE_STORE].us),
                  NUM(l[STAGE_ATTENTION].us), NUM(l[STAGE_OUTPUT_ROWS].us + l[STAGE_OUTPUT].us),
                  NUM(l[STAGE_GATE_UP_ROWS].us + l[STAGE_GATE_UP].us),
                  NUM(l[STAGE_DOWN_ROWS].us + l[STAGE_DOWN].us), NUM(us), NUM(rate(bytes, us)));
    }
}

static quire_err print_profile(const profile *p, quire_error *err) {
    roofline r;
    const char *by;
    roofline_effort effort = roofline_usual;
    int64_t megabytes = p->l.b->ops->weight_bytes(p->l.b) / (1 << 20) + 1;
    /* a small model is read from the caches */
    effort.megabytes = megabytes < effort.megabytes ? (int32_t)megabytes : effort.megabytes;
    TRY(roofline_measure(p->o->cli.engine.isa, p->o->cli.engine.n_threads, p->o->cli.engine.cpu_bind, &effort,
                         &r, err));
    compute_mode compute = p->l.b->compute;
    double peak =
        products_peak(&r, compute, p->type != NULL ? p->type->published : p->l.desc->weight_type, &by);
    if (!p->o->cli.json) {
        printf("%s, compute %s, KV %s, %s; %d prompts of %d tokens\nlimits: reading %.1f GB/s, products (%s) "
               "%.1f GOP/s, attention %.1f\n",
               p->l.desc->name, compute_name(compute), p->l.layout.type_name, p->l.b->ops->describe(p->l.b),
               (int)p->o->batch, (int)p->o->n_prompt, r.read.best / 1e9, by, peak / 1e9,
               attention_peak(p, &r) / 1e9);
    }
    print_step(p, &p->prompt, &r, "prefill", peak);
    print_step(p, &p->decode, &r, "decode", peak);
    if (p->o->per_layer) {
        print_layers(p);
    }
    return QUIRE_OK;
}

quire_err profile_decode(const quire_options *given, int32_t n_seqs, int32_t n_steps, step_costs *out,
                         quire_error *err) {
    bench_profile_options o = {.cli = {.engine = *given}};
    bench_profile_defaults(&o.cli);
    o.batch = n_seqs;
    o.n_steps = n_steps;
    profile p = {.o = &o};
    quire_err e = run_profile(&p, err);
    *out = p.decode;
    out->layers = NULL;
    close_profile(&p);
    return e;
}

#define AT(member) .offset = offsetof(bench_profile_options, member)

static const flag bench_profile_flags[] = {
    {"--batch", "N", "sequences that decode together", COUNT(batch, 1, 1024)},
    {"--prompt", "N", "tokens of each prompt", COUNT(n_prompt, 1, 1 << 16)},
    {"--shared", "N", "of them the first, which are the same in all prompts", COUNT(n_shared, 0, 1 << 16)},
    {"--steps", "N", "decoding steps that are looked at", COUNT(n_steps, 1, 4096)},
    SHAPE_FLAGS,
    {"--per-layer", NULL, "every layer of a decode too", FLAG_SWITCH, AT(per_layer)},
    {0},
};

static quire_err bench_profile_run(const cli_options *cli, quire_error *err) {
    profile p = {.o = (const void *)cli};
    quire_err e = run_profile(&p, err);
    TRY_DONE(e, print_profile(&p, err));
done:
    close_profile(&p);
    return e;
}

LAB_COMMAND(bench_profile, "bench profile", " [MODEL]", ARGUMENT_MODEL_OR_NONE,
            "where the time of a step goes, stage by stage",
            "  quire bench profile\n"
            "  quire bench profile builtin --batch 4 --prompt 64 --per-layer\n",
            bench_profile_flags, flags_compute, FLAGS_KV, FLAGS_MACHINE, flags_json, flags_help,
            flags_help_all);
