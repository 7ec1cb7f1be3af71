#include "setup/engine_config.h"

#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "chat/output_format.h"
#include "setup/pool_plan.h"

#define LEAST_SIZE (offsetof(quire_options, model) + sizeof(const char *)) /* a caller's quire_options has a model at least */
#define MAX_SIZE   4096                                                    /* a larger size is invalid */

static const quire_options defaults = {.size = sizeof(quire_options),
                                       .model = "builtin",
                                       .compute = "auto",
                                       .special_tokens_in_messages = "plain",
                                       .tool_call_parser = "auto",
                                       .reasoning_parser = "auto",
                                       .json_additional_properties = "closed",
                                       .json_whitespace = "lines",
                                       .kv_dtype = "auto",
                                       .prefix_cache = "token",
                                       .eviction_policy = "lru",
                                       .schedule = "auto",
                                       .schedule_lambda = ADMISSION_LAMBDA,
                                       .step_target_us = 100000,
                                       .isa = "auto",
                                       .cpu_bind = "none",
                                       .page_tokens = 16,
                                       .memory_utilization = POOL_UTILIZATION,
                                       .max_batched_tokens = 512,
                                       .max_seqs = 64,
                                       .tier_file_bytes = (int64_t)16 << 30,
                                       .tier_redis_bytes = (int64_t)4 << 30,
                                       .preemption_mode = "auto",
                                       .tier_write = "evict",
                                       .tier_wait_us = 200000,
                                       .text_cache_bytes = (int64_t)64 << 20,
                                       .rule_bytes = (int64_t)256 << 20,
                                       .generation_config = "auto",
                                       .max_logprobs = 20,
                                       .max_tool_calls = 16,
                                       .pack_cache_bytes = (int64_t)20 << 30,
                                       .pack_cache_least_us = 150000,
                                       .jump_forward = "on"};

void quire_options_init_sized(quire_options *o, size_t size) {
    if (size < sizeof o->size) {
        return; /* no room for any member: reading it fails */
    }
    memset(o, 0, size);
    memcpy(o, &defaults, size < sizeof defaults ? size : sizeof defaults);
    o->size = size;
}

/* Reads the text of a flag as the index of one of names[0..n); INVALID lists `all`. */
static quire_err read_name(const char *flag, const char *text, const char *const *names, int n, const char *all, int *out,
                           quire_error *err) {
    for (int i = 0; i < n; i++) {
        if (names[i] != NULL && strcmp(text, names[i]) == 0) {
            *out = i;
            return QUIRE_OK;
        }
    }
    return err_set(err, QUIRE_INVALID, -1, "%s %s: must be %s", flag, text, all);
}

quire_err options_open_file(const quire_options *o, model_file **out, quire_error *err) {
    size_t n = 0;
    const void *bytes = options_builtin_model(o->model, &n);
    const model_overrides set = {.hf = o->hf_overrides, .kv = o->override_kv, .quantise = o->quantization};
    return bytes ? model_file_open_memory_with(bytes, n, o->model, &set, out, err) : model_file_open_with(o->model, &set, out, err);
}

quire_err options_compute(const quire_options *o, const model_desc *d, compute_mode *out, quire_error *err) {
    bool is_auto = strcmp(o->compute, "auto") == 0;
    if (d->is_packed && (is_auto || strcmp(o->compute, compute_name(d->packed_compute)) == 0)) {
        *out = d->packed_compute;
        return QUIRE_OK;
    }
    if (d->is_packed) {
        return err_set(err, QUIRE_INVALID, -1,
                       "--compute %s: the model is packed for %s; pack it again with this --compute, or leave the flag out", o->compute,
                       compute_name(d->packed_compute));
    }
    if (is_auto) {
        *out = d->auto_compute;
        return QUIRE_OK;
    }
    const char *const names[] = {compute_name(COMPUTE_F32), compute_name(COMPUTE_BF16), compute_name(COMPUTE_INT8),
                                 compute_name(COMPUTE_FP8)};
    int mode = 0;
    TRY(read_name("--compute", o->compute, names, 4, "auto, f32, bf16, int8 or fp8", &mode, err));
    *out = (compute_mode)(COMPUTE_F32 + mode);
    if (d->quantise_to == DTYPE_I8 && *out != COMPUTE_INT8) {
        return err_set(err, QUIRE_INVALID, -1, "--compute %s: --quantization int8 is computed in int8; leave one of them out", o->compute);
    }
    return QUIRE_OK;
}

