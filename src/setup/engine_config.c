#include "setup/engine_config.h"

#include <assert.h>
#include <string.h>

#include "answer/answer_format.h"
#include "base/err.h"
#include "base/log.h"
#include "engine/team.h"
#include "options/engine_flags.h"
#include "setup/adapter_store.h"
#include "setup/pool_plan.h"

/* smallest valid size of quire_options: up to its member `model` */
#define LEAST_SIZE (offsetof(quire_options, model) + sizeof(const char *))
#define MAX_SIZE   4096 /* a larger size is invalid */

/* The default options: those of engine_flags; other members are 0. */
static quire_options engine_config_defaults(void) {
    quire_options o = {.size = sizeof o};
    flags_set_defaults(engine_flags, &o);
    return o;
}

void quire_options_init_sized(quire_options *o, size_t size) {
    if (size < sizeof o->size) {
        return; /* too small for any member; options_read will refuse it */
    }
    const quire_options own = engine_config_defaults();
    memset(o, 0, size);
    memcpy(o, &own, size < sizeof own ? size : sizeof own);
    o->size = size;
}

quire_err quire_options_set(quire_options *o, const char *name, const char *value, quire_error *err) {
    const flag *f = engine_flag_find(name);
    if (f == NULL || f->offset >= o->size) {
        return err_set(err, QUIRE_INVALID, -1, "%.40s: no such option; `quire serve --help-all` lists them",
                       name);
    }
    if (value == NULL && !flag_is_switch(f)) {
        return err_set(err, QUIRE_INVALID, -1, "%.40s: needs a value", name);
    }
    bool is_on = true;
    if (f->type == FLAG_SYNONYM) {
        TRY(flag_parse_switch(name, value, &is_on, err));
    }
    return is_on ? flag_set_option(f, name, value, o, err) : QUIRE_OK;
}

quire_err options_open_file(const quire_options *o, model_file **out, quire_error *err) {
    assert(o != NULL);
    size_t n = 0;
    const void *bytes = options_builtin_model(o->model, &n);
    const model_overrides set = {.hf = o->hf_overrides, .kv = o->override_kv, .quantise = o->quantization};
    TRY(bytes ? model_file_open_memory_with(bytes, n, o->model, &set, out, err)
              : model_file_open_with(o->model, &set, out, err));
    model_file_watch(*out, (load_watch){o->load_progress, o->load_progress_user});
    return QUIRE_OK;
}

quire_err options_compute(const quire_options *o, const model_desc *d, compute_mode *out, quire_error *err) {
    assert(o != NULL && d != NULL);
    bool is_auto = o->compute == QUIRE_COMPUTE_AUTO;
    const char *given = flag_choice_name(choices_compute, (int)o->compute);
    if (d->is_packed && (is_auto || strcmp(given, compute_name(d->packed_compute)) == 0)) {
        *out = d->packed_compute;
        return QUIRE_OK;
    }
    if (d->is_packed) {
        return err_set(err, QUIRE_INVALID, -1,
                       "--compute %s: the model is packed for %s; pack it again with this --compute, or "
                       "leave the flag out",
                       given, compute_name(d->packed_compute));
    }
    if (is_auto) {
        *out = d->auto_compute;
        return QUIRE_OK;
    }
    *out = (compute_mode)((int)o->compute - (int)QUIRE_COMPUTE_F32);
    if (d->quantise_to == DTYPE_I8 && *out != COMPUTE_INT8) {
        return err_set(err, QUIRE_INVALID, -1,
                       "--compute %s: --quantization int8 computes in int8; leave one of them out", given);
    }
    return QUIRE_OK;
}

kv_types options_kv_types(const quire_options *o, const model_desc *d, compute_mode compute) {
    static const dtype types[] = {
        [QUIRE_KV_F32] = DTYPE_F32,          [QUIRE_KV_F16] = DTYPE_F16, [QUIRE_KV_BF16] = DTYPE_BF16,
        [QUIRE_KV_FP8_E4M3] = DTYPE_F8_E4M3, [QUIRE_KV_INT8] = DTYPE_I8, [QUIRE_KV_INT4] = DTYPE_I4,
    };
    const dtype automatic = d->has_fp8_kv                                      ? DTYPE_F8_E4M3
                            : compute == COMPUTE_F32 || compute == COMPUTE_FP8 ? DTYPE_F32
                                                                               : DTYPE_BF16;
    const dtype key = o->kv_dtype == QUIRE_KV_AUTO ? automatic : types[o->kv_dtype];
    return (kv_types){.key = key,
                      .state = o->state_dtype == QUIRE_STATE_BF16 ? DTYPE_BF16 : DTYPE_F32,
                      .value = o->kv_dtype_values == QUIRE_KV_AUTO ? key : types[o->kv_dtype_values]};
}

