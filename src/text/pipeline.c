#include "text/pipeline.h"

#include <assert.h>

#include "base/mem.h"
#include "text/chars.h"
#include "json/json.h"

static quire_err unsupported(quire_error *err, const char *component, str what) {
    return err_set(err, QUIRE_UNSUPPORTED, -1, "tokenizer: %s %.*s is not supported by this version",
                   component, (int)(what.n < 100 ? what.n : 100), what.p);
}

static quire_err pipeline_malformed(quire_error *err, const char *component) {
    return err_set(err, QUIRE_BAD_FILE, -1, "tokenizer: the %s is malformed", component);
}

static str pipeline_type_of(json_value *o) {
    return json_get_str(o, "type");
}

/* Parses a component's JSON and calls load with it. "null" and empty text mean no
 * steps. */
static quire_err pipeline_load_document(str json, const char *component, void *out, pipeline_load_fn *load,
                                        quire_error *err) {
    if (json.n == 0 || str_is(json, "null")) {
        return QUIRE_OK;
    }
    json_value *o = json_model_document(json);
    quire_err e = o == NULL ? pipeline_malformed(err, component) : load(o, out, err);
    json_drop(o);
    return e == QUIRE_NO_MEMORY ? err_set(err, e, -1, "tokenizer: out of memory for the %s", component) : e;
}

/* Calls load for each element of the array o[key]. QUIRE_BAD_FILE if it is not an
 * array. */
static quire_err pipeline_load_each(json_value *o, const char *key, const char *component, void *out,
                                    pipeline_load_fn *load, quire_error *err) {
    json_value *list = json_get(o, key);
    if (!json_is(list, JSON_KIND_ARRAY)) {
        return pipeline_malformed(err, component);
    }
    for (size_t i = 0; i < json_length(list); i++) {
        TRY(load(json_at(list, i), out, err));
    }
    return QUIRE_OK;
}

/* Reads {"String": "..."} or {"Regex": "..."}. */
static quire_err load_pattern(json_value *o, const char *component, matcher *out, quire_error *err) {
    json_value *pattern = json_get(o, "pattern");
    if (json_is(json_get(pattern, "String"), JSON_KIND_TEXT)) {
        return matcher_open_literal(json_get_str(pattern, "String"), out);
    }
    if (json_is(json_get(pattern, "Regex"), JSON_KIND_TEXT)) {
        return regex_open(json_get_str(pattern, "Regex"), &out->re, err);
    }
    return pipeline_malformed(err, component);
}

static quire_err copy_content(str s, char **content, size_t *n) {
    *content = mem_dup(s.p, s.n);
    *n = s.n;
    return *content == NULL ? QUIRE_NO_MEMORY : QUIRE_OK;
}

/* ---- normalizers ---- */

static quire_err norm_add(normalizer *n, norm_kind kind, norm_step **step, quire_error *err) {
    if (n->n == NORM_MAX_STEPS) {
        return unsupported(err, "a normalizer of", str_of("more than 32 steps"));
    }
    *step = &n->steps[n->n++];
    **step = (norm_step){.kind = kind};
    return QUIRE_OK;
}

static quire_err load_bert_normalizer(json_value *o, normalizer *n, quire_error *err) {
    norm_step *step;
    bool lower = json_get_bool(o, "lowercase", true);
    if (json_get_bool(o, "clean_text", true)) {
        TRY(norm_add(n, NORM_BERT_CLEAN, &step, err));
    }
    if (json_get_bool(o, "handle_chinese_chars", true)) {
        TRY(norm_add(n, NORM_BERT_CHINESE, &step, err));
    }
    if (json_get_bool(o, "strip_accents", lower)) {
        TRY(norm_add(n, NORM_NFD, &step, err));
        TRY(norm_add(n, NORM_DROP_NONSPACING, &step, err));
    }
    return lower ? norm_add(n, NORM_LOWERCASE, &step, err) : QUIRE_OK;
}

