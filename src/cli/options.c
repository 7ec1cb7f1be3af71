#include "cli/options.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/flags.h"
#include "json/json_out.h"

static const char *const command_names[] = {
    "run",          "serve",         "tokenize",     "logits",        "inspect",        "bench",           "sim",         "bench kv",
    "bench memory", "demo",          "bench runs",   "bench preempt", "bench serving",  "bench calibrate", "bench stall", "bench workload",
    "bench tiers",  "bench sampler", "bench engine", "bench kernels", "bench roofline", "bench attention", "pack",        "bench profile",
    "bench speed",  "bench start"};

/* Commands that need no MODEL. */
enum {
    CLI_WITHOUT_MODEL = CLI_BENCH_KV | CLI_BENCH_SAMPLER | CLI_BENCH_MEMORY | CLI_BENCH_ATTENTION | CLI_BENCH_RUNS | CLI_BENCH_ENGINE |
                        CLI_BENCH_KERNELS | CLI_BENCH_ROOFLINE | CLI_BENCH_SPEED
};

static const char *command_name(unsigned command) {
    for (size_t i = 0; i < sizeof command_names / sizeof command_names[0]; i++) {
        if (command & (1u << i)) {
            return command_names[i];
        }
    }
    return "";
}

quire_err cli_options_init(cli_options *o) {
    *o = (cli_options){.n_predict = -1};
    quire_options_init(&o->engine);
    o->engine.max_answer_bytes = (int64_t)64 << 20;
    server_options_init(&o->server);
    bench_options_init(&o->bench);
    sim_options_init(&o->sim);
    bench_kv_options_init(&o->bench_kv);
    bench_stall_options_init(&o->bench_stall);
    bench_start_options_init(&o->bench_start);
    bench_sampler_options_init(&o->bench_sampler);
    bench_kernels_options_init(&o->bench_kernels);
    bench_memory_options_init(&o->bench_memory);
    bench_preempt_options_init(&o->bench_preempt);
    bench_tiers_options_init(&o->bench_tiers);
    bench_engine_options_init(&o->bench_engine);
    bench_roofline_options_init(&o->bench_roofline);
    bench_profile_options_init(&o->bench_profile);
    bench_speed_options_init(&o->bench_speed);
    bench_runs_options_init(&o->bench_runs);
    bench_attention_options_init(&o->bench_attention);
    demo_options_init(&o->demo);
    bench_serving_options_init(&o->bench_serving);
    calibrate_options_init(&o->calibrate);
    experiment_options_init(&o->experiment);
    o->engine.model = NULL;
    return QUIRE_OK;
}

void cli_options_deinit(cli_options *o) {
    for (int i = 0; i < CLI_MAX_PREFIXES; i++) {
        strbuf_deinit(&o->prefix_texts[i]);
        id_list_deinit(&o->prefix_ids[i]);
    }
    strbuf_deinit(&o->template_text);
    body_deinit(&o->fields);
}

/* True when `name` is one of the flag's names. */
static bool flag_is(const flag *f, str name) {
    for (const char *p = f->names; *p;) {
        size_t n = strcspn(p, " ");
        if (str_eq((str){p, n}, name)) {
            return true;
        }
        p += n + (p[n] == ' ');
    }
    return false;
}

static const flag *find_flag(str name, unsigned commands) {
    for (int i = 0; i < cli_n_flags; i++) {
        if ((cli_flags[i].commands & commands) && flag_is(&cli_flags[i], name)) {
            return &cli_flags[i];
        }
    }
    return NULL;
}

static quire_err unknown_flag(str name, cli_command command, quire_error *err) {
    const flag *elsewhere = find_flag(name, ~0u);
    if (elsewhere) {
        return err_set(err, QUIRE_INVALID, -1, "%.*s: a flag of `quire %s`, not of `quire %s`; `quire %s --help` lists those", (int)name.n,
                       name.p, command_name(elsewhere->commands), command_name(command), command_name(command));
    }
    return err_set(err, QUIRE_INVALID, -1, "%.*s: no such flag; `quire %s --help` lists them", (int)name.n, name.p, command_name(command));
}

