/* Bodies of score requests: which texts are compared by an embedding model and by a
 * cross-encoder. */
#include "request_world.h"

static const request_context embedder = {.n_vocab = 2048,
                                         .max_model_len = 1024,
                                         .has_vocabulary = true,
                                         .no_tokens = true,
                                         .pooling = {.kind = POOLING_MEAN}};
static const request_context scorer = {.n_vocab = 2048,
                                       .max_model_len = 1024,
                                       .has_vocabulary = true,
                                       .no_tokens = true,
                                       .pooling = {.kind = POOLING_CLS, .n_scores = 1}};

static quire_request *parse_scores(const request_context *c, quire_endpoint endpoint, const char *body) {
    quire_request *r;
    quire_error err = {0};
    if (request_parse(c, endpoint, body, strlen(body), &r, &err) != QUIRE_OK) {
        fail_msg("%s: %s", body, err.message);
    }
    return r;
}

static bool is_prompt(const quire_request *r, int32_t i, const char *text, const char *pair) {
    const request_prompt *p = &r->g.prompts[i];
    return str_is(p->text, text) && (pair == NULL ? p->pair.p == NULL : str_is(p->pair, pair));
}

TEST(a_cross_encoder_reads_pairs) {
    quire_request *r = parse_scores(&scorer, QUIRE_SCORE, "{\"text_1\":\"q\",\"text_2\":[\"a\",\"b\"]}");
    assert_int_equal(r->g.info.n_choices, 2);
    assert_int_equal(r->g.more.n_queries, 0);
    assert_true(is_prompt(r, 0, "q", "a") && is_prompt(r, 1, "q", "b"));
    quire_request_free(r);
    r = parse_scores(&scorer, QUIRE_SCORE, "{\"queries\":[\"q\",\"r\"],\"documents\":[\"a\",\"b\"]}");
    assert_true(r->g.info.n_choices == 2 && is_prompt(r, 0, "q", "a") && is_prompt(r, 1, "r", "b"));
    quire_request_free(r);
}

TEST(a_model_that_embeds_reads_each_text_and_its_rows_have_length_1) {
    quire_request *r = parse_scores(&embedder, QUIRE_SCORE, "{\"text_1\":\"q\",\"text_2\":[\"a\",\"b\"]}");
    assert_int_equal(r->g.info.n_choices, 3);
    assert_int_equal(r->g.more.n_queries, 1);
    assert_true(r->g.pooling.normalise);
    assert_true(is_prompt(r, 0, "q", NULL) && is_prompt(r, 1, "a", NULL) && is_prompt(r, 2, "b", NULL));
    quire_request_free(r);
}

TEST(reranking_has_texts_of_objects_too_and_shows_them) {
    quire_request *r = parse_scores(&scorer, QUIRE_RERANK,
                                    "{\"query\":\"q\",\"documents\":[{\"text\":\"a\"},\"b\"],\"top_n\":1}");
    assert_true(r->g.more.top_n == 1 && r->g.more.return_documents);
    assert_true(is_prompt(r, 0, "q", "a") && str_is(r->g.prompts[1].shown, "b"));
    quire_request_free(r);
    r = parse_scores(&scorer, QUIRE_RERANK,
                     "{\"query\":\"q\",\"documents\":\"a\",\"return_documents\":false}");
    assert_true(!r->g.more.return_documents && r->g.prompts[0].shown.p == NULL);
    quire_request_free(r);
}

TEST(wrong_scores_are_refused_by_name) {
    static request_context several;
    several = scorer;
    several.pooling.n_scores = 3;
    refuse_by(&scorer, QUIRE_SCORE, "{\"text_1\":\"q\"}", "text_2", "missing");
    refuse_by(&scorer, QUIRE_SCORE, "{\"text_2\":\"q\"}", "text_1", "missing");
    refuse_by(&scorer, QUIRE_SCORE, "{\"text_1\":[\"q\",\"r\"],\"text_2\":[\"a\",\"b\",\"c\"]}", "text_1",
              "or one for each");
    refuse_by(&scorer, QUIRE_RERANK, "{\"query\":[\"q\",\"r\"],\"documents\":[\"a\",\"b\"]}", "query",
              "one for all");
    refuse_by(&scorer, QUIRE_RERANK, "{\"query\":\"q\",\"documents\":[]}", "documents", "0 items");
    refuse_by(&scorer, QUIRE_RERANK, "{\"query\":\"q\",\"documents\":[5]}", "body.documents.0", "a string");
    refuse_by(&scorer, QUIRE_RERANK, "{\"query\":5,\"documents\":[\"a\"]}", "body.query", "a string");
    refuse_by(&scorer, QUIRE_RERANK, "{\"query\":\"q\",\"documents\":[{}]}", "body.documents.0", "a text");
    refuse_by(&several, QUIRE_SCORE, "{\"text_1\":\"q\",\"text_2\":\"a\"}", "", "gives 3 scores");
    refuse(QUIRE_SCORE, "{\"text_1\":\"q\",\"text_2\":\"a\"}", "pooling", "generates text");
}

TEST_MAIN(NULL, NULL)
