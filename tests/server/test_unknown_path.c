/* What is said of paths that the server does not have. */

#include "server/routes.h"
#include "test.h"

static void expect_told(const char *method, const char *path, const char *part) {
    quire_error err = {0};
    char begin[300];
    unknown_path_explain(method, str_of(path), routes_path, &err);
    snprintf(begin, sizeof begin, "%s %s: ", method, path);
    if (strncmp(err.message, begin, strlen(begin)) != 0 || strstr(err.message, part) == NULL) {
        fail_msg("%s %s: expected \"%s\" in: %s", method, path, part, err.message);
    }
    assert_int_equal(err.code, QUIRE_NOT_FOUND);
}

TEST(a_base_url_without_v1_is_told_to_end_in_it) {
    expect_told("POST", "/chat/completions",
                "it is /v1/chat/completions: set the client's base URL so that it ends in /v1");
    expect_told("POST", "/responses", "it is /v1/responses: set the client's base URL");
    expect_told("GET", "/models/org/name", "it is /v1/models/org/name: set");
    expect_told("POST", "/Chat/Completions/", "it is /v1/chat/completions: set");
}

TEST(a_base_url_with_too_much_is_told_what_to_leave_out) {
    expect_told("POST", "/v1/v1/chat/completions", "it is /v1/chat/completions: /v1 comes twice");
    expect_told("POST", "/v1/v1/v1/chat/completions", "/v1 comes twice");
    expect_told("GET", "/v1/v1/models", "it is /v1/models: /v1 comes twice");
    expect_told("POST", "/v1/chat/completions/chat/completions",
                "it is /v1/chat/completions: the client's base URL must end in /v1 right after host and "
                "port, without /v1/chat/completions");
    expect_told("POST", "/openai/v1/chat/completions", "right after host and port, without /openai");
    expect_told("POST", "/openai/deployments/gpt/chat/completions",
                "it is /v1/chat/completions: the client's base URL must end in /v1 right");
    expect_told("GET", "/v1/health", "it is /health, without /v1 before it");
    expect_told("POST", "/v1/infill", "it is /infill, without /v1 before it");
    expect_told("GET", "/v1/metrics", "it is /metrics, without /v1 before it");
}

TEST(a_path_that_is_spelled_almost_right_hears_the_nearest) {
    expect_told("POST", "/v1/chat/completion", "the nearest is /v1/chat/completions");
    expect_told("POST", "/v1/completion", "the nearest is /v1/completions");
    expect_told("POST", "/v1/chat/comlpetions", "the nearest is /v1/chat/completions");
    expect_told("GET", "/healthz", "the nearest is /health");
    expect_told("POST", "//v1//chat/completions",
                "it is /v1/chat/completions, in lower case and without further slashes");
    expect_told("POST", "/v1/chat/completions/", "it is /v1/chat/completions, in lower");
    expect_told("POST", "/V1/Chat/Completions", "it is /v1/chat/completions, in lower");
    expect_told("GET", "/v1", "below it are /v1/models, /v1/completions, /v1/chat/completions");
    expect_told("GET", "/v1/chat", "below it are /v1/chat/completions");
    expect_told("GET", "/wp-admin",
                "there is no such path; GET / with Accept: application/json lists all paths");
}

TEST(a_path_of_another_api_hears_what_to_use_instead) {
    expect_told("POST", "/v1/v1/complete", "use /v1/completions");
    expect_told("POST", "/v1/complete/x", "Anthropic's Completions API is not served here");
    expect_told("POST", "/audio/speech", "this server generates text only");
    expect_told("GET", "/start_profile", "SGLang's profiler is not served here");
    expect_told("POST", "/concate_and_append_request", "send the joined text to /generate");
    expect_told("POST", "/generate_stream", "TGI's own API is not served here");
    expect_told("POST", "/api/pull",
                "managing models is not served here; this server has only the models it was started with");
    expect_told("GET", "/v1/responsesx", "there is no such path");
}

/* Also that a row goes when its path is served. */
TEST(no_row_of_another_api_hides_a_route) {
    for (size_t i = 0; i < n_foreign_paths; i++) {
        assert_false(path_is_known(routes_path, str_of(foreign_paths[i].path)));
        /* what it names instead is served */
        for (const char *p = foreign_paths[i].instead; (p = strchr(p, '/')) != NULL;) {
            size_t n = strcspn(p, " :,;");
            bool is_itself = strlen(foreign_paths[i].path) == n && memcmp(p, foreign_paths[i].path, n) == 0;
            assert_true(is_itself || (n == 3 && memcmp(p, "/v1", 3) == 0) ||
                        path_is_known(routes_path, (str){p, n}));
            p += n;
        }
    }
}

TEST(a_hostile_path_is_shown_encoded_and_cut) {
    char shown[SHOWN_PATH_BYTES], longest[5000];
    path_show((str){"/a b\n\x1b[31m\"<>\\%\xff\0z", 18}, shown);
    assert_string_equal(shown, "/a%20b%0A%1B[31m%22%3C%3E%5C%25%FF%00z");
    memset(longest, '\x01', sizeof longest);
    path_show((str){longest, sizeof longest}, shown);
    assert_true(strlen(shown) < SHOWN_PATH_BYTES && strcmp(shown + strlen(shown) - 2, "..") == 0);
    memset(longest, 'a', sizeof longest);
    path_show((str){longest, SHOWN_PATH_BYTES - 3}, shown);
    assert_int_equal(strlen(shown), SHOWN_PATH_BYTES - 3);
    quire_error err;
    longest[0] = '/';
    for (size_t n = 0; n < sizeof longest; n += 1 + n / 7) { /* every length is survived */
        unknown_path_explain("GET", (str){longest, n}, routes_path, &err);
    }
    for (int c = 0; c < 256; c++) {
        char path[] = {'/', 'v', '1', '/', (char)c, 'x', '/', (char)c};
        unknown_path_explain("GET", (str){path, sizeof path}, routes_path, &err);
        for (const char *p = err.message; *p != '\0'; p++) {
            assert_true(*p >= ' ' && *p <= '~');
        }
    }
    memset(longest, '/', sizeof longest);
    unknown_path_explain("GET", (str){longest, sizeof longest}, routes_path, &err);
    assert_non_null(strstr(err.message, "the nearest is /"));
}

TEST_MAIN(NULL, NULL)
