/* Loads a tokenizer from tokenizer.json, with the special tokens of tokenizer_config.json
 * and special_tokens_map.json. */
#include <stdlib.h>

#include "base/mem.h"
#include "text/chars.h"
#include "text/json_vocab.h"
#include "text/model_build.h"
#include "text/tables.h"
#include "json/json.h"
#include "json/json_scan.h"

/* The added tokens of a Hugging Face tokenizer: those in tokenizer.json, and those that
 * only added_tokens_decoder in tokenizer_config.json has, as transformers adds them.
 *
 * A token whose text is in the vocabulary keeps that id; others get the next free ids, in
 * order of the names in the decoder. If both files have a token, the decoder's flags
 * count. */

typedef struct added_entry {
    json_value *flags; /* the JSON object that describes it; borrowed */
    str content;
    int32_t id;     /* -1: not known yet, or not in the file */
    int64_t order;  /* its name in the decoder; -1: from tokenizer.json */
    bool by_config; /* its flags are from tokenizer_config.json */
    bool special;
} added_entry;

typedef struct added_list {
    added_entry *entries; /* those of tokenizer.json, then the others by `order` */
    size_t n, cap, n_file;
    size_t *by_content; /* [n - n_file] indices of the others, sorted by content */
} added_list;

static int compare_orders(const void *a, const void *b) {
    int64_t x = ((const added_entry *)a)->order, y = ((const added_entry *)b)->order;
    return (x > y) - (x < y);
}

/* Orders entries by content, equal ones by index. */
static int compare_entries(const void *a, const void *b) {
    const added_entry *x = *(const added_entry *const *)a, *y = *(const added_entry *const *)b;
    int c = str_compare(x->content, y->content);
    return c != 0 ? c : (x > y) - (x < y);
}

static quire_err added_list_add(added_list *l, const added_entry *e) {
    TRY(mem_grow(&l->entries, &l->cap, l->n + 1, sizeof *l->entries));
    l->entries[l->n++] = *e;
    return QUIRE_OK;
}

typedef struct name_list {
    str *names; /* sorted once all are added */
    size_t n, cap;
} name_list;

static int added_list_compare_names(const void *a, const void *b) {
    return str_compare(*(const str *)a, *(const str *)b);
}

static quire_err added_list_add_name(name_list *l, str name) {
    if (name.n > 0) {
        TRY(mem_grow(&l->names, &l->cap, l->n + 1, sizeof *l->names));
        l->names[l->n++] = name;
    }
    return QUIRE_OK;
}

/* Reads the texts of special tokens that tokenizer_config.json names. */
static quire_err read_names(json_value *config, name_list *l) {
    static const char *const keys[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                       "pad_token", "cls_token", "mask_token"};
    static const char *const lists[] = {"additional_special_tokens", "extra_special_tokens"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        TRY(added_list_add_name(l, config_special(config, keys[i])));
    }
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        json_value *list = json_get(config, lists[i]);
        for (size_t k = 0; json_is(list, JSON_KIND_ARRAY) && k < json_length(list); k++) {
            str s = json_str(json_at(list, k));
            TRY(added_list_add_name(l, s.n > 0 ? s : json_get_str(json_at(list, k), "content")));
        }
    }
    if (l->n > 0) {
        qsort(l->names, l->n, sizeof *l->names, added_list_compare_names);
    }
    return QUIRE_OK;
}

/* Marks the decoder's entries that are named as special tokens. */
static quire_err mark_special(added_list *l, json_value *config) {
    name_list names = {0};
    quire_err e = read_names(config, &names);
    for (size_t i = 0; e == QUIRE_OK && names.n > 0 && i < l->n; i++) {
        added_entry *a = &l->entries[i];
        bool is_named = a->by_config && bsearch(&a->content, names.names, names.n, sizeof *names.names,
                                                added_list_compare_names) != NULL;
        a->special = a->special || is_named;
    }
    mem_free(names.names);
    return e;
}

