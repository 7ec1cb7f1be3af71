#include "hub/hub_choose.h"

#include <assert.h>
#include <ctype.h>
#include <stdlib.h>

#include "base/mem.h"
#include "file/not_a_model.h"
#include "file/show.h"
#include "hub/hub_name.h"
#include "json/json.h"

static const json_limits limits = {.max_depth = 16,
                                   .max_values = 8000000,
                                   .max_containers = 1000,
                                   .max_names = 8000000,
                                   .names = JSON_NAMES_LAST};

void hub_choice_deinit(hub_choice *c) {
    mem_free(c->files);
    *c = (hub_choice){.first = -1, .index = -1};
}

static quire_err hub_choose_add(hub_choice *c, int32_t i, quire_error *err) {
    if (mem_grow(&c->files, &c->cap, c->n + 1, sizeof *c->files) != QUIRE_OK) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for a list of files");
    }
    c->files[c->n++] = i;
    return QUIRE_OK;
}

static str hub_choose_path_of(const hub_listing *l, size_t i) {
    return str_of(l->files[i].path);
}

static bool hub_choose_is_one_of(str path, const char *const *names) {
    bool is = false;
    for (; *names; names++) {
        is = is || str_is(path, *names);
    }
    return is;
}

/* ---- GGUF ---- */

/* Adds all parts of the model that file i belongs to. */
static quire_err hub_choose_add_parts(const hub_listing *l, const char *repo, int32_t i, hub_choice *out,
                                      quire_error *err) {
    hub_gguf wanted, g;
    (void)hub_gguf_read(hub_choose_path_of(l, (size_t)i), &wanted);
    int32_t next = 1; /* the files are sorted, so parts come in order */
    for (size_t k = 0; k < l->n; k++) {
        if (hub_gguf_read(hub_choose_path_of(l, k), &g) && str_eq(g.stem, wanted.stem) &&
            g.n_parts == wanted.n_parts && g.part == next) {
            out->first = next == 1 ? (int32_t)k : out->first;
            out->has_weights = true;
            TRY(hub_choose_add(out, (int32_t)k, err));
            next++;
        }
    }
    if (next <= wanted.n_parts) {
        return err_set(err, QUIRE_BAD_FILE, -1, "%s: part %d of the %d parts of %s is missing", repo,
                       (int)next, (int)wanted.n_parts, show_name(wanted.stem).text);
    }
    return QUIRE_OK;
}

/* Whether the text, a list separated by ", ", has the item. */
static bool has_item(const strbuf *text, str item) {
    for (size_t from = 0; from < text->n;) {
        size_t to = from;
        while (to < text->n && text->p[to] != ',') {
            to++;
        }
        if (hub_quant_same((str){text->p + from, to - from}, item)) {
            return true;
        }
        from = to + 2;
    }
    return false;
}

void hub_list_quants(const hub_listing *l, strbuf *text) {
    assert(l != NULL);
    hub_gguf g;
    for (size_t i = 0; i < l->n && text->n < 250; i++) {
        bool is_first = hub_gguf_read(hub_choose_path_of(l, i), &g) && g.part == 1;
        shown label = show_name(is_first && g.quant.n > 0 ? g.quant : hub_choose_path_of(l, i));
        if (is_first && !has_item(text, str_of(label.text))) {
            (void)strbuf_addf(text, "%s%s", text->n > 0 ? ", " : "", label.text);
        }
    }
    (void)strbuf_add_str(text, text->n >= 250 ? " .." : "");
}

static quire_err unknown_quant(const hub_listing *l, const char *repo, const char *pick, quire_error *err) {
    strbuf there = {0};
    hub_list_quants(l, &there);
    quire_err e =
        there.n > 0
            ? err_set(err, QUIRE_INVALID, -1, "%s:%s: the repository has no such quantisation; it has %s",
                      repo, pick, there.p)
            : err_set(err, QUIRE_INVALID, -1, "%s:%s: the repository has no GGUF files; name it without :%s",
                      repo, pick, pick);
    strbuf_deinit(&there);
    return e;
}

/* Chooses the model of this quantisation. QUIRE_NOT_FOUND, without a message: there is
 * none. */
