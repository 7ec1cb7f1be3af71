/* Opens the parts of an engine, each after those that it needs. */
#include "setup/engine_parts.h"

#include <assert.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread_pool.h"
#include "base/utf8.h"
#include "file/model_file.h"
#include "setup/adapter_store.h"
#include "setup/engine_config.h"
#include "setup/pool_plan.h"
#include "text/turn_ends.h"

#define REQUESTS_A_SEQ 16 /* most requests per sequence of a batch; more get QUIRE_BUSY */
#define MIN_REQUESTS   1024
_Static_assert(PARAMS_MAX_CHOICES <= MIN_REQUESTS, "an engine that nothing else uses takes any request");

/* Opens the tokenizer o->tokenizer in place of the model's. Its ids must be in the
 * model's vocabulary. */
static quire_err open_other_tokenizer(engine_parts *p, const quire_options *o, int32_t n_vocab,
                                      quire_error *err) {
    size_t n;
    const void *bytes = options_builtin_model(o->tokenizer, &n);
    TRY(bytes != NULL ? model_file_open_memory(bytes, n, o->tokenizer, &p->text_file, err)
                      : model_file_open_vocabulary(o->tokenizer, &p->text_file, err));
    quire_err e = tokenizer_open(model_file_vocab(p->text_file), &p->tokenizer, err);
    if (e != QUIRE_OK) {
        return err_prefix(err, e, o->tokenizer);
    }
    int32_t n_tokens = tokenizer_n_tokens(p->tokenizer);
    return n_tokens <= n_vocab
               ? QUIRE_OK
               : err_set(
                     err, QUIRE_INVALID, -1,
                     "%s: its vocabulary has %d tokens but the model's has %d: it belongs to another model",
                     o->tokenizer, (int)n_tokens, (int)n_vocab);
}

/* Opens the model's tokenizer. Without one (this build cannot use the vocabulary) the
 * engine accepts ids only. */
static quire_err open_own_tokenizer(engine_parts *p, const model_file *f, quire_error *err) {
    quire_err e = tokenizer_open(model_file_vocab(f), &p->tokenizer, &p->text_error);
    if (e != QUIRE_OK && e != QUIRE_NOT_FOUND && e != QUIRE_UNSUPPORTED) {
        return err_set(err, e, p->text_error.position, "%s", p->text_error.message);
    }
    if (e == QUIRE_UNSUPPORTED) {
        log_line(LOG_WARN, "%s; prompts must be token ids (--tokenizer gives another tokenizer)",
                 p->text_error.message);
    }
    return QUIRE_OK;
}

/* The file with the chat templates: that of o->tokenizer, if it has any, else the
 * model's. */
static const model_file *template_files(const engine_parts *p, const model_file *f) {
    return p->text_file != NULL && model_file_chat_template(p->text_file).n > 0 ? p->text_file : f;
}

/* Opens the templates other than the default one. A template that can't be parsed is left
 * out, with a warning. */
static quire_err engine_parts_add_templates(engine_parts *p, const model_file *f, quire_error *err) {
    for (size_t i = 0; i < model_file_n_templates(f); i++) {
        chat_source s;
        quire_error why = {0};
        model_file_template(f, i, &s.name, &s.text);
        quire_err e = chat_form_add(&p->chat, &s, &why);
        if (e == QUIRE_NO_MEMORY) {
            return err_set(err, e, -1, "%s", why.message);
        }
        if (e != QUIRE_OK) {
            log_line(LOG_WARN, "the model's chat template %.*s is not understood: %s", (int)s.name.n,
                     s.name.p, why.message);
        }
    }
    return QUIRE_OK;
}

/* Detects the formats of responses by marks in the default template and in that for
 * tools. Quire's own chat forms have no marks. */
