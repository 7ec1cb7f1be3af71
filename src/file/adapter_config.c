#include "file/adapter_config.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>

#include "base/mem.h"
#include "file/json_doc.h"
#include "file/not_a_model.h"
#include "file/show.h"

#define MAX_RANK_SAID  INT32_MAX
#define MAX_INVOCATION 4096 /* tokens, or bytes of their text */
#define MAX_PARAMETERS 64

/* ---- adapter_config.json ---- */

typedef struct config_reader {
    adapter_file *f;
    json_doc doc;
    const char *file;
    quire_error *err;
} config_reader;

static quire_err adapter_config_bad(const config_reader *r, const char *key, const char *must) {
    return err_set(r->err, QUIRE_BAD_FILE, -1, "%s: %s must be %s", r->file, key, must);
}

/* Copies a text for people. */
static void adapter_copy_name(str from, char *to, size_t size) {
    size_t n = 0;
    for (size_t i = 0; i < from.n && n + 1 < size; i++) {
        const unsigned char c = (unsigned char)from.p[i];
        to[n++] = c < 0x20 || c == 0x7f ? '?' : (char)c;
    }
    while (n > 0 && n + 1 == size && ((unsigned char)to[n - 1] & 0x80) != 0) {
        n--; /* no half of a character at the end */
    }
    to[n] = 0;
}

/* PEFT's other kinds of adapters, which are refused by name. */
static quire_err adapter_check_kind(const config_reader *r) {
    const str kind = json_get_str(r->doc.root, "peft_type");
    if (str_is(kind, "LORA")) {
        return QUIRE_OK;
    }
    if (kind.n == 0) {
        return adapter_config_bad(r, "peft_type", "\"LORA\": this is no config of a LoRA adapter");
    }
    return err_set(r->err, QUIRE_UNSUPPORTED, -1,
                   "%s: peft_type %s is not supported: Quire reads LORA, with rsLoRA and DoRA; merge the "
                   "adapter into its base (PEFT: merge_and_unload), or train a LoRA",
                   r->file, show_name(kind).text);
}

/* Options that change what the tensors mean, and are not computed. */
static quire_err adapter_check_options(const config_reader *r) {
    static const char *const refused[] = {
        "use_qalora", "use_bdlora",    "layer_replication",       "arrow_config",     "kasa_config",
        "lora_bias",  "velora_config", "trainable_token_indices", "monteclora_config"};
    static const char *const changing[] = {"pissa", "olora", "corda", "loftq", "lora_ga"};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        const json_value *v = json_get(r->doc.root, refused[i]);
        const json_kind kind = json_kind_of(v);
        const bool is_set = v != NULL && kind != JSON_KIND_NULL &&
                            (kind != JSON_KIND_BOOL || json_truth(v)) &&
                            (json_length(v) > 0 || (kind != JSON_KIND_OBJECT && kind != JSON_KIND_ARRAY));
        if (is_set) {
            return err_set(r->err, QUIRE_UNSUPPORTED, -1,
                           "%s: %s is not supported; merge the adapter into its base (PEFT: "
                           "merge_and_unload) and serve that",
                           r->file, refused[i]);
        }
    }
    const str init = json_get_str(r->doc.root, "init_lora_weights");
    for (size_t i = 0; i < sizeof changing / sizeof *changing; i++) {
        if (str_begins(init, changing[i])) {
            return err_set(r->err, QUIRE_UNSUPPORTED, -1,
                           "%s: init_lora_weights \"%s\" changes the base's weights too; save it with PEFT's "
                           "path_initial_model_for_weight_conversion, which makes a plain LoRA of it",
                           r->file, show_name(init).text);
        }
    }
    return QUIRE_OK;
}

/* A rank: a whole number from 1 on. */
static quire_err adapter_take_rank(config_reader *r, const json_value *v, const char *key, int64_t *out) {
    if (!json_whole(v, out) || *out < 1 || *out > MAX_RANK_SAID) {
        return adapter_config_bad(r, key, "a whole number from 1 on");
    }
    if (*out > r->f->facts.rank) {
        r->f->facts.rank = (int32_t)*out;
    }
    return QUIRE_OK;
}

