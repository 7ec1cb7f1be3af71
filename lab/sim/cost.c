#include "lab/sim/cost.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file/json_doc.h"
#include "file/map.h"
#include "lab/bench/figures.h"
#include "json/json_out.h"

#define FORMAT         "quire-cost-1"
#define MAX_FILE_BYTES ((size_t)1 << 20)

/* Fields that are one number. */
static const struct {
    const char *key;
    size_t offset;
} numbers[] = {
    {"out_us", offsetof(cost_model, out_us)},
    {"decode_pair_us", offsetof(cost_model, decode_pair_us)},
    {"prefill_pair_us", offsetof(cost_model, prefill_pair_us)},
    {"copy_us", offsetof(cost_model, copy_us)},
    {"request_us", offsetof(cost_model, request_us)},
};
enum { N_NUMBERS = (int)(sizeof numbers / sizeof *numbers) };

static double *cost_number(cost_model *c, int i) {
    return (double *)(void *)((char *)c + numbers[i].offset);
}

/* A number that is not negative. */
static bool get_number(json_value *v, double *out) {
    *out = json_double(v);
    return (json_is(v, JSON_KIND_REAL) || json_is(v, JSON_KIND_INT)) && isfinite(*out) && *out >= 0;
}

static bool get_name(json_value *root, const char *key, char *out) {
    json_value *v = json_get(root, key);
    snprintf(out, COST_NAME_BYTES, "%s", json_is(v, JSON_KIND_TEXT) ? json_str(v).p : "");
    return json_is(v, JSON_KIND_TEXT);
}

static bool get_points(json_value *root, cost_model *c) {
    json_value *points = json_get(root, "rows_us");
    size_t n = json_is(points, JSON_KIND_ARRAY) ? json_length(points) : 0;
    if (n < 2 || n > COST_MAX_POINTS) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        json_value *p = json_at(points, i);
        bool pair = json_is(p, JSON_KIND_ARRAY) && json_length(p) == 2;
        if (!pair || !get_number(json_at(p, 0), &c->rows[i]) || !get_number(json_at(p, 1), &c->us[i]) ||
            (i > 0 && (c->rows[i] <= c->rows[i - 1] || c->us[i] < c->us[i - 1]))) {
            return false;
        }
    }
    c->n_points = (int32_t)n;
    return c->us[0] > 0; /* a step takes time, or simulated time would stand still */
}

static quire_err parse(json_value *root, const char *path, cost_model *c, quire_error *err) {
    char format[COST_NAME_BYTES];
    double n_tokens, n_bytes, len;
    if (!get_name(root, "format", format) || strcmp(format, FORMAT) != 0) {
        return err_set(err, QUIRE_BAD_FILE, -1,
                       "%s: is no cost model (\"format\" must be \"%s\"); `quire bench calibrate MODEL --out "
                       "FILE` makes one",
                       path, FORMAT);
    }
    if (!get_name(root, "model", c->model) || !get_name(root, "device", c->device)) {
        return err_set(err, QUIRE_BAD_FILE, -1, "%s: \"model\" and \"device\" must be strings", path);
    }
    if (!get_points(root, c)) {
        return err_set(err, QUIRE_BAD_FILE, -1,
                       "%s: \"rows_us\" must be 2 to %d pairs [rows, microseconds] with ascending rows and "
                       "times that do not fall, over 0",
                       path, COST_MAX_POINTS);
    }
    for (int i = 0; i < N_NUMBERS; i++) {
        if (!get_number(json_get(root, numbers[i].key), cost_number(c, i))) {
            return err_set(err, QUIRE_BAD_FILE, -1, "%s: \"%s\" must be a number of microseconds from 0 on",
                           path, numbers[i].key);
        }
    }
    if (!get_number(json_get(root, "kv_tokens"), &n_tokens) ||
        !get_number(json_get(root, "token_bytes"), &n_bytes) ||
        !get_number(json_get(root, "max_model_len"), &len) || n_tokens > 0x1p53 || n_bytes > 0x1p53 ||
        len < 1 || len > 0x1p30) {
        return err_set(err, QUIRE_BAD_FILE, -1,
                       "%s: \"kv_tokens\", \"token_bytes\" and \"max_model_len\" must be counts", path);
    }
    c->swap_us = c->copy_us;
    c->kv_tokens = (int64_t)n_tokens;
    c->token_bytes = (int64_t)n_bytes;
    c->max_model_len = (int32_t)len;
    return QUIRE_OK;
}

