#include "setup/inspect_layers.h"

#include <assert.h>
#include <stdio.h>

enum { MAX_CELL = 64 };

static const char *const kinds[] = {"full", "window", "latent", "state"};
static const char *const ropes[] = {"none", "plain", "linear", "dynamic NTK", "Llama 3", "YaRN", "longrope"};

/* ---- runs ---- */

static bool uses(const layer_desc *l, int32_t cache) {
    for (int k = 0; k < LAYER_CACHES; k++) {
        if (l->caches[k] == cache) {
            return true;
        }
    }
    return false;
}

static int32_t count_users(const model_desc *d, int32_t cache) {
    int32_t n = 0;
    for (int32_t i = 0; i < d->n_layers; i++) {
        n += uses(&d->layers[i], cache);
    }
    return n;
}

static bool are_caches_alike(const cache_desc *a, const cache_desc *b) {
    return a->kind == b->kind && a->n_kv_heads == b->n_kv_heads && a->d_key == b->d_key &&
           a->d_value == b->d_value && a->window == b->window && a->d_latent == b->d_latent &&
           a->n_units == b->n_units && a->unit_bytes == b->unit_bytes;
}

/* How many caches the layer does not share: the difference to the next layer's
 * numbers. */
static int32_t count_own(const model_desc *d, const layer_desc *l) {
    int32_t n = 0;
    for (int k = 0; k < LAYER_CACHES; k++) {
        n += l->caches[k] >= 0 && count_users(d, l->caches[k]) == 1;
    }
    return n;
}

/* Whether layers a and b, in this order, have no cache at this place, share one, or have
 * equal caches with consecutive numbers. */
static bool are_places_alike(const model_desc *d, const layer_desc *a, const layer_desc *b, int place) {
    int32_t x = a->caches[place], y = b->caches[place];
    if (x == y) {
        return true;
    }
    return x >= 0 && y >= 0 && y == x + count_own(d, a) && are_caches_alike(&d->caches[x], &d->caches[y]) &&
           count_users(d, x) == 1 && count_users(d, y) == 1;
}

/* Whether layer i differs from the previous one only in its cache numbers, if at all. */
static bool inspect_layers_goes_on(const model_desc *d, int32_t i) {
    const layer_desc *a = &d->layers[i - 1], *b = &d->layers[i];
    bool alike = a->rope == b->rope && a->n_heads == b->n_heads && a->window == b->window &&
                 a->chunk == b->chunk && a->d_ff == b->d_ff && a->n_experts == b->n_experts;
    for (int k = 0; k < LAYER_CACHES; k++) {
        alike = alike && are_places_alike(d, a, b, k);
    }
    return alike;
}

/* The last layer of the run that begins with `first`. */
static int32_t run_end(const model_desc *d, int32_t first) {
    int32_t last = first;
    while (last + 1 < d->n_layers && inspect_layers_goes_on(d, last + 1)) {
        last++;
    }
    return last;
}

/* ---- for people ---- */

static void inspect_layers_range(int32_t first, int32_t last, char out[MAX_CELL]) {
    (void)snprintf(out, MAX_CELL, first == last ? "%d" : "%d-%d", (int)first, (int)last);
}

static void sees(const layer_desc *l, char out[MAX_CELL]) {
    if (l->n_heads == 0) {
        (void)snprintf(out, MAX_CELL,
                       l->caches[CACHE_CONV] >= 0 || l->caches[CACHE_STATE] >= 0 ? "state" : "-");
    } else if (l->chunk > 0) {
        (void)snprintf(out, MAX_CELL, "chunks of %d", (int)l->chunk);
    } else if (l->window > 0) {
        (void)snprintf(out, MAX_CELL, "window %d", (int)l->window);
    } else {
        (void)snprintf(out, MAX_CELL, "all");
    }
}

static void feed_forward(const model_desc *d, const layer_desc *l, char out[2 * MAX_CELL]) {
    const moe_desc *m = &d->moe;
    int n = 0;
    out[0] = 0;
    if (l->d_ff > 0) {
        n = snprintf(out, 2 * MAX_CELL, "%d", (int)l->d_ff);
    }
    if (l->n_experts > 0) {
        n += snprintf(out + n, 2 * MAX_CELL - (size_t)n, "%s%d experts of %d, %d a row", n > 0 ? " and " : "",
                      (int)l->n_experts, (int)m->d_expert, (int)m->n_used);
    }
    if (l->n_experts > 0 && m->d_shared > 0) {
        (void)snprintf(out + n, 2 * MAX_CELL - (size_t)n, ", shared %d", (int)m->d_shared);
    }
}

