#include "kv/tier.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "kv/tier_dir.h"
#include "kv/tier_file.h"
#include "kv/tier_redis.h"

#define FRAME_NONE (-1)
/* bytes of frames for pages in transfer */
#define STAGING_BYTES ((int64_t)64 << 20)
#define MIN_STAGING   16
#define MAX_STAGING   1024
/* least number of pages of tokens for which every group has a staging frame */
#define PAGES_STAGED   2
#define JOBS_A_FRAME   2 /* most jobs of a frame at a time: one for the file, one for Redis */
#define KEPT_FOR_READS 4 /* writes leave 1/KEPT_FOR_READS of the staging frames to reads */

typedef enum frame_state { FRAME_FREE, FRAME_FILLING, FRAME_PENDING, FRAME_READY, FRAME_MISSED } frame_state;

typedef struct frame {
    frame_state state;
    int32_t n_holders;               /* number of references: of the host tier, transfers, the caller */
    int32_t next;                    /* next free frame */
    bool to_host, to_file, to_redis; /* tiers that it is written to once filled */
} frame;

struct kv_tiers {
    kv_record_shape shape;
    char version[KV_VERSION_BYTES];
    size_t head_bytes, frame_bytes;
    unsigned char *memory; /* [n_frames, frame_bytes] */
    frame *frames;
    int32_t n_frames, n_free, free_frame, n_kept_for_reads;
    bool has_host;
    kv_dir host;     /* a slot's value is its frame */
    kv_file *file;   /* NULL: no file tier */
    kv_redis *redis; /* NULL: no Redis tier */
    kv_io_done done;
    int32_t n_pending; /* number of unfinished jobs */
    uint64_t stamp;
    quire_tier_stats stats[KV_N_TIERS];
};

static unsigned char *head_of(const kv_tiers *t, int32_t f) {
    return t->memory + (size_t)f * t->frame_bytes;
}

static unsigned char *body_of(const kv_tiers *t, int32_t f) {
    return head_of(t, f) + t->head_bytes;
}

/* ---- open and close ---- */

static bool is_valid(const kv_tiers_options *o) {
    const kv_record_shape *s = &o->shape;
    return s->n_version <= KV_VERSION_BYTES && s->page_tokens >= 1 && s->n_groups >= 1 &&
           s->page_bytes >= 1 && o->host_bytes >= 0;
}

static quire_err open_frames(kv_tiers *t, int64_t host_bytes) {
    int64_t frame_bytes = (int64_t)t->frame_bytes, n_host = host_bytes / frame_bytes,
            n_staging = STAGING_BYTES / frame_bytes;
    int64_t least = PAGES_STAGED * (int64_t)t->shape.n_groups;
    n_staging = n_staging < MIN_STAGING ? MIN_STAGING : n_staging > MAX_STAGING ? MAX_STAGING : n_staging;
    n_staging = n_staging < least ? least : n_staging;
    if (n_host > INT32_MAX / 4) { /* the ring must have room for two jobs per frame */
        return QUIRE_TOO_LARGE;
    }
    t->n_frames = (int32_t)(n_host + n_staging);
    t->n_kept_for_reads = (int32_t)n_staging / KEPT_FOR_READS;
    t->memory = mem_new_huge((size_t)t->n_frames, t->frame_bytes);
    t->frames = mem_new((size_t)t->n_frames, sizeof *t->frames);
    TRY(mem_check(t->memory));
    TRY(mem_check(t->frames));
    t->free_frame = FRAME_NONE;
    for (int32_t f = t->n_frames - 1; f >= 0; f--) {
        t->frames[f].next = t->free_frame;
        t->free_frame = f;
    }
    t->n_free = t->n_frames;
    t->has_host = n_host > 0;
    t->stats[KV_TIER_HOST].is_open = t->has_host;
    return QUIRE_OK;
}