quire_err cost_read(const char *path, cost_model *out, quire_error *err) {
    file_map map;
    json_doc doc = {0};
    cost_model c = {.n_points = 0};
    TRY(file_map_open(path, MAX_FILE_BYTES, &map, err));
    quire_err e = json_doc_parse(&doc, file_map_text(&map), JSON_NAMES_UNIQUE, path, err);
    e = e == QUIRE_OK ? parse(doc.root, path, &c, err) : e;
    json_doc_deinit(&doc);
    file_map_close(&map);
    if (e == QUIRE_OK) {
        *out = c;
    }
    return e;
}

static void write_model(json_out *o, const cost_model *c) {
    json_begin(o, '{');
    json_cstr(json_name(o, "format"), FORMAT);
    json_cstr(json_name(o, "model"), c->model);
    json_cstr(json_name(o, "device"), c->device);
    json_begin(json_name(o, "rows_us"), '[');
    for (int32_t i = 0; i < c->n_points; i++) {
        json_begin(json_item(o), '[');
        json_exact(json_item(o), c->rows[i]);
        json_exact(json_item(o), c->us[i]);
        json_end(o, ']');
    }
    json_end(o, ']');
    for (int i = 0; i < N_NUMBERS; i++) {
        json_exact(json_name(o, numbers[i].key), *(const double *)((const char *)c + numbers[i].offset));
    }
    json_int(json_name(o, "kv_tokens"), c->kv_tokens);
    json_int(json_name(o, "token_bytes"), c->token_bytes);
    json_int(json_name(o, "max_model_len"), c->max_model_len);
    json_end(o, '}');
    json_raw(o, "\n");
}

quire_err cost_write(const char *path, const cost_model *c, quire_error *err) {
    strbuf text = {0};
    json_out o = {.to = &text, .indent = 2};
    write_model(&o, c);
    FILE *f = o.err == QUIRE_OK ? fopen(path, "w") : NULL;
    bool good = f != NULL && fwrite(text.p, 1, text.n, f) == text.n;
    good = (f == NULL || fclose(f) == 0) && good;
    strbuf_deinit(&text);
    return good ? QUIRE_OK
                : err_set(err, o.err == QUIRE_OK ? QUIRE_IO : o.err, -1, "%s: %s", path, strerror(errno));
}

/* Published shapes. */
typedef struct model_facts {
    const char *name;
    double n_params;
    int32_t n_layers, d_model, n_kv_heads, d_head, max_model_len;
} model_facts;

static const model_facts models[] = {
    {"opt-13b", 12.85e9, 40, 5120, 40, 128, 2048},     {"opt-66b", 65.7e9, 64, 9216, 72, 128, 2048},
    {"opt-175b", 174.6e9, 96, 12288, 96, 128, 2048},   {"llama-7b", 6.74e9, 32, 4096, 32, 128, 2048},
    {"llama-13b", 13.02e9, 40, 5120, 40, 128, 2048},   {"llama-30b", 32.53e9, 60, 6656, 52, 128, 2048},
    {"llama-65b", 65.29e9, 80, 8192, 64, 128, 2048},   {"llama-2-7b", 6.74e9, 32, 4096, 32, 128, 4096},
    {"llama-2-13b", 13.02e9, 40, 5120, 40, 128, 4096}, {"llama-2-70b", 68.98e9, 80, 8192, 8, 128, 4096},
    {"llama-3-8b", 8.03e9, 32, 4096, 8, 128, 8192},    {"llama-3-70b", 70.6e9, 80, 8192, 8, 128, 8192},
};