static quire_err read_decoder(added_list *l, json_value *config) {
    for (json_member m = {0}; json_next(json_get(config, "added_tokens_decoder"), &m);) {
        added_entry e = {
            .flags = m.value, .content = json_get_str(m.value, "content"), .id = -1, .by_config = true};
        if (e.content.n > 0 && config_token_id(m.name, &e.order)) {
            e.special = json_get_bool(m.value, "special", false);
            TRY(added_list_add(l, &e));
        }
    }
    if (l->n > l->n_file) { /* otherwise `entries` may be NULL */
        qsort(l->entries + l->n_file, l->n - l->n_file, sizeof *l->entries, compare_orders);
    }
    return QUIRE_OK;
}

/* Drops the decoder's entries with the content of an earlier entry, which gets their
 * flags. */
static void added_list_merge(added_list *l, const added_entry **sorted) {
    size_t n = l->n_file;
    for (size_t i = 0; i < l->n; i++) {
        sorted[i] = &l->entries[i];
    }
    qsort(sorted, l->n, sizeof *sorted, compare_entries);
    for (size_t i = 0, first = 0; i < l->n; i++) {
        first = str_eq(sorted[i]->content, sorted[first]->content) ? first : i;
        added_entry *kept = &l->entries[sorted[first] - l->entries], *e = &l->entries[sorted[i] - l->entries];
        if (kept != e && e->order >= 0) {
            kept->flags = e->flags;
            kept->special = e->special;
            kept->by_config = true;
            e->flags = NULL;
        }
    }
    for (size_t i = l->n_file; i < l->n; i++) {
        if (l->entries[i].flags != NULL) {
            l->entries[n++] = l->entries[i];
        }
    }
    l->n = n;
}

/* Sorts the decoder's own entries by content into by_content. */
static quire_err sort_open(added_list *l, const added_entry **sorted) {
    size_t n = l->n - l->n_file;
    l->by_content = mem_new(n, sizeof *l->by_content);
    TRY(mem_check(l->by_content));
    for (size_t i = 0; i < n; i++) {
        sorted[i] = &l->entries[l->n_file + i];
    }
    qsort(sorted, n, sizeof *sorted, compare_entries);
    for (size_t i = 0; i < n; i++) {
        l->by_content[i] = (size_t)(sorted[i] - l->entries);
    }
    return QUIRE_OK;
}

/* Reads the added tokens. added: the array in tokenizer.json; config:
 * tokenizer_config.json; either may be NULL, both are borrowed until the deinit, which is
 * needed in any case. O(n log n). QUIRE_NO_MEMORY. */
static quire_err added_list_read(added_list *l, json_value *added, json_value *config) {
    *l = (added_list){0};
    for (size_t i = 0; added != NULL && i < json_length(added); i++) {
        json_value *o = json_at(added, i);
        TRY(added_list_add(l, &(added_entry){.flags = o,
                                             .content = json_get_str(o, "content"),
                                             .id = json_get_int32(o, "id", -1),
                                             .order = -1,
                                             .special = json_get_bool(o, "special", false)}));
    }
    l->n_file = l->n;
    TRY(read_decoder(l, config));
    if (l->n == l->n_file) {
        return QUIRE_OK;
    }
    const added_entry **sorted = mem_new(l->n, sizeof *sorted);
    TRY(mem_check(sorted));
    added_list_merge(l, sorted);
    quire_err e = sort_open(l, sorted);
    mem_free(sorted);
    TRY(e);
    return mark_special(l, config);
}

static void added_list_deinit(added_list *l) {
    mem_free(l->entries);
    mem_free(l->by_content);
    *l = (added_list){0};
}

/* Whether some ids depend on the vocabulary: then each of its pieces goes to
 * added_list_note. */
static bool added_list_is_open(const added_list *l) {
    return l->n > l->n_file;
}

static void added_list_note(added_list *l, str piece, int32_t id) {
    size_t low = 0, high = l->n - l->n_file;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        added_entry *e = &l->entries[l->by_content[middle]];
        int c = str_compare(e->content, piece);
        if (c == 0) {
            e->id = id;
            return;
        }
        low = c < 0 ? middle + 1 : low;
        high = c < 0 ? high : middle;
    }
}

/* Gives ids to tokens whose text is no piece. n_vocab: number of the model's own
 * pieces. */
