/* The dialect of scores: how well texts fit to others. A cross-encoder reads each pair as
 * one input; of a model that embeds, a score is the cosine of two rows. */
#include "base/mem.h"
#include "request/request_read.h"

#define SCORES_MAX_BYTES (4 * REQUEST_MAX_BYTES)

/* The text of an item: a string, or an object with a text. */
static const json_value *scores_text_of(const json_value *item) {
    const json_value *text = json_is(item, JSON_KIND_OBJECT) ? json_get(item, "text") : item;
    return json_is(text, JSON_KIND_TEXT) ? text : NULL;
}

/* Checks that v is a text or a list of them, of which there is one at least. */
static quire_err read_texts(const field_desc *f, const json_value *v, quire_error *err) {
    bool is_list = json_is(v, JSON_KIND_ARRAY);
    size_t n = is_list ? json_length(v) : 1;
    if (n == 0 || n > REQUEST_MAX_PROMPTS) {
        return request_range_error(f, err, "%s has %zu items; it must have from 1 to %d", f->name, n,
                                   REQUEST_MAX_PROMPTS);
    }
    for (size_t i = 0; i < n; i++) {
        const json_value *item = is_list ? json_at(v, i) : v;
        if (scores_text_of(item) == NULL) {
            return request_type_error(
                f, is_list ? (int64_t)i : -1, item,
                is_list ? "a string, or an object with a text" : "a string or an array of strings", err);
        }
    }
    return QUIRE_OK;
}

quire_err request_read_queries(quire_request *r, const field_desc *f, const json_value *v, quire_error *err) {
    if (v != NULL) {
        TRY(read_texts(f, v, err));
    }
    r->queries = v;
    return QUIRE_OK;
}

quire_err request_read_candidates(quire_request *r, const field_desc *f, const json_value *v,
                                  quire_error *err) {
    if (v != NULL) {
        TRY(read_texts(f, v, err));
    }
    r->candidates = v;
    return QUIRE_OK;
}

static size_t text_count(const json_value *v) {
    return json_is(v, JSON_KIND_ARRAY) ? json_length(v) : 1;
}

static str text_at_index(const json_value *v, size_t i) {
    return json_str(scores_text_of(json_is(v, JSON_KIND_ARRAY) ? json_at(v, i) : v));
}

static quire_err check_texts(const quire_request *r, quire_error *err) {
    bool is_score = r->g.info.endpoint == QUIRE_SCORE;
    const char *query = is_score ? "text_1" : "query", *documents = dialect_of(&r->g)->prompt;
    if (r->queries == NULL || r->candidates == NULL) {
        return err_set_param(err, QUIRE_BAD_REQUEST, r->queries == NULL ? query : documents,
                             "%s is missing; give a text%s", r->queries == NULL ? query : documents,
                             r->queries == NULL ? "" : " or several");
    }
    size_t n_queries = text_count(r->queries), n_documents = text_count(r->candidates);
    if (n_queries != 1 && (!is_score || n_queries != n_documents)) {
        return err_set_param(err, QUIRE_BAD_REQUEST, query,
                             "%s has %zu texts, and %s has %zu; give one for all of them%s", query, n_queries,
                             documents, n_documents, is_score ? ", or one for each" : "");
    }
    if (!r->context.has_vocabulary) {
        return err_set(err, QUIRE_BAD_REQUEST, -1,
                       "this model has no vocabulary, so it cannot score texts; /v1/embeddings takes ids");
    }
    if (r->context.pooling.n_scores > 1) {
        return err_set(err, QUIRE_BAD_REQUEST, -1,
                       "this model gives %d scores of an input, no single one; /pooling gives them all",
                       (int)r->context.pooling.n_scores);
    }
    return QUIRE_OK;
}

/* A cross-encoder: an input for each pair. */
static void make_pairs(quire_request *r, size_t n_queries, size_t n_documents) {
    for (size_t i = 0; i < n_documents; i++) {
        str document = text_at_index(r->candidates, i);
        r->g.prompts[i] = (request_prompt){.text = text_at_index(r->queries, n_queries > 1 ? i : 0),
                                           .pair = document,
                                           .shown = r->g.more.return_documents ? document : (str){0}};
    }
}

/* A model that embeds: the queries, then the documents. */
static void make_texts(quire_request *r, size_t n_queries, size_t n_documents) {
    for (size_t i = 0; i < n_queries; i++) {
        r->g.prompts[i] = (request_prompt){.text = text_at_index(r->queries, i)};
    }
    for (size_t i = 0; i < n_documents; i++) {
        str document = text_at_index(r->candidates, i);
        r->g.prompts[n_queries + i] =
            (request_prompt){.text = document, .shown = r->g.more.return_documents ? document : (str){0}};
    }
}

/* Bounds the text of pairs, each of which repeats its query. */
static quire_err check_pairs(const quire_request *r, size_t n_queries, size_t n_documents, quire_error *err) {
    size_t n_bytes = 0; /* cannot overflow: at most 1,024 pairs of texts from a body */
    for (size_t i = 0; i < n_documents; i++) {
        n_bytes += text_at_index(r->queries, n_queries > 1 ? i : 0).n + text_at_index(r->candidates, i).n;
    }
    return n_bytes <= SCORES_MAX_BYTES
               ? QUIRE_OK
               : err_set_param(err, QUIRE_BAD_REQUEST, dialect_of(&r->g)->prompt,
                               "the pairs have %zu bytes of text, each with its query; at most %zu are taken "
                               "at once",
                               n_bytes, SCORES_MAX_BYTES);
}

quire_err request_check_scores(quire_request *r, quire_error *err) {
    TRY(check_texts(r, err));
    bool is_pair = r->context.pooling.n_scores > 0;
    size_t n_queries = text_count(r->queries), n_documents = text_count(r->candidates),
           n = n_documents + (is_pair ? 0 : n_queries);
    if (is_pair) {
        TRY(check_pairs(r, n_queries, n_documents, err));
    }
    request_prompt *prompts = mem_new(n, sizeof *prompts);
    TRY(mem_check_for(prompts, "texts to score", err));
    request_set_prompts(r, prompts, n); /* at most 2 * REQUEST_MAX_PROMPTS */
    r->g.more.n_queries = is_pair ? 0 : (int32_t)n_queries;
    r->normalize = is_pair ? -1 : 1;
    if (is_pair) {
        make_pairs(r, n_queries, n_documents);
    } else {
        make_texts(r, n_queries, n_documents);
    }
    request_count_choices(r);
    return request_check_embedding(r, err);
}
