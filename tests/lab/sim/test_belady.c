/* The offline optimum, compared with an exhaustive search over everything a cache could
 * keep. */
#include "replaying.h"

enum { DEPTH = 3, N_PAGES = 14, N_STATES = 1 << N_PAGES, N_REQUESTS = 14 };

/* A request of the search: up to DEPTH pages of one binary digit each, after which comes
 * a page that nobody asks for again. */
typedef struct digits {
    int32_t v[DEPTH], n;
} digits;

/* The number of the page that digits 0..i stand for: at depth 0 they are 0 and 1, at
 * depth 1 2..5, at depth 2 6..13. */
static int32_t page_of(const digits *d, int32_t i) {
    int32_t number = 0;
    for (int32_t j = 0; j <= i; j++) {
        number = 2 * number + d->v[j];
    }
    return (2 << i) - 2 + number;
}

static int32_t count_bits(int32_t v) {
    int32_t n = 0;
    for (; v != 0; v &= v - 1) {
        n++;
    }
    return n;
}

/* From each set of pages that can be cached (now[set]: most pages found so far, -1:
 * cannot be), a request leads to next. Every subset of what it does not want may stay,
 * leaves first or not, as far as there is room beside what it wants. */
static void search_step(const digits *request, int32_t capacity, const int16_t *now, int16_t *next) {
    int32_t wanted = 0;
    for (int32_t i = 0; i < request->n; i++) {
        wanted |= 1 << page_of(request, i);
    }
    memset(next, 0xff, N_STATES * sizeof *next);
    for (int32_t set = 0; set < N_STATES; set++) {
        int32_t found = 0, others = set & ~wanted, kept = others;
        while (found < request->n && (set >> page_of(request, found) & 1)) {
            found++;
        }
        if (now[set] < 0) {
            continue;
        }
        do {
            if (count_bits(kept | wanted) + 1 <= capacity && now[set] + found > next[kept | wanted]) {
                next[kept | wanted] = (int16_t)(now[set] + found);
            }
            kept = (kept - 1) & others;
        } while (kept != others);
    }
}

/* The most pages that any choices find. */
static int32_t search_optimum(const digits *requests, int32_t n_requests, int32_t capacity) {
    int16_t *sets[2] = {malloc(N_STATES * sizeof(int16_t)), malloc(N_STATES * sizeof(int16_t))};
    memset(sets[0], 0xff, N_STATES * sizeof(int16_t));
    sets[0][0] = 0;
    for (int32_t i = 0; i < n_requests; i++) {
        search_step(&requests[i], capacity, sets[i % 2], sets[(i + 1) % 2]);
    }
    int32_t most = 0;
    for (int32_t set = 0; set < N_STATES; set++) {
        int32_t n = sets[n_requests % 2][set];
        most = n > most ? n : most;
    }
    free(sets[0]);
    free(sets[1]);
    return most;
}

TEST(belady_finds_as_much_as_any_choice_where_pages_are_used_whole) {
    uint64_t seed = rng_os_seed();
    int32_t n_beaten = 0;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int32_t round = 0; round < 60; round++) {
        digits requests[N_REQUESTS];
        char text[4096] = "";
        for (int32_t r = 0; r < N_REQUESTS; r++) {
            size_t n = strlen(text);
            requests[r].n = 1 + (int32_t)(rng_next(&seed) % DEPTH);
            n += (size_t)snprintf(text + n, sizeof text - n, "{\"prompt\": [");
            for (int32_t i = 0; i < requests[r].n; i++) {
                requests[r].v[i] = (int32_t)(rng_next(&seed) % 2);
                n += (size_t)snprintf(text + n, sizeof text - n, "%d, ", (int)requests[r].v[i]);
            }
            snprintf(text + n, sizeof text - n, "[\"last %d\", 1]]}\n", (int)r);
        }
        for (int32_t capacity = DEPTH + 1; capacity < DEPTH + 5; capacity++) {
            int32_t optimum = search_optimum(requests, N_REQUESTS, capacity);
            assert_int_equal(replay_text(text, KV_EVICT_CALLER, capacity, 1, 1).hit_tokens, optimum);
            for (kv_policy policy = 0; policy < KV_EVICT_CALLER; policy++) {
                int64_t hits = replay_text(text, policy, capacity, 1, 1).hit_tokens;
                assert_true(hits <= optimum);
                n_beaten += hits < optimum;
            }
        }
    }
    assert_true(n_beaten > 60); /* the capacities are such that it matters what is kept */
}

/* Where pages are small against the prompts, little is reused inside a page that was not
 * foreseen: of 16,000 such replays none found more by another policy. */
TEST(belady_bounds_every_policy_where_pages_are_small_against_prompts) {
    uint64_t seed = rng_os_seed();
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int32_t round = 0; round < 40; round++) {
        trace t = random_trace(&seed, 120);
        int32_t page_tokens = 1 << round % 4, least = (t.longest + page_tokens - 1) / page_tokens;
        for (int32_t n_pages = least; n_pages <= 4 * least; n_pages += least) {
            int64_t bound = replay(&t, KV_EVICT_CALLER, n_pages, page_tokens, 1).hit_tokens;
            for (kv_policy policy = 0; policy < KV_EVICT_CALLER; policy++) {
                assert_true(replay(&t, policy, n_pages, page_tokens, 1).hit_tokens <= bound);
            }
        }
        trace_deinit(&t);
    }
}

/* The answer 2, 3 after 1 is computed anew, so its pages in the cache are worth less than
 * 4, 5, 6, though these are asked for later. */
TEST(what_only_an_answer_repeats_is_not_kept) {
    static const char text[] = "{\"prompt\": [1, 2, 3]}\n{\"prompt\": [4, 5, 6]}\n{\"prompt\": [7]}\n"
                               "{\"prompt\": [1], \"output\": [2, 3]}\n{\"prompt\": [4, 5, 6, 6]}\n";
    assert_int_equal(replay_text(text, KV_EVICT_CALLER, 6, 1, 1).hit_tokens, 2);
}

/* The second request goes on in a copy of the first one's last page. That page's time is
 * past then, and it goes before b, which comes again. */
TEST(a_tail_that_was_used_does_not_outlive_what_comes) {
    static const char text[] = "{\"prompt\": [[\"b\", 5]]}\n{\"prompt\": [[\"a\", 6]], \"output\": "
                               "2}\n{\"prompt\": [[\"a\", 6]], \"output\": 2}\n"
                               "{\"prompt\": [[\"c\", 12]]}\n{\"prompt\": [[\"b\", 5]]}\n";
    assert_int_equal(replay_text(text, KV_EVICT_CALLER, 5, 4, 1).hit_tokens, 5 + 4);
}

TEST_MAIN(NULL, NULL)
