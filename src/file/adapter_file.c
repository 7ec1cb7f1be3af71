#define PCRE2_CODE_UNIT_WIDTH 8
#include "file/adapter_file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "file/json_doc.h"
#include "file/not_a_model.h"
#include "file/show.h"

#define MAX_RANK_SAID  INT32_MAX
#define MAX_INVOCATION 4096 /* most invocation tokens, or bytes of their text */
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

/* Copies a text for messages, truncated to size - 1 bytes. */
static void adapter_copy_name(str from, char *to, size_t size) {
    size_t n = 0;
    for (size_t i = 0; i < from.n && n + 1 < size; i++) {
        const unsigned char c = (unsigned char)from.p[i];
        to[n++] = c < 0x20 || c == 0x7f ? '?' : (char)c;
    }
    while (n > 0 && n + 1 == size && ((unsigned char)to[n - 1] & 0x80) != 0) {
        n--; /* drop a partial character at the end */
    }
    to[n] = 0;
}

/* Refuses PEFT's other kinds of adapters by name. */
static quire_err adapter_check_kind(const config_reader *r) {
    const str kind = json_get_str(r->doc.root, "peft_type");
    if (str_is(kind, "LORA")) {
        return QUIRE_OK;
    }
    if (kind.n == 0) {
        return adapter_config_bad(r, "peft_type", "\"LORA\": this is not the config of a LoRA adapter");
    }
    return err_set(r->err, QUIRE_UNSUPPORTED, -1,
                   "%s: peft_type %s is not supported: Quire reads LORA, with rsLoRA and DoRA; merge the "
                   "adapter into its base (PEFT: merge_and_unload), or train a LoRA",
                   r->file, show_name(kind).text);
}

/* Refuses unsupported options that change the meaning of tensors. */
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

/* Reads a rank, a whole number from 1 on. */
static quire_err adapter_take_rank(config_reader *r, const json_value *v, const char *key, int64_t *out) {
    if (!json_whole(v, out) || *out < 1 || *out > MAX_RANK_SAID) {
        return adapter_config_bad(r, key, "a whole number of at least 1");
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
                                                : adapter_config_bad(r, key, "a number from -1e9 to 1e9");
}

/* Reads rank_pattern or alpha_pattern; null: none. */
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
    const str version = json_get_str(r->doc.root, "peft_version");
    f->peft_minor = version.n == 0              ? 0
                    : str_begins(version, "0.") ? (int32_t)strtol(version.p + 2, NULL, 10)
                                                : INT32_MAX;
    f->ties = json_get_bool(r->doc.root, "ensure_weight_tying", false);
    f->by_root = json_get_bool(r->doc.root, "use_rslora", false);
    f->facts.has_dora = json_get_bool(r->doc.root, "use_dora", false);
    TRY(adapter_take_patterns(r, "rank_pattern", true, &f->ranks));
    return adapter_take_patterns(r, "alpha_pattern", false, &f->alphas);
}

/* Reads invocation_string, which adapters from before PEFT had activated LoRA name
 * instead of tokens. */
static quire_err adapter_take_invocation_text(config_reader *r) {
    static const char key[] = "invocation_string";
    const json_value *v = json_get(r->doc.root, key);
    const str text = json_str(v);
    if (v == NULL || json_is(v, JSON_KIND_NULL)) {
        return QUIRE_OK;
    }
    if (text.n == 0 || text.n > MAX_INVOCATION || memchr(text.p, 0, text.n) != NULL) {
        return adapter_config_bad(r, key, "a string of 1 to 4096 bytes");
    }
    r->f->invocation_text = mem_dup(text.p, text.n);
    r->f->facts.is_activated = true;
    return err_set(r->err, mem_check(r->f->invocation_text), -1, "%s: out of memory", r->file);
}

/* Reads alora_invocation_tokens, the tokens of activated LoRA. */
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
    TRY(err_set(r->err, mem_check(r->f->invocation), -1, "%s: out of memory", r->file));
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

/* Checks target_parameters: names of parameters, not modules, that are adapted. The
 * tensors show which they are. */