static quire_err adapter_take_alpha(const config_reader *r, const json_value *v, const char *key,
                                    double *out) {
    *out = json_double(v);
    return json_numeric(v) && fabs(*out) <= 1e9 ? QUIRE_OK
                                                : adapter_config_bad(r, key, "a number within 1e9");
}

/* rank_pattern and alpha_pattern; null: none. */
static quire_err adapter_take_patterns(config_reader *r, const char *key, bool are_ranks,
                                       adapter_patterns *out) {
    const json_value *v = json_get(r->doc.root, key);
    if (v == NULL || json_is(v, JSON_KIND_NULL)) {
        return QUIRE_OK;
    }
    if (!json_is(v, JSON_KIND_OBJECT)) {
        return adapter_config_bad(r, key, "an object");
    }
    for (json_member m = {0}; json_next(v, &m);) {
        int64_t rank = 0;
        double value;
        TRY(are_ranks ? adapter_take_rank(r, m.value, key, &rank)
                      : adapter_take_alpha(r, m.value, key, &value));
        value = are_ranks ? (double)rank : value;
        TRY(adapter_patterns_add(out, str_of(m.name), value, r->file, r->err));
    }
    return QUIRE_OK;
}

static quire_err adapter_take_scales(config_reader *r) {
    adapter_file *f = r->f;
    const json_value *alpha = json_get(r->doc.root, "lora_alpha");
    TRY(adapter_take_rank(r, json_get(r->doc.root, "r"), "r", &f->rank));
    f->alpha = 8.0; /* PEFT's default */
    if (alpha != NULL && !json_is(alpha, JSON_KIND_NULL)) {
        TRY(adapter_take_alpha(r, alpha, "lora_alpha", &f->alpha));
    }
    f->ties = json_get_bool(r->doc.root, "ensure_weight_tying", false);
    f->by_root = json_get_bool(r->doc.root, "use_rslora", false);
    f->facts.has_dora = json_get_bool(r->doc.root, "use_dora", false);
    TRY(adapter_take_patterns(r, "rank_pattern", true, &f->ranks));
    return adapter_take_patterns(r, "alpha_pattern", false, &f->alphas);
}

/* invocation_string: what adapters of the time before PEFT had activated LoRA name
 * instead of tokens. */
static quire_err adapter_take_invocation_text(config_reader *r) {
    static const char key[] = "invocation_string";
    const json_value *v = json_get(r->doc.root, key);
    const str text = json_str(v);
    if (v == NULL || json_is(v, JSON_KIND_NULL)) {
        return QUIRE_OK;
    }
    if (text.n == 0 || text.n > MAX_INVOCATION || memchr(text.p, 0, text.n) != NULL) {
        return adapter_config_bad(r, key, "a text of 1 to 4096 bytes");
    }
    r->f->invocation_text = mem_dup(text.p, text.n);
    r->f->facts.is_activated = true;
    return r->f->invocation_text != NULL ? QUIRE_OK
                                         : err_set(r->err, QUIRE_NO_MEMORY, -1, "%s: out of memory", r->file);
}

/* alora_invocation_tokens: of activated LoRA. */
static quire_err adapter_take_invocation(config_reader *r) {
    static const char key[] = "alora_invocation_tokens";
    const json_value *v = json_get(r->doc.root, key);
    const size_t n = json_length(v);
    if (v == NULL || json_is(v, JSON_KIND_NULL)) {
        return adapter_take_invocation_text(r);
    }
    if (!json_is(v, JSON_KIND_ARRAY) || n == 0 || n > MAX_INVOCATION) {
        return adapter_config_bad(r, key, "null or a list of 1 to 4096 token ids");
    }
    r->f->invocation = mem_new(n, sizeof *r->f->invocation);
    if (r->f->invocation == NULL) {
        return err_set(r->err, QUIRE_NO_MEMORY, -1, "%s: out of memory", r->file);
    }
    for (size_t i = 0; i < n; i++) {
        int64_t id;
        if (!json_whole(json_at(v, i), &id) || id < 0 || id > INT32_MAX) {
            return adapter_config_bad(r, key, "a list of token ids");
        }
        r->f->invocation[i] = (int32_t)id;
    }
    r->f->n_invocation = (int32_t)n;
    r->f->facts.is_activated = true;
    return QUIRE_OK;
}