/* Peak figures of the makers' data sheets: memory, its bandwidth, dense 16-bit
 * operations, and the bus to the host one way. */
typedef struct device_facts {
    const char *name;
    double bytes, bytes_per_s, operations_per_s, host_bytes_per_s;
} device_facts;

static const device_facts devices[] = {
    {"t4", 16 * 0x1p30, 0.32e12, 65e12, 16e9},          {"l4", 24 * 0x1p30, 0.3e12, 121e12, 32e9},
    {"a100-40gb", 40 * 0x1p30, 1.555e12, 312e12, 32e9}, {"a100-80gb", 80 * 0x1p30, 2.039e12, 312e12, 32e9},
    {"h100-80gb", 80 * 0x1p30, 3.35e12, 989e12, 64e9},  {"h200-141gb", 141 * 0x1p30, 4.8e12, 989e12, 64e9},
};

enum {
    N_MODELS = (int)(sizeof models / sizeof *models),
    N_DEVICES = (int)(sizeof devices / sizeof *devices)
};
enum { BYTES_OF_NUMBER = 2, MAX_DEVICES = 64 }; /* weights, keys and values are in 16 bits */

static const double ARITHMETIC_HAD = 0.5, BANDWIDTH_HAD = 0.8, MEMORY_HAD = 0.9;

/* Time by rows: the weights' bytes, until the rows' products take longer. */
static void describe_rows(const model_facts *m, const device_facts *d, cost_model *c) {
    double weights_us = m->n_params * BYTES_OF_NUMBER / (d->bytes_per_s * BANDWIDTH_HAD) * 1e6;
    double row_us = 2 * m->n_params / (d->operations_per_s * ARITHMETIC_HAD) * 1e6;
    double knee = weights_us / row_us;
    c->n_points = 3;
    c->rows[0] = 0;
    c->us[0] = weights_us;
    c->rows[1] = knee;
    c->us[1] = weights_us;
    c->rows[2] = 2 * knee;
    c->us[2] = 2 * weights_us;
}

static void sim_cost_describe(const model_facts *m, const device_facts *d, cost_model *c) {
    *c = (cost_model){.max_model_len = m->max_model_len};
    (void)snprintf(c->model, sizeof c->model, "%s", m->name);
    (void)snprintf(c->device, sizeof c->device, "%s", d->name);
    describe_rows(m, d, c);
    double token_bytes = 2.0 * m->n_layers * m->n_kv_heads * m->d_head * BYTES_OF_NUMBER;
    double read_us = token_bytes / (d->bytes_per_s * BANDWIDTH_HAD) * 1e6;
    c->token_bytes = (int64_t)token_bytes;
    c->decode_pair_us = read_us;
    /* q k and p v: two operations each */
    c->prefill_pair_us = 4.0 * m->n_layers * m->d_model / (d->operations_per_s * ARITHMETIC_HAD) * 1e6;
    c->copy_us = 2 * read_us;
    c->swap_us = token_bytes / (d->host_bytes_per_s * BANDWIDTH_HAD) * 1e6;
    c->weight_bytes = (int64_t)(m->n_params * BYTES_OF_NUMBER);
    c->memory_bytes = (int64_t)d->bytes;
    c->kv_tokens = (int64_t)fmax(0, (d->bytes * MEMORY_HAD - m->n_params * BYTES_OF_NUMBER) / token_bytes);
}

/* "h200-141gb", or "4xh200-141gb": so many that share every layer's work, as one device
 * with the memory, bandwidth and arithmetic of all. What they say to each other takes no
 * time here. */
static bool find_device(const char *name, device_facts *out) {
    char *end;
    long n = strtol(name, &end, 10);
    bool several = end != name && *end == 'x' && n >= 1 && n <= MAX_DEVICES;
    const char *one = several ? end + 1 : name;
    for (int i = 0; i < N_DEVICES; i++) {
        if (strcmp(one, devices[i].name) == 0) {
            double times = several ? (double)n : 1;
            *out = (device_facts){name, devices[i].bytes * times, devices[i].bytes_per_s * times,
                                  devices[i].operations_per_s * times, devices[i].host_bytes_per_s * times};
            return true;
        }
    }
    return false;
}