static quire_err load_normalizer(json_value *o, void *out, quire_error *err) {
    static const struct {
        const char *name;
        norm_kind kind;
    } kinds[] = {{"NFC", NORM_NFC},
                 {"NFD", NORM_NFD},
                 {"NFKC", NORM_NFKC},
                 {"NFKD", NORM_NFKD},
                 {"Strip", NORM_STRIP},
                 {"StripAccents", NORM_STRIP_ACCENTS},
                 {"Nmt", NORM_NMT},
                 {"Prepend", NORM_PREPEND},
                 {"Lowercase", NORM_LOWERCASE},
                 {"Replace", NORM_REPLACE},
                 {"ByteLevel", NORM_BYTE_LEVEL}};
    str type = pipeline_type_of(o);
    if (str_is(type, "Sequence")) {
        return pipeline_load_each(o, "normalizers", "normalizer", out, load_normalizer, err);
    }
    if (str_is(type, "BertNormalizer")) {
        return load_bert_normalizer(o, out, err);
    }
    if (str_is(type, "Precompiled")) {
        norm_step *step = NULL;
        TRY(norm_add(out, NORM_PRECOMPILED, &step, err));
        quire_err e = charsmap_open_base64(json_get_str(o, "precompiled_charsmap"), &step->map);
        return e == QUIRE_BAD_FILE ? pipeline_malformed(err, "Precompiled normalizer") : e;
    }
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (!str_is(type, kinds[i].name)) {
            continue;
        }
        norm_step *step = NULL;
        TRY(norm_add(out, kinds[i].kind, &step, err));
        step->left = json_get_bool(o, "strip_left", true);
        step->right = json_get_bool(o, "strip_right", true);
        if (step->kind == NORM_PREPEND || step->kind == NORM_REPLACE) {
            TRY(copy_content(json_get_str(o, step->kind == NORM_PREPEND ? "prepend" : "content"),
                             &step->content, &step->n_content));
        }
        return step->kind == NORM_REPLACE ? load_pattern(o, "normalizer", &step->match, err) : QUIRE_OK;
    }
    return unsupported(err, "the normalizer", type);
}

quire_err pipeline_load_normalizer(str json, normalizer *out, quire_error *err) {
    return pipeline_load_document(json, "normalizer", out, load_normalizer, err);
}

/* ---- pre-tokenizers ---- */

static quire_err pre_add(pretokenizer *p, pre_step step, pre_step **added, quire_error *err) {
    if (p->n == PRE_MAX_STEPS) {
        return unsupported(err, "a pre-tokenizer of", str_of("more than 32 steps"));
    }
    *added = &p->steps[p->n++];
    **added = step;
    return QUIRE_OK;
}

static quire_err load_behavior(json_value *o, split_behavior *out, quire_error *err) {
    static const char *const names[] = {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext",
                                        "Contiguous"};
    str name = json_get_str(o, "behavior");
    *out = SPLIT_ISOLATED;
    for (int i = 0; i < 5; i++) {
        if (str_is(name, names[i])) {
            *out = (split_behavior)i;
            return QUIRE_OK;
        }
    }
    return name.n == 0 ? QUIRE_OK : unsupported(err, "the behavior", name);
}

static quire_err load_metaspace(json_value *o, pretokenizer *p, quire_error *err) {
    pre_step *step = NULL;
    str mark = json_get_str(o, "replacement"), scheme = json_get_str(o, "prepend_scheme");
    size_t len = 0;
    int32_t c = mark.n == 0 ? -1 : utf8_decode(mark.p, mark.n, &len);
    if (c < 0 || len != mark.n) {
        return pipeline_malformed(err, "Metaspace pre-tokenizer");
    }
    TRY(pre_add(p,
                (pre_step){.kind = PRE_METASPACE, .delimiter = c, .split = json_get_bool(o, "split", true)},
                &step, err));
    if (scheme.n == 0) {
        step->prepend = json_get_bool(o, "add_prefix_space", true) ? PREPEND_ALWAYS : PREPEND_NEVER;
    } else if (str_is(scheme, "always") || str_is(scheme, "first") || str_is(scheme, "never")) {
        step->prepend = scheme.p[0] == 'a'   ? PREPEND_ALWAYS
                        : scheme.p[0] == 'f' ? PREPEND_FIRST
                                             : PREPEND_NEVER;
    } else {
        return unsupported(err, "the prepend_scheme", scheme);
    }
    return QUIRE_OK;
}

quire_err pretokenizer_add_byte_level(pretokenizer *p, bool prefix_space, bool cut, quire_error *err) {
    static const char pattern[] =
        "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
    pre_step *step = NULL;
    TRY(pre_add(p,
                (pre_step){.kind = PRE_BYTE_LEVEL,
                           .prepend = prefix_space ? PREPEND_ALWAYS : PREPEND_NEVER,
                           .split = cut},
                &step, err));
    return cut ? regex_open(str_of(pattern), &step->match.re, err) : QUIRE_OK;
}