static void engine_parts_find_formats(engine_parts *p, const quire_options *o, const model_file *f) {
    bool is_own = strcmp(p->chat.name, "model") == 0;
    str text = o->chat_template != NULL ? str_of(o->chat_template)
               : is_own                 ? model_file_chat_template(f)
                                        : (str){"", 0};
    p->formats = output_formats_of_template(text);
    for (size_t i = 0; i < model_file_n_templates(f) && o->chat_template == NULL; i++) {
        str name, source;
        model_file_template(f, i, &name, &source);
        if (str_is(name, "tool_use") && chat_form_find(&p->chat, name) != NULL) {
            const char *of_tools = output_formats_of_template(source).tools;
            p->formats.tools = of_tools != NULL ? of_tools : p->formats.tools;
        }
    }
}

/* Whether the template's output begins with this text, possibly after white space. */
static bool template_begins(const chat_template *template, str text) {
    static const char variables[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"add_generation_prompt\":true}";
    strbuf out = {0};
    size_t at = 0;
    bool ok = text.n > 0 && chat_template_render(template, str_of(variables), &out, NULL, NULL) == QUIRE_OK;
    while (ok && at < out.n && strchr(" \t\r\n", out.p[at]) != NULL && out.p[at] != '\0') {
        at++;
    }
    ok = ok && out.n - at >= text.n && memcmp(out.p + at, text.p, text.n) == 0;
    strbuf_deinit(&out);
    return ok;
}

/* Appends how chat prompts begin, "with BOS, <s>: the template writes it", found by
 * applying the form's first template to a user's message. QUIRE_NO_MEMORY. */
static quire_err chat_start_print(const chat_form *form, const tokenizer *t, strbuf *out) {
    int32_t start = tokenizer_start(t);
    str bos = start >= 0 ? tokenizer_piece(t, start) : tokenizer_bos_text(t);
    bool is_written = template_begins(form->template, bos);
    visible line = {0};
    if (!is_written && start < 0) {
        return strbuf_add_str(out, "without BOS: neither the template nor the tokenizer adds one");
    }
    TRY(strbuf_add_str(out, "with BOS, "));
    TRY(visible_add(&line, bos.p, bos.n < 64 ? bos.n : 64, out));
    TRY(visible_end(&line, out));
    return strbuf_add_str(out, is_written ? ": the template writes it"
                                          : ": the tokenizer adds it, since the template writes none");
}

/* Opens tokenizer and chat templates, and finds the formats of responses. */
static quire_err open_text(engine_parts *p, const quire_options *o, const model_file *f, int32_t n_vocab,
                           quire_error *err) {
    TRY(o->tokenizer != NULL ? open_other_tokenizer(p, o, n_vocab, err) : open_own_tokenizer(p, f, err));
    p->parses_messages = o->special_tokens_in_messages == QUIRE_MESSAGE_TOKENS_PARSE;
    TRY(options_formats(o, &(output_formats){0}, err)); /* checks the names even if there is no chat */
    chat_tokens tokens = {.tokenizer = p->tokenizer};
    if (p->tokenizer != NULL) {
        tokens.bos = tokenizer_bos_text(p->tokenizer);
        tokens.eos = tokenizer_eos_text(p->tokenizer);
    }
    if (p->tokenizer == NULL && !o->chat_template) {
        return QUIRE_OK;
    }
    quire_error refused;
    TRY(chat_form_open(o->chat_template, model_file_chat_template(template_files(p, f)), &tokens, &p->chat,
                       &refused, err));
    if (refused.code != QUIRE_OK) {
        log_line(LOG_WARN,
                 "the model's chat template is not understood (%s): chats use the form %s instead; "
                 "--chat-template sets another",
                 refused.message, p->chat.name);
    }
    if (o->chat_template == NULL) {
        TRY(engine_parts_add_templates(p, template_files(p, f), err));
    }
    if (p->tokenizer != NULL && chat_start_print(&p->chat, p->tokenizer, &p->chat_start) != QUIRE_OK) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory");
    }
    engine_parts_find_formats(p, o, template_files(p, f));
    return options_formats(o, &p->formats, err);
}

static quire_err write_shortage(const model_desc *d, const memory_room *room, strbuf *out) {
    TRY(strbuf_addf(out, "the weights take %s, more than ", memory_show(d->weight_bytes).text));
    TRY(memory_room_explain(room, out));
    return strbuf_addf(out, ": the system may end the process%s",
                       d->is_packed ? ", or read them from the file repeatedly" : "");
}