static quire_err parse_number(const char *name, const char *text, double *out, quire_error *err) {
    char *end;
    double v = strtod(text, &end);
    if (end == text || *end != 0 || !isfinite(v)) {
        return err_set(err, QUIRE_INVALID, -1, "%s %s: must be a number", name, text);
    }
    *out = v;
    return QUIRE_OK;
}

static quire_err parse_integer(const char *name, const char *text, int64_t *out, quire_error *err) {
    char *end;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (end == text || *end != 0 || errno == ERANGE) {
        return err_set(err, QUIRE_INVALID, -1, "%s %s: must be a whole number", name, text);
    }
    *out = v;
    return QUIRE_OK;
}

static quire_err set_count(const flag *f, const char *name, const char *text, int32_t *out, quire_error *err) {
    int64_t v;
    TRY(parse_integer(name, text, &v, err));
    bool power = f->type == FLAG_POWER_OF_TWO;
    if ((double)v < f->minimum || (double)v > f->maximum || (power && (v & (v - 1)) != 0)) {
        return err_set(err, QUIRE_INVALID, -1, "%s %s: must be %s from %.0f to %.0f", name, text,
                       power ? "a power of two" : "a whole number", f->minimum, f->maximum);
    }
    *out = (int32_t)v;
    return QUIRE_OK;
}

static quire_err set_part(const flag *f, const char *name, const char *text, double *out, quire_error *err) {
    double v;
    TRY(parse_number(name, text, &v, err));
    if (v < f->minimum || v > f->maximum) {
        return err_set(err, QUIRE_INVALID, -1, "%s %s: must be from %g to %g", name, text, f->minimum, f->maximum);
    }
    *out = v;
    return QUIRE_OK;
}

static quire_err set_bytes(const flag *f, const char *name, const char *text, int64_t *out, quire_error *err) {
    static const char letters[] = "KMGT";
    char *end;
    double v = strtod(text, &end), unit = f->type == FLAG_GIB ? 0x1p30 : 1.0;
    const char *letter = end != text && *end != 0 ? strchr(letters, *end >= 'a' && *end <= 'z' ? *end - 'a' + 'A' : *end) : NULL;
    if (letter) {
        unit = ldexp(1.0, 10 * (int)(letter - letters + 1));
        end++;
    }
    if (end == text || *end != 0 || !isfinite(v) || v < 0 || v * unit > 0x1p62) {
        return err_set(err, QUIRE_INVALID, -1, "%s %s: must be a size: %s, or a number with K, M, G or T behind it", name, text,
                       f->type == FLAG_GIB ? "GiB" : "bytes");
    }
    *out = (int64_t)(v * unit);
    return QUIRE_OK;
}

static quire_err set_choice(const flag *f, const char *name, const char *text, const char **out, quire_error *err) {
    char all[128] = "";
    for (const flag_choice *c = f->choices; c->spelling; c++) {
        if (strcmp(c->spelling, text) == 0) {
            *out = c->value;
            return QUIRE_OK;
        }
        if (strcmp(c->spelling, c->value) == 0) {
            size_t n = strlen(all);
            snprintf(all + n, sizeof all - n, "%s%s", n ? ", " : "", c->spelling);
        }
    }
    return err_set(err, QUIRE_INVALID, -1, "%s %s: must be one of %s", name, text, all);
}

/* Request fields keep their JSON form; the API checks the range when the request is made. */
static quire_err set_field(const flag *f, const char *name, const char *text, body *fields, quire_error *err) {
    quire_err e;
    if (f->type == FLAG_FIELD_INTEGER) {
        int64_t v;
        TRY(parse_integer(name, text, &v, err));
        e = body_set_int(fields, f->field, v);
    } else if (f->type == FLAG_FIELD_NUMBER) {
        double v;
        strbuf json = {0};
        json_out o = {.to = &json};
        TRY(parse_number(name, text, &v, err));
        json_exact(&o, v);
        e = o.err == QUIRE_OK ? body_set(fields, f->field, (str){json.p, json.n}) : o.err;
        strbuf_deinit(&json);
    } else if (f->type == FLAG_FIELD_SWITCH) {
        e = body_set(fields, f->field, str_of("true"));
    } else {
        e = body_add_text(fields, f->field, text);
    }
    return e == QUIRE_OK ? e : err_set(err, e, -1, "%s: out of memory", name);
}