quire_err options_max_model_len(const quire_options *o, const model_desc *d, int32_t *out, quire_error *err) {
    assert(o != NULL);
    if (o->max_model_len == 0) {
        *out = d->max_positions;
        return QUIRE_OK;
    }
    if (o->max_model_len < 2) {
        return err_set(err, QUIRE_INVALID, -1, "--max-model-len %d: must be at least 2",
                       (int)o->max_model_len);
    }
    if (o->max_model_len > d->max_positions && d->embed.positions) {
        return err_set(err, QUIRE_INVALID, -1, "--max-model-len %d: the model was made for %d tokens",
                       (int)o->max_model_len, (int)d->max_positions);
    }
    if (o->max_model_len > d->max_positions && !desc_scales_by_length(d)) {
        log_line(LOG_WARN,
                 "--max-model-len %d: the model was made for %d tokens; text after those may be poor",
                 (int)o->max_model_len, (int)d->max_positions);
    }
    *out = o->max_model_len;
    return QUIRE_OK;
}

int32_t options_max_rows(const quire_options *o, int32_t max_model_len) {
    assert(o != NULL);
    int64_t rows = o->no_chunked_prefill ? (int64_t)max_model_len + o->max_seqs : 0;
    return rows <= o->max_batched_tokens ? o->max_batched_tokens
           : rows < INT32_MAX            ? (int32_t)rows
                                         : INT32_MAX;
}

kv_most options_most_pages(const quire_options *o, const model_desc *d, const kv_layout *l,
                           int32_t max_rows) {
    const engine_options eo = {.max_batched_tokens = max_rows,
                               .prefill_chunk = o->prefill_chunk,
                               .no_chunked_prefill = o->no_chunked_prefill};
    return kv_most_of_layout(l, engine_most_rows(&eo, d));
}

/* Appends the names of all tool call formats, or of all reasoning formats. */
static quire_err list_formats(bool calls, strbuf *out) {
    const answer_format *f;
    for (size_t i = 0; (f = calls ? call_format_at(i) : reasoning_format_at(i)) != NULL; i++) {
        for (size_t k = 0; k < FORMAT_NAMES && f->names[k] != NULL; k++) {
            TRY(strbuf_addf(out, ",%s", f->names[k]));
        }
    }
    return QUIRE_OK;
}

/* Finds the format with the given name. "auto" leaves *out as the template has it; "none"
 * sets NULL. */
static quire_err engine_config_read_format(const char *option, const char *given, bool calls,
                                           const char **out, quire_error *err) {
    const answer_format *f = calls ? call_format_named(given) : reasoning_format_named(given);
    if (strcmp(given, "auto") == 0) {
        return QUIRE_OK;
    }
    *out = f != NULL ? answer_format_name(f, given) : NULL;
    if (*out != NULL || strcmp(given, "none") == 0) {
        return QUIRE_OK;
    }
    strbuf names = {0};
    quire_err e = list_formats(calls, &names);
    e = e != QUIRE_OK
            ? err_set(err, e, -1, "out of memory")
            : err_set(err, QUIRE_INVALID, -1, "%s %.20s: must be one of auto,none%s", option, given, names.p);
    strbuf_deinit(&names);
    return e;
}

quire_err options_formats(const quire_options *o, output_formats *out, quire_error *err) {
    TRY(engine_config_read_format("--tool-call-parser", o->tool_call_parser, true, &out->tools, err));
    return engine_config_read_format("--reasoning-parser", o->reasoning_parser, false, &out->reasoning, err);
}