static const model_facts *find_model(const char *name) {
    for (int i = 0; i < N_MODELS; i++) {
        if (strcmp(name, models[i].name) == 0) {
            return &models[i];
        }
    }
    return NULL;
}

quire_err cost_describe(const char *model, const char *device, cost_model *out, quire_error *err) {
    const model_facts *m = find_model(model);
    device_facts d = {0};
    bool has_device = find_device(device, &d);
    char names[256] = "";
    for (int i = 0; i < (m == NULL ? N_MODELS : N_DEVICES); i++) {
        size_t n = strlen(names);
        (void)snprintf(names + n, sizeof names - n, "%s%s", i > 0 ? ", " : "",
                       m == NULL ? models[i].name : devices[i].name);
    }
    if (m == NULL || !has_device) {
        return err_set(err, QUIRE_INVALID, -1,
                       "%s %s is not known; the known are %s%s; or give a measured --cost FILE",
                       m == NULL ? "model" : "device", m == NULL ? model : device, names,
                       m == NULL ? "" : ", also several, as in 4xa100-40gb");
    }
    sim_cost_describe(m, &d, out);
    if (out->kv_tokens < 1) {
        return err_set(err, QUIRE_INVALID, -1,
                       "%s on %s: its weights take %.1f GB and leave no memory for keys and values", model,
                       device, (double)out->weight_bytes / 1e9);
    }
    return QUIRE_OK;
}

/* Time of the step except for attention and logits. */
static double base_us(const cost_model *c, double rows) {
    int32_t i = 1;
    while (i < c->n_points - 1 && c->rows[i] < rows) {
        i++;
    }
    double slope = (c->us[i] - c->us[i - 1]) / (c->rows[i] - c->rows[i - 1]);
    return c->us[i - 1] + slope * fmax(0, rows - c->rows[i - 1]);
}

double cost_of(const cost_model *c, const step_work *w) {
    return base_us(c, w->rows) + w->out * c->out_us + w->decode_pairs * c->decode_pair_us +
           w->prefill_pairs * c->prefill_pair_us + w->copied * c->copy_us + w->swapped * c->swap_us;
}

/* Knots up to SINGLE_ROWS lie one apart. */
enum { SINGLE_ROWS = 8, TWELVE = SINGLE_ROWS, FIRST_POWER = 4 }; /* 2^FIRST_POWER comes after 12 */

int32_t cost_knot(int32_t i) {
    return i < SINGLE_ROWS ? i + 1 : i == TWELVE ? 12 : 1 << (i - TWELVE - 1 + FIRST_POWER);
}

int32_t cost_knot_before(double rows, double *part) {
    int32_t i = 0;
    while (i < COST_N_KNOTS - 2 && cost_knot(i + 1) <= rows) {
        i++;
    }
    *part = fmax(0, (rows - cost_knot(i)) / (cost_knot(i + 1) - cost_knot(i)));
    return i;
}

int32_t cost_knots_until(int32_t most, int32_t *knots) {
    int32_t n = 0;
    while (n < COST_MAX_POINTS - 1 && cost_knot(n) < most) {
        knots[n] = cost_knot(n);
        n++;
    }
    knots[n++] = most;
    return n;
}

void cost_mean(cost_model *c, int32_t n, const cost_model *other) {
    if (n == 0) {
        *c = *other;
        return;
    }
    cost_model more = *other;
    assert(c->n_points == other->n_points);
    for (int32_t i = 0; i < c->n_points; i++) {
        assert(c->rows[i] == other->rows[i]);
        c->us[i] += (other->us[i] - c->us[i]) / (n + 1);
    }
    c->swap_us += (other->swap_us - c->swap_us) / (n + 1);
    for (int i = 0; i < N_NUMBERS; i++) {
        *cost_number(c, i) += (*cost_number(&more, i) - *cost_number(c, i)) / (n + 1);
    }
}