/* Warns if the weights exceed the memory, since the system may kill the process during
 * loading without a message. With a limit of the process itself, a call fails instead. */
static void warn_of_weights(const model_desc *d) {
    memory_room room;
    strbuf text = {0};
    memory_room_read("", 0, &room);
    bool is_outside = room.bound == MEMORY_OF_MACHINE || room.bound == MEMORY_OF_CGROUP;
    if (is_outside && d->weight_bytes > room.bytes && write_shortage(d, &room, &text) == QUIRE_OK) {
        log_line(LOG_WARN, "%s", text.p);
    }
    strbuf_deinit(&text);
}

/* Logs which tensors of the file the engine does not use. */
static void name_left_out(const model_desc *d) {
    if (d->n_left_out > 0) {
        log_line(LOG_INFO,
                 "%d tensors (%.1f MB) are not part of the text model and are skipped%s%s; next-token layers "
                 "among them: %d",
                 (int)d->n_left_out, (double)d->left_out_bytes / 1e6, d->left_out_names[0] ? ": " : "",
                 d->left_out_names, (int)d->n_next_token_layers);
    }
}

/* Adds to the model's end tokens those that the vocabulary suggests. */
static quire_err complete_ends(engine_parts *p, model_desc *d, quire_error *err) {
    const model_file *f = p->text_file != NULL ? p->text_file : p->pack.file;
    answer_ends ends = answer_ends_find(model_file_vocab(f), p->tokenizer, d);
    answer_ends_apply(&ends, d);
    model_set_ends(p->model.m, d->eos, d->n_eos);
    return answer_ends_print(&ends, &p->end_tokens) == QUIRE_OK
               ? QUIRE_OK
               : err_set(err, QUIRE_NO_MEMORY, -1, "out of memory");
}

/* Whether p's model shares its memory with other models. */
static bool shares_memory(const engine_parts *p) {
    return p->memory != NULL && p->memory->n_models > 1;
}

/* Subtracts `bytes` of weights and buffers of a further model from the shared memory. */
static quire_err engine_parts_take(engine_parts *p, int64_t bytes, quire_error *err) {
    const kv_budget_counts all = kv_budget_count(p->memory->budget);
    p->fixed_bytes = model_memory_fixed(p->memory, bytes);
    return p->fixed_bytes <= all.bytes - all.promised_bytes
               ? QUIRE_OK
               : err_set(err, QUIRE_NO_MEMORY, -1,
                         "%lld bytes of weights and buffers take %lld of the %lld bytes that the models "
                         "share, of which other models have %lld",
                         (long long)bytes, (long long)p->fixed_bytes, (long long)all.bytes,
                         (long long)all.promised_bytes);
}

/* Subtracts a further model's weights before they are loaded, by the size of their files;
 * of mapped files, only the part that stays in memory. */
static quire_err engine_parts_take_weights(engine_parts *p, const model_desc *d, quire_error *err) {
    memory_room room;
    memory_room_read("", 0, &room);
    return engine_parts_take(p, d->is_packed ? pool_plan_kept(&room, d->weight_bytes) : d->weight_bytes, err);
}

/* Opens tokenizer and template and, if check passes, loads the weights, from the model's
 * own files or their packed form. The weights come last because they take longest. */
static quire_err engine_parts_open_model(engine_parts *p, const quire_options *o,
                                         const engine_parts_check *check, model_file *f, int32_t *max_len,
                                         quire_error *err) {
    model_desc d;
    TRY(model_describe(f, &d, err));
    TRY(options_max_model_len(o, &d, max_len, err));
    if (p->memory != NULL) {
        TRY(engine_parts_take_weights(p, &d, err));
    }
    warn_of_weights(&d);
    name_left_out(&d);
    TRY(loaded_model_begin(o, &d, &p->model, err));
    pack_start_find(o, f, &d, p->model.b, &p->pack);
    int64_t began_us = clock_us();
    TRY(open_text(p, o, p->pack.file, d.n_vocab, err));
    if (check->run) {
        TRY(check->run(check->context, p, &d, *max_len, err));
    }
    TRY(loaded_model_load(&p->model, o, p->pack.file, p->pack.image, *max_len, err));
    pack_start_loaded(&p->pack, clock_us() - began_us, o->pack_cache_least_us);
    TRY(complete_ends(p, &d, err));
    /* hashes the source files: the version is the same with a packed form */
    if (options_tiers_last(o)) {
        tier_version(f, model_description(p->model.m), d.quantise_to, p->model.b, &p->model.layout, *max_len,
                     p->tier_version);
    }
    return QUIRE_OK;
}

