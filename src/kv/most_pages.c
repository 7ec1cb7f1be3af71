#include "kv/most_pages.h"

/* Most pages that n >= 1 consecutive tokens touch, wherever the first one lies in its
 * page. */
static int32_t touched(int64_t n, int32_t page_tokens) {
    int64_t pages = (n - 1 + page_tokens - 1) / page_tokens + 1;
    return pages < INT32_MAX ? (int32_t)pages : INT32_MAX;
}

static void add_cap(kv_most *m, int32_t n_pages) {
    int32_t i = 0;
    while (i < m->n_caps && m->caps[i].n_pages != n_pages) {
        i++;
    }
    m->caps[i].n_pages = n_pages;
    m->caps[i].n_groups++;
    m->n_caps += i == m->n_caps;
}

/* Adds a group: of states (state_pages > 0), with a window, or full. */
static void most_pages_add_group(kv_most *m, int32_t state_pages, int32_t window, int32_t n_rows) {
    m->n_states += state_pages;
    if (window > 0) { /* the first row sees the window - 1 tokens before it */
        add_cap(m, touched((int64_t)window - 1 + n_rows, m->page_tokens));
    } else if (state_pages == 0) {
        m->n_full++;
    }
}

kv_most kv_most_of_cache(const kv_cache *c, int32_t n_rows) {
    kv_most m = {.page_tokens = c->page_tokens};
    for (int32_t g = 0; g < c->n_groups; g++) {
        most_pages_add_group(&m, c->state_pages[g], c->windows[g], n_rows);
    }
    return m;
}

kv_most kv_most_of_layout(const kv_layout *l, int32_t n_rows) {
    kv_cache_options o = kv_cache_options_of(l, 0);
    kv_most m = {.page_tokens = l->page_tokens};
    for (int32_t g = 0; g < l->n_groups; g++) {
        most_pages_add_group(&m, o.state_pages[g], o.windows[g], n_rows);
    }
    return m;
}

/* Most pages of a sequence whose tables have n_entries each. */
static int64_t most_pages_of(const kv_most *m, int64_t n_entries) {
    int64_t n = m->n_states + m->n_full * n_entries;
    for (int32_t i = 0; i < m->n_caps; i++) {
        n += m->caps[i].n_groups * (n_entries < m->caps[i].n_pages ? n_entries : m->caps[i].n_pages);
    }
    return n;
}

int64_t kv_most_pages(const kv_most *m, int64_t n_tokens) {
    return n_tokens > 0 ? most_pages_of(m, kv_pages_for(n_tokens, m->page_tokens)) : 0;
}

int64_t kv_most_tokens(const kv_most *m, int64_t n_pages) {
    int64_t low = 0, high = INT32_MAX; /* numbers of entries: `low` fit, `high` + 1 do not */
    if (m->n_full == 0 && most_pages_of(m, high) <= n_pages) {
        return INT64_MAX;
    }
    if (most_pages_of(m, 0) > n_pages) {
        return 0;
    }
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        bool fits = most_pages_of(m, middle) <= n_pages;
        low = fits ? middle : low;
        high = fits ? high : middle;
    }
    return low * m->page_tokens;
}