/* ---- fitting ---- */

enum { MAX_ROUNDS = 200000 };

void fit_add(fit *f, const double *terms, double value) {
    for (int32_t i = 0; i < f->n_terms; i++) {
        for (int32_t k = 0; k < f->n_terms; k++) {
            f->products[i][k] += terms[i] / value * (terms[k] / value);
        }
        f->sums[i] += terms[i] / value;
    }
}

/* Moves one factor to where the error is least while the others stand; how far, in
 * effect. */
static double improve(const fit *f, int32_t i, double *factors) {
    double rest = f->sums[i];
    for (int32_t k = 0; k < f->n_terms; k++) {
        rest -= k != i ? f->products[i][k] * factors[k] : 0;
    }
    double before = factors[i];
    factors[i] = fmax(0, rest / f->products[i][i]);
    return fabs(factors[i] - before) * sqrt(f->products[i][i]);
}

void fit_solve(const fit *f, double *factors) {
    for (int32_t i = 0; i < f->n_terms; i++) {
        factors[i] = 0;
    }
    double moved = INFINITY;
    for (int32_t round = 0; round < MAX_ROUNDS && moved > 1e-9; round++) {
        moved = 0;
        for (int32_t i = 0; i < f->n_terms; i++) {
            moved = f->products[i][i] > 0 ? fmax(moved, improve(f, i, factors)) : moved;
        }
    }
}

void cost_fit_add_step(const int32_t *knots, int32_t n, const step_work *w, double *terms) {
    double before = 0;
    for (int32_t i = 0; i < n; i++) {
        double part = i == 0 ? 1 : (w->rows - before) / (knots[i] - before);
        terms[i] += fmax(0, fmin(1, part));
        before = knots[i];
    }
    terms[n + COST_FIT_OUT] += w->out;
    terms[n + COST_FIT_DECODE] += w->decode_pairs;
    terms[n + COST_FIT_PREFILL] += w->prefill_pairs;
}

void cost_fit_fill(const int32_t *knots, int32_t n, const double *factors, cost_model *c) {
    double us = 0;
    c->n_points = n;
    c->out_us = factors[n + COST_FIT_OUT];
    c->decode_pair_us = factors[n + COST_FIT_DECODE];
    c->prefill_pair_us = factors[n + COST_FIT_PREFILL];
    for (int32_t i = 0; i < n; i++) {
        us += factors[i];
        c->rows[i] = knots[i];
        c->us[i] = fmax(us, 1e-3);
    }
}

/* ---- plans ---- */

enum { HOURS_OF_YEAR = 8760 };

void plan_options_init(plan_options *o) {
    *o = (plan_options){.n_prompt = 500,
                        .n_output = 500,
                        .page_tokens = 16,
                        .unused_percent = 75,
                        .n_devices = 100,
                        .cost_per_hour = 2};
}

/* A step of n requests in their steady state: each decodes a token over half of its
 * answer on average, and as prompts are computed as often as answers end, each token of
 * an answer brings n_prompt / n_output tokens of prompts. */
static double step_us(const plan_options *o, const cost_model *c, double n) {
    double prompt_rows = n * o->n_prompt / o->n_output;
    step_work w = {.rows = n + prompt_rows,
                   .out = n,
                   .decode_pairs = n * (o->n_prompt + o->n_output / 2.0),
                   .prefill_pairs = prompt_rows * o->n_prompt / 2.0};
    return cost_of(c, &w);
}

static plan_row make_row(const plan_options *o, const cost_model *c, const char *memory, int64_t reserved) {
    plan_row r = {.memory = memory, .reserved = reserved, .n_requests = c->kv_tokens / reserved};
    if (r.n_requests > 0) {
        r.step_us = step_us(o, c, (double)r.n_requests);
        r.tokens_per_s = (double)r.n_requests * 1e6 / r.step_us;
        r.per_million = o->cost_per_hour / (r.tokens_per_s * 3600) * 1e6;
    }
    return r;
}