/* Reads the sampling defaults from o->generation_config; f: the model's file. */
static quire_err read_defaults(engine_parts *p, const quire_options *o, const model_file *f,
                               quire_error *err) {
    const char *from = o->generation_config;
    if (strcmp(from, "none") == 0 || strcmp(from, "vllm") == 0) { /* "vllm" is vLLM's word for none */
        return QUIRE_OK;
    }
    return strcmp(from, "auto") == 0 ? sampling_defaults_of_model(f, &p->defaults, err)
                                     : sampling_defaults_read(from, &p->defaults, err);
}

/* Adds the draft model, if there is one, to the plan. Returns the bytes of its buffers
 * and mapped weights that are still to be allocated. */
static int64_t add_draft(const speculation *s, pool_plan *plan) {
    const backend *b = s->model.b;
    if (b == NULL) {
        return 0;
    }
    const int64_t weights = b->ops->weight_bytes(b), buffers = b->ops->step_bytes(b);
    plan->has_draft = true;
    plan->draft_bytes = weights + buffers;
    return buffers + (model_description(s->model.m)->is_packed ? weights : 0);
}

/* The plan of the pages, after weights and buffers were allocated. */
static pool_plan engine_parts_plan(const engine_parts *p, const quire_options *o) {
    const backend *b = p->model.b;
    pool_plan plan = pool_plan_of(o);
    pool_plan_encoder(&plan, o, model_description(p->model.m), o->max_batched_tokens);
    plan.weight_bytes = b->ops->weight_bytes(b);
    plan.buffer_bytes = b->ops->step_bytes(b);
    int64_t pending = plan.buffer_bytes + add_draft(&p->speculation, &plan);
    bool is_mapped = model_description(p->model.m)->is_packed;
    memory_room_read("", pending, &plan.room);
    int64_t kept = is_mapped ? pool_plan_kept(&plan.room, plan.weight_bytes) : 0;
    plan.dropped_bytes = is_mapped ? plan.weight_bytes - kept : 0;
    memory_room_read("", kept + pending, &plan.room);
    return plan;
}

static quire_err explain_share(const model_memory *m, int64_t sure_bytes, strbuf *out) {
    return strbuf_addf(out, "of %s, which up to %d models share, this one can always have %s",
                       memory_show(kv_budget_count(m->budget).bytes).text, (int)m->n_models,
                       memory_show(sure_bytes).text);
}

/* Plans the pages of one of several models. The first opens the memory that they
 * share. */
static quire_err plan_share(engine_parts *p, const quire_options *o, const pool_plan *plan,
                            const kv_most *most, int32_t least_tokens, int32_t *n_pages, quire_error *err) {
    const kv_layout *l = &p->model.layout;
    bool is_first = p->memory == NULL;
    if (is_first) {
        int64_t bytes = pool_plan_bytes(plan, l->page_bytes);
        bool is_known = bytes >= 0;
        if (!is_known || model_memory_open(plan, bytes, o->n_beside + 1, &p->memory) != QUIRE_OK) {
            return err_set(
                err, is_known ? QUIRE_NO_MEMORY : QUIRE_INVALID, -1, "%s",
                is_known
                    ? "no memory is left for KV pages: free some, or raise --models-memory-bytes if it is set"
                    : "the amount of free memory is unknown; give --kv-pages N");
        }
    } else if (plan->room.bytes == 0) {
        return err_set(err, QUIRE_NO_MEMORY, -1,
                       "the model's weights and buffers leave no memory for KV pages");
    } else {
        TRY(engine_parts_take(p, plan->weight_bytes - plan->dropped_bytes + plan->buffer_bytes, err));
        strbuf_clear(&p->pool_plan); /* does not apply: the first model's plan decides */
    }
    TRY(model_memory_share(p->memory, plan, l, most, least_tokens, n_pages, &p->sure_pages, err));
    if (is_first) {
        TRY(err_set(err, strbuf_add_str(&p->pool_plan, "; "), -1, "out of memory"));
    }
    return err_set(err, explain_share(p->memory, p->sure_pages * l->page_bytes, &p->pool_plan), -1,
                   "out of memory");
}