quire_err pretokenizer_add_split(pretokenizer *p, str pattern, split_behavior behavior, bool invert,
                                 quire_error *err) {
    pre_step *step = NULL;
    TRY(pre_add(p, (pre_step){.kind = PRE_SPLIT, .behavior = behavior, .invert = invert}, &step, err));
    return regex_open(pattern, &step->match.re, err);
}

quire_err pretokenizer_add_split_as(pretokenizer *p, str pattern, regex_syntax syntax, quire_error *err) {
    pre_step *step = NULL;
    TRY(pre_add(p, (pre_step){.kind = PRE_SPLIT, .behavior = SPLIT_ISOLATED}, &step, err));
    return regex_open_as(pattern, syntax, &step->match.re, err);
}

quire_err pretokenizer_add_chars(pretokenizer *p, char_class class, int32_t delimiter,
                                 split_behavior behavior, quire_error *err) {
    pre_step *step;
    return pre_add(
        p, (pre_step){.kind = PRE_CHARS, .class = class, .delimiter = delimiter, .behavior = behavior}, &step,
        err);
}

static quire_err load_char_pre(json_value *o, str type, pretokenizer *p, quire_error *err) {
    if (str_is(type, "Digits")) {
        split_behavior b = json_get_bool(o, "individual_digits", false) ? SPLIT_ISOLATED : SPLIT_CONTIGUOUS;
        return pretokenizer_add_chars(p, CLASS_NUMERIC, 0, b, err);
    }
    if (str_is(type, "Punctuation")) {
        split_behavior b;
        TRY(load_behavior(o, &b, err));
        return pretokenizer_add_chars(p, CLASS_PUNCTUATION, 0, b, err);
    }
    if (str_is(type, "WhitespaceSplit")) {
        return pretokenizer_add_chars(p, CLASS_SPACE, 0, SPLIT_REMOVED, err);
    }
    if (str_is(type, "BertPreTokenizer")) {
        TRY(pretokenizer_add_chars(p, CLASS_SPACE, 0, SPLIT_REMOVED, err));
        return pretokenizer_add_chars(p, CLASS_PUNCTUATION, 0, SPLIT_ISOLATED, err);
    }
    if (str_is(type, "CharDelimiterSplit")) {
        str s = json_get_str(o, "delimiter");
        size_t len;
        int32_t c = s.n == 0 ? -1 : utf8_decode(s.p, s.n, &len);
        return c < 0 ? pipeline_malformed(err, "CharDelimiterSplit")
                     : pretokenizer_add_chars(p, CLASS_DELIMITER, c, SPLIT_REMOVED, err);
    }
    return unsupported(err, "the pre-tokenizer", type);
}

static quire_err load_pretokenizer(json_value *o, void *out, quire_error *err) {
    pretokenizer *p = out;
    pre_step *step = NULL;
    str type = pipeline_type_of(o);
    if (str_is(type, "Sequence")) {
        return pipeline_load_each(o, "pretokenizers", "pre-tokenizer", out, load_pretokenizer, err);
    }
    if (str_is(type, "ByteLevel")) {
        return pretokenizer_add_byte_level(p, json_get_bool(o, "add_prefix_space", true),
                                           json_get_bool(o, "use_regex", true), err);
    }
    if (str_is(type, "Metaspace")) {
        return load_metaspace(o, p, err);
    }
    if (str_is(type, "Whitespace")) {
        return pretokenizer_add_split(p, str_of("[\\w\\x{200c}\\x{200d}]+|[^\\w\\s\\x{200c}\\x{200d}]+"),
                                      SPLIT_REMOVED, true, err);
    }
    if (str_is(type, "Split")) {
        split_behavior b;
        TRY(load_behavior(o, &b, err));
        TRY(pre_add(p,
                    (pre_step){.kind = PRE_SPLIT, .behavior = b, .invert = json_get_bool(o, "invert", false)},
                    &step, err));
        return load_pattern(o, "Split pre-tokenizer", &step->match, err);
    }
    if (str_is(type, "FixedLength")) {
        int32_t length = json_get_int32(o, "length", 5);
        return length < 1 ? pipeline_malformed(err, "FixedLength")
                          : pre_add(p, (pre_step){.kind = PRE_FIXED, .length = length}, &step, err);
    }
    if (str_is(type, "UnicodeScripts")) {
        return pre_add(p, (pre_step){.kind = PRE_SCRIPTS}, &step, err);
    }
    return load_char_pre(o, type, p, err);
}