/* target_parameters: names of parameters, not of modules, that are adapted. */
static quire_err adapter_take_parameters(config_reader *r) {
    static const char key[] = "target_parameters";
    const json_value *v = json_get(r->doc.root, key);
    const size_t n = json_length(v);
    if (v == NULL || json_is(v, JSON_KIND_NULL) || (json_is(v, JSON_KIND_ARRAY) && n == 0)) {
        return QUIRE_OK;
    }
    if (!json_is(v, JSON_KIND_ARRAY) || n > MAX_PARAMETERS) {
        return adapter_config_bad(r, key, "a list of at most 64 names of parameters");
    }
    r->f->parameters = mem_new(n, sizeof *r->f->parameters);
    if (r->f->parameters == NULL) {
        return err_set(r->err, QUIRE_NO_MEMORY, -1, "%s: out of memory", r->file);
    }
    for (size_t i = 0; i < n; i++) {
        const str name = json_str(json_at(v, i));
        if (name.n == 0 || name.n > 200 || memchr(name.p, 0, name.n) != NULL) {
            return adapter_config_bad(r, key, "a list of names of parameters");
        }
        r->f->parameters[i] = mem_dup(name.p, name.n);
        if (r->f->parameters[i] == NULL) {
            return err_set(r->err, QUIRE_NO_MEMORY, -1, "%s: out of memory", r->file);
        }
        r->f->n_parameters++;
    }
    return QUIRE_OK;
}

quire_err adapter_config_read(adapter_file *f, str text, const char *file, quire_error *err) {
    config_reader r = {.f = f, .file = file, .err = err};
    TRY(json_doc_parse(&r.doc, text, JSON_NAMES_LAST, file, err));
    adapter_copy_name(json_get_str(r.doc.root, "base_model_name_or_path"), f->facts.base,
                      sizeof f->facts.base);
    quire_err e = adapter_check_kind(&r);
    e = e ? e : adapter_check_options(&r);
    e = e ? e : adapter_take_scales(&r);
    e = e ? e : adapter_take_invocation(&r);
    e = e ? e : adapter_take_parameters(&r);
    json_doc_deinit(&r.doc);
    return e;
}

/* ---- GGUF ---- */

static str adapter_gguf_str(const adapter_file *f, const char *key) {
    const meta_value v = gguf_meta(gguf_find(&f->keys, key));
    return v.kind == META_STR ? v.s : (str){"", 0};
}

static quire_err adapter_gguf_invocation(adapter_file *f, quire_error *err) {
    static const char key[] = "adapter.alora.invocation_tokens";
    const gguf_value *v = gguf_find(&f->keys, key);
    const meta_value all = gguf_meta(v);
    if (all.kind == META_ABSENT) {
        return QUIRE_OK;
    }
    if (all.kind != META_ARRAY || all.n == 0 || all.n > MAX_INVOCATION) {
        return err_set(err, QUIRE_BAD_FILE, -1, "%s: %s must be a list of 1 to %d token ids", f->path, key,
                       MAX_INVOCATION);
    }
    f->invocation = mem_new(all.n, sizeof *f->invocation);
    if (f->invocation == NULL) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "%s: out of memory", f->path);
    }
    for (size_t i = 0; i < all.n; i++) {
        const meta_value id = gguf_item(v, i);
        if (id.kind != META_INT || id.i < 0 || id.i > INT32_MAX) {
            return err_set(err, QUIRE_BAD_FILE, -1, "%s: %s must be a list of token ids", f->path, key);
        }
        f->invocation[i] = (int32_t)id.i;
    }
    f->n_invocation = (int32_t)all.n;
    f->facts.is_activated = true;
    return QUIRE_OK;
}

