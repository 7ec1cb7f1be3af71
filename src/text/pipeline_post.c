/* Post-processors: TemplateProcessing, BertProcessing, RobertaProcessing, and ByteLevel, which only concerns offsets. */
#include "base/mem.h"
#include "json/json.h"
#include "text/pipeline.h"

typedef struct post_reader {
    postprocessor *out;
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
}

quire_err post_template_add(post_template *t, post_kind kind, int32_t type_id, const int32_t *ids, size_t n_ids) {
    TRY(mem_grow(&t->parts, &t->cap, t->n + 1, sizeof *t->parts));
    void *copy = mem_dup(ids, n_ids * sizeof *ids);
    TRY(mem_check(copy));
    t->parts[t->n++] = (post_part){kind, type_id, copy, n_ids};
    return QUIRE_OK;
}

static quire_err malformed(quire_error *err) {
    return err_set(err, QUIRE_BAD_FILE, -1, "tokenizer: the post-processor is malformed, or names a token that is not there");
}

/* Adds the ids that special_tokens has for a name. */
static quire_err add_named(const post_reader *r, json_value *special_tokens, str name, int32_t type_id, post_template *t,
                           quire_error *err) {
    json_value *ids = json_get(json_get(special_tokens, name.p), "ids");
    int32_t values[64];
    if (!json_is(ids, JSON_KIND_ARRAY) || json_length(ids) > 64) {
        return malformed(err);
    }
    size_t n = json_length(ids);
    for (size_t i = 0; i < n; i++) {
        int64_t id = json_int64(json_at(ids, i));
        if (id < 0 || id >= r->n_ids) {
            return malformed(err);
        }
        values[i] = (int32_t)id;
    }
    return post_template_add(t, POST_TOKENS, type_id, values, n);
}

static quire_err load_template(const post_reader *r, json_value *o, const char *key, post_template *t, quire_error *err) {
    json_value *list = json_get(o, key);
    if (!json_is(list, JSON_KIND_ARRAY) || t->n > 0) {
        return malformed(err);
    }
    for (size_t i = 0; i < json_length(list); i++) {
        json_value *part = json_at(list, i), *v = json_get(part, "Sequence");
        if (v != NULL) {
            TRY(post_template_add(t, str_is(json_get_str(v, "id"), "B") ? POST_B : POST_A, json_get_int32(v, "type_id", 0), NULL, 0));
            continue;
        }
        v = json_get(part, "SpecialToken");
        TRY(v == NULL ? malformed(err)
                      : add_named(r, json_get(o, "special_tokens"), json_get_str(v, "id"), json_get_int32(v, "type_id", 0), t, err));
    }
    return QUIRE_OK;
}

/* Reads "cls": ["<s>", 0]. */
static quire_err read_token_pair(const post_reader *r, json_value *o, const char *key, int32_t *id, quire_error *err) {
    json_value *pair = json_get(o, key);
    if (!json_is(pair, JSON_KIND_ARRAY) || json_length(pair) != 2) {
        return malformed(err);
    }
    int64_t value = json_int64(json_at(pair, 1));
    if (value < 0 || value >= r->n_ids) {
        return malformed(err);
    }
    *id = (int32_t)value;
    return QUIRE_OK;
}

/* cls A sep, and cls A sep B sep; Roberta has two sep between the texts and no segments. */
static quire_err load_bert(const post_reader *r, json_value *o, bool roberta, quire_error *err) {
    postprocessor *p = r->out;
    int32_t cls, sep, second = roberta ? 0 : 1;
    TRY(read_token_pair(r, o, "cls", &cls, err));
    TRY(read_token_pair(r, o, "sep", &sep, err));
    if (p->single.n > 0) {
        return err_set(err, QUIRE_UNSUPPORTED, -1, "tokenizer: a second post-processor that adds tokens is not supported by this version");
    }
    for (int two = 0; two < 2; two++) {
        post_template *t = two ? &p->pair : &p->single;
        TRY(post_template_add(t, POST_TOKENS, 0, &cls, 1));
        TRY(post_template_add(t, POST_A, 0, NULL, 0));
        TRY(post_template_add(t, POST_TOKENS, 0, &sep, 1));
    }
    if (roberta) {
        TRY(post_template_add(&p->pair, POST_TOKENS, 0, &sep, 1));
    }
    TRY(post_template_add(&p->pair, POST_B, second, NULL, 0));
    return post_template_add(&p->pair, POST_TOKENS, second, &sep, 1);
}

static quire_err load_post(json_value *o, void *reader, quire_error *err) {
    const post_reader *r = reader;
    str type = json_get_str(o, "type");
    if (str_is(type, "ByteLevel")) {
        return QUIRE_OK;
    }
    if (str_is(type, "TemplateProcessing")) {
        TRY(load_template(r, o, "single", &r->out->single, err));
        return load_template(r, o, "pair", &r->out->pair, err);
    }
    if (str_is(type, "BertProcessing") || str_is(type, "RobertaProcessing")) {
        return load_bert(r, o, type.p[0] == 'R', err);
    }
    if (str_is(type, "Sequence")) {
        return pipeline_load_each(o, "processors", "post-processor", reader, load_post, err);
    }
    return err_set(err, QUIRE_UNSUPPORTED, -1, "tokenizer: the post-processor %.*s is not supported by this version",
                   (int)(type.n < 100 ? type.n : 100), type.p);
}

quire_err pipeline_load_postprocessor(str json, int32_t n_ids, postprocessor *out, quire_error *err) {
    post_reader r = {out, n_ids};
    return pipeline_load_document(json, "post-processor", &r, load_post, err);
}