static void added_list_number(added_list *l, int64_t n_vocab) {
    int64_t next = n_vocab;
    for (size_t i = 0; i < l->n; i++) {
        next = l->entries[i].id >= next ? (int64_t)l->entries[i].id + 1 : next;
    }
    for (size_t i = l->n_file; i < l->n; i++) {
        if (l->entries[i].id < 0 && next < INT32_MAX) {
            l->entries[i].id = (int32_t)next++;
        }
    }
}

/* The largest id; -1: none. */
static int64_t added_list_max_id(const added_list *l) {
    int64_t max = -1;
    for (size_t i = 0; i < l->n; i++) {
        max = l->entries[i].id > max ? l->entries[i].id : max;
    }
    return max;
}

/* Most ids without a token; also at most three times those with one. */
#define MAX_SPARE_IDS ((int64_t)1 << 20)

/* ---- the vocabulary and added tokens ---- */

/* Takes the vocabulary of a packed model, which includes the added tokens. */
static quire_err take_vocab(tokenizer *t, str tables, added_list *added, quire_error *err) {
    TRY(tables_take(t, tables, err));
    for (int32_t i = 0; added_list_is_open(added) && i < t->vocab.n; i++) {
        added_list_note(added, piece_table_get(&t->vocab, i), i);
    }
    added_list_number(added, t->vocab.n);
    return added_list_max_id(added) < t->vocab.n
               ? QUIRE_OK
               : err_set(err, QUIRE_BAD_FILE, -1, "tokenizer.json: its tables lack an added token");
}

static quire_err build_vocab(tokenizer *t, const json_vocab *r, added_list *added, quire_error *err) {
    for (size_t i = 0; added_list_is_open(added) && i < r->n; i++) {
        added_list_note(added, json_vocab_text(r, &r->entries[i]), r->entries[i].id);
    }
    added_list_number(added, (int64_t)r->n);
    size_t n_bytes = 0;
    int64_t max = added_list_max_id(added) > r->max_id ? added_list_max_id(added) : r->max_id;
    int64_t named = (int64_t)(r->n + added->n);
    if (max < 0 || max >= MAX_SPARE_IDS + 4 * named) {
        return err_set(err, QUIRE_BAD_FILE, -1,
                       "tokenizer.json: the largest token id is %lld, but there are %lld tokens",
                       (long long)max, (long long)named);
    }
    for (size_t i = 0; i < r->n; i++) {
        n_bytes += r->entries[i].n;
    }
    TRY(piece_table_init(&t->vocab, (int32_t)max + 1, r->n, n_bytes));
    for (size_t i = 0; i < r->n; i++) {
        TRY(piece_table_add(&t->vocab, r->entries[i].id, json_vocab_text(r, &r->entries[i])));
    }
    return QUIRE_OK;
}

static quire_err load_json_add_token(tokenizer *t, const added_entry *entry, norm_scratch *ns,
                                     regex_scratch *rs, quire_error *err) {
    json_value *o = entry->flags;
    added_token a = {.id = entry->id,
                     .content = entry->content,
                     .special = entry->special,
                     .single_word = json_get_bool(o, "single_word", false),
                     .lstrip = json_get_bool(o, "lstrip", false),
                     .rstrip = json_get_bool(o, "rstrip", false)};
    a.normalized = json_get_bool(o, "normalized", !a.special);
    if (a.id < 0 || !utf8_is_valid(a.content)) {
        return err_set(err, QUIRE_BAD_FILE, -1, "tokenizer.json: an added token without an id, or not UTF-8");
    }
    if (a.content.n == 0) {
        return QUIRE_OK;
    }
    a.pattern = a.content;
    if (a.normalized) {
        str lead = normalizer_lead(&t->normalizer);
        TRY(normalizer_run(&t->normalizer, a.content, ns, rs, &a.pattern));
        bool leads = a.pattern.n > lead.n && lead.n > 0 && memcmp(a.pattern.p, lead.p, lead.n) == 0;
        a.lead = leads ? lead.n : 0;
    }
    TRY(added_set_add(&t->added, &a));
    return str_eq(piece_table_get(&t->vocab, a.id), a.content)
               ? QUIRE_OK
               : piece_table_add_hidden(&t->vocab, a.id, a.content);
}