/* Plans the number of pages and explains it in p->pool_plan. *exceeds: the pages may
 * exceed the available memory. */
static quire_err plan_pages(engine_parts *p, const quire_options *o, const kv_most *most,
                            int32_t least_tokens, int32_t *n_pages, bool *exceeds, quire_error *err) {
    pool_plan plan = engine_parts_plan(p, o);
    if (pool_plan_explain(&plan, &p->pool_plan) != QUIRE_OK) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory");
    }
    p->rule_bytes = pool_plan_rules(&plan);
    bool is_first = p->memory == NULL;
    TRY(shares_memory(p) || o->n_beside > 0
            ? plan_share(p, o, &plan, most, least_tokens, n_pages, err)
            : pool_plan_resolve(&plan, &p->model.layout, most, least_tokens, n_pages, err));
    *exceeds = is_first && plan.room.bytes >= 0 && *n_pages * p->model.layout.page_bytes > plan.room.bytes;
    return QUIRE_OK;
}

/* Opens as many pages as fit. Without --max-model-len, *max_len is lowered to what the
 * pool holds or, beside other models, to what is guaranteed. */
static quire_err engine_parts_open_pages(engine_parts *p, const quire_options *o, int32_t *max_len,
                                         quire_error *err) {
    backend *b = p->model.b;
    const kv_layout *layout = &p->model.layout;
    step_limits limits = {.max_rows = o->max_batched_tokens,
                          .max_seqs = o->max_seqs,
                          .max_out = draft_max_out(&p->speculation.draft, o->max_seqs, o->max_batched_tokens),
                          .max_adapters = options_have_adapters(o) ? o->max_loras : 0,
                          .max_rank = options_have_adapters(o) ? options_batch_rank(o) : 0};
    desc_heads(model_description(p->model.m), &limits.fewest_heads, &limits.most_heads);
    TRY(b->ops->step_open(b, &limits, layout, model_description(p->model.m)->n_vocab, err));
    bool is_long = o->max_model_len > 0 && !model_description(p->model.m)->two_sided;
    int32_t n_pages, least = is_long ? *max_len : 2;
    bool exceeds = false;
    kv_most most = options_most_pages(o, model_description(p->model.m), layout, o->max_batched_tokens);
    TRY(plan_pages(p, o, &most, least, &n_pages, &exceeds, err));
    int64_t holds = kv_most_tokens(&most, p->sure_pages > 0 ? p->sure_pages : n_pages);
    /* an encoder's inputs are limited by max_batched_tokens, and the error says so */
    bool is_encoder = model_description(p->model.m)->two_sided;
    *max_len =
        holds < *max_len && !(is_encoder && holds >= o->max_batched_tokens) ? (int32_t)holds : *max_len;
    TRY(b->ops->kv_open(b, n_pages, err));
    if (exceeds) {
        log_line(LOG_WARN,
                 "the KV pages take %.1f MB once all are used, more than there is (%s): the system may end "
                 "the process then",
                 (double)n_pages * (double)layout->page_bytes / 1e6, p->pool_plan.p);
    }
    p->info.n_pages = n_pages;
    p->info.n_full_requests = n_pages / kv_most_pages(&most, *max_len < holds ? *max_len : holds);
    return QUIRE_OK;
}

/* ---- public prefixes, and the engine ---- */

typedef struct prefix_list {
    token_list *ids;     /* [n] mem_new'd: the ids of each prefix */
    engine_prefix *list; /* [n] the same prefixes, for engine_options */
    int32_t n;
} prefix_list;