static quire_err choose_quant(const hub_listing *l, const char *repo, str quant, hub_choice *out,
                              quire_error *err) {
    hub_gguf g, found = {.n_parts = 0};
    int32_t first = -1;
    for (size_t i = 0; i < l->n; i++) {
        if (!hub_gguf_read(hub_choose_path_of(l, i), &g) || !hub_quant_same(g.quant, quant)) {
            continue;
        }
        if (first >= 0 && !str_eq(g.stem, found.stem)) {
            return err_set(err, QUIRE_INVALID, -1,
                           "%s:%.*s: several models have this quantisation; name a file, such as %s:%s.gguf "
                           "or %s:%s.gguf",
                           repo, (int)quant.n, quant.p, repo, show_name(found.stem).text, repo,
                           show_name(g.stem).text);
        }
        found = first < 0 ? g : found;
        first = first < 0 ? (int32_t)i : first;
    }
    return first < 0 ? QUIRE_NOT_FOUND : hub_choose_add_parts(l, repo, first, out, err);
}

static quire_err choose_file(const hub_listing *l, const char *repo, const char *pick, hub_choice *out,
                             quire_error *err) {
    int32_t i = hub_listing_find(l, str_of(pick));
    hub_gguf g;
    if (i < 0) {
        strbuf there = {0};
        hub_list_quants(l, &there);
        quire_err e = err_set(err, QUIRE_NOT_FOUND, -1, "%s: has no file %s; it has GGUF files in %s", repo,
                              pick, there.n > 0 ? there.p : "none");
        strbuf_deinit(&there);
        return e;
    }
    if (!hub_gguf_read(str_of(pick), &g)) {
        return err_set(err, QUIRE_UNSUPPORTED, -1,
                       "%s:%s: this file belongs to a model but is not a model itself", repo, pick);
    }
    return hub_choose_add_parts(l, repo, i, out, err);
}

/* Chooses a GGUF model when no quantisation is named: the first of `order` that exists,
 * else the first file. QUIRE_NOT_FOUND, without a message: there is none. */
static quire_err choose_usual(const hub_listing *l, const char *repo, hub_choice *out, quire_error *err) {
    static const char *const order[] = {"Q4_K_M", "UD-Q4_K_XL", "MXFP4", "Q4_K_S", "Q4_0", "Q4",
                                        "Q5_K_M", "Q8_0",       "BF16",  "F16",    "FP16"};
    hub_gguf g;
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        quire_err e = choose_quant(l, repo, str_of(order[i]), out, err);
        if (e != QUIRE_NOT_FOUND) {
            return e;
        }
    }
    for (size_t i = 0; i < l->n; i++) {
        if (hub_gguf_read(hub_choose_path_of(l, i), &g)) {
            return hub_choose_add_parts(l, repo, (int32_t)i, out, err);
        }
    }
    return QUIRE_NOT_FOUND;
}

/* ---- safetensors ---- */

/* Whether path is a file that Quire reads besides the weights, or a module of a
 * sentence-transformers model. */
static bool is_text(str path) {
    static const char *const names[] = {"config.json",
                                        "quantize_config.json",
                                        "quant_config.json",
                                        "hf_quant_config.json",
                                        "generation_config.json",
                                        "tokenizer.json",
                                        "tokenizer_config.json",
                                        "special_tokens_map.json",
                                        "added_tokens.json",
                                        "vocab.json",
                                        "merges.txt",
                                        "vocab.txt",
                                        "tokenizer.model",
                                        "sentencepiece.bpe.model",
                                        "sentencepiece.model",
                                        "spiece.model",
                                        "tiktoken.model",
                                        "tekken.json",
                                        "chat_template.jinja",
                                        "chat_template.json",
                                        "modules.json",
                                        "sentence_bert_config.json",
                                        "config_sentence_transformers.json",
                                        NULL};
    const char *slash = memchr(path.p, '/', path.n);
    if (slash == NULL) {
        return hub_choose_is_one_of(path, names) || str_ends(path, ".tiktoken");
    }
    str inside = {slash + 1, path.n - (size_t)(slash + 1 - path.p)};
    bool is_module = isdigit((unsigned char)path.p[0]) &&
                     (str_is(inside, "config.json") || str_is(inside, "model.safetensors"));
    bool is_template = str_begins(path, "additional_chat_templates/") &&
                       memchr(inside.p, '/', inside.n) == NULL && str_ends(inside, ".jinja");
    return is_module || is_template;
}

