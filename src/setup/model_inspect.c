/* `quire inspect`: describes a model file and the memory it needs, without loading its
 * weights. */
#include <stdio.h>

#include "base/str.h"
#include "base/utf8.h"
#include "kv/kv_cache.h"
#include "model/model.h"
#include "setup/engine_config.h"
#include "setup/engine_parts.h"
#include "setup/inspect_layers.h"
#include "setup/pool_plan.h"
#include "text/turn_ends.h"
#include "json/json_out.h"

enum { N_KV_TYPES = 6 };

/* The data of the summary, for its text and its JSON form. */
typedef struct summary {
    model_desc d;
    answer_ends ends;
    output_formats formats;
    const model_file *f;
    strbuf path, name, vocabulary; /* the file's texts, without control characters */
    strbuf pool_plan;              /* text of pool_plan_explain, without control characters */
    compute_mode compute;
    int32_t max_len, page_tokens;
    pool_plan plan;
    kv_types kv_types; /* the types of an engine with these options */
    bool kv_is_asked;
    int64_t snapshot_bytes; /* value of --state-snapshot-bytes */
    struct {
        kv_layout layout;
        int64_t n_pages; /* pages of the pool; 0: none, or unknown */
        kv_most most;
    } kv[N_KV_TYPES];
    int n_kv; /* number of entries; types that the model does not support are left out */
} summary;

/* Appends a text from a file, with invalid UTF-8 and control characters replaced. */
static quire_err add_shown(strbuf *b, str text) {
    size_t from = b->n;
    TRY(utf8_add_lossy(b, text));
    for (size_t i = from; i < b->n; i++) {
        b->p[i] = (unsigned char)b->p[i] < ' ' || b->p[i] == 0x7f ? '?' : b->p[i];
    }
    return QUIRE_OK;
}

static quire_err add_vocabulary(strbuf *b, const vocab *v) {
    if (v->source == VOCAB_NONE) {
        return strbuf_add_str(b, "none (prompts must be token ids)");
    }
    const char *file = v->source == VOCAB_TOKENIZER_JSON  ? "tokenizer.json"
                       : v->source == VOCAB_SENTENCEPIECE ? "SentencePiece model"
                       : v->source == VOCAB_RANKS         ? "ranks (tiktoken)"
                       : v->source == VOCAB_TEKKEN        ? "tekken.json"
                                                          : NULL;
    if (file != NULL) {
        return strbuf_add_str(b, file);
    }
    TRY(strbuf_add_str(b, "GGUF, model "));
    TRY(add_shown(b, v->model));
    TRY(strbuf_add_str(b, ", pre-tokenizer "));
    return v->pre.n > 0 ? add_shown(b, v->pre) : strbuf_add_str(b, "default");
}

/* Sets the formats of tool calls and reasoning, from the model's template and the
 * options. */
static quire_err model_inspect_fill_formats(const quire_options *o, const model_file *f, summary *s,
                                            quire_error *err) {
    s->formats = output_formats_of_template(model_file_chat_template(f));
    return options_formats(o, &s->formats, err);
}

/* Sets the end tokens that an engine uses; if this build cannot use the vocabulary, those
 * in the file. */
static quire_err model_inspect_fill_ends(const model_file *f, summary *s, quire_error *err) {
    tokenizer *t = NULL;
    quire_error why = {0};
    if (tokenizer_open(model_file_vocab(f), &t, &why) == QUIRE_NO_MEMORY) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "%s", why.message);
    }
    s->ends = answer_ends_find(model_file_vocab(f), t, &s->d);
    tokenizer_close(t);
    return QUIRE_OK;
}

/* Adds the weights of the draft model, if there is one, to the plan. */
static quire_err model_inspect_add_draft(const quire_options *o, pool_plan *plan, quire_error *err) {
    speculation s;
    model_desc d = {0};
    quire_err e = speculation_read(o, &s, err);
    plan->has_draft = s.draft.method == DRAFT_METHOD_MODEL;
    if (e == QUIRE_OK && plan->has_draft) {
        e = speculation_describe(&s, o, &d, err);
    }
    plan->draft_bytes = d.weight_bytes;
    speculation_close(&s);
    return e;
}