static quire_err build_added(tokenizer *t, const added_list *added, quire_error *err) {
    norm_scratch ns = {0};
    regex_scratch rs = {0};
    quire_err e = QUIRE_OK;
    for (size_t i = 0; i < added->n && e == QUIRE_OK; i++) {
        e = load_json_add_token(t, &added->entries[i], &ns, &rs, err);
    }
    norm_scratch_deinit(&ns);
    regex_scratch_deinit(&rs);
    TRY(e);
    return added_set_finish(&t->added, t->vocab.n);
}

/* ---- the model ---- */

/* Reads "left right" or ["left", "right"]. copies: buffers for texts with escapes. */
static quire_err read_merge(json_scan *s, strbuf copies[2], str *left, str *right) {
    bool more;
    if (json_scan_peek(s) == '[') {
        TRY(json_scan_open(s, '['));
        TRY(json_scan_more(s, ']', &more));
        TRY(json_scan_string(s, &copies[0], left));
        TRY(json_scan_more(s, ']', &more));
        TRY(json_scan_string(s, &copies[1], right));
        TRY(json_scan_more(s, ']', &more));
        return more ? QUIRE_BAD_FILE : QUIRE_OK;
    }
    str line;
    TRY(json_scan_string(s, &copies[0], &line));
    const char *space = line.n == 0 ? NULL : memchr(line.p, ' ', line.n);
    if (space == NULL) {
        return QUIRE_BAD_FILE;
    }
    *left = (str){line.p, (size_t)(space - line.p)};
    *right = (str){space + 1, line.n - left->n - 1};
    return QUIRE_OK;
}

static quire_err read_merges(tokenizer *t, str span, strbuf copies[2], strbuf *joined, uint32_t *rank) {
    json_scan s = {.text = span};
    bool more;
    TRY(json_scan_open(&s, '['));
    for (;; (*rank)++) {
        str left, right;
        TRY(json_scan_more(&s, ']', &more));
        if (!more) {
            return QUIRE_OK;
        }
        TRY(read_merge(&s, copies, &left, &right));
        s.begun = false;
        TRY(bpe_add_merge(&t->model.bpe, *rank, left, right, joined));
    }
}

static quire_err load_json_load_merges(tokenizer *t, str span, quire_error *err) {
    strbuf copies[2] = {{0}, {0}}, joined = {0};
    uint32_t rank = 0;
    quire_err e = read_merges(t, span, copies, &joined, &rank);
    strbuf_deinit(&copies[0]);
    strbuf_deinit(&copies[1]);
    strbuf_deinit(&joined);
    if (e == QUIRE_BAD_FILE || e == QUIRE_NOT_FOUND) {
        return err_set(
            err, QUIRE_BAD_FILE, -1,
            "tokenizer.json: model.merges[%u] is malformed, or does not join two tokens into a third", rank);
    }
    return e;
}

static quire_err copy_affix(str s, char **out, size_t *n) {
    if (s.n > 0) {
        *out = mem_dup(s.p, s.n);
        *n = s.n;
    }
    return s.n > 0 && *out == NULL ? QUIRE_NO_MEMORY : QUIRE_OK;
}

/* Whether the pre-tokenizer leaves texts uncut, like Llama's, or cuts only at a character
 * that a text may lack. */
static bool leaves_long_words(const pretokenizer *p) {
    for (int32_t i = 0; i < p->n; i++) {
        if (p->steps[i].kind != PRE_METASPACE && p->steps[i].match.re != NULL) {
            return false;
        }
        bool cuts_words = p->steps[i].kind == PRE_CHARS && p->steps[i].class != CLASS_DELIMITER;
        if (cuts_words || (p->steps[i].kind == PRE_METASPACE && p->steps[i].split)) {
            return false;
        }
    }
    return true;
}

static quire_err load_json_build_bpe(tokenizer *t, const json_vocab *r, quire_error *err) {
    bpe *b = &t->model.bpe;
    if (r->has_dropout) {
        return err_set(err, QUIRE_UNSUPPORTED, -1,
                       "tokenizer.json: model.dropout is not supported: it makes tokens random");
    }
    b->unk = t->model.unk;
    b->fuse_unk = r->fuse_unk;
    b->byte_fallback = r->byte_fallback;
    b->ignore_merges = r->ignore_merges;
    TRY(copy_affix(r->prefix, &b->prefix, &b->n_prefix));
    TRY(copy_affix(r->suffix, &b->suffix, &b->n_suffix));
    TRY(bpe_begin(b, r->n * 2));
    if (r->merges.n != 0) {
        TRY(load_json_load_merges(t, r->merges, err));
    }
    return bpe_finish(b, leaves_long_words(&t->pretokenizer));
}