quire_err pipeline_load_pretokenizer(str json, pretokenizer *out, quire_error *err) {
    return pipeline_load_document(json, "pre-tokenizer", out, load_pretokenizer, err);
}

/* ---- decoders ---- */

static quire_err load_decoder_step(json_value *o, str type, decode_step *step, quire_error *err) {
    if (str_is(type, "ByteLevel")) {
        step->kind = DECODE_BYTE_LEVEL;
        return QUIRE_OK;
    }
    if (str_is(type, "ByteFallback") || str_is(type, "Fuse")) {
        step->kind = type.p[0] == 'B' ? DECODE_BYTE_FALLBACK : DECODE_FUSE;
        return QUIRE_OK;
    }
    if (str_is(type, "Replace")) {
        step->kind = DECODE_REPLACE;
        TRY(copy_content(json_get_str(o, "content"), &step->content, &step->n_content));
        return load_pattern(o, "Replace decoder", &step->match, err);
    }
    if (str_is(type, "Strip")) {
        str content = json_get_str(o, "content");
        step->kind = DECODE_STRIP;
        step->start = json_get_int32(o, "start", 0);
        step->stop = json_get_int32(o, "stop", 0);
        return content.n == 0 ? pipeline_malformed(err, "Strip decoder")
                              : copy_content(content, &step->content, &step->n_content);
    }
    if (str_is(type, "Metaspace")) {
        str scheme = json_get_str(o, "prepend_scheme");
        step->kind = DECODE_METASPACE;
        step->keep_first =
            scheme.n > 0 ? str_is(scheme, "never") : !json_get_bool(o, "add_prefix_space", true);
        return copy_content(json_get_str(o, "replacement"), &step->content, &step->n_content);
    }
    if (str_is(type, "BPEDecoder")) {
        str suffix = json_get_str(o, "suffix");
        step->kind = DECODE_SUFFIX;
        return copy_content(suffix.n > 0 ? suffix : str_of("</w>"), &step->content, &step->n_content);
    }
    if (str_is(type, "WordPiece")) {
        step->kind = DECODE_WORDPIECE;
        step->cleanup = json_get_bool(o, "cleanup", true);
        return copy_content(json_get_str(o, "prefix"), &step->content, &step->n_content);
    }
    if (str_is(type, "CTC")) {
        str delimiter = json_get_str(o, "word_delimiter_token");
        step->kind = DECODE_CTC;
        step->cleanup = json_get_bool(o, "cleanup", true);
        TRY(copy_content(delimiter, &step->delimiter, &step->n_delimiter));
        return copy_content(json_get_str(o, "pad_token"), &step->content, &step->n_content);
    }
    return unsupported(err, "the decoder", type);
}

static quire_err load_decoder(json_value *o, void *out, quire_error *err) {
    decoder *d = out;
    str type = pipeline_type_of(o);
    if (str_is(type, "Sequence")) {
        return pipeline_load_each(o, "decoders", "decoder", out, load_decoder, err);
    }
    if (d->n == DECODE_MAX_STEPS) {
        return unsupported(err, "a decoder of", str_of("more than 16 steps"));
    }
    d->steps[d->n] = (decode_step){0};
    return load_decoder_step(o, type, &d->steps[d->n++], err);
}

quire_err pipeline_load_decoder(str json, decoder *out, quire_error *err) {
    TRY(pipeline_load_document(json, "decoder", out, load_decoder, err));
    if (out->n == 0) { /* an empty sequence joins tokens without spaces */
        bool is_absent = json.n == 0 || str_is(json, "null");
        out->steps[out->n++] = (decode_step){.kind = is_absent ? DECODE_SPACED : DECODE_FUSE};
    }
    decoder_link(out);
    return QUIRE_OK;
}

/* Post-processors: TemplateProcessing, BertProcessing, RobertaProcessing, and ByteLevel,
 * which affects only offsets. */

enum { MAX_TEXTS = 256, MAX_PARTS = 1024, MAX_NAMED = 64 };

/* One or two texts, with what the processors so far have put around them. */
typedef struct wrapping {
    post_template made;
    size_t starts[MAX_TEXTS + 1]; /* index of each text's first part in made */
    size_t n;
} wrapping;

typedef struct post_reader {
    wrapping single, pair;
    int32_t n_ids;
} post_reader;

static void template_deinit(post_template *t) {
    for (size_t i = 0; i < t->n; i++) {
        mem_free(t->parts[i].ids);
    }
    mem_free(t->parts);
    *t = (post_template){0};
}