static quire_err adapter_check_parameters(config_reader *r) {
    static const char key[] = "target_parameters";
    const json_value *v = json_get(r->doc.root, key);
    const size_t n = json_length(v);
    if (v == NULL || json_is(v, JSON_KIND_NULL)) {
        return QUIRE_OK;
    }
    if (!json_is(v, JSON_KIND_ARRAY) || n > MAX_PARAMETERS) {
        return adapter_config_bad(r, key, "a list of at most 64 parameter names");
    }
    for (size_t i = 0; i < n; i++) {
        const str name = json_str(json_at(v, i));
        if (name.n == 0 || name.n > 200 || memchr(name.p, 0, name.n) != NULL) {
            return adapter_config_bad(r, key, "a list of parameter names");
        }
    }
    return QUIRE_OK;
}

/* Reads the text of adapter_config.json into facts, scales and invocation tokens. file:
 * its path, for messages. Errors as adapter_file_open; the caller frees f after an error
 * too. */
static quire_err adapter_config_read(adapter_file *f, str text, const char *file, quire_error *err) {
    config_reader r = {.f = f, .file = file, .err = err};
    TRY(json_doc_parse(&r.doc, text, JSON_NAMES_LAST, file, err));
    adapter_copy_name(json_get_str(r.doc.root, "base_model_name_or_path"), f->facts.base,
                      sizeof f->facts.base);
    quire_err e = adapter_check_kind(&r);
    TRY_DONE(e, adapter_check_options(&r));
    TRY_DONE(e, adapter_take_scales(&r));
    TRY_DONE(e, adapter_take_invocation(&r));
    TRY_DONE(e, adapter_check_parameters(&r));
done:
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
    TRY(err_set(err, mem_check(f->invocation), -1, "%s: out of memory", f->path));
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

/* Sets the rank to the largest of the tensors: the last dimension of a lora_b. */
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

/* Like adapter_config_read, from f->keys, with ranks from f->tensors. */
static quire_err adapter_config_read_gguf(adapter_file *f, quire_error *err) {
    const str type = adapter_gguf_str(f, "general.type"), kind = adapter_gguf_str(f, "adapter.type"),
              architecture = adapter_gguf_str(f, "general.architecture");
    if (!str_is(type, "adapter")) {
        const foreign is = foreign_of_gguf(type, architecture);
        return err_set(err, QUIRE_UNSUPPORTED, -1,
                       "%s: %s, not an adapter: its general.type is %s, not \"adapter\"", f->path,
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
        return err_set(err, QUIRE_BAD_FILE, -1, "%s: adapter.lora.alpha must be a number from -1e9 to 1e9",
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

#define MAX_KEY_BYTES 1024
#define MAX_PATTERNS  65536
#define MAX_COMPILED  64 /* most keys that need a compiled expression */
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

/* Converts a key whose only operator is '.' to adapter_pattern.plain: resolves escapes of
 * characters that are not letters ('\.' becomes \1). NULL: other operators, or no
 * memory. */
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
        return err_set(err, QUIRE_BAD_FILE, -1, "%s: key %s is not a valid regular expression: %s", where,
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
    TRY(err_set(err, mem_grow(&p->list, &p->cap, p->n + 1, sizeof *p->list), -1, "%s: out of memory", where));
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

#define CONFIG_NAME      "adapter_config.json"
#define TENSORS_NAME     "adapter_model.safetensors"
#define PICKLE_NAME      "adapter_model.bin"
#define MAX_CONFIG_BYTES (8 << 20)
#define MAX_PATH_BYTES   4096

/* ---- bytes ---- */

static quire_err adapter_no_memory(const char *path, quire_error *err) {
    return err_set(err, QUIRE_NO_MEMORY, -1, "%s: out of memory while reading the adapter", path);
}

/* Reads n bytes of an open file. QUIRE_BAD_FILE: it has fewer by now. */
static quire_err adapter_read_bytes(int fd, const char *path, size_t n, void **out, quire_error *err) {
    char *bytes = mem_new(n + 1, 1);
    size_t at = 0;
    if (bytes == NULL) {
        return adapter_no_memory(path, err);
    }
    while (at < n) {
        const ssize_t got = read(fd, bytes + at, n - at);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            const int why = errno;
            mem_free(bytes);
            return got < 0 ? err_set(err, QUIRE_IO, -1, "%s: %s", path, strerror(why))
                           : err_set(err, QUIRE_BAD_FILE, -1,
                                     "%s: the file was truncated while it was read; load it again", path);
        }
        at += (size_t)got;
    }
    *out = bytes;
    return QUIRE_OK;
}

/* Opens a regular file of at most max_bytes; sets *n to its size. */
static quire_err adapter_open_regular(const char *path, int64_t max_bytes, int *fd, size_t *n,
                                      quire_error *err) {
    struct stat st;
    /* O_NONBLOCK: opening a named pipe must not block */
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0) {
        const bool absent = errno == ENOENT || errno == ENOTDIR;
        return err_set(err, absent ? QUIRE_NOT_FOUND : QUIRE_IO, -1, "%s: %s", path, strerror(errno));
    }
    quire_err e = QUIRE_OK;
    if (fstat(*fd, &st) != 0) {
        e = err_set(err, QUIRE_IO, -1, "%s: %s", path, strerror(errno));
    } else if (!S_ISREG(st.st_mode)) {
        e = err_set(err, QUIRE_BAD_FILE, -1, "%s: not a regular file", path);
    } else if (st.st_size > max_bytes) {
        e = err_set(err, QUIRE_TOO_LARGE, -1, "%s: the file has %s bytes, the limit is %s", path,
                    show_count((uint64_t)st.st_size).text, show_count((uint64_t)max_bytes).text);
    }
    if (e != QUIRE_OK) {
        (void)close(*fd);
        return e;
    }
    *n = (size_t)st.st_size;
    return QUIRE_OK;
}

static quire_err adapter_read_whole(const char *path, int64_t max_bytes, void **out, size_t *n,
                                    quire_error *err) {
    int fd;
    TRY(adapter_open_regular(path, max_bytes, &fd, n, err));
    const quire_err e = adapter_read_bytes(fd, path, *n, out, err);
    (void)close(fd);
    return e;
}

/* ---- paths ---- */

/* Resolves an adapter's path: the directory, or the file itself. */
static quire_err adapter_find(const char *path, char out[MAX_PATH_BYTES], bool *is_directory,
                              quire_error *err) {
    static const char *const inside[] = {"/" CONFIG_NAME, "/" TENSORS_NAME, "/" PICKLE_NAME};
    struct stat st;
    size_t n = strlen(path);
    if (n == 0 || n >= MAX_PATH_BYTES - 64) {
        return err_set(err, QUIRE_INVALID, -1, "an adapter's path must have 1 to %d bytes",
                       MAX_PATH_BYTES - 64);
    }
    for (size_t i = 0; i < sizeof inside / sizeof *inside; i++) {
        n -= str_ends((str){path, n}, inside[i]) ? strlen(inside[i]) : 0;
    }
    while (n > 1 && path[n - 1] == '/') {
        n--;
    }
    (void)snprintf(out, MAX_PATH_BYTES, "%.*s", n > 0 ? (int)n : 1, path);
    if (stat(out, &st) != 0) {
        const bool absent = errno == ENOENT || errno == ENOTDIR;
        return err_set(err, absent ? QUIRE_NOT_FOUND : QUIRE_IO, -1, "%s: %s", out, strerror(errno));
    }
    *is_directory = S_ISDIR(st.st_mode);
    return QUIRE_OK;
}

/* Explains why a directory without a config can't be read as an adapter. */
static quire_err adapter_not_here(const char *dir, const char *name, quire_error *err) {
    const foreign is = foreign_of_directory(dir);
    return err_set(err, QUIRE_UNSUPPORTED, -1,
                   "%s: a directory without %s%s%s; name the directory of a LoRA adapter (PEFT: " CONFIG_NAME
                   " and " TENSORS_NAME ") or a GGUF adapter",
                   dir, name, is.what != NULL ? ", with " : "", is.what != NULL ? is.what : "");
}

/* Reads a directory's config. */
static quire_err adapter_read_config(adapter_file *f, void **text, size_t *n, quire_error *err) {
    char path[MAX_PATH_BYTES];
    (void)snprintf(path, sizeof path, "%.4000s/" CONFIG_NAME, f->path);
    const quire_err e = adapter_read_whole(path, MAX_CONFIG_BYTES, text, n, err);
    if (e == QUIRE_NOT_FOUND) {
        return adapter_not_here(f->path, CONFIG_NAME, err);
    }
    TRY(e);
    f->config_text = *text;
    return adapter_config_read(f, (str){*text, *n}, path, err);
}

/* ---- PEFT ---- */

static quire_err adapter_tensors_missing(const adapter_file *f, quire_error *err) {
    char path[MAX_PATH_BYTES];
    (void)snprintf(path, sizeof path, "%.4000s/" PICKLE_NAME, f->path);
    if (access(path, F_OK) == 0) {
        return err_set(err, QUIRE_UNSUPPORTED, -1,
                       "%s: a PyTorch pickle, a program that Quire never runs; save the adapter with "
                       "safe_serialization=True (" TENSORS_NAME ")",
                       path);
    }
    return adapter_not_here(f->path, TENSORS_NAME, err);
}

/* Reads the tensors in the n bytes of f->content, and computes the digest of both
 * files. */
static quire_err adapter_parse_peft(adapter_file *f, str config, size_t n, const char *path,
                                    quire_error *err) {
    sha256_sum sum;
    f->facts.n_bytes = (int64_t)n;
    TRY(safetensors_parse(f->content, n, path, 0, &f->tensors, err));
    sha256_begin(&sum);
    /* the digest includes the length, which separates the bytes of the two files */
    const uint64_t size = config.n;
    sha256_add(&sum, &size, sizeof size);
    sha256_add(&sum, config.p, config.n);
    sha256_add(&sum, f->content, n);
    sha256_end(&sum, f->digest);
    return QUIRE_OK;
}

static quire_err adapter_open_peft(adapter_file *f, int64_t max_bytes, quire_error *err) {
    char path[MAX_PATH_BYTES];
    void *config;
    size_t n_config, n;
    TRY(adapter_read_config(f, &config, &n_config, err));
    (void)snprintf(path, sizeof path, "%.4000s/" TENSORS_NAME, f->path);
    const quire_err e = adapter_read_whole(path, max_bytes, &f->content, &n, err);
    if (e == QUIRE_NOT_FOUND) {
        return adapter_tensors_missing(f, err);
    }
    TRY(e);
    return adapter_parse_peft(f, (str){config, n_config}, n, path, err);
}

/* ---- GGUF ---- */

/* Reads the n bytes of f->content as a GGUF file. */
static quire_err adapter_parse_gguf(adapter_file *f, size_t n, quire_error *err) {
    f->facts.format = ADAPTER_GGUF;
    f->facts.n_bytes = (int64_t)n;
    const str bytes = {f->content, n};
    if (!str_begins(bytes, "GGUF")) {
        const foreign is = foreign_of_content(bytes);
        return err_set(
            err, QUIRE_UNSUPPORTED, -1,
            "%s: %s%snot an adapter: name the directory of a LoRA adapter (PEFT) or a GGUF adapter", f->path,
            is.what != NULL ? is.what : "", is.what != NULL ? ", " : "");
    }
    TRY(gguf_parse(&f->keys, f->content, n, f->path, 0, &f->tensors, err));
    TRY(adapter_config_read_gguf(f, err));
    sha256(f->content, n, f->digest);
    return QUIRE_OK;
}

static quire_err adapter_open_gguf(adapter_file *f, int64_t max_bytes, quire_error *err) {
    size_t n;
    TRY(adapter_read_whole(f->path, max_bytes, &f->content, &n, err));
    return adapter_parse_gguf(f, n, err);
}

/* ---- opening ---- */

static void adapter_file_deinit(adapter_file *f) {
    mem_free(f->invocation);
    mem_free(f->invocation_text);
    adapter_patterns_deinit(&f->ranks);
    adapter_patterns_deinit(&f->alphas);
    tensor_dir_deinit(&f->tensors);
    gguf_deinit(&f->keys);
    mem_free(f->content);
    mem_free(f->config_text);
}

void adapter_file_close(adapter_file *f) {
    if (f != NULL) {
        adapter_file_deinit(f);
        mem_free(f->path);
        mem_free(f);
    }
}

static quire_err adapter_new_file(const char *path, adapter_file **out, quire_error *err) {
    adapter_file *f = mem_new(1, sizeof *f);
    if (f == NULL || (f->path = mem_dup(path, strlen(path))) == NULL) {
        mem_free(f);
        return adapter_no_memory(path, err);
    }
    *out = f;
    return QUIRE_OK;
}

/* Completes f and passes it to *out, or frees it if e is an error. */
static quire_err adapter_finish(adapter_file *f, quire_err e, adapter_file **out, quire_error *err) {
    TRY_DONE(e, tensor_dir_finish(&f->tensors, f->path, err));
    if (f->tensors.n == 0 && f->tensors.n_unread == 0) {
        e = err_set(err, QUIRE_BAD_FILE, -1, "%s: the adapter has no tensors; save it again", f->path);
    }
done:
    if (e != QUIRE_OK) {
        adapter_file_close(f);
        return e;
    }
    *out = f;
    return QUIRE_OK;
}

quire_err adapter_file_open(const char *path, int64_t max_bytes, adapter_file **out, quire_error *err) {
    char own[MAX_PATH_BYTES];
    bool is_directory = false;
    adapter_file *f;
    TRY(adapter_find(path, own, &is_directory, err));
    TRY(adapter_new_file(own, &f, err));
    const quire_err e =
        is_directory ? adapter_open_peft(f, max_bytes, err) : adapter_open_gguf(f, max_bytes, err);
    return adapter_finish(f, e, out, err);
}

quire_err adapter_file_open_memory(str config, str content, const char *name, adapter_file **out,
                                   quire_error *err) {
    adapter_file *f;
    TRY(adapter_new_file(name, &f, err));
    f->content = mem_dup(content.p, content.n);
    f->config_text = config.p != NULL ? mem_dup(config.p, config.n) : NULL;
    if (f->content == NULL || (config.p != NULL && f->config_text == NULL)) {
        adapter_file_close(f);
        return adapter_no_memory(name, err);
    }
    config.p = f->config_text;
    quire_err e =
        config.p != NULL ? adapter_config_read(f, config, name, err) : adapter_parse_gguf(f, content.n, err);
    e = e || config.p == NULL ? e : adapter_parse_peft(f, config, content.n, name, err);
    return adapter_finish(f, e, out, err);
}

/* ---- scales ---- */

quire_err adapter_file_scale(const adapter_file *f, str module, int64_t rank, float *out, quire_error *err) {
    assert(f != NULL);
    double r = (double)f->rank, alpha = f->alpha;
    if (f->facts.format == ADAPTER_GGUF) {
        *out = alpha != 0.0 ? (float)(alpha / (double)rank) : 1.0f;
        return QUIRE_OK;
    }
    (void)adapter_patterns_find(&f->ranks, module, &r);
    (void)adapter_patterns_find(&f->alphas, module, &alpha);
    if (r != (double)rank) {
        return err_set(err, QUIRE_BAD_FILE, -1,
                       "%s: module %s has rank %s, and " CONFIG_NAME
                       " says %g: its files belong to different adapters, or rank_pattern lacks the module",
                       f->path, show_name(module).text, show_count((uint64_t)rank).text, r);
    }
    const double scale = f->by_root ? alpha / sqrt(r) : alpha / r;
    *out = (float)scale;
    return QUIRE_OK;
}