static quire_err load_json_build_unigram(tokenizer *t, const json_vocab *r, quire_error *err) {
    unigram *u = &t->model.unigram;
    double lowest = 0;
    (void)err;
    u->unk = t->model.unk;
    u->names_runs = true;
    u->byte_fallback = r->byte_fallback;
    (void)model_find_bytes(&t->vocab, NULL, NULL, u->bytes);
    TRY(model_note_controls(t, u));
    if (u->scores != NULL) {
        return QUIRE_OK;
    }
    u->scores = mem_new((size_t)t->vocab.n, sizeof *u->scores);
    TRY(mem_check(u->scores));
    for (size_t i = 0; i < r->n; i++) {
        double score = r->entries[i].score;
        u->scores[r->entries[i].id] = score;
        lowest = i == 0 || score < lowest ? score : lowest;
    }
    u->unknown_score = lowest - UNIGRAM_UNKNOWN_PENALTY;
    return model_build_trie(t, &u->trie);
}

static quire_err build_wordpiece(tokenizer *t, const json_vocab *r, quire_error *err) {
    wordpiece *w = &t->model.wordpiece;
    (void)err;
    w->unk = t->model.unk;
    w->max_chars = r->max_chars < 0 || r->max_chars > INT32_MAX - 1 ? 100 : (int32_t)r->max_chars;
    if (w->trie.units == NULL) {
        TRY(model_build_trie(t, &w->trie));
    }
    model_find_word_starts(w, (str){"", 0}, r->has_prefix ? r->prefix : str_of("##"));
    return QUIRE_OK;
}

static quire_err build_wordlevel(tokenizer *t, const json_vocab *r, quire_error *err) {
    (void)t;
    (void)r;
    (void)err;
    return QUIRE_OK;
}

/* The models by name, with the default name of the unknown token. */
static const struct model_kind {
    const piece_model_ops *ops;
    quire_err (*build)(tokenizer *t, const json_vocab *r, quire_error *err);
    const char *unk;
    bool needs_unk;
} kinds[] = {{&piece_model_bpe, load_json_build_bpe, "", false},
             {&piece_model_unigram, load_json_build_unigram, "", false},
             {&piece_model_wordpiece, build_wordpiece, "[UNK]", true},
             {&piece_model_wordlevel, build_wordlevel, "<unk>", true}};

/* The kind of model; if the file has no type, by its parts. NULL: none. */
static const struct model_kind *load_json_kind_of(const json_vocab *r) {
    str type = r->type.n > 0     ? r->type
               : r->merges.n > 0 ? str_of("BPE")
               : r->is_scored    ? str_of("Unigram")
               : r->has_prefix   ? str_of("WordPiece")
                                 : r->type;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (str_is(type, kinds[i].ops->name)) {
            return &kinds[i];
        }
    }
    return NULL;
}

/* Finds the unknown token by id or by name. */
static quire_err find_unk(tokenizer *t, const json_vocab *r, const struct model_kind *k, quire_error *err) {
    str name = r->unk.n > 0 ? r->unk : str_of(k->unk);
    bool by_id = k->ops == &piece_model_unigram;
    if (by_id && (r->unk_id < -1 || r->unk_id >= t->vocab.n)) {
        return err_set(err, QUIRE_BAD_FILE, -1,
                       "tokenizer.json: model.unk_id is %lld, outside the vocabulary", (long long)r->unk_id);
    }
    t->model.unk = by_id ? (int32_t)r->unk_id : name.n > 0 ? tokenizer_find(t, name) : -1;
    if (!by_id && t->model.unk < 0 && (name.n > 0 || k->needs_unk)) {
        return err_set(err, QUIRE_BAD_FILE, -1, "tokenizer.json: model.unk_token is not in the vocabulary");
    }
    return QUIRE_OK;
}

/* Reads "bos_token": "<s>" or {"content": "<s>", ...} from the first document that has
 * it. */