static quire_err set_flag(cli_options *o, const flag *f, const char *name, const char *text, quire_error *err) {
    void *at = (char *)o + f->offset;
    switch (f->type) {
    case FLAG_SWITCH:
        *(bool *)at = true;
        return QUIRE_OK;
    case FLAG_TEXT:
        *(const char **)at = text;
        return QUIRE_OK;
    case FLAG_COUNT:
    case FLAG_POWER_OF_TWO:
        return set_count(f, name, text, at, err);
    case FLAG_PART:
        return set_part(f, name, text, at, err);
    case FLAG_SECONDS:
    case FLAG_MILLISECONDS: {
        double number;
        TRY(set_part(f, name, text, &number, err));
        *(int64_t *)at = (int64_t)(number * (f->type == FLAG_SECONDS ? 1e6 : 1e3));
        return QUIRE_OK;
    }
    case FLAG_BYTES:
    case FLAG_GIB:
        return set_bytes(f, name, text, at, err);
    case FLAG_CHOICE:
        return set_choice(f, name, text, at, err);
    case FLAG_KEY:
        if (o->server.n_api_keys == CLI_MAX_API_KEYS) {
            return err_set(err, QUIRE_INVALID, -1, "%s: at most %d; put more into --api-key-file", name, CLI_MAX_API_KEYS);
        }
        o->api_keys[o->server.n_api_keys++] = text;
        return QUIRE_OK;
    case FLAG_PRESET:
        *(const char **)at = f->choices[0].value;
        return QUIRE_OK;
    case FLAG_PREFIX:
        if (o->engine.n_public_prefixes == CLI_MAX_PREFIXES) {
            return err_set(err, QUIRE_INVALID, -1, "%s: at most %d", name, CLI_MAX_PREFIXES);
        }
        o->prefix_files[o->engine.n_public_prefixes++] = text;
        return QUIRE_OK;
    default:
        return set_field(f, name, text, &o->fields, err);
    }
}

/* --chat-template: reads a file, or takes the text itself when it looks like a template. */
static quire_err resolve_template(cli_options *o, quire_error *err) {
    if (!o->chat_template) {
        return QUIRE_OK;
    }
    if (strchr(o->chat_template, '{')) {
        o->engine.chat_template = o->chat_template;
        return QUIRE_OK;
    }
    quire_err e = files_read_text(o->chat_template, &o->template_text, err);
    if (e != QUIRE_OK) {
        return err_prefix(err, e, "--chat-template (a file, or a template's text)");
    }
    o->engine.chat_template = o->template_text.n ? o->template_text.p : "";
    return QUIRE_OK;
}

/* --public-prefix: reads the text of a file, or the ids of a .json. */
static quire_err resolve_prefixes(cli_options *o, quire_error *err) {
    for (int32_t i = 0; i < o->engine.n_public_prefixes; i++) {
        const char *path = o->prefix_files[i];
        size_t n = strlen(path);
        bool is_json = n > 5 && strcmp(path + n - 5, ".json") == 0;
        quire_err e = is_json ? id_list_read(path, &o->prefix_ids[i], err) : files_read_text(path, &o->prefix_texts[i], err);
        if (e != QUIRE_OK) {
            return err_prefix(err, e, "--public-prefix");
        }
        const strbuf *text = &o->prefix_texts[i];
        o->prefixes[i] = (quire_prefix){text->n ? text->p : "", text->n, o->prefix_ids[i].ids, o->prefix_ids[i].n};
    }
    o->engine.public_prefixes = o->prefixes;
    return QUIRE_OK;
}