void postprocessor_deinit(postprocessor *p) {
    template_deinit(&p->single);
    template_deinit(&p->pair);
    template_deinit(&p->start);
}

quire_err post_template_add(post_template *t, post_kind kind, int32_t type_id, const int32_t *ids,
                            size_t n_ids) {
    assert(t != NULL);
    TRY(mem_grow(&t->parts, &t->cap, t->n + 1, sizeof *t->parts));
    void *copy = mem_dup(ids, n_ids * sizeof *ids);
    TRY(mem_check(copy));
    t->parts[t->n++] = (post_part){kind, type_id, copy, n_ids};
    t->is_set = true;
    return QUIRE_OK;
}

#define OUTSIDE "it adds an id that is not in the vocabulary"

/* Records why texts cannot be encoded with this template; the first reason stays. As in
 * Hugging Face's tokenizers loading does not fail, so a fault in the template for two
 * texts does not affect single ones. */
static quire_err pipeline_post_refuse(wrapping *w, const char *why) {
    if (w->made.refusal == NULL) {
        w->made.refusal = why;
    }
    return QUIRE_OK;
}

static quire_err refuse_size(wrapping *w) {
    return pipeline_post_refuse(w, "it adds more tokens than this version supports");
}

/* Adds the ids that special_tokens lists for a name. */
static quire_err add_named(const post_reader *r, json_value *special_tokens, str name, int32_t type_id,
                           wrapping *to, quire_error *err) {
    json_value *token = json_get(special_tokens, name.p), *ids = json_get(token, "ids");
    int32_t values[MAX_NAMED];
    if (token == NULL) {
        return pipeline_post_refuse(to, "it names a token that is not among its special_tokens");
    }
    if (!json_is(ids, JSON_KIND_ARRAY)) {
        return pipeline_malformed(err, "post-processor");
    }
    size_t n = json_length(ids);
    if (n > MAX_NAMED) {
        return refuse_size(to);
    }
    for (size_t i = 0; i < n; i++) {
        int64_t id = json_int64(json_at(ids, i));
        if (id < 0 || id >= r->n_ids) {
            return pipeline_post_refuse(to, OUTSIDE);
        }
        values[i] = (int32_t)id;
    }
    return post_template_add(&to->made, POST_TOKENS, type_id, values, n);
}

/* Starts the next text. */
static quire_err pipeline_post_begin_text(wrapping *w) {
    if (w->n == MAX_TEXTS) {
        return refuse_size(w);
    }
    w->starts[w->n++] = w->made.n;
    return QUIRE_OK;
}

/* Copies text i of *from. type_id -1: keeps its segments. */
static quire_err copy_text(const wrapping *from, size_t i, int32_t type_id, wrapping *to) {
    size_t end = i + 1 < from->n ? from->starts[i + 1] : from->made.n;
    for (size_t k = from->starts[i]; k < end; k++) {
        const post_part *p = &from->made.parts[k];
        if (to->made.n >= MAX_PARTS) {
            return refuse_size(to);
        }
        TRY(post_template_add(&to->made, p->kind, type_id >= 0 ? type_id : p->type_id, p->ids, p->n_ids));
    }
    return QUIRE_OK;
}

/* Starts with one or two texts, nothing around them. */
static quire_err begin_wrapping(bool pair, wrapping *w) {
    for (int i = 0; i <= pair; i++) {
        TRY(pipeline_post_begin_text(w));
        TRY(post_template_add(&w->made, i == 0 ? POST_A : POST_B, i, NULL, 0));
    }
    return QUIRE_OK;
}

/* Reads a part's segment number. */
static quire_err read_segment(json_value *part, int32_t *type_id, quire_error *err) {
    *type_id = json_get_int32(part, "type_id", -1);
    return *type_id < 0 ? pipeline_malformed(err, "post-processor") : QUIRE_OK;
}

/* Adds a part of a template: one of the texts in *from, or tokens. */
static quire_err apply_part(const post_reader *r, json_value *o, json_value *part, const wrapping *from,
                            wrapping *to, quire_error *err) {
    json_value *text = json_get(part, "Sequence"), *token = json_get(part, "SpecialToken");
    int32_t type_id;
    TRY(read_segment(text != NULL ? text : token, &type_id, err));
    TRY(pipeline_post_begin_text(to));
    str id = json_get_str(text != NULL ? text : token, "id");
    if (text == NULL) {
        return add_named(r, json_get(o, "special_tokens"), id, type_id, to, err);
    }
    size_t which = str_is(id, "B");
    if (which == 0 && !str_is(id, "A")) {
        return pipeline_malformed(err, "post-processor");
    }
    return which < from->n
               ? copy_text(from, which, type_id, to)
               : pipeline_post_refuse(to, "its template for a single text refers to a second one");
}