/* Makes the page plan of an engine that would load this model. */
static quire_err fill_plan(const quire_options *o, summary *s, quire_error *err) {
    pool_plan *plan = &s->plan;
    const int64_t weights = s->d.weight_bytes;
    *plan = pool_plan_of(o);
    pool_plan_encoder(plan, o, &s->d, options_max_rows(o, s->max_len));
    TRY(model_inspect_add_draft(o, plan, err));
    memory_room_read("", 0, &plan->room);
    const int64_t kept = s->d.is_packed ? pool_plan_kept(&plan->room, weights) : weights,
                  left = plan->room.bytes - kept - plan->draft_bytes;
    plan->room.bytes = plan->room.bytes < 0 ? -1 : left > 0 ? left : 0;
    plan->weight_bytes = weights;
    plan->dropped_bytes = weights - kept;
    return QUIRE_OK;
}

static quire_err add_plan(strbuf *b, const pool_plan *plan) {
    strbuf text = {0};
    quire_err e = pool_plan_explain(plan, &text);
    TRY_DONE(e, add_shown(b, (str){text.p, text.n}));
done:
    strbuf_deinit(&text);
    return e;
}

static quire_err fill_texts(const model_file *f, summary *s) {
    TRY(add_shown(&s->path, str_of(model_file_path(f))));
    TRY(strbuf_add(&s->name, "", 0));
    TRY(add_shown(&s->name, str_of(s->d.name)));
    TRY(add_plan(&s->pool_plan, &s->plan));
    return add_vocabulary(&s->vocabulary, model_file_vocab(f));
}

/* Inserts a pool's plan after those with larger pages, so that types with equal pages are
 * adjacent. */
static void model_inspect_add_kv(const quire_options *o, summary *s, const kv_layout *l) {
    const int64_t n = pool_plan_pages(&s->plan, l);
    int at = s->n_kv++;
    for (; at > 0 && s->kv[at - 1].layout.page_bytes < l->page_bytes; at--) {
        s->kv[at] = s->kv[at - 1];
    }
    s->kv[at].layout = *l;
    s->kv[at].n_pages = n > 0 ? n : 0;
    s->kv[at].most = options_most_pages(o, &s->d, l, options_max_rows(o, s->max_len));
}

/* Plans a pool for each type of keys and values, or for the given one. */
static quire_err fill_kv(const quire_options *o, summary *s, quire_error *err) {
    static const dtype types[N_KV_TYPES] = {DTYPE_F32,     DTYPE_F16, DTYPE_BF16,
                                            DTYPE_F8_E4M3, DTYPE_I8,  DTYPE_I4};
    for (int i = 0; i < (s->kv_is_asked ? 1 : N_KV_TYPES); i++) {
        kv_layout l;
        const kv_types each = {.key = types[i], .value = types[i], .state = s->kv_types.state};
        quire_err e = kv_layout_init(&s->d, s->kv_is_asked ? s->kv_types : each, o->page_tokens, &l, err);
        if (e == QUIRE_UNSUPPORTED && !s->kv_is_asked) {
            continue;
        }
        TRY(e);
        model_inspect_add_kv(o, s, &l);
    }
    return QUIRE_OK;
}

static quire_err model_inspect_fill(const quire_options *o, const model_file *f, summary *s,
                                    quire_error *err) {
    s->f = f;
    s->page_tokens = o->page_tokens;
    TRY(model_describe(f, &s->d, err));
    TRY(options_compute(o, &s->d, &s->compute, err));
    s->kv_types = options_kv_types(o, &s->d, s->compute);
    TRY(options_max_model_len(o, &s->d, &s->max_len, err));
    s->kv_is_asked = o->kv_dtype != QUIRE_KV_AUTO || o->kv_dtype_values != QUIRE_KV_AUTO;
    s->snapshot_bytes = o->state_snapshot_bytes;
    TRY(fill_plan(o, s, err));
    TRY(model_inspect_fill_ends(f, s, err));
    TRY(model_inspect_fill_formats(o, f, s, err));
    TRY(err_set(err, fill_texts(f, s), -1, "out of memory for the summary"));
    return fill_kv(o, s, err);
}