/* Parses one argument that starts with '-'; *i moves past its value. */
static quire_err parse_flag(cli_options *o, cli_command command, int argc, char **argv, int *i, quire_error *err) {
    const char *arg = argv[*i];
    const char *equals = strncmp(arg, "--", 2) == 0 ? strchr(arg, '=') : NULL;
    str name = {arg, equals ? (size_t)(equals - arg) : strlen(arg)};
    const flag *f = find_flag(name, command);
    if (!f) {
        return unknown_flag(name, command, err);
    }
    char label[64];
    snprintf(label, sizeof label, "%.*s", (int)name.n, name.p);
    bool is_switch = f->type == FLAG_SWITCH || f->type == FLAG_FIELD_SWITCH || f->type == FLAG_PRESET;
    if (is_switch && equals) {
        return err_set(err, QUIRE_INVALID, -1, "%s: takes no value", label);
    }
    const char *value = equals ? equals + 1 : NULL;
    if (!is_switch && !value) {
        if (*i + 1 >= argc) {
            return err_set(err, QUIRE_INVALID, -1, "%s: needs a value: %s", label, f->value ? f->value : f->meaning);
        }
        value = argv[++*i];
    }
    return set_flag(o, f, label, value, err);
}

/* bench serving: sets the same limits for the engine that runs and the simulated server. Missing flags keep the defaults of each. */
static quire_err resolve_serving(cli_options *o, quire_error *err) {
    bench_serving_options *b = &o->bench_serving;
    const compare_options *s = &o->sim.server;
    quire_options *e = &o->engine;
    e->max_seqs = s->max_seqs > 0 ? s->max_seqs : e->max_seqs;
    e->max_batched_tokens = s->max_rows > 0 ? s->max_rows : e->max_batched_tokens;
    e->prefill_chunk = s->max_chunk;
    e->max_model_len = s->max_model_len;
    e->page_tokens = s->page_tokens;
    e->step_target_us = s->step_target_us;
    if (s->kv_tokens > 0) {
        int64_t n_pages = s->kv_tokens / s->page_tokens;
        if (n_pages < 1 || n_pages > INT32_MAX) {
            return err_set(err, QUIRE_INVALID, -1, "--kv-tokens %lld: must hold at least a page", (long long)s->kv_tokens);
        }
        e->n_pages = (int32_t)n_pages;
    }
    b->engine = *e;
    b->server = *s;
    b->json = o->json;
    return QUIRE_OK;
}