static quire_err apply_template(const post_reader *r, json_value *o, const char *key, const wrapping *from,
                                wrapping *to, quire_error *err) {
    json_value *list = json_get(o, key);
    if (!json_is(list, JSON_KIND_ARRAY) || !json_is(json_get(o, "special_tokens"), JSON_KIND_OBJECT)) {
        return pipeline_malformed(err, "post-processor");
    }
    for (size_t i = 0; i < json_length(list) && to->made.refusal == NULL; i++) {
        TRY(apply_part(r, o, json_at(list, i), from, to, err));
    }
    return QUIRE_OK;
}

/* Reads "cls": ["<s>", 0]. */
static quire_err read_token_pair(const post_reader *r, json_value *o, const char *key, wrapping *to,
                                 int32_t *id, quire_error *err) {
    json_value *pair = json_get(o, key);
    if (!json_is(pair, JSON_KIND_ARRAY) || json_length(pair) != 2) {
        return pipeline_malformed(err, "post-processor");
    }
    int64_t value = json_int64(json_at(pair, 1));
    if (value < 0 || value >= r->n_ids) {
        return pipeline_post_refuse(to, OUTSIDE);
    }
    *id = (int32_t)value;
    return QUIRE_OK;
}

/* Adds cls A sep, and cls A sep B sep. Roberta has two sep between the texts and no
 * segments. */
static quire_err apply_bert(const post_reader *r, json_value *o, bool roberta, const wrapping *from,
                            wrapping *to, quire_error *err) {
    int32_t cls = 0, sep = 0;
    TRY(read_token_pair(r, o, "cls", to, &cls, err));
    TRY(read_token_pair(r, o, "sep", to, &sep, err));
    for (size_t i = 0; i < from->n && to->made.refusal == NULL; i++) {
        int32_t type_id = i > 0 && !roberta;
        TRY(pipeline_post_begin_text(to));
        if (i == 0 || roberta) {
            TRY(post_template_add(&to->made, POST_TOKENS, type_id, i == 0 ? &cls : &sep, 1));
        }
        TRY(copy_text(from, i, roberta ? 0 : -1, to));
        TRY(post_template_add(&to->made, POST_TOKENS, type_id, &sep, 1));
    }
    return QUIRE_OK;
}

/* Applies a processor that adds tokens to the result of those before it. */
static quire_err apply(post_reader *r, json_value *o, str type, bool pair, quire_error *err) {
    wrapping to = {.made.is_set = true}, *from = pair ? &r->pair : &r->single;
    bool is_template = str_is(type, "TemplateProcessing");
    quire_err e = from->made.is_set ? QUIRE_OK : begin_wrapping(pair, from);
    if (e == QUIRE_OK && is_template && (from->n < 1 || from->n > 2)) {
        e = pipeline_post_refuse(
            from,
            "its steps before a template yield no texts or more than two, but a template takes one or two");
    }
    if (e != QUIRE_OK || from->made.refusal != NULL) {
        return e;
    }
    e = is_template ? apply_template(r, o, from->n == 2 ? "pair" : "single", from, &to, err)
                    : apply_bert(r, o, type.p[0] == 'R', from, &to, err);
    template_deinit(&from->made);
    *from = to;
    return e;
}

static quire_err load_post(json_value *o, void *reader, quire_error *err) {
    post_reader *r = reader;
    str type = json_get_str(o, "type");
    if (str_is(type, "ByteLevel")) {
        return QUIRE_OK;
    }
    if (str_is(type, "TemplateProcessing") || str_is(type, "BertProcessing") ||
        str_is(type, "RobertaProcessing")) {
        TRY(apply(r, o, type, false, err));
        return apply(r, o, type, true, err);
    }
    if (str_is(type, "Sequence")) {
        return pipeline_load_each(o, "processors", "post-processor", reader, load_post, err);
    }
    return unsupported(err, "the post-processor", type);
}

quire_err pipeline_load_postprocessor(str json, int32_t n_ids, postprocessor *out, quire_error *err) {
    assert(n_ids >= 0);
    post_reader r = {.n_ids = n_ids};
    quire_err e = pipeline_load_document(json, "post-processor", &r, load_post, err);
    *out = (postprocessor){.single = r.single.made, .pair = r.pair.made};
    return e;
}