quire_err options_engine(const quire_options *o, engine_options *out, quire_error *err) {
    assert(o != NULL);
    if (o->preemption_mode == QUIRE_PREEMPTION_SWAP && o->swap_bytes == 0) {
        return err_set(err, QUIRE_INVALID, -1,
                       "--preemption-mode swap: needs swap space; give --swap-space too");
    }
    /* auto is fcfs here: without a server, no API keys separate tenants */
    const quire_schedule schedule = o->schedule == QUIRE_SCHEDULE_AUTO ? QUIRE_SCHEDULE_FCFS : o->schedule;
    *out = (engine_options){
        .page_tokens = o->page_tokens,
        .n_pages = o->n_pages,
        .max_model_len = o->max_model_len,
        .max_batched_tokens = o->max_batched_tokens,
        .max_seqs = o->max_seqs,
        .prefill_chunk = o->prefill_chunk,
        .no_chunked_prefill = o->no_chunked_prefill,
        .no_cascade = o->no_cascade,
        .prefix_cache = (prefix_cache)o->prefix_cache,
        .eviction = (kv_policy)o->eviction_policy,
        .snapshot_tokens = o->state_snapshot_tokens,
        .snapshot_bytes = o->state_snapshot_bytes,
        .max_adapters = options_have_adapters(o) ? o->max_loras : 0,
        .schedule = (admission_policy)((int)schedule - (int)QUIRE_SCHEDULE_FCFS),
        .schedule_lambda = o->schedule_lambda,
        .preempt = (preempt_mode)o->preemption_mode,
        .step_target_us = o->step_target_us,
        .swap_bytes = o->swap_bytes,
        .parked_bytes = o->parked_bytes,
        .parked_tenant_bytes = o->parked_tenant_bytes,
        .audit_path = o->audit,
        .tiers = {.host_bytes = o->tier_host_bytes,
                  .file_path = o->tier_file,
                  .file_bytes = o->tier_file_bytes,
                  .redis_url = o->tier_redis,
                  .redis_bytes = o->tier_redis_bytes,
                  .write = o->tier_write == QUIRE_TIER_WRITE_THROUGH ? TIER_WRITE_THROUGH : TIER_WRITE_EVICT,
                  .wait_us = o->tier_wait_us}};
    return QUIRE_OK;
}

bool options_tiers_last(const quire_options *o) {
    return o->tier_file != NULL || o->tier_redis != NULL;
}

/* Checks every option that engine_flags has, and combinations of options. */
static quire_err engine_config_check(const quire_options *o, quire_error *err) {
    TRY(flags_check(engine_flags, o, err));
    if ((o->tier_host_bytes > 0 || options_tiers_last(o)) && o->prefix_cache == QUIRE_PREFIX_CACHE_NONE) {
        return err_set(err, QUIRE_INVALID, -1,
                       "--kv-tier-*: tiers hold pages of the prefix cache, which --prefix-cache none turns "
                       "off; leave one of them out");
    }
    if (o->max_cpu_loras > 0 && o->max_cpu_loras < o->max_loras) {
        return err_set(err, QUIRE_INVALID, -1,
                       "--max-cpu-loras %d: must be at least --max-loras, which is %d", (int)o->max_cpu_loras,
                       (int)o->max_loras);
    }
    if (o->n_beside < 0 || o->n_beside >= ENGINE_TEAM_SEATS) {
        return err_set(err, QUIRE_INVALID, -1, "quire_options.n_beside is %d; it must be from 0 to %d",
                       (int)o->n_beside, ENGINE_TEAM_SEATS - 1);
    }
    engine_options policies;
    return options_engine(o, &policies, err);
}

quire_err options_read(const quire_options *given, quire_options *out, quire_error *err) {
    assert(given != NULL);
    size_t size = given->size;
    if (size < LEAST_SIZE || size > MAX_SIZE || size % _Alignof(quire_options) != 0) {
        return err_set(
            err, QUIRE_INVALID, -1,
            "quire_options.size is %zu; call quire_options_init, which sets it (%zu in this version)", size,
            sizeof *out);
    }
    for (size_t i = sizeof *out; i < size; i++) {
        if (((const unsigned char *)given)[i] != 0) {
            return err_set(
                err, QUIRE_INVALID, -1,
                "quire_options has %zu bytes, and byte %zu sets an option that libquire " QUIRE_VERSION
                " does not know (its own has %zu); use the library that belongs to the header",
                size, i, sizeof *out);
        }
    }
    *out = engine_config_defaults();
    memcpy(out, given, size < sizeof *out ? size : sizeof *out);
    out->size = sizeof *out;
    return engine_config_check(out, err);
}