/* The largest rank of the tensors: a lora_b's last dimension. */
static void adapter_gguf_rank(adapter_file *f) {
    for (int32_t i = 0; i < f->tensors.n; i++) {
        const tensor_view *t = &f->tensors.views[i];
        const str name = {f->tensors.names.p + f->tensors.name_at[i],
                          strlen(f->tensors.names.p + f->tensors.name_at[i])};
        const int64_t rank = t->n_dims > 0 ? t->dims[t->n_dims - 1] : 0;
        if (str_ends(name, ".lora_b") && rank > f->facts.rank) {
            f->facts.rank = rank < MAX_RANK_SAID ? (int32_t)rank : MAX_RANK_SAID;
        }
    }
}

quire_err adapter_config_read_gguf(adapter_file *f, quire_error *err) {
    const str type = adapter_gguf_str(f, "general.type"), kind = adapter_gguf_str(f, "adapter.type"),
              architecture = adapter_gguf_str(f, "general.architecture");
    if (!str_is(type, "adapter")) {
        const foreign is = foreign_of_gguf(type, architecture);
        return err_set(err, QUIRE_UNSUPPORTED, -1,
                       "%s: %s, no adapter: its general.type is %s, not \"adapter\"", f->path,
                       is.what != NULL ? is.what : "a GGUF file",
                       type.n > 0 ? show_name(type).text : "missing");
    }
    if (!str_is(kind, "lora")) {
        return err_set(
            err, QUIRE_UNSUPPORTED, -1,
            "%s: adapter.type %s is not supported: Quire reads \"lora\"; merge the adapter into its "
            "base (llama-export-lora), or convert a LoRA",
            f->path, kind.n > 0 ? show_name(kind).text : "(missing)");
    }
    const meta_value alpha = gguf_meta(gguf_find(&f->keys, "adapter.lora.alpha"));
    if (alpha.kind != META_ABSENT &&
        ((alpha.kind != META_FLOAT && alpha.kind != META_INT) || !(fabs(alpha.f) <= 1e9))) {
        return err_set(err, QUIRE_BAD_FILE, -1, "%s: adapter.lora.alpha must be a number within 1e9",
                       f->path);
    }
    f->alpha = alpha.kind == META_ABSENT ? 0.0 : alpha.f;
    const str base = adapter_gguf_str(f, "general.base_model.0.name");
    adapter_copy_name(base.n > 0 ? base : adapter_gguf_str(f, "general.basename"), f->facts.base,
                      sizeof f->facts.base);
    adapter_copy_name(architecture, f->facts.architecture, sizeof f->facts.architecture);
    adapter_gguf_rank(f);
    return adapter_gguf_invocation(f, err);
}

/* ---- patterns for the names of modules ---- */

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/mem.h"
#include "file/show.h"

#define MAX_KEY_BYTES 1024
#define MAX_PATTERNS  65536
#define MAX_COMPILED  64 /* expressions that are more than names */
#define MATCH_LIMIT   20000
#define DEPTH_LIMIT   1000
#define HEAP_KIB      1024

void adapter_patterns_deinit(adapter_patterns *p) {
    assert(p != NULL);
    for (size_t i = 0; i < p->n; i++) {
        mem_free(p->list[i].plain);
        pcre2_code_free(p->list[i].code);
    }
    mem_free(p->list);
    *p = (adapter_patterns){0};
}

/* A key without operators but '.', as text: its escapes of characters that are not
 * letters are resolved ('.' that is escaped becomes \1). NULL: it has operators, or there
 * is no memory. */
