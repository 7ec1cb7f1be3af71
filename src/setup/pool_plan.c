#define _DEFAULT_SOURCE

#include "setup/pool_plan.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "base/mem.h"
#include "options/engine_flags.h"
#include "setup/adapter_store.h"

#define PATH_BYTES 4096
/* stacks of threads that start later: engine, text, server, log, tiers */
#define N_STACKS  6
#define UNLIMITED ((int64_t)1 << 60) /* a limit of at least this is no limit */

/* The number in line "name N kB" of root/path, in bytes; -1: there is no such line. */
static int64_t read_kib(const char *root, const char *path, const char *name) {
    char full[PATH_BYTES], line[256];
    int n = snprintf(full, sizeof full, "%s%s", root, path);
    FILE *f = n > 0 && (size_t)n < sizeof full ? fopen(full, "re") : NULL;
    int64_t bytes = -1;
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        size_t n_name = strlen(name);
        long long kib;
        if (strncmp(line, name, n_name) == 0 && sscanf(line + n_name, "%lld", &kib) == 1 && kib >= 0 &&
            kib < UNLIMITED / 1024) {
            bytes = kib * 1024;
        }
    }
    if (f != NULL) {
        fclose(f);
    }
    return bytes;
}

/* Lowers the room to `bytes`, with its bound and limit, if that is less. */
static void bound_room(memory_room *room, int64_t bytes, memory_bound bound, int64_t limit) {
    if (room->bytes < 0 || bytes < room->bytes) {
        room->bytes = bytes > 0 ? bytes : 0;
        room->bound = bound;
        room->limit = limit;
    }
}

/* Address space of the stacks of later threads, most of which is never touched. */
static int64_t stack_bytes(void) {
    pthread_attr_t attr;
    size_t n = 0;
    if (pthread_attr_init(&attr) == 0) {
        (void)pthread_attr_getstacksize(&attr, &n);
        (void)pthread_attr_destroy(&attr);
    }
    return N_STACKS * (int64_t)n;
}

/* Limits the room to what a soft limit leaves beyond the process's present usage, which
 * its status file has in line `name`. */
static void bound_by_rlimit(memory_room *room, const char *root, int resource, memory_bound bound,
                            const char *name) {
    struct rlimit limit;
    int64_t used = read_kib(root, "/proc/self/status", name);
    /* RLIM_INFINITY is the largest number */
    if (getrlimit(resource, &limit) == 0 && limit.rlim_cur < (rlim_t)UNLIMITED) {
        int64_t most = (int64_t)limit.rlim_cur;
        bound_room(room, most - (used > 0 ? used : 0) - room->stack_bytes, bound, most);
    }
}

void memory_room_read(const char *root, int64_t pending_bytes, memory_room *out) {
    *out = (memory_room){.bytes = -1, .bound = MEMORY_UNKNOWN, .stack_bytes = stack_bytes()};
    int64_t available = read_kib(root, "/proc/meminfo", "MemAvailable:");
    if (available >= 0) {
        bound_room(out, available - pending_bytes, MEMORY_OF_MACHINE, available);
    }
    cgroup_memory group;
    cgroup_memory_read(root, &group);
    if (group.limit >= 0) {
        bound_room(out, group.limit - group.used - pending_bytes, MEMORY_OF_CGROUP, group.limit);
        memcpy(out->file, group.file, sizeof out->file);
    }
    bound_by_rlimit(out, root, RLIMIT_AS, MEMORY_OF_RLIMIT_AS, "VmSize:");
    bound_by_rlimit(out, root, RLIMIT_DATA, MEMORY_OF_RLIMIT_DATA, "VmData:");
}