bool hub_has_texts(const hub_listing *l) {
    static const char *const tokenizers[] = {
        "tokenizer.json", "tokenizer.model",         "vocab.json",   "vocab.txt",           "tekken.json",
        "tiktoken.model", "sentencepiece.bpe.model", "spiece.model", "sentencepiece.model", NULL};
    bool found = false;
    for (size_t i = 0; i < l->n; i++) {
        found = found || hub_choose_is_one_of(hub_choose_path_of(l, i), tokenizers) ||
                str_ends(hub_choose_path_of(l, i), ".tiktoken");
    }
    return found && hub_listing_find(l, str_of("config.json")) >= 0;
}

static bool is_listed_shard(str path) {
    return str_begins(path, "model") && str_ends(path, ".safetensors") && memchr(path.p, '/', path.n) == NULL;
}

/* Adds the model's weights; if there are none, adds nothing and succeeds. */
static quire_err hub_choose_add_weights(const hub_listing *l, hub_choice *out, quire_error *err) {
    int32_t whole = hub_listing_find(l, str_of("model.safetensors"));
    if (whole >= 0) {
        return hub_choose_add(out, whole, err);
    }
    out->index = hub_listing_find(l, str_of(HUB_INDEX));
    if (out->index >= 0) {
        return hub_choose_add(out, out->index, err);
    }
    for (size_t i = 0; i < l->n; i++) {
        if (is_listed_shard(hub_choose_path_of(l, i))) {
            TRY(hub_choose_add(out, (int32_t)i, err));
        }
    }
    return QUIRE_OK;
}

static quire_err add_texts(const hub_listing *l, hub_choice *out, quire_error *err) {
    for (size_t i = 0; i < l->n; i++) {
        if (is_text(hub_choose_path_of(l, i))) {
            TRY(hub_choose_add(out, (int32_t)i, err));
        }
    }
    return QUIRE_OK;
}

static foreign foreign_of_listing(const hub_listing *l) {
    foreign found = {.what = NULL};
    for (size_t i = 0; i < l->n; i++) {
        found = foreign_stronger(found, foreign_of_name(hub_choose_path_of(l, i)));
    }
    return found;
}

static quire_err choose_directory(const hub_listing *l, const char *repo, hub_choice *out, quire_error *err) {
    TRY(hub_choose_add_weights(l, out, err));
    out->has_weights = out->n > 0;
    if (!out->has_weights) {
        quire_err e = choose_usual(l, repo, out, err);
        if (e != QUIRE_NOT_FOUND) {
            return e;
        }
    }
    foreign is = foreign_of_listing(l);
    if (out->n == 0 && is.what != NULL) {
        return err_set(err, QUIRE_UNSUPPORTED, -1, "%s: a repository with %s, so nothing was fetched; %s",
                       repo, is.what, is.instead);
    }
    TRY(add_texts(l, out, err));
    return out->n > 0
               ? QUIRE_OK
               : err_set(err, QUIRE_NOT_FOUND, -1,
                         "%s: has no safetensors, GGUF or tokenizer files: nothing that Quire reads", repo);
}

quire_err hub_choose(const hub_listing *l, const char *repo, const char *pick, hub_choice *out,
                     quire_error *err) {
    *out = (hub_choice){.first = -1, .index = -1};
    if (pick[0] == 0) {
        return choose_directory(l, repo, out, err);
    }
    if (str_ends(str_of(pick), ".gguf")) {
        return choose_file(l, repo, pick, out, err);
    }
    quire_err e = choose_quant(l, repo, str_of(pick), out, err);
    return e == QUIRE_NOT_FOUND ? unknown_quant(l, repo, pick, err) : e;
}

quire_err hub_choose_adapter(const hub_listing *l, const char *repo, const char *pick, hub_choice *out,
                             quire_error *err) {
    const int32_t config = hub_listing_find(l, str_of(HUB_ADAPTER_CONFIG));
    const int32_t weights = hub_listing_find(l, str_of("adapter_model.safetensors"));
    *out = (hub_choice){.first = -1, .index = -1};
    if (pick[0] != 0) {
        return hub_choose(l, repo, pick, out, err);
    }
    if (config >= 0 && weights >= 0) {
        TRY(hub_choose_add(out, weights, err));
        TRY(hub_choose_add(out, config, err));
        out->has_weights = true;
        return QUIRE_OK;
    }
    quire_err e = choose_usual(l, repo, out, err);
    if (e != QUIRE_NOT_FOUND) {
        return e;
    }
    return hub_listing_find(l, str_of("adapter_model.bin")) >= 0
               ? err_set(err, QUIRE_UNSUPPORTED, -1,
                         "%s: an adapter in PyTorch pickles, programs that Quire never runs; save it as "
                         "safetensors",
                         repo)
               : err_set(err, QUIRE_NOT_FOUND, -1,
                         "%s: has no " HUB_ADAPTER_CONFIG
                         " with adapter_model.safetensors, and no GGUF file: it is not a LoRA adapter",
                         repo);
}