/* Index of the plan with the types of an engine with these options. */
static int own_kv(const summary *s) {
    int i = 0;
    while (i + 1 < s->n_kv && s->kv[i].layout.types.key != s->kv_types.key) {
        i++;
    }
    return i;
}

static const kv_layout *own_layout(const summary *s) {
    return &s->kv[own_kv(s)].layout;
}

/* The most snapshots of recurrent states that the plan's pool keeps. */
static int32_t most_snapshots_of(const summary *s) {
    int64_t n_pages = s->kv[own_kv(s)].n_pages;
    return kv_most_snapshots(own_layout(s), n_pages < INT32_MAX ? (int32_t)n_pages : INT32_MAX,
                             s->snapshot_bytes);
}

/* How many requests of n tokens each fit into a pool. */
static int64_t requests_held(const summary *s, int kv, int32_t n_tokens) {
    return s->kv[kv].n_pages / kv_most_pages(&s->kv[kv].most, n_tokens);
}

static quire_err write_weights(strbuf *b, const summary *s) {
    const char *before = ": ";
    TRY(strbuf_addf(b, "weights         %lld parameters, %s", (long long)s->d.n_params,
                    memory_show(s->d.weight_bytes).text));
    if (s->d.n_params > 0) {
        TRY(strbuf_addf(b, " (%.2f bits each)", 8.0 * (double)s->d.weight_bytes / (double)s->d.n_params));
    }
    for (int t = 0; t < N_DTYPES; t++) {
        if (s->d.weight_bytes_of[t] > 0) {
            TRY(strbuf_addf(b, "%s%s %s", before, dtype_flag_name((dtype)t),
                            memory_show(s->d.weight_bytes_of[t]).text));
            before = ", ";
        }
    }
    if (s->d.n_left_out > 0) {
        TRY(strbuf_addf(b, "\nskipped         %d tensors, %s, with %d next-token layers%s%s",
                        (int)s->d.n_left_out, memory_show(s->d.left_out_bytes).text,
                        (int)s->d.n_next_token_layers, s->d.left_out_names[0] ? ": " : "",
                        s->d.left_out_names));
    }
    TRY(strbuf_addf(b, "\ncompute         %s %s\n", compute_name(s->compute),
                    s->d.is_packed ? "only (packed for it)" : "by default"));
    return strbuf_addf(b, "KV type         %s %s\n", own_layout(s)->type_name,
                       s->kv_is_asked ? "as asked" : "by default");
}

/* Writes one row for type *i and the following types with equal pages, and moves *i past
 * them. */
static quire_err write_kv_row(strbuf *b, const summary *s, const int32_t *lengths, int n_lengths, int *i) {
    const kv_layout *l = &s->kv[*i].layout;
    long long n_pages = (long long)s->kv[*i].n_pages;
    char names[64];
    int n = snprintf(names, sizeof names, "%s", l->type_name), at = *i;
    while (++*i < s->n_kv && s->kv[*i].layout.page_bytes == l->page_bytes && n < (int)sizeof names) {
        n += snprintf(names + n, sizeof names - (size_t)n, ", %s", s->kv[*i].layout.type_name);
    }
    TRY(strbuf_addf(b, "  %-14s %12lld %12lld %10lld %10lld  ", names, (long long)kv_layout_token_bytes(l),
                    (long long)l->page_bytes, n_pages, n_pages / l->n_groups * l->page_tokens));
    for (int k = 0; k < n_lengths; k++) {
        TRY(strbuf_addf(b, "%s %lld", k == 0 ? "" : " /", (long long)requests_held(s, at, lengths[k])));
    }
    return strbuf_add_char(b, '\n');
}