quire_err memory_room_explain(const memory_room *room, strbuf *out) {
    assert(room != NULL);
    if (room->bytes < 0) {
        return strbuf_add_str(out, "an unknown amount of memory");
    }
    TRY(strbuf_addf(out, "the %s", memory_show(room->bytes).text));
    if (room->bound == MEMORY_OF_MACHINE) {
        return strbuf_add_str(out, " that the machine has available");
    }
    bool is_cgroup = room->bound == MEMORY_OF_CGROUP, is_as = room->bound == MEMORY_OF_RLIMIT_AS;
    TRY(strbuf_addf(out, " that %s of %s (%s) leaves",
                    is_cgroup ? "the cgroup's limit"
                    : is_as   ? "the limit of address space"
                              : "the limit of data",
                    memory_show(room->limit).text,
                    is_cgroup ? room->file
                    : is_as   ? "ulimit -v"
                              : "ulimit -d"));
    return is_cgroup ? QUIRE_OK
                     : strbuf_addf(out, " beside stacks (%s)", memory_show(room->stack_bytes).text);
}

memory_text memory_show(int64_t bytes) {
    static const char *const units[] = {"kB", "MB", "GB", "TB"};
    memory_text t;
    double v = (double)bytes / 1e3;
    int u = 0;
    while (v >= 999.95 && u < 3) {
        v /= 1e3;
        u++;
    }
    if (bytes < 1000) {
        (void)snprintf(t.text, sizeof t.text, "%lld bytes", (long long)bytes);
    } else {
        (void)snprintf(t.text, sizeof t.text, "%.1f %s", v, units[u]);
    }
    return t;
}

quire_err memory_lock(bool late, quire_error *err) {
    struct rlimit limit;
    if (mlockall(late ? MCL_CURRENT | MCL_ONFAULT : MCL_CURRENT) == 0) {
        return QUIRE_OK;
    }
    int code = errno;
    char may[32] = "unlimited";
    if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
        (void)snprintf(may, sizeof may, "%llu KiB", (unsigned long long)limit.rlim_cur / 1024);
    }
    return err_set(err, QUIRE_NO_MEMORY, -1,
                   "--mlock: %s (ulimit -l: %s); raise it with `ulimit -l unlimited`, take fewer --kv-pages, "
                   "or leave --mlock out",
                   strerror(code), may);
}

#define RULES_LEAST ((int64_t)1 << 20) /* least memory for rules: enough for short ones */

pool_plan pool_plan_of(const quire_options *o) {
    assert(o != NULL);
    int64_t both =
        o->swap_bytes < INT64_MAX - o->tier_host_bytes ? o->swap_bytes + o->tier_host_bytes : INT64_MAX;
    return (pool_plan){.aside_bytes = both,
                       .adapter_bytes = options_adapter_bytes(o),
                       .rule_bytes = o->rule_bytes,
                       .given_pages = o->n_pages,
                       .cap_bytes = o->models_memory_bytes,
                       .utilization = o->memory_utilization};
}

int64_t pool_plan_kept(const memory_room *room, int64_t weight_bytes) {
    assert(room != NULL);
    bool is_outside = room->bound == MEMORY_OF_MACHINE || room->bound == MEMORY_OF_CGROUP;
    int64_t most = is_outside ? room->bytes - room->bytes / 8 : INT64_MAX;
    return weight_bytes < most ? weight_bytes : most;
}

int64_t pool_plan_rules(const pool_plan *p) {
    assert(p != NULL);
    if (p->step_rows > 0) {
        return 0; /* encoders obey no rules */
    }
    int64_t part = p->room.bytes / 16, most = p->room.bytes < 0    ? INT64_MAX
                                              : part < RULES_LEAST ? RULES_LEAST
                                                                   : part;
    return p->rule_bytes < most ? p->rule_bytes : most;
}

void pool_plan_encoder(pool_plan *p, const quire_options *o, const model_desc *d, int32_t max_rows) {
    p->step_rows = d->two_sided ? max_rows : 0;
    p->step_seqs = o->max_seqs;
}

/* The most pages of an encoder's step: each sequence may have a part-filled page, and
 * each page holds at least a row. INT64_MAX: no encoder. */
static int64_t step_pages(const pool_plan *p, const kv_layout *l) {
    int64_t rows = p->step_rows, n = rows / l->page_tokens + p->step_seqs;
    return rows == 0 ? INT64_MAX : (n < rows ? n : rows) * l->n_groups;
}