/* Writes the cache numbers of layers first..last: "12-15", or "3, 17" of one layer. */
static void caches_of_run(const model_desc *d, int32_t first, int32_t last, char out[MAX_CELL]) {
    const layer_desc *a = &d->layers[first], *b = &d->layers[last];
    int32_t low = INT32_MAX, high = -1, n_caches = 0;
    int n = 0;
    (void)snprintf(out, MAX_CELL, "-");
    for (int k = 0; k < LAYER_CACHES; k++) {
        if (a->caches[k] >= 0) {
            n += snprintf(out + n, MAX_CELL - (size_t)n, "%s%d", n > 0 ? ", " : "", (int)a->caches[k]);
            low = a->caches[k] < low ? a->caches[k] : low;
            high = b->caches[k] > high ? b->caches[k] : high;
            n_caches += b->caches[k] == a->caches[k] ? 1 : last - first + 1;
        }
    }
    if (n_caches > 1 && high - low + 1 == n_caches) {
        inspect_layers_range(low, high, out);
    }
}

static quire_err write_layers(strbuf *b, const model_desc *d) {
    TRY(strbuf_add_str(b, "layers             heads  sees            rotary  caches     feed-forward\n"));
    for (int32_t i = 0; i < d->n_layers; i++) {
        const layer_desc *l = &d->layers[i];
        char layers[MAX_CELL], visible[MAX_CELL], rope[MAX_CELL] = "-", caches[MAX_CELL], ff[2 * MAX_CELL];
        int32_t last = run_end(d, i);
        inspect_layers_range(i, last, layers);
        sees(l, visible);
        if (l->rope >= 0) {
            inspect_layers_range(l->rope, l->rope, rope);
        }
        caches_of_run(d, i, last, caches);
        feed_forward(d, l, ff);
        TRY(strbuf_addf(b, "  %-14s %7d  %-14s  %-6s  %-9s  %s\n", layers, (int)l->n_heads, visible, rope,
                        caches, ff[0] ? ff : "-"));
        i = last;
    }
    return QUIRE_OK;
}

/* Appends the layers that use a cache: "13, 15-29". */
static quire_err add_users(strbuf *b, const model_desc *d, int32_t cache) {
    const char *before = "";
    for (int32_t i = 0; i < d->n_layers; i++) {
        char text[MAX_CELL];
        int32_t last = i;
        if (!uses(&d->layers[i], cache)) {
            continue;
        }
        while (last + 1 < d->n_layers && uses(&d->layers[last + 1], cache)) {
            last++;
        }
        inspect_layers_range(i, last, text);
        TRY(strbuf_addf(b, "%s%s", before, text));
        before = ", ";
        i = last;
    }
    return QUIRE_OK;
}

/* The only layer that uses a cache, or -1. */
static int32_t only_user(const model_desc *d, int32_t cache) {
    int32_t user = -1;
    for (int32_t i = 0; i < d->n_layers && count_users(d, cache) == 1; i++) {
        user = uses(&d->layers[i], cache) ? i : user;
    }
    return user;
}

/* The number of the next layer's cache if it is equal and each has one user; else -1. */
static int32_t next_alike(const model_desc *d, int32_t cache) {
    int32_t user = only_user(d, cache);
    if (user < 0) {
        return -1;
    }
    int32_t next = cache + count_own(d, &d->layers[user]);
    bool goes_on = next < d->n_caches && are_caches_alike(&d->caches[cache], &d->caches[next]) &&
                   only_user(d, next) == user + 1;
    return goes_on ? next : -1;
}

/* Writes the numbers of equal caches: "0-3", or "0-6/2" for every second one. */
static void cache_numbers(const model_desc *d, int32_t first, int32_t last, char out[MAX_CELL]) {
    int32_t next = next_alike(d, first);
    if (last == first || next == first + 1) {
        inspect_layers_range(first, last, out);
    } else {
        (void)snprintf(out, MAX_CELL, "%d-%d/%d", (int)first, (int)last, (int)(next - first));
    }
}

static int64_t state_bytes(const kv_state_place *p) {
    return p->n_units * p->unit_bytes;
}

static void planes(const kv_planes *p, char out[MAX_CELL]) {
    bool two = p->value.bytes > 0;
    if (p->kind == LAYER_STATE) {
        (void)snprintf(out, MAX_CELL, "%lld bytes", (long long)state_bytes(&p->state));
    } else {
        (void)snprintf(out, MAX_CELL, "%s%s%s", dtype_flag_name(p->key.type), two ? ", " : "",
                       two ? dtype_flag_name(p->value.type) : "");
    }
}