/* Appends the ids of one prefix to *out, which is empty. */
static quire_err engine_parts_read_ids(const quire_prefix *p, const tokenizer *t, token_list *out,
                                       quire_error *err) {
    if (!p->ids) {
        if (!t) {
            return err_set(
                err, QUIRE_UNSUPPORTED, -1,
                "this model has no vocabulary that this build can use; give the public prefix as token ids");
        }
        return tokenizer_encode(t, (str){p->text, p->n_text},
                                (encode_options){.special = ENCODE_PARSE, .add_special = true}, out, err);
    }
    return err_set(err, token_list_add_all(out, p->ids, p->n_ids), -1, "out of memory for a public prefix");
}

static quire_err check_ids(const token_list *l, int32_t page_tokens, int32_t n_vocab, quire_error *err) {
    if (l->n < (size_t)page_tokens || l->n > INT32_MAX) {
        return err_set(
            err, QUIRE_INVALID, -1,
            "the public prefix has %zu tokens; it must have at least %d, because only whole pages are shared",
            l->n, (int)page_tokens);
    }
    for (size_t i = 0; i < l->n; i++) {
        if (l->ids[i] < 0 || l->ids[i] >= n_vocab) {
            return err_set(err, QUIRE_INVALID, -1,
                           "the public prefix has token id %d; the vocabulary has %d ids", (int)l->ids[i],
                           (int)n_vocab);
        }
    }
    return QUIRE_OK;
}

/* Tokenises and checks the public prefixes. QUIRE_UNSUPPORTED: a prefix is a text and t
 * is NULL. Free *out with free_prefixes, also after a failure. */
static quire_err read_prefixes(const quire_options *o, const tokenizer *t, int32_t n_vocab, prefix_list *out,
                               quire_error *err) {
    *out = (prefix_list){0};
    if (o->n_public_prefixes == 0) {
        return QUIRE_OK;
    }
    out->ids = mem_new((size_t)o->n_public_prefixes, sizeof *out->ids);
    out->list = mem_new((size_t)o->n_public_prefixes, sizeof *out->list);
    if (!out->ids || !out->list) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for public prefixes");
    }
    for (int32_t i = 0; i < o->n_public_prefixes; i++) {
        token_list *ids = &out->ids[out->n++];
        TRY(engine_parts_read_ids(&o->public_prefixes[i], t, ids, err));
        TRY(check_ids(ids, o->page_tokens, n_vocab, err));
        out->list[i] = (engine_prefix){ids->ids, (int32_t)ids->n};
    }
    return QUIRE_OK;
}

static void free_prefixes(prefix_list *l) {
    for (int32_t i = 0; i < l->n; i++) {
        token_list_deinit(&l->ids[i]);
    }
    mem_free(l->ids);
    mem_free(l->list);
    *l = (prefix_list){0};
}

static quire_err open_core(engine_parts *p, const quire_options *o, const engine_ablations *ablations,
                           const engine_parts *beside, int32_t max_len, quire_error *err) {
    int32_t max_requests = o->max_seqs * REQUESTS_A_SEQ;
    engine_options eo;
    TRY(options_engine(o, &eo, err));
    eo.team = beside != NULL ? engine_team_of(beside->core) : NULL;
    eo.n_pages = p->info.n_pages;
    eo.budget = p->memory != NULL ? p->memory->budget : NULL;
    eo.floor_pages = p->sure_pages;
    eo.fixed_bytes = p->fixed_bytes;
    eo.max_model_len = max_len;
    eo.ablations = *ablations;
    eo.ablations.no_jump_forward = eo.ablations.no_jump_forward || o->jump_forward == QUIRE_JUMP_FORWARD_OFF;
    eo.tiers.version = p->tier_version;
    eo.draft = p->speculation.draft;
    eo.max_requests = max_requests > MIN_REQUESTS ? max_requests : MIN_REQUESTS;
    prefix_list prefixes = {0};
    quire_err r = read_prefixes(o, p->tokenizer, model_description(p->model.m)->n_vocab, &prefixes, err);
    if (r == QUIRE_OK) {
        eo.prefixes = prefixes.list;
        eo.n_prefixes = prefixes.n;
        r = engine_open(p->model.m, p->model.b, &p->model.layout, &eo, &p->core, err);
    }
    free_prefixes(&prefixes);
    return r;
}