/* The bytes that cap_bytes leaves beside weights and buffers; INT64_MAX: no cap. */
static int64_t cap_leaves(const pool_plan *p) {
    int64_t others = p->weight_bytes - p->dropped_bytes + p->buffer_bytes + p->draft_bytes;
    return p->cap_bytes == 0 ? INT64_MAX : p->cap_bytes > others ? p->cap_bytes - others : 0;
}

int64_t pool_plan_bytes(const pool_plan *p, int64_t page_bytes) {
    assert(p != NULL);
    int64_t most = cap_leaves(p);
    if (p->given_pages > 0) {
        return p->given_pages < most / page_bytes ? p->given_pages * page_bytes : most;
    }
    if (p->room.bytes < 0) {
        return most < INT64_MAX ? most : -1;
    }
    int64_t room = p->room.bytes - pool_plan_rules(p);
    room = room > p->adapter_bytes ? room - p->adapter_bytes : 0;
    int64_t left = room > p->aside_bytes ? room - p->aside_bytes : 0,
            n = (int64_t)((double)left * p->utilization);
    return n < most ? n : most;
}

/* The pages in `bytes`, at most POOL_MAX_PAGES and what an encoder's step needs. */
static int64_t pages_of_bytes(const pool_plan *p, const kv_layout *l, int64_t bytes) {
    int64_t n = bytes / l->page_bytes, most = p->given_pages > 0 ? INT64_MAX : step_pages(p, l);
    n = n < most ? n : most;
    return n < POOL_MAX_PAGES ? n : POOL_MAX_PAGES;
}

int64_t pool_plan_pages(const pool_plan *p, const kv_layout *l) {
    assert(l != NULL);
    int64_t bytes = pool_plan_bytes(p, l->page_bytes), most = step_pages(p, l);
    if (bytes < 0) {
        return most < INT64_MAX ? most : -1;
    }
    return pages_of_bytes(p, l, bytes);
}

quire_err pool_plan_explain(const pool_plan *p, strbuf *out) {
    assert(p != NULL);
    if (p->given_pages == 0 && p->step_rows > 0) {
        return strbuf_addf(out, "room for one step of %d rows: an encoder keeps no keys and values",
                           (int)p->step_rows);
    }
    if (p->given_pages > 0) {
        TRY(strbuf_add_str(out, "as many as --kv-pages says, of "));
    } else {
        TRY(strbuf_addf(out, "%g%% (--memory-utilization, %g by default) of ", 100.0 * p->utilization,
                        engine_flag_find("memory-utilization")->number));
    }
    TRY(memory_room_explain(&p->room, out));
    bool is_beside = p->room.bound == MEMORY_OF_RLIMIT_AS || p->room.bound == MEMORY_OF_RLIMIT_DATA;
    TRY(strbuf_addf(out, "%s weights (%s", is_beside ? "," : " beside", memory_show(p->weight_bytes).text));
    if (p->dropped_bytes > 0) {
        TRY(strbuf_addf(out, ", of which %s stay in memory",
                        memory_show(p->weight_bytes - p->dropped_bytes).text));
    }
    TRY(strbuf_add_str(out, ")"));
    if (p->buffer_bytes > 0) {
        TRY(strbuf_addf(out, " and buffers (%s)", memory_show(p->buffer_bytes).text));
    }
    if (p->draft_bytes > 0) {
        TRY(strbuf_addf(out, " and a draft model (%s)", memory_show(p->draft_bytes).text));
    }
    if (p->aside_bytes > 0) {
        TRY(strbuf_addf(out, ", less %s for --swap-space and --kv-tier-host-bytes",
                        memory_show(p->aside_bytes).text));
    }
    if (p->adapter_bytes > 0) {
        TRY(strbuf_addf(out, "%s%s for adapters (--max-cpu-loras)", p->aside_bytes > 0 ? " and " : ", less ",
                        memory_show(p->adapter_bytes).text));
    }
    if (pool_plan_rules(p) > 0) {
        TRY(strbuf_addf(out, "%s%s for rules (--rule-memory-bytes)",
                        p->aside_bytes > 0 || p->adapter_bytes > 0 ? " and " : ", less ",
                        memory_show(pool_plan_rules(p)).text));
    }
    if (p->cap_bytes > 0) {
        TRY(strbuf_addf(out, "; weights, buffers and pages of all models at most %s (--models-memory-bytes)",
                        memory_show(p->cap_bytes).text));
    }
    return p->has_draft ? strbuf_add_str(out, "; the draft model's pages take of the same memory") : QUIRE_OK;
}