static quire_err write_memory(strbuf *b, const summary *s) {
    int32_t lengths[] = {1024, s->max_len};
    const int32_t *first = s->max_len > 1024 ? lengths : lengths + 1;
    int n = s->max_len > 1024 ? 2 : 1, i = 0;
    TRY(strbuf_addf(b, "memory plan     pages of %d tokens: ", (int)s->page_tokens));
    TRY(strbuf_add_str(b, s->pool_plan.p));
    if (s->plan.room.bytes < 0 && s->plan.given_pages == 0) {
        return strbuf_add_str(b, "; give --kv-pages N\n");
    }
    TRY(strbuf_addf(b, "\n  %-14s %12s %12s %10s %10s   requests of", "KV", "bytes/token", "bytes/page",
                    "pages", "tokens"));
    for (int k = 0; k < n; k++) {
        TRY(strbuf_addf(b, "%s %d", k == 0 ? "" : " /", (int)first[k]));
    }
    TRY(strbuf_add_str(b, " tokens\n"));
    while (i < s->n_kv) {
        TRY(write_kv_row(b, s, first, n, &i));
    }
    return QUIRE_OK;
}

/* Snapshots that a chat needs to be continued: the one at the end of its last answer or,
 * if that was edited, the one at the end of its last prompt. */
enum { SNAPSHOTS_A_CHAT = 2 };

static quire_err write_snapshots(strbuf *b, const summary *s) {
    const kv_layout *l = own_layout(s);
    int64_t one = kv_snapshot_bytes(l), n = most_snapshots_of(s);
    if (one == 0) {
        return QUIRE_OK;
    }
    return strbuf_addf(b,
                       "snapshots       at most %lld of %s (%s): %lld chats, each with its states after the "
                       "last prompt and after the last answer\n",
                       (long long)n, memory_show(one).text, memory_show(n * one).text,
                       (long long)(n / SNAPSHOTS_A_CHAT));
}

static const char *const poolings[] = {NULL, "mean", "cls", "last"};

/* Writes how rows are pooled; nothing for a model that only generates text. */
static quire_err write_pooling(strbuf *b, const model_desc *d) {
    static const char *const functions[N_ROW_FUNCTIONS] = {"", " tanh", " GELU", " ReLU", " sigmoid"};
    const pooling_desc *p = &d->pooling;
    if (p->kind == POOLING_NONE) {
        return desc_gives_tokens(d) ? QUIRE_OK
                                    : strbuf_add_str(b, "pooling         none named: give --pooling\n");
    }
    TRY(strbuf_addf(b, "pooling         %s", poolings[p->kind]));
    for (int32_t i = 0; i < p->n_steps; i++) {
        const pooled_step *s = &p->steps[i];
        TRY(s->kind == POOLED_DENSE
                ? strbuf_addf(b, ", dense %d to %d%s", (int)s->n_in, (int)s->n_out, functions[s->f])
            : s->kind == POOLED_NORM    ? strbuf_add_str(b, ", norm")
            : s->kind == POOLED_SOFTMAX ? strbuf_add_str(b, ", softmax")
                                        : strbuf_add_str(b, ", normalised"));
    }
    if (p->n_scores > 0) {
        TRY(strbuf_addf(b, ": %d scores", (int)p->n_scores));
    }
    return strbuf_addf(b, "%s\n", p->normalise ? ", normalised" : "");
}

/* Writes a line about the layers; head counts are those of the first layer with
 * attention. */
static quire_err write_shape(strbuf *b, const model_desc *d) {
    const layer_desc *l = desc_attention_layer(d);
    TRY(strbuf_addf(b, "shape           %d layers, width %d, ", (int)d->n_layers, (int)d->d_model));
    if (l != NULL) {
        const cache_desc *c = &d->caches[l->caches[CACHE_ATTENTION]];
        TRY(c->kind == LAYER_LATENT
                ? strbuf_addf(b, "%d heads over latents of %d, ", (int)l->n_heads, (int)c->d_latent)
                : strbuf_addf(b, "%d heads of %d (%d for keys and values), ", (int)l->n_heads, (int)c->d_key,
                              (int)c->n_kv_heads));
        TRY(strbuf_addf(b, "ff %d, ", (int)desc_widest_ff(d)));
    } else {
        TRY(strbuf_addf(b, "no attention, "));
    }
    return strbuf_addf(b, "vocabulary %d%s\n", (int)d->n_vocab, d->tied_embeddings ? ", tied head" : "");
}