/* The type that a flag names; automatic: of "auto". */
static quire_err read_kv_type(const char *flag, const char *name, dtype automatic, dtype *out, quire_error *err) {
    static const char *const names[] = {"auto", "f32", "f16", "bf16", "fp8_e4m3", "int8", "int4"};
    const dtype types[] = {automatic, DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_F8_E4M3, DTYPE_I8, DTYPE_I4};
    int i = 0;
    TRY(read_name(flag, name, names, 7, "auto, f32, f16, bf16, fp8_e4m3, int8 or int4", &i, err));
    *out = types[i];
    return QUIRE_OK;
}

quire_err options_kv_types(const quire_options *o, const model_desc *d, compute_mode compute, kv_types *out, quire_error *err) {
    const dtype automatic = d->has_fp8_kv ? DTYPE_F8_E4M3 : compute == COMPUTE_F32 || compute == COMPUTE_FP8 ? DTYPE_F32 : DTYPE_BF16;
    TRY(read_kv_type("--kv-dtype", o->kv_dtype, automatic, &out->key, err));
    out->value = out->key;
    return o->kv_dtype_values == NULL ? QUIRE_OK : read_kv_type("--cache-type-v", o->kv_dtype_values, automatic, &out->value, err);
}

quire_err options_max_model_len(const quire_options *o, const model_desc *d, int32_t *out, quire_error *err) {
    if (o->max_model_len == 0) {
        *out = d->max_positions;
        return QUIRE_OK;
    }
    if (o->max_model_len < 2) {
        return err_set(err, QUIRE_INVALID, -1, "--max-model-len %d: must be at least 2", (int)o->max_model_len);
    }
    if (o->max_model_len > d->max_positions && d->blocks.positions) {
        return err_set(err, QUIRE_INVALID, -1, "--max-model-len %d: the model was made for %d tokens", (int)o->max_model_len,
                       (int)d->max_positions);
    }
    if (o->max_model_len > d->max_positions && !desc_scales_by_length(d)) {
        log_line(LOG_WARN, "--max-model-len %d: the model was made for %d tokens, and what it says behind them may be poor",
                 (int)o->max_model_len, (int)d->max_positions);
    }
    *out = o->max_model_len;
    return QUIRE_OK;
}

int32_t options_max_rows(const quire_options *o, int32_t max_model_len) {
    int64_t rows = o->no_chunked_prefill ? (int64_t)max_model_len + o->max_seqs : 0;
    return rows <= o->max_batched_tokens ? o->max_batched_tokens : rows < INT32_MAX ? (int32_t)rows : INT32_MAX;
}

kv_most options_most_pages(const quire_options *o, const model_desc *d, const kv_layout *l, int32_t max_rows) {
    const engine_options eo = {
        .max_batched_tokens = max_rows, .prefill_chunk = o->prefill_chunk, .no_chunked_prefill = o->no_chunked_prefill};
    return kv_most_of_layout(l, engine_most_rows(&eo, d));
}

quire_err options_no_jump_forward(const quire_options *o, bool *out, quire_error *err) {
    static const char *const names[] = {"on", "off"};
    int i = 0;
    TRY(read_name("--jump-forward", o->jump_forward, names, 2, "on or off", &i, err));
    *out = i == 1;
    return QUIRE_OK;
}

quire_err options_parse_messages(const quire_options *o, bool *out, quire_error *err) {
    static const char *const names[] = {"plain", "parse"};
    int i = 0;
    TRY(read_name("--special-tokens-in-messages", o->special_tokens_in_messages, names, 2, "plain or parse", &i, err));
    *out = i == 1;
    return QUIRE_OK;
}

bool options_open_objects(const quire_options *o) {
    return strcmp(o->json_additional_properties, "schema") == 0;
}

/* Appends the names of all rows of a table of formats. */
static quire_err list_formats(bool calls, strbuf *out) {
    for (size_t i = 0;; i++) {
        const call_format *c = calls ? call_format_at(i) : NULL;
        const reasoning_format *r = calls ? NULL : reasoning_format_at(i);
        if (c == NULL && r == NULL) {
            return QUIRE_OK;
        }
        TRY(strbuf_addf(out, ",%s", c != NULL ? c->name : r->name));
    }
}

/* Reads the name of a format: *out is as the template has it for "auto", NULL for "none". */
static quire_err read_format(const char *flag, const char *given, bool calls, const char **out, quire_error *err) {
    const call_format *c = calls ? call_format_named(given) : NULL;
    const reasoning_format *r = calls ? NULL : reasoning_format_named(given);
    if (strcmp(given, "auto") == 0) {
        return QUIRE_OK;
    }
    *out = c != NULL ? c->name : r != NULL ? r->name : NULL;
    if (*out != NULL || strcmp(given, "none") == 0) {
        return QUIRE_OK;
    }
    strbuf names = {0};
    quire_err e = list_formats(calls, &names);
    e = e != QUIRE_OK ? err_set(err, e, -1, "out of memory")
                      : err_set(err, QUIRE_INVALID, -1, "%s %.20s: there are auto,none%s", flag, given, names.p);
    strbuf_deinit(&names);
    return e;
}