quire_err cli_options_parse(cli_options *o, cli_command command, int argc, char **argv, quire_error *err) {
    const char *positional = NULL;
    o->n_arguments = argc;
    o->arguments = argv;
    if (!(command & (CLI_RUN | CLI_SERVE))) {
        o->engine.generation_config = "none"; /* only the flags decide what is measured or compared */
    }
    for (int i = 0; i < argc; i++) {
        if (argv[i][0] == '-' && argv[i][1] != 0) {
            TRY(parse_flag(o, command, argc, argv, &i, err));
        } else if (command & CLI_WITHOUT_MODEL) {
            return err_set(err, QUIRE_INVALID, -1, "%s: `quire %s` takes flags only", argv[i], command_name(command));
        } else if (positional) {
            return err_set(err, QUIRE_INVALID, -1, "%s: one %s is enough (it is %s)%s", argv[i],
                           command == CLI_SIM                                 ? "TRACE"
                           : command == CLI_DEMO || command == CLI_EXPERIMENT ? "NAME"
                                                                              : "MODEL",
                           positional, command == CLI_RUN ? "; a prompt goes after -p" : "");
        } else {
            positional = argv[i];
        }
    }
    o->bench_attention.json = o->bench_engine.json = o->bench_kernels.json = o->bench_sampler.json = o->bench_kv.json =
        o->bench_memory.json = o->bench_runs.json = o->bench_roofline.json = o->bench_speed.json = o->json;
    if (o->help || o->help_all || (command & CLI_WITHOUT_MODEL)) {
        return QUIRE_OK;
    }
    if (command == CLI_EXPERIMENT) {
        o->experiment.name = positional;
        o->experiment.json = o->json;
        return QUIRE_OK;
    }
    if (command == CLI_DEMO) {
        o->demo.name = positional;
        o->demo.json = o->json;
        return QUIRE_OK;
    }
    if (command == CLI_SIM) {
        o->sim.trace = positional;
        o->sim.json = o->sim.server.json = o->json;
        o->sim.server.prefix_cache = o->sim.prefix_cache;
        return positional
                   ? QUIRE_OK
                   : err_set(err, QUIRE_INVALID, -1, "quire sim needs a TRACE: a file of requests; `quire sim --help` names the formats");
    }
    if (positional && o->engine.model) {
        return err_set(err, QUIRE_INVALID, -1, "%s: the model is given twice (also --model %s)", positional, o->engine.model);
    }
    if (positional) {
        o->engine.model = positional;
    }
    if (command == CLI_BENCH_SERVING) {
        return resolve_serving(o, err);
    }
    if (command == CLI_BENCH_PROFILE) {
        o->bench_profile.engine = o->engine;
        o->bench_profile.json = o->json;
        return QUIRE_OK;
    }
    if (!o->engine.model && command != CLI_RUN) {
        return err_set(err, QUIRE_INVALID, -1, "quire %s needs a MODEL: a .gguf file, a Hugging Face directory, a packed model, or builtin",
                       command_name(command));
    }
    if (!o->engine.model) {
        o->engine.model = "builtin";
    }
    o->server.api_keys = o->api_keys;
    o->engine.max_answer_bytes = command == CLI_SERVE ? o->engine.max_answer_bytes : 0; /* without a client there is no limit */
    TRY(resolve_template(o, err));
    TRY(resolve_prefixes(o, err));
    o->bench.engine = o->engine;
    o->bench.json = o->json;
    o->bench_preempt.engine = o->engine;
    o->bench_preempt.json = o->json;
    o->bench_tiers.engine = o->engine;
    o->bench_tiers.json = o->json;
    o->calibrate.engine = o->engine;
    o->calibrate.out = o->out;
    o->calibrate.json = o->json;
    o->bench_stall.engine = o->engine;
    o->bench_stall.json = o->json;
    o->bench_start.engine = o->engine;
    o->bench_start.json = o->json;
    return QUIRE_OK;
}

/* "-n, --max-tokens N": the short form, quire's name, the value. */
static void describe_flag(const flag *f, char *out, size_t n) {
    size_t own = strcspn(f->names, " "), used = 0;
    const char *brief = strstr(f->names, " -");
    while (brief && brief[2] == '-') {
        brief = strstr(brief + 1, " -");
    }
    if (brief) {
        used = (size_t)snprintf(out, n, "%.*s, ", (int)strcspn(brief + 1, " "), brief + 1);
    }
    used += (size_t)snprintf(out + used, n - used, "%.*s ", (int)own, f->names);
    for (const flag_choice *c = f->type == FLAG_CHOICE ? f->choices : NULL; c && c->spelling && used < n; c++) {
        if (strcmp(c->spelling, c->value) == 0) {
            used += (size_t)snprintf(out + used, n - used, "%s%s", c == f->choices ? "" : "|", c->spelling);
        }
    }
    if (f->value && used < n) {
        snprintf(out + used, n - used, "%s", f->value);
    }
}

void cli_options_help(cli_command command, bool all) {
    int n_left_out = 0;
    for (int i = 0; i < cli_n_flags; i++) {
        const flag *f = &cli_flags[i];
        if (!(f->commands & (unsigned)command) || f->type == FLAG_PRESET) {
            continue;
        }
        if (!all && (f->commands & FLAG_RARE)) {
            n_left_out++;
            continue;
        }
        char head[128];
        describe_flag(f, head, sizeof head);
        printf("  %-36s %s\n", head, f->meaning);
    }
    if (n_left_out > 1) { /* more than --help-all itself */
        printf("  %-36s these and %d more\n", "--help-all", n_left_out - 1);
    }
}
