#include "server/adapter_list.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "server/metrics.h"

#define NAME_BYTES 256 /* bytes for an adapter's name */

bool adapter_list_knows(const server *s, str name) {
    char text[NAME_BYTES];
    if (name.n == 0 || name.n >= sizeof text || memchr(name.p, '\0', name.n) != NULL) {
        return false;
    }
    memcpy(text, name.p, name.n);
    text[name.n] = '\0';
    return quire_adapter_known(s->engine, text);
}

void adapter_list_each(const server *s, void (*write)(const server *s, const quire_adapter *a, json_out *o),
                       json_out *o) {
    assert(s != NULL && o != NULL);
    quire_adapter **list;
    size_t n;
    quire_err e = quire_adapters(s->engine, &list, &n);
    if (o->err == QUIRE_OK) {
        o->err = e;
    }
    for (size_t i = 0; i < n; i++) {
        if (list[i]->number < 0) {
            write(s, list[i], json_item(o));
        }
    }
    quire_free((void *)list);
}

bool adapter_list_one(const server *s, str name,
                      void (*write)(const server *s, const quire_adapter *a, json_out *o), json_out *o) {
    assert(s != NULL && o != NULL);
    quire_adapter **list;
    size_t n;
    bool is_found = false;
    quire_err e = quire_adapters(s->engine, &list, &n);
    if (o->err == QUIRE_OK) {
        o->err = e;
    }
    for (size_t i = 0; i < n && !is_found; i++) {
        is_found = list[i]->number < 0 && str_is(name, list[i]->name);
        if (is_found) {
            write(s, list[i], o);
        }
    }
    quire_free((void *)list);
    return is_found;
}

/* ---- metrics ---- */

/* vLLM's label: adapters that run, or that requests wait for, joined by commas. */
static quire_err adapter_list_names(quire_adapter *const *list, size_t n, bool runs, strbuf *out) {
    bool is_first = true;
    for (size_t i = 0; i < n; i++) {
        if (runs ? list[i]->is_running : list[i]->is_waiting) {
            if (!is_first) {
                TRY(strbuf_add_char(out, ','));
            }
            TRY(metrics_escape(out, list[i]->name));
            is_first = false;
        }
    }
    return QUIRE_OK;
}

typedef struct adapter_row {
    const char *name, *help;
    size_t offset; /* offset of an int64_t in a quire_adapter */
} adapter_row;

static const adapter_row adapter_rows[] = {
    {"quire_adapter_requests_total", "Finished requests by adapter; each sample counts as one.",
     offsetof(quire_adapter, n_requests)},
    {"quire_adapter_prompt_tokens_total", "Prompt tokens of requests, by adapter.",
     offsetof(quire_adapter, prompt_tokens)},
    {"quire_adapter_generation_tokens_total", "Generated tokens of requests, by adapter.",
     offsetof(quire_adapter, completion_tokens)},
};

static quire_err adapter_list_write_rows(quire_adapter *const *list, size_t n, strbuf *out) {
    for (size_t k = 0; k < sizeof adapter_rows / sizeof *adapter_rows; k++) {
        const adapter_row *r = &adapter_rows[k];
        TRY(metrics_describe(out, r->name, "counter", r->help));
        for (size_t i = 0; i < n; i++) {
            int64_t v;
            memcpy(&v, (const char *)list[i] + r->offset, sizeof v);
            if (list[i]->n_requests > 0) {
                TRY(strbuf_addf(out, "%s{model_name=\"", r->name));
                TRY(metrics_escape(out, list[i]->name));
                TRY(strbuf_addf(out, "\"} %" PRId64 "\n", v));
            }
        }
    }
    return QUIRE_OK;
}

static quire_err adapter_list_write(const quire_adapter_stats *st, quire_adapter *const *list, size_t n,
                                    strbuf *out) {
    TRY(metrics_describe(out, "vllm:lora_requests_info", "gauge",
                         "LoRA adapters with running or waiting requests; the value is the Unix time."));
    TRY(strbuf_addf(out, "vllm:lora_requests_info{max_lora=\"%d\",running_lora_adapters=\"",
                    (int)st->max_running));
    TRY(adapter_list_names(list, n, true, out));
    TRY(strbuf_add_str(out, "\",waiting_lora_adapters=\""));
    TRY(adapter_list_names(list, n, false, out));
    TRY(strbuf_addf(out, "\"} %" PRId64 "\n", clock_unix_s()));
    TRY(metrics_float(out, "quire_adapters_loaded", "gauge", "LoRA adapters that are loaded.", st->n_loaded));
    TRY(metrics_float(out, "quire_adapters_loaded_max", "gauge",
                      "LoRA adapters that may be loaded at once (--max-cpu-loras).", st->max_loaded));
    TRY(metrics_float(out, "quire_adapter_bytes", "gauge", "Memory of loaded LoRA adapters.",
                      (double)st->n_bytes));
    TRY(metrics_float(out, "quire_adapter_loads_total", "counter", "LoRA adapter files loaded so far.",
                      (double)st->n_loads));
    TRY(metrics_float(out, "quire_adapter_evictions_total", "counter",
                      "LoRA adapters unloaded to make room for others.", (double)st->n_evictions));
    return adapter_list_write_rows(list, n, out);
}

quire_err adapter_list_metrics(const quire_engine *e, strbuf *out) {
    quire_adapter_stats st = {.size = sizeof st};
    quire_adapter **list;
    size_t n;
    quire_adapter_count(e, &st);
    if (st.max_running == 0) {
        return QUIRE_OK;
    }
    TRY(quire_adapters(e, &list, &n));
    quire_err er = adapter_list_write(&st, list, n, out);
    quire_free((void *)list);
    return er;
}