static quire_err open_file_tier(kv_tiers *t, const kv_tiers_options *o, quire_error *err) {
    if (o->file_path == NULL) {
        return QUIRE_OK;
    }
    kv_file_options f = {.path = o->file_path,
                         .bytes = o->file_bytes,
                         .hash_bits = o->hash_bits,
                         .way = o->file_way,
                         .calls = o->file_calls,
                         .most = size_power_of_two((size_t)t->n_frames)};
    TRY(kv_file_open(&t->shape, &f, t->done, &t->file, err));
    t->stamp = kv_file_last_stamp(t->file);
    t->stats[KV_TIER_FILE].is_open = true;
    return QUIRE_OK;
}

static quire_err open_redis_tier(kv_tiers *t, const kv_tiers_options *o, quire_error *err) {
    if (o->redis_url == NULL) {
        return QUIRE_OK;
    }
    TRY(kv_redis_open(&t->shape, o->redis_url, o->redis_bytes, size_power_of_two((size_t)t->n_frames),
                      t->done, &t->redis, err));
    t->stats[KV_TIER_REDIS].is_open = true;
    return QUIRE_OK;
}

static quire_err tier_open_parts(kv_tiers *t, const kv_tiers_options *o) {
    size_t page_bytes = (size_t)o->shape.page_bytes;
    t->shape = o->shape;
    mem_copy(t->version, o->shape.version, o->shape.n_version);
    t->shape.version = t->version;
    t->head_bytes = kv_record_head_bytes(&t->shape);
    if (!size_add(t->head_bytes, page_bytes, &t->frame_bytes) || t->frame_bytes > INT64_MAX - 63) {
        return QUIRE_TOO_LARGE;
    }
    t->frame_bytes = size_align(t->frame_bytes, 64);
    TRY(open_frames(t, o->host_bytes));
    t->done.reader = o->reader;
    TRY(ring_open(sizeof(kv_job), size_power_of_two(JOBS_A_FRAME * (size_t)t->n_frames), &t->done.ring));
    return t->has_host ? kv_dir_open(&t->host, (int32_t)(o->host_bytes / (int64_t)t->frame_bytes),
                                     o->shape.page_tokens, o->hash_bits)
                       : QUIRE_OK;
}

quire_err kv_tiers_open(const kv_tiers_options *o, kv_tiers **out, quire_error *err) {
    *out = NULL;
    if (!is_valid(o)) {
        return err_set(err, QUIRE_INVALID, -1, "tiers: no store has such records");
    }
    kv_tiers *t = mem_new(1, sizeof *t);
    quire_err e = err_set(err, t != NULL ? tier_open_parts(t, o) : QUIRE_NO_MEMORY, -1,
                          "no memory for %lld bytes of pages in host memory; lower --kv-tier-host-bytes",
                          (long long)o->host_bytes);
    TRY_DONE(e, open_file_tier(t, o, err));
    TRY_DONE(e, open_redis_tier(t, o, err));
done:
    if (e != QUIRE_OK) {
        kv_tiers_close(t);
        return e;
    }
    *out = t;
    return QUIRE_OK;
}

void kv_tiers_close(kv_tiers *t) {
    if (t == NULL) {
        return;
    }
    kv_file_close(t->file); /* closed first, because their threads use the frames and the done ring */
    kv_redis_close(t->redis);
    ring_close(t->done.ring);
    if (t->has_host) {
        kv_dir_close(&t->host);
    }
    mem_free(t->memory);
    mem_free(t->frames);
    mem_free(t);
}

/* ---- frames ---- */

static int32_t take_frame(kv_tiers *t, frame_state state) {
    int32_t f = t->free_frame;
    if (f != FRAME_NONE) {
        t->free_frame = t->frames[f].next;
        t->frames[f] = (frame){.state = state, .n_holders = 1, .next = FRAME_NONE};
        t->n_free--;
    }
    return f;
}