static void fill_rows(engine_parts *p) {
    const model_desc *d = model_description(p->model.m);
    p->row_info = (quire_row_info){.size = sizeof p->row_info,
                                   .n_row = desc_pooled_width(d),
                                   .n_scores = d->pooling.n_scores,
                                   .scores_are_logits = d->pooling.n_scores > 0 && !p->rows.names_function,
                                   .is_matryoshka = p->rows.is_matryoshka,
                                   .widths = p->rows.widths,
                                   .n_widths = p->rows.n_widths};
}

static void fill_info(engine_parts *p, const quire_options *o, int32_t max_len) {
    const model_desc *d = model_description(p->model.m);
    const backend *b = p->model.b;
    quire_info *i = &p->info;
    i->model_path = p->model_path;
    i->architecture = d->architecture;
    i->model_name = d->name;
    i->compute = compute_name(b->compute);
    i->kv_dtype = p->model.layout.type_name;
    i->backend = b->ops->describe(b);
    i->n_layers = d->n_layers;
    i->d_model = d->d_model;
    const layer_desc *l = desc_attention_layer(d);
    if (l != NULL) {
        i->n_heads = l->n_heads;
        i->n_kv_heads = d->caches[l->caches[0]].n_kv_heads;
        i->d_head = d->caches[l->caches[0]].d_key;
    }
    i->d_ff = desc_widest_ff(d);
    i->n_vocab = d->n_vocab;
    i->max_model_len = max_len;
    i->page_tokens = o->page_tokens;
    i->max_batched_tokens = o->max_batched_tokens;
    i->max_seqs = o->max_seqs;
    i->n_threads = b->ops->n_workers(b);
    i->n_params = d->n_params;
    i->weight_bytes = b->ops->weight_bytes(b);
    i->page_bytes = p->model.layout.page_bytes;
    i->token_bytes = kv_layout_token_bytes(&p->model.layout);
    i->buffer_bytes = b->ops->step_bytes(b);
    i->bos = d->bos;
    i->eos = d->n_eos > 0 ? d->eos[0] : -1;
    i->has_vocabulary = p->tokenizer != NULL;
    i->has_chat_template = p->tokenizer != NULL;
    i->chat_form = i->has_chat_template ? p->chat.name : NULL;
    i->tool_format = i->has_chat_template ? p->formats.tools : NULL;
    i->reasoning_format = i->has_chat_template ? p->formats.reasoning : NULL;
    i->caches_prefixes = o->prefix_cache != QUIRE_PREFIX_CACHE_NONE;
    i->n_page_groups = p->model.layout.n_groups;
    i->max_answer_bytes = (size_t)o->max_answer_bytes;
    i->pool_plan = p->pool_plan.p;
    i->model_max_len = d->max_positions;
    i->chat_start = i->has_chat_template ? p->chat_start.p : NULL;
    i->end_tokens = p->tokenizer != NULL && desc_gives_tokens(d) ? p->end_tokens.p : NULL;
}

/* Opens the draft model's pages, if any, in the memory planned for the model's pages. */
static quire_err open_draft_pages(engine_parts *p, const quire_options *o, int32_t max_len,
                                  quire_error *err) {
    const kv_layout *l = &p->model.layout;
    int64_t n_tokens = (int64_t)(p->info.n_pages / l->n_groups) * o->page_tokens;
    if (p->speculation.draft.method != DRAFT_METHOD_MODEL) {
        return QUIRE_OK;
    }
    if (p->memory == NULL &&
        model_memory_open(&(pool_plan){0}, p->info.n_pages * l->page_bytes, 1, &p->memory) != QUIRE_OK) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory");
    }
    return speculation_open_pages(&p->speculation, o, n_tokens, max_len, p->memory->budget, err);
}

/* A call of engine_parts_open_model on a thread of low priority. */
typedef struct background_load {
    engine_parts *p;
    const quire_options *o;
    const engine_parts_check *check;
    model_file *f;
    int32_t *max_len;
    quire_error *err;
    quire_err result;
} background_load;