/* ---- the index ---- */

/* taken[i]: file i of the listing is already in the choice. */
static quire_err hub_choose_add_shards(const hub_listing *l, const char *repo, const json_value *map,
                                       bool *taken, hub_choice *out, quire_error *err) {
    for (json_member m = {0}; json_next(map, &m);) {
        str name = json_str(m.value);
        int32_t i = hub_listing_find(l, name);
        if (i < 0 || !str_ends(name, ".safetensors")) {
            return err_set(err, QUIRE_BAD_FILE, -1, "%s: %s names %s, which is %s", repo, HUB_INDEX,
                           show_name(name).text, i < 0 ? "missing" : "not a safetensors file");
        }
        if (!taken[i]) {
            TRY(hub_choose_add(out, i, err));
        }
        taken[i] = true;
    }
    return QUIRE_OK;
}

quire_err hub_choose_shards(const hub_listing *l, const char *repo, str index, hub_choice *out,
                            quire_error *err) {
    json_value *root = NULL;
    json_fault fault;
    quire_err e = json_read(index, &limits, JSON_WIDE_REAL, &root, &fault);
    if (e != QUIRE_OK) {
        return err_set(err, QUIRE_BAD_FILE, (int64_t)fault.at, "%s: %s: %s", repo, HUB_INDEX, fault.what);
    }
    const json_value *map = json_get(root, "weight_map");
    bool *taken = mem_new(l->n, sizeof *taken);
    for (size_t i = 0; taken != NULL && i < out->n; i++) {
        taken[out->files[i]] = true;
    }
    e = mem_check_for(taken, "a list of shards", err);
    if (e == QUIRE_OK) {
        e = json_is(map, JSON_KIND_OBJECT)
                ? hub_choose_add_shards(l, repo, map, taken, out, err)
                : err_set(err, QUIRE_BAD_FILE, -1, "%s: %s has no weight_map", repo, HUB_INDEX);
    }
    mem_free(taken);
    json_drop(root);
    if (e == QUIRE_OK) {
        out->index = -1;
    }
    return e;
}

/* ---- the files of a commit ---- */

static const json_limits hub_listing_limits = {.max_depth = 64,
                                               .max_values = 4000000,
                                               .max_containers = 1000000,
                                               .max_names = 4000000,
                                               .names = JSON_NAMES_LAST};

void hub_listing_deinit(hub_listing *l) {
    assert(l != NULL);
    for (size_t i = 0; i < l->n; i++) {
        mem_free(l->files[i].path);
    }
    mem_free(l->files);
    *l = (hub_listing){.n = 0};
}

quire_err hub_listing_add(hub_listing *l, str path, str id, int64_t n_bytes) {
    assert(l != NULL);
    if (l->n == HUB_MAX_FILES) {
        return QUIRE_TOO_LARGE;
    }
    TRY(mem_grow(&l->files, &l->cap, l->n + 1, sizeof *l->files));
    hub_file f = {.path = mem_dup(path.p, path.n), .n_bytes = n_bytes};
    TRY(mem_check(f.path));
    memcpy(f.id, id.p, id.n < sizeof f.id ? id.n : sizeof f.id - 1);
    l->files[l->n++] = f;
    return QUIRE_OK;
}

static int hub_listing_compare(const void *a, const void *b) {
    return strcmp(((const hub_file *)a)->path, ((const hub_file *)b)->path);
}

void hub_listing_sort(hub_listing *l) {
    assert(l != NULL);
    if (l->n > 0) {
        qsort(l->files, l->n, sizeof *l->files, hub_listing_compare);
    }
}