static quire_err model_inspect_write_text(strbuf *b, const summary *s) {
    const model_desc *d = &s->d;
    TRY(strbuf_addf(b, "model           %s\n", s->path.p));
    TRY(strbuf_addf(b, "architecture    %s%s%s%s (%s%s)\n", d->architecture, s->name.n ? ", \"" : "",
                    s->name.p, s->name.n ? "\"" : "", d->is_packed ? "packed from " : "",
                    model_file_format(s->f) == MODEL_GGUF ? "GGUF" : "Hugging Face"));
    TRY(write_shape(b, d));
    TRY(strbuf_addf(b, "positions       %d\n", (int)d->max_positions));
    TRY(inspect_layers_text(b, d, own_layout(s)));
    TRY(write_weights(b, s));
    TRY(write_pooling(b, d));
    TRY(strbuf_addf(b, "vocabulary      %s\n", s->vocabulary.p));
    if (desc_gives_tokens(d)) {
        TRY(strbuf_add_str(b, "end tokens      "));
        TRY(answer_ends_print(&s->ends, b));
        TRY(strbuf_add_char(b, '\n'));
    }
    TRY(strbuf_addf(b, "chat template   %s\n", model_file_chat_template(s->f).n > 0 ? "yes" : "none"));
    TRY(write_memory(b, s));
    return write_snapshots(b, s);
}

static void model_inspect_add_int(json_out *o, const char *name, int64_t v) {
    json_int(json_name(o, name), v);
}

static void model_inspect_add_text(json_out *o, const char *name, const char *v) {
    json_cstr(json_name(o, name), v);
}

static void write_plan(json_out *o, const summary *s, int i) {
    const kv_layout *l = &s->kv[i].layout;
    json_begin(json_item(o), '{');
    model_inspect_add_text(o, "kv_dtype", l->type_name);
    model_inspect_add_int(o, "token_bytes", kv_layout_token_bytes(l));
    model_inspect_add_int(o, "page_bytes", l->page_bytes);
    model_inspect_add_int(o, "n_pages", s->kv[i].n_pages);
    model_inspect_add_int(o, "n_tokens", s->kv[i].n_pages / l->n_groups * l->page_tokens);
    model_inspect_add_int(o, "full_length_requests", requests_held(s, i, s->max_len));
    json_end(o, '}');
}

static void write_snapshot_plan(json_out *o, const summary *s) {
    int64_t one = kv_snapshot_bytes(own_layout(s)), n = most_snapshots_of(s);
    if (one > 0) {
        json_begin(json_name(o, "snapshots"), '{');
        model_inspect_add_int(o, "bytes_each", one);
        model_inspect_add_int(o, "max", n);
        model_inspect_add_int(o, "max_bytes", n * one);
        model_inspect_add_int(o, "chats", n / SNAPSHOTS_A_CHAT);
        json_end(o, '}');
    }
}

