/* Post-processors: TemplateProcessing, BertProcessing, RobertaProcessing, and ByteLevel,
 * which only concerns offsets. */
#include "base/mem.h"

#include "text/pipeline.h"
#include "json/json.h"
#include <assert.h>

enum { MAX_TEXTS = 256, MAX_PARTS = 1024, MAX_NAMED = 64 };

/* What a processor makes of the texts that the ones before have wrapped, for one text or
 * two. */
typedef struct wrapping {
    post_template made;
    size_t starts[MAX_TEXTS + 1]; /* of each wrapped text among made's parts */
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

static quire_err pipeline_post_malformed(quire_error *err) {
    return err_set(err, QUIRE_BAD_FILE, -1, "tokenizer: the post-processor is malformed");
}

#define OUTSIDE "it adds an id that is not in the vocabulary"

/* Texts cannot be encoded with it. As in Hugging Face's tokenizers that is not a failure
 * of loading, so a fault of the template for two texts does not concern one text. The
 * first reason stays. */
static quire_err pipeline_post_refuse(wrapping *w, const char *why) {
    if (w->made.refusal == NULL) {
        w->made.refusal = why;
    }
    return QUIRE_OK;
}

static quire_err refuse_size(wrapping *w) {
    return pipeline_post_refuse(w, "it adds more tokens than this version supports");
}

/* Adds the ids that special_tokens has for a name. */
static quire_err add_named(const post_reader *r, json_value *special_tokens, str name, int32_t type_id,
                           wrapping *to, quire_error *err) {
    json_value *token = json_get(special_tokens, name.p), *ids = json_get(token, "ids");
    int32_t values[MAX_NAMED];
    if (token == NULL) {
        return pipeline_post_refuse(to, "it names a token that is not among its special_tokens");
    }
    if (!json_is(ids, JSON_KIND_ARRAY)) {
        return pipeline_post_malformed(err);
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

/* A text begins. */
static quire_err pipeline_post_begin_text(wrapping *w) {
    if (w->n == MAX_TEXTS) {
        return refuse_size(w);
    }
    w->starts[w->n++] = w->made.n;
    return QUIRE_OK;
}

/* Copies wrapped text i of *from; type_id -1: its segments stay. */
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

/* One or two texts as they are. */
static quire_err begin_wrapping(bool pair, wrapping *w) {
    for (int i = 0; i <= pair; i++) {
        TRY(pipeline_post_begin_text(w));
        TRY(post_template_add(&w->made, i == 0 ? POST_A : POST_B, i, NULL, 0));
    }
    return QUIRE_OK;
}

/* Reads the segment of a part. */
static quire_err read_segment(json_value *part, int32_t *type_id, quire_error *err) {
    *type_id = json_get_int32(part, "type_id", -1);
    return *type_id < 0 ? pipeline_post_malformed(err) : QUIRE_OK;
}

/* Adds a part of a template: one of the texts that *from has, or tokens. */
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
        return pipeline_post_malformed(err);
    }
    return which < from->n ? copy_text(from, which, type_id, to)
                           : pipeline_post_refuse(to, "its template for one text names a second one");
}

static quire_err apply_template(const post_reader *r, json_value *o, const char *key, const wrapping *from,
                                wrapping *to, quire_error *err) {
    json_value *list = json_get(o, key);
    if (!json_is(list, JSON_KIND_ARRAY) || !json_is(json_get(o, "special_tokens"), JSON_KIND_OBJECT)) {
        return pipeline_post_malformed(err);
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
        return pipeline_post_malformed(err);
    }
    int64_t value = json_int64(json_at(pair, 1));
    if (value < 0 || value >= r->n_ids) {
        return pipeline_post_refuse(to, OUTSIDE);
    }
    *id = (int32_t)value;
    return QUIRE_OK;
}

/* cls A sep, and cls A sep B sep; Roberta has two sep between the texts and no
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

/* Applies a processor that adds tokens to what those before have made. */
static quire_err apply(post_reader *r, json_value *o, str type, bool pair, quire_error *err) {
    wrapping to = {.made.is_set = true}, *from = pair ? &r->pair : &r->single;
    bool is_template = str_is(type, "TemplateProcessing");
    quire_err e = from->made.is_set ? QUIRE_OK : begin_wrapping(pair, from);
    if (e == QUIRE_OK && is_template && (from->n < 1 || from->n > 2)) {
        e = pipeline_post_refuse(
            from, "its steps before a template make no text or over two, and a template has one text or two");
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
    return err_set(err, QUIRE_UNSUPPORTED, -1,
                   "tokenizer: the post-processor %.*s is not supported by this version",
                   (int)(type.n < 100 ? type.n : 100), type.p);
}

quire_err pipeline_load_postprocessor(str json, int32_t n_ids, postprocessor *out, quire_error *err) {
    assert(n_ids >= 0);
    post_reader r = {.n_ids = n_ids};
    quire_err e = pipeline_load_document(json, "post-processor", &r, load_post, err);
    *out = (postprocessor){.single = r.single.made, .pair = r.pair.made};
    return e;
}