int32_t hub_listing_find(const hub_listing *l, str path) {
    assert(l != NULL);
    size_t low = 0, high = l->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        str there = str_of(l->files[middle].path);
        int order = memcmp(there.p, path.p, there.n < path.n ? there.n : path.n);
        order = order != 0 ? order : (there.n > path.n) - (there.n < path.n);
        if (order == 0) {
            return (int32_t)middle;
        }
        low = order < 0 ? middle + 1 : low;
        high = order < 0 ? high : middle;
    }
    return -1;
}

/* ---- the hub's answer ---- */

static quire_err hub_listing_bad(const char *repo, const char *what, quire_error *err) {
    return err_set(err, QUIRE_BAD_FILE, -1, "%s: the hub's list of files %s", repo, what);
}

/* Adds one entry of "siblings": {"rfilename", "size", "blobId", "lfs": {"sha256"}}. */
static quire_err add_sibling(hub_listing *l, const json_value *v, const char *repo, quire_error *err) {
    str path = json_get_str(v, "rfilename"), sha256 = json_get_str(json_get(v, "lfs"), "sha256");
    str id = sha256.n > 0 ? sha256 : json_get_str(v, "blobId");
    int64_t n_bytes = 0;
    if (hub_path_is_hostile(path)) {
        return err_set(err, QUIRE_BAD_FILE, -1,
                       "%s: the hub's list names a file %s, which would leave the cache; nothing was fetched",
                       repo, show_name(path).text);
    }
    if (!hub_path_is_safe(path)) {
        return QUIRE_OK;
    }
    if (!hub_is_digest(id) || (sha256.n > 0 && id.n != 64) || !json_whole(json_get(v, "size"), &n_bytes) ||
        n_bytes < 0) {
        return err_set(err, QUIRE_BAD_FILE, -1,
                       "%s: the hub's list gives no size or hash for %s, so the file could not be verified; "
                       "is HF_ENDPOINT a hub?",
                       repo, show_name(path).text);
    }
    quire_err e = hub_listing_add(l, path, id, n_bytes);
    return err_set(err, e, -1, "%s: %s", repo,
                   e == QUIRE_TOO_LARGE ? "more files than any model has" : "out of memory");
}

/* Reads "cardData": {"base_model": "ORG/NAME" or a list of such names}. */
static void hub_listing_read_base(const json_value *root, char out[194]) {
    const json_value *base = json_get(json_get(root, "cardData"), "base_model");
    str text = json_str(json_is(base, JSON_KIND_ARRAY) ? json_at(base, 0) : base);
    hub_name name;
    if (text.n > 0 && text.n < 194 && hub_name_parse(text.p, &name, NULL) == QUIRE_OK &&
        strlen(name.repo) == text.n) {
        memcpy(out, name.repo, text.n + 1);
    }
}

static quire_err read_answer(const json_value *root, const char *repo, hub_listing *out, quire_error *err) {
    str commit = json_get_str(root, "sha");
    const json_value *files = json_get(root, "siblings");
    if (!hub_is_hex(commit, 40) || !json_is(files, JSON_KIND_ARRAY)) {
        return hub_listing_bad(repo, "has no commit or no files; is HF_ENDPOINT a hub?", err);
    }
    memcpy(out->commit, commit.p, commit.n);
    hub_listing_read_base(root, out->base);
    for (size_t i = 0; i < json_length(files); i++) {
        TRY(add_sibling(out, json_at(files, i), repo, err));
    }
    hub_listing_sort(out);
    for (size_t i = 1; i < out->n; i++) {
        if (strcmp(out->files[i - 1].path, out->files[i].path) == 0) {
            return hub_listing_bad(repo, "names a file twice", err);
        }
    }
    return QUIRE_OK;
}

quire_err hub_listing_parse(str json, const char *repo, hub_listing *out, quire_error *err) {
    json_value *root = NULL;
    json_fault fault;
    *out = (hub_listing){.n = 0};
    quire_err e = json_read(json, &hub_listing_limits, JSON_WIDE_REAL, &root, &fault);
    if (e != QUIRE_OK) {
        return err_set(err, e, (int64_t)fault.at,
                       "%s: the hub's list of files is not JSON at byte %s: %s; is HF_ENDPOINT a hub?", repo,
                       show_count(fault.at).text, fault.what);
    }
    e = read_answer(root, repo, out, err);
    json_drop(root);
    return e;
}