static quire_err read_special(json_value *const docs[2], const char *key, const tokenizer *t, strbuf *text,
                              int32_t *id) {
    for (int i = 0; i < 2; i++) {
        str s = json_get_str(docs[i], key);
        s = s.n > 0 ? s : json_get_str(json_get(docs[i], key), "content");
        if (s.n > 0) {
            *id = tokenizer_find(t, s);
            return strbuf_add(text, s.p, s.n);
        }
    }
    return QUIRE_OK;
}

/* Loads bos, eos, unk and pad. docs: tokenizer_config.json and
 * special_tokens_map.json. */
static quire_err load_specials(tokenizer *t, json_value *const docs[2]) {
    TRY(read_special(docs, "bos_token", t, &t->bos_text, &t->bos));
    TRY(read_special(docs, "eos_token", t, &t->eos_text, &t->eos));
    bool add_bos = json_get_bool(docs[0], "add_bos_token", false) && t->bos >= 0;
    bool add_eos = json_get_bool(docs[0], "add_eos_token", false) && t->eos >= 0;
    t->says_bos = config_says_bos(docs[0]);
    bool is_open = !t->post.single.is_set && (add_bos || add_eos);
    return is_open ? tokenizer_surround(t, add_bos ? t->bos : -1, add_eos ? t->eos : -1) : QUIRE_OK;
}

static quire_err load_json_build(tokenizer *t, const json_vocab *r, const vocab *v, added_list *added,
                                 json_value *const docs[2], quire_error *err) {
    const struct model_kind *kind = load_json_kind_of(r);
    if (kind == NULL || (r->is_scored && kind->ops != &piece_model_unigram)) {
        str name = r->type.n > 0 ? r->type : str_of("without a type");
        return err_set(err, QUIRE_UNSUPPORTED, -1,
                       "tokenizer.json: the model %.*s is not supported by this version",
                       (int)(name.n < 80 ? name.n : 80), name.p);
    }
    piece_model_init(&t->model, kind->ops, &t->vocab, -1);
    TRY(v->tables.n > 0 ? take_vocab(t, v->tables, added, err) : build_vocab(t, r, added, err));
    TRY(pipeline_load_normalizer(r->normalizer, &t->normalizer, err));
    TRY(pipeline_load_pretokenizer(r->pretokenizer, &t->pretokenizer, err));
    TRY(pipeline_load_decoder(r->decoder, &t->decoder, err));
    TRY(pipeline_load_postprocessor(r->post, t->vocab.n, &t->post, err));
    TRY(build_added(t, added, err));
    TRY(find_unk(t, r, kind, err));
    TRY(kind->build(t, r, err));
    return load_specials(t, docs);
}

/* Builds the tokenizer. added: the array of added tokens, or NULL. */
static quire_err build_with(tokenizer *t, const json_vocab *r, const vocab *v, json_value *added,
                            quire_error *err) {
    json_value *docs[2] = {json_model_document(v->tokenizer_config_json),
                           json_model_document(v->special_tokens_map_json)};
    added_list list;
    quire_err e = added_list_read(&list, added, docs[0]);
    TRY_DONE(e, load_json_build(t, r, v, &list, docs, err));
done:
    added_list_deinit(&list);
    json_drop(docs[0]);
    json_drop(docs[1]);
    return e;
}

quire_err tokenizer_load_json(tokenizer *t, const vocab *v, quire_error *err) {
    json_vocab r = {0};
    json_value *added = NULL;
    if (!utf8_is_valid(v->tokenizer_json)) {
        return err_set(err, QUIRE_BAD_FILE, -1, "tokenizer.json: not UTF-8");
    }
    quire_err e = json_vocab_read(&r, v->tokenizer_json, err);
    if (e == QUIRE_OK && r.added.n > 0 && !str_is(r.added, "null")) {
        added = json_model_document(r.added);
        if (!json_is(added, JSON_KIND_ARRAY)) {
            e = err_set(err, QUIRE_BAD_FILE, -1, "tokenizer.json: added_tokens is malformed");
        }
    }
    TRY_DONE(e, build_with(t, &r, v, added, err));
done:
    json_drop(added);
    json_vocab_deinit(&r);
    return e;
}