static int64_t power_of_two(int64_t n) {
    int64_t p = 1;
    while (p < n) {
        p *= 2;
    }
    return p;
}

quire_err plan_make(const plan_options *o, cost_model *cost, plan_row rows[PLAN_N_ROWS], quire_error *err) {
    TRY(cost_describe(o->model, o->device, cost, err));
    int64_t n = (int64_t)o->n_prompt + o->n_output;
    if (n > cost->max_model_len) {
        return err_set(err, QUIRE_INVALID, -1, "a request of %lld tokens: %s takes at most %d", (long long)n,
                       o->model, (int)cost->max_model_len);
    }
    int64_t pages = (n + o->page_tokens - 1) / o->page_tokens * o->page_tokens;
    rows[0] = make_row(o, cost, "pages", pages);
    rows[1] = make_row(o, cost, "a power of two", power_of_two(n));
    rows[2] = make_row(o, cost, "the longest", cost->max_model_len);
    rows[3] =
        make_row(o, cost, "part unused", (n * 100 + 99 - o->unused_percent) / (100 - o->unused_percent));
    for (int i = 0; i < PLAN_N_ROWS; i++) {
        rows[i].n_devices =
            rows[i].n_requests > 0 ? o->n_devices * rows[0].tokens_per_s / rows[i].tokens_per_s : INFINITY;
        rows[i].per_year = rows[i].n_devices * o->cost_per_hour * HOURS_OF_YEAR;
    }
    return QUIRE_OK;
}

quire_err plan_run(const plan_options *o, quire_error *err) {
    static const table_column columns[] = TABLE_OF(
        WORD("memory", "memory", 16), FIGURE("reserved", "reserved", 9, 0, "tokens"),
        FIGURE("requests", "requests", 9, 0, "requests"), FIGURE("step", "step ms", 8, 1, "ms"),
        FIGURE("throughput", "tokens/s", 9, 0, "tokens/s"),
        FIGURE("per_million", "$/Mtoken", 9, 3, "dollars"), FIGURE("devices", "devices", 8, 1, "devices"),
        FIGURE("per_year", "$ a year", 12, 0, "dollars"));
    static const bench_table s_of = {"plan", columns, (int)(sizeof columns / sizeof *columns), false};
    bench_table s = s_of;
    cost_model cost;
    plan_row rows[PLAN_N_ROWS];
    TRY(plan_make(o, &cost, rows, err));
    s.json = o->json;
    table_note(&s,
               "%s on %s, computed from published shapes and data sheets: %.1f GB, less a tenth, less %.1f "
               "GB of weights, hold %lld tokens of %lld bytes",
               o->model, o->device, (double)cost.memory_bytes / 1e9, (double)cost.weight_bytes / 1e9,
               (long long)cost.kv_tokens, (long long)cost.token_bytes);
    table_begin(&s, NULL);
    for (int i = 0; i < PLAN_N_ROWS; i++) {
        const plan_row *r = &rows[i];
        bool fits = r->n_requests > 0;
        TABLE_ROW(&s, TXT(r->memory), NUM(r->reserved), NUM(r->n_requests),
                  NUM(fits ? r->step_us * 1e-3 : TABLE_ABSENT), NUM(fits ? r->tokens_per_s : TABLE_ABSENT),
                  NUM(fits ? r->per_million : TABLE_ABSENT), NUM(fits ? r->n_devices : TABLE_ABSENT),
                  NUM(fits ? r->per_year : TABLE_ABSENT));
    }
    table_note(&s,
               "requests of %d + %d tokens, as many as fit, at all times; part unused: %d%% of what is "
               "reserved; devices and their cost at %g dollars an hour: for what %d serve with pages",
               (int)o->n_prompt, (int)o->n_output, (int)o->unused_percent, o->cost_per_hour,
               (int)o->n_devices);
    return QUIRE_OK;
}