static quire_err write_caches(strbuf *b, const model_desc *d, const kv_layout *l) {
    TRY(strbuf_add_str(b, "caches             kind    heads  key  value  window  planes      of layers\n"));
    bool is_written[DESC_MAX_CACHES] = {false};
    for (int32_t i = 0; i < d->n_caches; i++) {
        const cache_desc *c = &d->caches[i];
        char caches[MAX_CELL], window[MAX_CELL] = "-", types[MAX_CELL];
        int32_t last = i;
        if (is_written[i]) {
            continue;
        }
        for (int32_t next = i; next >= 0; next = next_alike(d, next)) {
            is_written[last = next] = true;
        }
        cache_numbers(d, i, last, caches);
        if (c->window > 0) {
            inspect_layers_range(c->window, c->window, window);
        }
        planes(&l->caches[i], types);
        TRY(strbuf_addf(b, "  %-15s  %-6s  %5d  %3d  %5d  %-6s  %-10s  ", caches, kinds[c->kind],
                        (int)c->n_kv_heads, (int)(c->kind == LAYER_LATENT ? c->d_latent : c->d_key),
                        (int)c->d_value, window, types));
        if (last > i) {
            inspect_layers_range(only_user(d, i), only_user(d, last), caches);
            TRY(strbuf_add_str(b, caches));
        } else {
            TRY(add_users(b, d, i));
        }
        TRY(strbuf_add_char(b, '\n'));
    }
    return QUIRE_OK;
}

quire_err inspect_layers_text(strbuf *b, const model_desc *d, const kv_layout *l) {
    TRY(write_layers(b, d));
    TRY(write_caches(b, d, l));
    for (int32_t i = 0; i < d->n_ropes; i++) {
        const rope_desc *r = &d->ropes[i];
        TRY(strbuf_addf(b, "rotary table %d  %s, base %g, %d elements of a head\n", (int)i, ropes[r->kind],
                        (double)r->theta, (int)r->n_dims));
    }
    return QUIRE_OK;
}

/* ---- for programs ---- */

static void inspect_layers_add_int(json_out *o, const char *name, int64_t v) {
    json_int(json_name(o, name), v);
}

static void add_layer(json_out *o, const model_desc *d, const layer_desc *l) {
    json_begin(json_item(o), '{');
    inspect_layers_add_int(o, "n_heads", l->n_heads);
    inspect_layers_add_int(o, "window", l->window);
    inspect_layers_add_int(o, "chunk", l->chunk);
    inspect_layers_add_int(o, "rope", l->rope);
    json_begin(json_name(o, "caches"), '[');
    for (int k = 0; k < LAYER_CACHES; k++) {
        if (l->caches[k] >= 0) {
            json_int(json_item(o), l->caches[k]);
        }
    }
    json_end(o, ']');
    inspect_layers_add_int(o, "d_ff", l->d_ff);
    inspect_layers_add_int(o, "n_experts", l->n_experts);
    inspect_layers_add_int(o, "d_expert", l->n_experts > 0 ? d->moe.d_expert : 0);
    json_end(o, '}');
}

static void add_plane(json_out *o, const kv_plane *p) {
    if (p->bytes > 0) {
        json_cstr(json_item(o), dtype_flag_name(p->type));
    }
}

static void add_cache(json_out *o, const model_desc *d, const kv_layout *l, int32_t i) {
    const cache_desc *c = &d->caches[i];
    json_begin(json_item(o), '{');
    json_cstr(json_name(o, "kind"), kinds[c->kind]);
    inspect_layers_add_int(o, "n_kv_heads", c->n_kv_heads);
    inspect_layers_add_int(o, "d_key", c->d_key);
    inspect_layers_add_int(o, "d_value", c->d_value);
    inspect_layers_add_int(o, "window", c->window);
    inspect_layers_add_int(o, "d_latent", c->d_latent);
    inspect_layers_add_int(o, "state_bytes", c->kind == LAYER_STATE ? state_bytes(&l->caches[i].state) : 0);
    json_begin(json_name(o, "planes"), '[');
    if (c->kind != LAYER_STATE) {
        add_plane(o, &l->caches[i].key);
        add_plane(o, &l->caches[i].value);
    }
    json_end(o, ']');
    json_begin(json_name(o, "layers"), '[');
    for (int32_t k = 0; k < d->n_layers; k++) {
        if (uses(&d->layers[k], i)) {
            json_int(json_item(o), k);
        }
    }
    json_end(o, ']');
    json_end(o, '}');
}

void inspect_layers_json(json_out *o, const model_desc *d, const kv_layout *l) {
    assert(d != NULL);
    json_begin(json_name(o, "layers"), '[');
    for (int32_t i = 0; i < d->n_layers; i++) {
        add_layer(o, d, &d->layers[i]);
    }
    json_end(o, ']');
    json_begin(json_name(o, "caches"), '[');
    for (int32_t i = 0; i < d->n_caches; i++) {
        add_cache(o, d, l, i);
    }
    json_end(o, ']');
    json_begin(json_name(o, "ropes"), '[');
    for (int32_t i = 0; i < d->n_ropes; i++) {
        json_begin(json_item(o), '{');
        json_cstr(json_name(o, "kind"), ropes[d->ropes[i].kind]);
        json_number(json_name(o, "base"), (double)d->ropes[i].theta);
        inspect_layers_add_int(o, "n_dims", d->ropes[i].n_dims);
        json_end(o, '}');
    }
    json_end(o, ']');
}