static void drop_frame(kv_tiers *t, int32_t f) {
    assert(t->frames[f].n_holders > 0);
    if (--t->frames[f].n_holders == 0) {
        t->frames[f].state = FRAME_FREE;
        t->frames[f].next = t->free_frame;
        t->free_frame = f;
        t->n_free++;
    }
}

/* ---- demotion ---- */

/* Whether the host tier lacks the page. If it has it, the page counts as used. */
static bool host_lacks(kv_tiers *t, const kv_tier_key *key) {
    int32_t slot = t->has_host ? kv_dir_find(&t->host, key) : SLOT_NONE;
    if (slot != SLOT_NONE) {
        kv_dir_touch(&t->host, slot);
    }
    return t->has_host && slot == SLOT_NONE;
}

static bool file_lacks(kv_tiers *t, const kv_tier_key *key) {
    int32_t slot = t->file != NULL ? kv_dir_find(kv_file_dir(t->file), key) : SLOT_NONE;
    if (slot != SLOT_NONE) {
        kv_file_touch(t->file, slot);
    }
    return t->file != NULL && slot == SLOT_NONE;
}

bool kv_tiers_has_room(const kv_tiers *t) {
    return t->n_free > t->n_kept_for_reads;
}

void *kv_tiers_put_begin(kv_tiers *t, const kv_tier_key *key, kv_put to, int32_t *out) {
    bool lacks = host_lacks(t, key), to_host = lacks && to == KV_PUT_ALL, to_file = file_lacks(t, key);
    bool is_new = (!t->has_host || lacks) && (t->file == NULL || to_file);
    /* a page that another tier has was sent to Redis when that tier stored it */
    bool to_redis = t->redis != NULL && is_new && kv_redis_is_up(t->redis);
    if (!to_host && !to_file && !to_redis) {
        return NULL;
    }
    if (!kv_tiers_has_room(t)) {
        t->stats[KV_TIER_HOST].dropped += to_host;
        t->stats[KV_TIER_FILE].dropped += to_file;
        t->stats[KV_TIER_REDIS].dropped += to_redis;
        return NULL;
    }
    kv_record r = {.key = *key, .stamp = ++t->stamp};
    int32_t f = take_frame(t, FRAME_FILLING);
    *out = f;
    t->frames[f].to_host = to_host;
    t->frames[f].to_file = to_file;
    t->frames[f].to_redis = to_redis;
    kv_record_write(&t->shape, &r, head_of(t, f));
    return body_of(t, f);
}

/* Stores frame f in the host tier. */
static void keep_in_host(kv_tiers *t, const kv_record *r, int32_t f) {
    int32_t was, slot = kv_dir_take(&t->host, &was);
    if (was >= 0) {
        drop_frame(t, was);
    }
    if (slot == SLOT_NONE || !kv_dir_fill(&t->host, slot, r, f)) {
        if (slot != SLOT_NONE) {
            kv_dir_give(&t->host, slot);
        }
        t->stats[KV_TIER_HOST].dropped++;
        return;
    }
    t->frames[f].n_holders++;
    t->stats[KV_TIER_HOST].puts++;
}

static void hold_for_job(kv_tiers *t, int32_t f) {
    t->frames[f].n_holders++;
    t->n_pending++;
}

/* Records that frame f was given to a tier to write. submitted: the tier accepted it. */
static void begin_write(kv_tiers *t, kv_tier_kind to, int32_t f, bool submitted) {
    if (submitted) {
        hold_for_job(t, f);
    } else {
        t->stats[to].dropped++;
    }
}