static void load_in_background(void *context) {
    background_load *l = context;
    l->result = engine_parts_open_model(l->p, l->o, l->check, l->f, l->max_len, l->err);
}

/* Loads the model; at low priority if `beside` is a running one. */
static quire_err load_beside(engine_parts *p, const quire_options *o, const engine_parts_check *check,
                             const engine_parts *beside, model_file *f, int32_t *max_len, quire_error *err) {
    if (beside == NULL) {
        return engine_parts_open_model(p, o, check, f, max_len, err);
    }
    background_load l = {p, o, check, f, max_len, err, QUIRE_OK};
    if (!thread_run_low(load_in_background, &l)) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "a thread to load the model could not be started");
    }
    TRY(l.result);
    p->model.b->ops->share_threads(p->model.b, beside->model.b);
    return QUIRE_OK;
}

static quire_err load_file(engine_parts *p, const quire_options *o, const engine_parts_check *check,
                           const engine_parts *beside, model_file *f, int32_t *max_len, quire_error *err) {
    TRY(read_defaults(p, o, f, err));
    TRY(row_facts_read(f, &p->rows, err));
    return load_beside(p, o, check, beside, f, max_len, err);
}

quire_err engine_parts_open(const quire_options *options, const engine_ablations *ablations,
                            const engine_parts_check *check, const engine_parts *beside, engine_parts *p,
                            quire_error *err) {
    assert(options != NULL);
    quire_options own = *options, *o = &own;
    model_file *f = NULL;
    int32_t max_len = 0;
    *p = (engine_parts){0};
    if (beside != NULL && shares_memory(beside)) {
        p->memory = model_memory_hold(beside->memory);
    }
    TRY(speculation_read(o, &p->speculation, err));
    p->model_path = mem_dup(o->model, strlen(o->model));
    TRY(err_set(err, mem_check(p->model_path), -1, "out of memory"));
    TRY(options_open_file(o, &f, err));
    quire_err r = load_file(p, o, check, beside, f, &max_len, err);
    model_file_close(f);
    TRY(r);
    own.max_batched_tokens = options_max_rows(o, max_len);
    TRY(speculation_load(&p->speculation, o, max_len, p->model.b, err));
    TRY(engine_parts_open_pages(p, o, &max_len, err));
    TRY(open_draft_pages(p, o, max_len, err));
    TRY(engine_adapters_open(p->model.m, p->model.b, p->tokenizer, o, &p->adapters, err));
    p->max_adapters = options_have_adapters(o) ? o->max_loras : 0;
    TRY(open_core(p, o, ablations, beside, max_len, err));
    fill_info(p, o, max_len);
    fill_rows(p);
    pack_start_keep(&p->pack, p->text_file != NULL ? NULL : p->tokenizer);
    return QUIRE_OK;
}

void engine_parts_explain_memory(const engine_parts *p, quire_error *err) {
    if (err == NULL) {
        return;
    }
    strbuf room = {0};
    quire_error first = *err;
    bool is_planned = p->pool_plan.n > 0;
    if (!is_planned) {
        memory_room now;
        memory_room_read("", 0, &now);
        (void)memory_room_explain(&now, &room);
    }
    const char *text = is_planned ? p->pool_plan.p : room.p;
    if (text != NULL) {
        err_set(err, first.code, first.position, "%s (%s: %s)", first.message,
                is_planned ? "the pool" : "memory", text);
    }
    strbuf_deinit(&room);
}

void engine_parts_close(engine_parts *p) {
    engine_close(p->core);
    engine_adapters_close(&p->adapters);
    pack_start_close(&p->pack);
    chat_form_close(&p->chat);
    tokenizer_close(p->tokenizer);
    model_file_close(p->text_file);
    loaded_model_close(&p->model);
    speculation_close(&p->speculation);
    model_memory_drop(p->memory);
    sampling_defaults_deinit(&p->defaults);
    mem_free(p->model_path);
    strbuf_deinit(&p->pool_plan);
    strbuf_deinit(&p->chat_start);
    strbuf_deinit(&p->end_tokens);
    *p = (engine_parts){0};
}