/* Checks that n pages suffice for a sequence of least_tokens tokens. */
static quire_err check_pages(const pool_plan *p, const kv_layout *l, const kv_most *most, int64_t n,
                             int32_t least_tokens, quire_error *err) {
    int64_t least = kv_most_pages(most, least_tokens);
    if (n < 0) {
        return err_set(err, QUIRE_INVALID, -1, "the amount of free memory is unknown; give --kv-pages N");
    }
    if (n < least) {
        return err_set(err, QUIRE_NO_MEMORY, -1,
                       "%lld KV pages of %lld bytes hold not even one request of %d tokens, which takes "
                       "%lld; lower --max-model-len%s%s",
                       (long long)n, (long long)l->page_bytes, (int)least_tokens, (long long)least,
                       most->n_caps > 0 ? " or --chunk" : "",
                       p->given_pages     ? " or raise --kv-pages"
                       : p->cap_bytes > 0 ? " or raise --models-memory-bytes"
                                          : ", raise --memory-utilization or free memory");
    }
    return QUIRE_OK;
}

quire_err pool_plan_resolve(const pool_plan *p, const kv_layout *l, const kv_most *most, int32_t least_tokens,
                            int32_t *n_pages, quire_error *err) {
    int64_t n = pool_plan_pages(p, l);
    TRY(check_pages(p, l, most, n, least_tokens, err));
    *n_pages = (int32_t)n;
    return QUIRE_OK;
}

/* ---- memory that models share ---- */

quire_err model_memory_open(const pool_plan *p, int64_t bytes, int32_t n_models, model_memory **out) {
    assert(n_models >= 1);
    model_memory *m = mem_new(1, sizeof *m);
    TRY(mem_check(m));
    quire_err e = kv_budget_open(bytes, &m->budget);
    if (e != QUIRE_OK) {
        mem_free(m);
        return e == QUIRE_INVALID ? QUIRE_NO_MEMORY : e; /* bytes is 0: no memory is left */
    }
    m->n_models = n_models;
    m->part = p->cap_bytes > 0 ? 1.0 : p->given_pages > 0 ? 0.0 : p->utilization;
    atomic_init(&m->n_holders, 1);
    *out = m;
    return QUIRE_OK;
}

model_memory *model_memory_hold(model_memory *m) {
    atomic_fetch_add(&m->n_holders, 1);
    return m;
}

void model_memory_drop(model_memory *m) {
    if (m != NULL && atomic_fetch_sub(&m->n_holders, 1) == 1) {
        kv_budget_close(m->budget);
        mem_free(m);
    }
}

int64_t model_memory_fixed(const model_memory *m, int64_t bytes) {
    return (int64_t)(m->part * (double)bytes);
}

quire_err model_memory_share(const model_memory *m, const pool_plan *p, const kv_layout *l,
                             const kv_most *most, int32_t least_tokens, int32_t *n_pages, int32_t *sure_pages,
                             quire_error *err) {
    assert(m != NULL && p != NULL && l != NULL);
    int64_t bytes = kv_budget_count(m->budget).bytes, all = pages_of_bytes(p, l, bytes),
            least = kv_most_pages(most, least_tokens),
            share = kv_budget_pages(m->budget, l->page_bytes, bytes / 2 / m->n_models);
    all = p->given_pages > 0 && p->given_pages < all ? p->given_pages : all;
    TRY(check_pages(p, l, most, all, least_tokens, err));
    bool is_encoder = p->step_rows > 0; /* an encoder's pool is sized for one step */
    int64_t sure = share > least ? share : least > 0 ? least : 1;
    *n_pages = (int32_t)all;
    *sure_pages = (int32_t)(is_encoder || sure > all ? all : sure);
    return QUIRE_OK;
}