static void model_inspect_write_description(json_out *o, const summary *s) {
    const model_desc *d = &s->d;
    model_inspect_add_text(o, "model", s->path.p);
    model_inspect_add_text(o, "format", model_file_format(s->f) == MODEL_GGUF ? "gguf" : "huggingface");
    json_bool(json_name(o, "packed"), d->is_packed);
    model_inspect_add_text(o, "architecture", d->architecture);
    model_inspect_add_text(o, "name", s->name.p);
    model_inspect_add_int(o, "n_layers", d->n_layers);
    model_inspect_add_int(o, "d_model", d->d_model);
    const layer_desc *l = desc_attention_layer(d);
    const cache_desc *c = l != NULL ? &d->caches[l->caches[0]] : &(const cache_desc){0};
    model_inspect_add_int(o, "n_heads", l != NULL ? l->n_heads : 0);
    model_inspect_add_int(o, "n_kv_heads", c->n_kv_heads);
    model_inspect_add_int(o, "d_head", c->d_key);
    model_inspect_add_int(o, "d_ff", desc_widest_ff(d));
    model_inspect_add_int(o, "n_vocab", d->n_vocab);
    model_inspect_add_int(o, "max_positions", d->max_positions);
    json_bool(json_name(o, "tied_embeddings"), d->tied_embeddings);
    model_inspect_add_int(o, "n_params", d->n_params);
    model_inspect_add_int(o, "weight_bytes", d->weight_bytes);
    model_inspect_add_int(o, "n_next_token_layers", d->n_next_token_layers);
    model_inspect_add_int(o, "n_left_out", d->n_left_out);
    model_inspect_add_text(o, "left_out_names", d->left_out_names);
    model_inspect_add_int(o, "left_out_bytes", d->left_out_bytes);
    if (d->pooling.kind != POOLING_NONE) {
        model_inspect_add_text(o, "pooling", poolings[d->pooling.kind]);
        json_bool(json_name(o, "normalize"), d->pooling.normalise);
        model_inspect_add_int(o, "n_row", desc_pooled_width(d));
        model_inspect_add_int(o, "n_scores", d->pooling.n_scores);
    }
    json_begin(json_name(o, "weight_bytes_by_type"), '{');
    for (int t = 0; t < N_DTYPES; t++) {
        if (s->d.weight_bytes_of[t] > 0) {
            model_inspect_add_int(o, dtype_flag_name((dtype)t), s->d.weight_bytes_of[t]);
        }
    }
    json_end(o, '}');
}

static quire_err model_inspect_write_json(strbuf *b, const summary *s) {
    json_out o = {.to = b, .indent = 2};
    json_begin(&o, '{');
    model_inspect_write_description(&o, s);
    inspect_layers_json(&o, &s->d, own_layout(s));
    model_inspect_add_text(&o, "compute", compute_name(s->compute));
    model_inspect_add_text(&o, "kv_dtype", own_layout(s)->type_name);
    model_inspect_add_text(&o, "vocabulary", s->vocabulary.p);
    answer_ends_json(&s->ends, json_name(&o, "end_tokens"));
    json_bool(json_name(&o, "chat_template"), model_file_chat_template(s->f).n > 0);
    model_inspect_add_text(&o, "tool_format", s->formats.tools);
    model_inspect_add_text(&o, "reasoning_format", s->formats.reasoning);
    model_inspect_add_int(&o, "page_tokens", s->page_tokens);
    model_inspect_add_int(&o, "free_bytes", s->plan.room.bytes);
    json_number(json_name(&o, "memory_utilization"), s->plan.utilization);
    model_inspect_add_text(&o, "pool_plan", s->pool_plan.p);
    json_begin(json_name(&o, "memory_plan"), '[');
    for (int i = 0; i < s->n_kv; i++) {
        write_plan(&o, s, i);
    }
    json_end(&o, ']');
    write_snapshot_plan(&o, s);
    json_end(&o, '}');
    json_raw(&o, "\n");
    return o.err;
}

quire_err quire_inspect(const quire_options *given, bool json, char **text, quire_error *err) {
    model_file *f;
    quire_options own, *o = &own;
    strbuf b = {0};
    *text = NULL;
    TRY(options_read(given, o, err));
    TRY(options_open_file(o, &f, err));
    summary s = {0};
    quire_err e = model_inspect_fill(o, f, &s, err);
    if (e == QUIRE_OK) {
        e = json ? model_inspect_write_json(&b, &s) : model_inspect_write_text(&b, &s);
        if (e != QUIRE_OK) {
            err_set(err, e, -1, "out of memory for the summary");
        }
    }
    strbuf_deinit(&s.path);
    strbuf_deinit(&s.name);
    strbuf_deinit(&s.vocabulary);
    strbuf_deinit(&s.pool_plan);
    model_file_close(f);
    if (e != QUIRE_OK) {
        strbuf_deinit(&b);
        return e;
    }
    *text = b.p;
    return QUIRE_OK;
}