void kv_tiers_put_end(kv_tiers *t, int32_t f) {
    kv_record r;
    assert(t->frames[f].state == FRAME_FILLING);
    kv_record_seal(&t->shape, kv_record_sum(body_of(t, f), (size_t)t->shape.page_bytes), head_of(t, f));
    (void)kv_record_read(&t->shape, head_of(t, f), &r); /* cannot fail: put_begin wrote the head */
    t->frames[f].state = FRAME_READY;
    if (t->frames[f].to_host) {
        keep_in_host(t, &r, f);
    }
    if (t->frames[f].to_file) {
        begin_write(t, KV_TIER_FILE, f, kv_file_write(t->file, f, head_of(t, f), body_of(t, f)));
    }
    if (t->frames[f].to_redis) {
        begin_write(t, KV_TIER_REDIS, f, kv_redis_write(t->redis, f, head_of(t, f)));
    }
    drop_frame(t, f);
}

/* ---- promotion ---- */

/* Returns the host tier's frame of the key if it is intact; otherwise drops it. */
static int32_t find_in_host(kv_tiers *t, const kv_tier_key *key) {
    int32_t slot = t->has_host ? kv_dir_find(&t->host, key) : SLOT_NONE;
    if (slot == SLOT_NONE) {
        t->stats[KV_TIER_HOST].misses += t->has_host;
        return FRAME_NONE;
    }
    int32_t f = t->host.slots[slot].value;
    if (kv_record_sum(body_of(t, f), (size_t)t->shape.page_bytes) != t->host.slots[slot].sum) {
        kv_dir_drop(&t->host, slot);
        drop_frame(t, f);
        t->stats[KV_TIER_HOST].errors++;
        t->stats[KV_TIER_HOST].misses++;
        return FRAME_NONE;
    }
    kv_dir_touch(&t->host, slot);
    t->stats[KV_TIER_HOST].hits++;
    return f;
}

static bool read_from_redis(kv_tiers *t, const kv_tier_key *key, int32_t f) {
    kv_record wanted = {.key = *key};
    kv_record_write(&t->shape, &wanted, head_of(t, f));
    return kv_redis_read(t->redis, f, head_of(t, f));
}

/* Starts to read the key's page into a frame: from the file's slot or, if that is
 * SLOT_NONE, from Redis. */
static kv_fetch begin_read(kv_tiers *t, const kv_tier_key *key, int32_t slot, int32_t *out) {
    int32_t f = take_frame(t, FRAME_PENDING);
    if (f == FRAME_NONE) {
        return KV_FETCH_LATER;
    }
    bool in_file = slot != SLOT_NONE;
    if (!(in_file ? kv_file_read(t->file, slot, f, head_of(t, f), body_of(t, f))
                  : read_from_redis(t, key, f))) {
        drop_frame(t, f);
        return KV_FETCH_LATER;
    }
    hold_for_job(t, f);
    *out = f;
    return KV_FETCH_STARTED;
}

kv_fetch kv_tiers_fetch(kv_tiers *t, const kv_tier_key *key, int32_t *out) {
    int32_t f = find_in_host(t, key);
    if (f != FRAME_NONE) {
        t->frames[f].n_holders++;
        *out = f;
        return KV_FETCH_STARTED;
    }
    int32_t slot = t->file != NULL ? kv_dir_find(kv_file_dir(t->file), key) : SLOT_NONE;
    t->stats[KV_TIER_FILE].misses += t->file != NULL && slot == SLOT_NONE;
    bool may_find = slot != SLOT_NONE || (t->redis != NULL && kv_redis_is_up(t->redis));
    return may_find ? begin_read(t, key, slot, out) : KV_FETCH_NOWHERE;
}

static void count_write(quire_tier_stats *s, quire_err result) {
    s->puts += result == QUIRE_OK;
    s->errors += result == QUIRE_IO;
}

/* Processes the result of a read. */
static void end_read(kv_tiers *t, quire_tier_stats *s, const kv_job *job) {
    s->hits += job->result == QUIRE_OK;
    s->misses += job->result != QUIRE_OK;
    s->errors += job->result == QUIRE_IO || job->result == QUIRE_BAD_FILE;
    t->frames[job->frame].state = job->result == QUIRE_OK ? FRAME_READY : FRAME_MISSED;
}