static char *pattern_plain(str key) {
    char *out = mem_new(key.n + 1, 1);
    size_t n = 0;
    for (size_t i = 0; out != NULL && i < key.n; i++) {
        char c = key.p[i];
        const bool escapes = c == '\\' && i + 1 < key.n;
        c = escapes ? key.p[++i] : c;
        const bool letter =
            (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
        if (escapes ? letter : !letter && c != '.' && c != '-') {
            mem_free(out);
            return NULL;
        }
        out[n++] = (char)(escapes && c == '.' ? 1 : c);
    }
    return out;
}

static quire_err pattern_compile(adapter_patterns *p, str key, const char *where, void **out,
                                 quire_error *err) {
    char text[MAX_KEY_BYTES + 32], words[96];
    int code, n = snprintf(text, sizeof text, "(?:.*\\.)?(?:%.*s)$", (int)key.n, key.p);
    PCRE2_SIZE at;
    if (p->n_compiled == MAX_COMPILED) {
        return err_set(err, QUIRE_TOO_LARGE, -1, "%s: over %d keys are regular expressions", where,
                       MAX_COMPILED);
    }
    *out = pcre2_compile((PCRE2_SPTR)text, (PCRE2_SIZE)n,
                         PCRE2_ANCHORED | PCRE2_DOLLAR_ENDONLY | PCRE2_NEVER_BACKSLASH_C, &code, &at, NULL);
    if (*out == NULL) {
        (void)pcre2_get_error_message(code, (PCRE2_UCHAR *)words, sizeof words);
        return err_set(err, QUIRE_BAD_FILE, -1, "%s: key %s is no regular expression: %s", where,
                       show_name(key).text, words);
    }
    p->n_compiled++;
    return QUIRE_OK;
}

quire_err adapter_patterns_add(adapter_patterns *p, str key, double value, const char *where,
                               quire_error *err) {
    adapter_pattern made = {.value = value};
    if (key.n == 0 || key.n > MAX_KEY_BYTES || memchr(key.p, 0, key.n) != NULL || p->n >= MAX_PATTERNS) {
        return err_set(err, QUIRE_TOO_LARGE, -1, "%s: at most %d keys of 1 to %d bytes are read", where,
                       MAX_PATTERNS, MAX_KEY_BYTES);
    }
    if (mem_grow(&p->list, &p->cap, p->n + 1, sizeof *p->list) != QUIRE_OK) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "%s: out of memory", where);
    }
    made.plain = pattern_plain(key);
    if (made.plain == NULL) {
        TRY(pattern_compile(p, key, where, &made.code, err));
    }
    p->list[p->n++] = made;
    return QUIRE_OK;
}

static bool pattern_matches_plain(const char *plain, str name) {
    const size_t n = strlen(plain);
    if (n > name.n || (n < name.n && name.p[name.n - n - 1] != '.')) {
        return false;
    }
    const char *end = name.p + name.n - n;
    for (size_t i = 0; i < n; i++) {
        if (plain[i] != '.' && (plain[i] == 1 ? '.' : plain[i]) != end[i]) {
            return false;
        }
    }
    return true;
}

static bool pattern_matches_code(const pcre2_code *code, str name) {
    pcre2_match_context *limits = pcre2_match_context_create(NULL);
    pcre2_match_data *data = pcre2_match_data_create(1, NULL);
    bool is = false;
    if (limits != NULL && data != NULL) {
        (void)pcre2_set_match_limit(limits, MATCH_LIMIT);
        (void)pcre2_set_depth_limit(limits, DEPTH_LIMIT);
        (void)pcre2_set_heap_limit(limits, HEAP_KIB);
        is = pcre2_match(code, (PCRE2_SPTR)name.p, name.n, 0, 0, data, limits) >= 0;
    }
    pcre2_match_data_free(data);
    pcre2_match_context_free(limits);
    return is;
}

bool adapter_patterns_find(const adapter_patterns *p, str name, double *value) {
    assert(p != NULL);
    for (size_t i = 0; i < p->n; i++) {
        const adapter_pattern *a = &p->list[i];
        if (a->plain != NULL ? pattern_matches_plain(a->plain, name) : pattern_matches_code(a->code, name)) {
            *value = a->value;
            return true;
        }
    }
    return false;
}
