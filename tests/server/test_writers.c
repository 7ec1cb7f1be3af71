/* The table of dialects: every endpoint of the API has a writer, or the server has no
 * route for it. */
#include "endpoints.h"
#include "server/response.h"
#include "server/routes.h"
#include "test.h"

TEST(every_endpoint_with_a_route_has_a_writer) {
    for (quire_endpoint e = 0; endpoint_facts_of(e).path != NULL; e++) {
        const response_writer *w = response_writer_of(e);
        assert_int_equal(w != NULL, path_is_known(routes_path, str_of(endpoint_facts_of(e).path)));
        assert_non_null(w);
        assert_int_equal(w->row != NULL, endpoint_facts_of(e).gives_rows);
        if (w != NULL) {
            assert_true(w->id_prefix != NULL && w->object != NULL);
            char last = w->id_prefix[strlen(w->id_prefix) - 1];
            assert_true(last == '-' || last == '_'); /* a response's number follows */
            assert_true(w->begin != NULL && w->choice != NULL && w->end != NULL);
        }
        if (endpoint_facts_of(e).gives_text) {
            assert_true(w->chunk != NULL && w->last != NULL && w->error != NULL);
            assert_int_equal(w->logprobs.token != NULL, w->logprobs.write != NULL);
        }
    }
}

TEST_MAIN(NULL, NULL)