/* Fetches a page that could not be read from the file from Redis into the same frame. */
static void ask_redis_instead(kv_tiers *t, int32_t f) {
    if (t->redis != NULL && kv_redis_is_up(t->redis) && kv_redis_read(t->redis, f, head_of(t, f))) {
        t->frames[f].state = FRAME_PENDING;
        hold_for_job(t, f);
    }
}

static void finish_job(kv_tiers *t, kv_job *job) {
    switch (job->kind) {
    case KV_JOB_FILE_WRITE:
        kv_file_finish(t->file, job);
        count_write(&t->stats[KV_TIER_FILE], job->result);
        break;
    case KV_JOB_FILE_READ:
        kv_file_finish(t->file, job);
        end_read(t, &t->stats[KV_TIER_FILE], job);
        if (job->result != QUIRE_OK) {
            ask_redis_instead(t, job->frame);
        }
        break;
    case KV_JOB_REDIS_WRITE:
        count_write(&t->stats[KV_TIER_REDIS], job->result);
        break;
    case KV_JOB_REDIS_READ:
        end_read(t, &t->stats[KV_TIER_REDIS], job);
        break;
    }
}

void kv_tiers_poll(kv_tiers *t) {
    kv_job job;
    while (ring_pop(t->done.ring, &job)) {
        t->n_pending--;
        finish_job(t, &job);
        drop_frame(t, job.frame);
    }
}

int32_t kv_tiers_n_pending(const kv_tiers *t) {
    return t->n_pending;
}

bool kv_tiers_is_ready(const kv_tiers *t, int32_t f) {
    return t->frames[f].state != FRAME_PENDING;
}

const void *kv_tiers_take(const kv_tiers *t, int32_t f) {
    return t->frames[f].state == FRAME_READY ? body_of(t, f) : NULL;
}

void kv_tiers_release(kv_tiers *t, int32_t f) {
    drop_frame(t, f);
}

/* ---- counters and audit ---- */

void kv_tiers_stats(const kv_tiers *t, quire_tier_stats out[KV_N_TIERS]) {
    assert(t != NULL);
    memcpy(out, t->stats, sizeof t->stats);
    out[KV_TIER_REDIS].bytes = t->redis != NULL ? kv_redis_bytes(t->redis) : 0;
    out[KV_TIER_FILE].bytes = t->file != NULL ? kv_file_bytes(t->file) : 0;
    out[KV_TIER_HOST].bytes = t->has_host ? (int64_t)t->frame_bytes * t->host.n_filled : 0;
}

quire_err kv_tiers_check(const kv_tiers *t, quire_error *err) {
    assert(t != NULL);
    int32_t n_free = 0;
    for (int32_t f = t->free_frame; f != FRAME_NONE && n_free <= t->n_frames; f = t->frames[f].next) {
        if (t->frames[f].n_holders != 0 || t->frames[f].state != FRAME_FREE) {
            return err_set(err, QUIRE_INTERNAL, -1, "tiers: frame %d is free and held", f);
        }
        n_free++;
    }
    if (n_free != t->n_free) {
        return err_set(err, QUIRE_INTERNAL, -1, "tiers: %d frames are free, %d are counted", n_free,
                       t->n_free);
    }
    if (t->file != NULL) {
        TRY(kv_dir_check(kv_file_dir(t->file), err));
    }
    if (!t->has_host) {
        return QUIRE_OK;
    }
    for (int32_t i = 0; i < t->host.made; i++) {
        if (t->host.slots[i].is_filled && t->frames[t->host.slots[i].value].n_holders < 1) {
            return err_set(err, QUIRE_INTERNAL, -1,
                           "tiers: the host tier keeps frame %d, which has no holder",
                           t->host.slots[i].value);
        }
    }
    return kv_dir_check(&t->host, err);
}
