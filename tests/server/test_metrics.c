/* The text of /metrics, from numbers that are known. */

#include <string.h>

#include "base/fault.h"
#include "server/metrics.h"
#include "test.h"

static void expect_in(const strbuf *text, const char *part) {
    if (text->n == 0 || strstr(text->p, part) == NULL) {
        fail_msg("%s\nis not in\n%s", part, text->n > 0 ? text->p : "");
    }
}

TEST(buckets_are_cumulated_and_times_are_seconds) {
    quire_stats st = {
        .histograms[QUIRE_HISTOGRAM_FIRST_TOKEN] = {.buckets = {3, 1, [22] = 2}, .count = 6, .sum = 1500000},
        .histograms[QUIRE_HISTOGRAM_SAMPLES] = {.buckets = {1, [5] = 1}, .count = 2, .sum = 31}};
    quire_info info = {
        .n_pages = 100, .page_tokens = 16, .page_bytes = 4096, .n_page_groups = 2, .kv_dtype = "f32"};
    strbuf out = {0};
    assert_int_equal(metrics_write_engine(&info, &st, "m", &out), QUIRE_OK);
    expect_in(&out,
              "# TYPE vllm:time_to_first_token_seconds histogram\n"
              "vllm:time_to_first_token_seconds_bucket{engine=\"0\",model_name=\"m\",le=\"0.001\"} 3\n"
              "vllm:time_to_first_token_seconds_bucket{engine=\"0\",model_name=\"m\",le=\"0.005\"} 4\n");
    expect_in(&out, "vllm:time_to_first_token_seconds_bucket{engine=\"0\",model_name=\"m\",le=\"2560.0\"} 4\n"
                    "vllm:time_to_first_token_seconds_bucket{engine=\"0\",model_name=\"m\",le=\"+Inf\"} 6\n"
                    "vllm:time_to_first_token_seconds_sum{engine=\"0\",model_name=\"m\"} 1.5\n"
                    "vllm:time_to_first_token_seconds_count{engine=\"0\",model_name=\"m\"} 6\n");
    expect_in(&out, "vllm:request_params_n_bucket{engine=\"0\",model_name=\"m\",le=\"20.0\"} 1\n"
                    "vllm:request_params_n_bucket{engine=\"0\",model_name=\"m\",le=\"+Inf\"} 2\n"
                    "vllm:request_params_n_sum{engine=\"0\",model_name=\"m\"} 31\n");
    expect_in(&out, "{block_size=\"16\",cache_dtype=\"f32\",enable_prefix_caching=\"False\",engine=\"0\",kv_"
                    "cache_memory_bytes=\"409600\","
                    "kv_cache_size_tokens=\"800\",num_gpu_blocks=\"50\"} 1\n");
    strbuf_deinit(&out);
}

TEST(a_labels_value_is_escaped_and_valid_utf8) {
    strbuf out = {0};
    assert_int_equal(metrics_escape(&out, "a\"b\\c\nd\xff{}\xc3\xa4"), QUIRE_OK);
    assert_string_equal(out.p, "a\\\"b\\\\c\\nd\xEF\xBF\xBD{}\xc3\xa4");
    strbuf_deinit(&out);
}

static request_record record_of(const char *endpoint, const char *method, int status, size_t bytes) {
    return (request_record){.endpoint = endpoint,
                            .method = method,
                            .status = status,
                            .request_bytes = bytes,
                            .response_bytes = 10 * bytes,
                            .prompt_tokens = 5,
                            .completion_tokens = 7,
                            .cached_tokens = 2};
}

TEST(requests_of_all_loops_add_up) {
    http_stats *loops[2], *all;
    assert_int_equal(http_stats_open(&all), QUIRE_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(http_stats_open(&loops[i]), QUIRE_OK);
        request_record r[] = {record_of("/v1/completions", "POST", 200, 100),
                              record_of("/v1/completions", "POST", 429, 1), record_of(NULL, NULL, 400, 0),
                              record_of("/v1/completions", "POST", 0, 0)};
        for (size_t k = 0; k < sizeof r / sizeof *r; k++) {
            http_stats_note(loops[i], &r[k], k < 2 ? "a\"b" : NULL);
        }
        assert_int_equal(http_stats_add(all, loops[i]), QUIRE_OK);
    }
    strbuf out = {0};
    assert_int_equal(http_stats_write(all, true, &out), QUIRE_OK);
    expect_in(&out, "http_requests_total{handler=\"/v1/completions\",method=\"POST\",status=\"2xx\"} 2\n"
                    "http_requests_total{handler=\"/v1/completions\",method=\"POST\",status=\"4xx\"} 4\n"
                    "http_requests_total{handler=\"none\",method=\"none\",status=\"4xx\"} 2\n");
    expect_in(&out, "http_request_size_bytes_count{handler=\"/v1/completions\"} "
                    "6\nhttp_request_size_bytes_sum{handler=\"/v1/completions\"} 202\n");
    expect_in(&out, "http_response_size_bytes_sum{handler=\"/v1/completions\"} 2020\n");
    expect_in(&out, "http_request_duration_seconds_count{handler=\"/v1/completions\",method=\"POST\"} 6\n");
    expect_in(&out, "http_request_duration_highr_seconds_count 8\n");
    expect_in(&out,
              "quire_http_requests_total{status=\"200\"} 2\nquire_http_requests_total{status=\"400\"} 2\n"
              "quire_http_requests_total{status=\"429\"} 2\nquire_http_requests_total{status=\"499\"} 2\n");
    expect_in(&out, "quire_http_errors_total 6\n");
    expect_in(&out, "quire_tenant_requests_total{status=\"4xx\",tenant=\"a\\\"b\"} 2\n");
    expect_in(&out, "quire_tenant_completion_tokens_total{tenant=\"a\\\"b\"} 28\n");
    strbuf_clear(&out);
    assert_int_equal(http_stats_write(all, false, &out), QUIRE_OK);
    assert_null(strstr(out.p, "tenant"));
    strbuf_deinit(&out);
    for (int i = 0; i < 2; i++) {
        http_stats_close(loops[i]);
    }
    http_stats_close(all);
}

#ifdef QUIRE_DEBUG
/* Counts two requests of a tenant, adds them up and writes them. */
static quire_err count_and_write(strbuf *out) {
    http_stats *one = NULL, *all = NULL;
    quire_err e = http_stats_open(&one);
    e = e == QUIRE_OK ? http_stats_open(&all) : e;
    for (int i = 0; i < 2 && e == QUIRE_OK; i++) {
        request_record r = record_of("/health", "GET", 200, 1);
        http_stats_note(one, &r, "t");
    }
    e = e == QUIRE_OK ? http_stats_add(all, one) : e;
    e = e == QUIRE_OK ? http_stats_write(all, true, out) : e;
    http_stats_close(one);
    http_stats_close(all);
    return e;
}

#endif

TEST(short_of_memory_a_request_is_in_the_sums_at_least) {
#ifdef QUIRE_DEBUG
    int64_t n = 1, n_written = 0;
    for (bool failed = true; failed; n++) {
        strbuf out = {0};
        fault_at(n);
        quire_err e = count_and_write(&out);
        failed = fault_happened();
        fault_at(0);
        assert_true(e == QUIRE_OK || (failed && e == QUIRE_NO_MEMORY));
        if (e == QUIRE_OK) {
            n_written++;
            expect_in(&out, "quire_http_requests_total{status=\"200\"} 2\n");
        }
        strbuf_deinit(&out);
    }
    assert_true(n > 5 && n_written > 1); /* a row's or a tenant's memory may be missing */
#endif
}

TEST_MAIN(NULL, NULL)