quire_err options_formats(const quire_options *o, output_formats *out, quire_error *err) {
    TRY(read_format("--tool-call-parser", o->tool_call_parser, true, &out->tools, err));
    return read_format("--reasoning-parser", o->reasoning_parser, false, &out->reasoning, err);
}

quire_err options_engine(const quire_options *o, engine_options *out, quire_error *err) {
    static const char *const schedules[] = {[ADMISSION_FCFS] = "fcfs",
                                            [ADMISSION_PRIORITY] = "priority",
                                            [ADMISSION_PREFIX] = "prefix",
                                            [ADMISSION_FAIR] = "fair",
                                            [ADMISSION_FAIR + 1] = "auto"};
    static const char *const preempts[] = {[PREEMPT_AUTO] = "auto", [PREEMPT_RECOMPUTE] = "recompute", [PREEMPT_SWAP] = "swap"};
    static const char *const caches[] = {[PREFIX_CACHE_NONE] = "none", [PREFIX_CACHE_PAGE] = "page", [PREFIX_CACHE_TOKEN] = "token"};
    int schedule = 0, preempt = 0, cache = 0;
    TRY(read_name("--schedule", o->schedule, schedules, 5, "auto, fcfs, priority, prefix or fair", &schedule, err));
    schedule = schedule > ADMISSION_FAIR ? ADMISSION_FCFS : schedule; /* auto: here no keys tell tenants apart */
    TRY(read_name("--preemption-mode", o->preemption_mode, preempts, 3, "auto, recompute or swap", &preempt, err));
    if (preempt == PREEMPT_SWAP && o->swap_bytes == 0) {
        return err_set(err, QUIRE_INVALID, -1, "--preemption-mode swap: there is nowhere to swap to; give --swap-space too");
    }
    TRY(read_name("--prefix-cache", o->prefix_cache, caches, 3, "none, page or token", &cache, err));
    *out = (engine_options){.page_tokens = o->page_tokens,
                            .n_pages = o->n_pages,
                            .max_model_len = o->max_model_len,
                            .max_batched_tokens = o->max_batched_tokens,
                            .max_seqs = o->max_seqs,
                            .prefill_chunk = o->prefill_chunk,
                            .no_chunked_prefill = o->no_chunked_prefill,
                            .no_cascade = o->no_cascade,
                            .prefix_cache = (prefix_cache)cache,
                            .schedule = (admission_policy)schedule,
                            .schedule_lambda = o->schedule_lambda,
                            .preempt = (preempt_mode)preempt,
                            .step_target_us = o->step_target_us,
                            .swap_bytes = o->swap_bytes,
                            .audit_path = o->audit,
                            .tiers = {.host_bytes = o->tier_host_bytes,
                                      .file_path = o->tier_file,
                                      .file_bytes = o->tier_file_bytes,
                                      .redis_url = o->tier_redis,
                                      .redis_bytes = o->tier_redis_bytes,
                                      .write = strcmp(o->tier_write, "through") == 0 ? TIER_WRITE_THROUGH : TIER_WRITE_EVICT,
                                      .wait_us = o->tier_wait_us}};
    if (kv_policy_parse(o->eviction_policy, &out->eviction) != QUIRE_OK) {
        return err_set(err, QUIRE_INVALID, -1, "--eviction-policy %s: must be one of %s", o->eviction_policy, kv_policy_names);
    }
    return QUIRE_OK;
}

static quire_err check_range(const char *flag, int64_t v, int64_t least, int64_t most, quire_error *err) {
    if (v >= least && v <= most) {
        return QUIRE_OK;
    }
    if (most == INT64_MAX) {
        return err_set(err, QUIRE_INVALID, -1, "%s %lld: must be at least %lld", flag, (long long)v, (long long)least);
    }
    return err_set(err, QUIRE_INVALID, -1, "%s %lld: must be from %lld to %lld", flag, (long long)v, (long long)least, (long long)most);
}

bool options_tiers_last(const quire_options *o) {
    return o->tier_file != NULL || o->tier_redis != NULL;
}

static quire_err check_tiers(const quire_options *o, quire_error *err) {
    TRY(check_range("--swap-space", o->swap_bytes, 0, INT64_MAX, err));
    TRY(check_range("--kv-tier-host-bytes", o->tier_host_bytes, 0, INT64_MAX, err));
    TRY(check_range("--kv-tier-file-bytes", o->tier_file_bytes, 0, INT64_MAX, err));
    TRY(check_range("--kv-tier-redis-bytes", o->tier_redis_bytes, 0, INT64_MAX, err));
    TRY(check_range("--kv-tier-wait", o->tier_wait_us, 0, INT64_MAX / 2, err));
    if (strcmp(o->tier_write, "evict") != 0 && strcmp(o->tier_write, "through") != 0) {
        return err_set(err, QUIRE_INVALID, -1, "--kv-tier-write %s: must be evict or through", o->tier_write);
    }
    if ((o->tier_host_bytes > 0 || options_tiers_last(o)) && strcmp(o->prefix_cache, "none") == 0) {
        return err_set(err, QUIRE_INVALID, -1, "--kv-tier-*: tiers keep what leaves the prefix cache, which --prefix-cache none turns off");
    }
    return QUIRE_OK;
}

/* Checks the counts in o, and those of its texts that do not depend on the model. */
static quire_err check(const quire_options *o, quire_error *err) {
    if (!o->model || !o->compute || !o->kv_dtype || !o->isa || !o->cpu_bind || !o->prefix_cache || !o->eviction_policy || !o->schedule ||
        !o->tier_write || !o->preemption_mode || !o->generation_config || !o->special_tokens_in_messages || !o->tool_call_parser ||
        !o->reasoning_parser || !o->json_additional_properties || !o->json_whitespace || !o->jump_forward) {
        return err_set(err, QUIRE_INVALID, -1, "an option that must be a text is NULL; quire_options_init sets them all");
    }
    static const char *const additional[] = {"closed", "schema"}, *const spaces[] = {"compact", "lines", "any"};
    int word;
    TRY(read_name("--json-additional-properties", o->json_additional_properties, additional, 2, "closed or schema", &word, err));
    TRY(read_name("--json-whitespace", o->json_whitespace, spaces, 3, "compact, lines or any", &word, err));
    TRY(check_range("--max-num-batched-tokens", o->max_batched_tokens, 1, 1 << 20, err));
    TRY(check_range("--max-num-seqs", o->max_seqs, 1, 1 << 16, err));
    TRY(check_range("--chunk", o->prefill_chunk, 0, 1 << 20, err));
    TRY(check_range("--threads", o->n_threads, 0, 4096, err));
    TRY(check_range("--kv-pages", o->n_pages, 0, POOL_MAX_PAGES, err));
    TRY(check_range("text threads", o->n_text_threads, 0, 64, err));
    TRY(check_range("--text-cache-bytes", o->text_cache_bytes, 0, INT64_MAX / 2, err));
    TRY(check_range("--rule-memory-bytes", o->rule_bytes, (int64_t)1 << 20, INT64_MAX / 2, err));
    engine_options policies;
    TRY(options_engine(o, &policies, err));
    TRY(check_range("--max-answer-bytes", o->max_answer_bytes, 0, INT64_MAX, err));
    TRY(check_range("--max-logprobs", o->max_logprobs, 1, 20, err));
    TRY(check_range("--max-tool-calls", o->max_tool_calls, 1, 1024, err));
    TRY(check_range("--pack-cache-bytes", o->pack_cache_bytes, 0, INT64_MAX, err));
    TRY(check_range("--pack-cache-least-ms", o->pack_cache_least_us, 0, INT64_MAX, err));
    TRY(check_range("step_target_us", o->step_target_us, 0, INT64_MAX, err));
    if (!(o->schedule_lambda > 0.0 && o->schedule_lambda <= 1e9)) {
        return err_set(err, QUIRE_INVALID, -1, "--schedule-lambda %g: must be over 0, so that nobody starves, and at most 1e9",
                       o->schedule_lambda);
    }
    TRY(check_tiers(o, err));
    if (!(o->memory_utilization > 0.0 && o->memory_utilization <= 1.0)) {
        return err_set(err, QUIRE_INVALID, -1, "--memory-utilization %g: must be over 0 and at most 1", o->memory_utilization);
    }
    return QUIRE_OK;
}

quire_err options_read(const quire_options *given, quire_options *out, quire_error *err) {
    size_t size = given->size;
    if (size < LEAST_SIZE || size > MAX_SIZE || size % _Alignof(quire_options) != 0) {
        return err_set(err, QUIRE_INVALID, -1, "quire_options.size is %zu; quire_options_init sets it (%zu in this version)", size,
                       sizeof *out);
    }
    for (size_t i = sizeof *out; i < size; i++) {
        if (((const unsigned char *)given)[i] != 0) {
            return err_set(err, QUIRE_INVALID, -1,
                           "quire_options has %zu bytes, and byte %zu sets an option that libquire " QUIRE_VERSION
                           " does not know (its own has %zu); use the library that belongs to the header",
                           size, i, sizeof *out);
        }
    }
    *out = defaults;
    memcpy(out, given, size < sizeof *out ? size : sizeof *out);
    out->size = sizeof *out;
    return check(out, err);
}
