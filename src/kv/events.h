/* KV events tell mirrors of the index (routers, publishers, visualisations) which pages a
 * prefix can find from now on, and which no longer.
 *
 * A ring holds the last n_events events, numbered 1, 2, 3, ... without gaps, for full
 * pages only. In a group without a window a page's parent is stored before it and removed
 * after it; in a group with a window the parent may be removed first. Owner: one writing
 * thread, the engine's, which never blocks. Any thread reads events by number, as copies.
 * A read returns KV_EVENT_LOST when the event was overwritten; the reader then starts
 * over from the index. */
#ifndef KV_EVENTS_H
#define KV_EVENTS_H

#include "core/kv_layout.h"
#include "kv/namespace.h"

typedef enum kv_event_kind {
    KV_EVENT_STORED = 1, /* a prefix can find the page */
    KV_EVENT_REMOVED,    /* a prefix can no longer find the page */
    KV_EVENT_CLEARED     /* all pages were removed */
} kv_event_kind;

typedef struct kv_event {
    uint64_t number;
    kv_event_kind kind;
    int32_t group; /* group of layers; for stored and removed */
    uint64_t hash; /* the page's chained hash (namespace.h); for stored and removed */
    /* hash of the page before it; 0: it is the first of its prefix. This and the members
     * below: only for stored */
    uint64_t parent;
    int32_t n_tokens; /* page_tokens */
    int32_t n_namespace;
    unsigned char namespace[KV_NAMESPACE_BYTES + 1]; /* the namespace's name: tenant, model, adapter */
    int32_t tokens[KV_MAX_PAGE_TOKENS];
} kv_event;

typedef struct kv_events kv_events;

/* Opens a ring of the last n_events (rounded up to a power of two) events, for pages of
 * page_tokens tokens. QUIRE_INVALID for n_events < 1 or over 2^24, or page_tokens out of
 * 1..256. */
quire_err kv_events_open(int32_t n_events, int32_t page_tokens, kv_events **out);
/* Closes the ring. No reader may be inside. NULL does nothing. */
void kv_events_close(kv_events *ev);

/* ---- the writer ---- */
/* Adds an event for tokens[page_tokens], name[n_name <= KV_NAMESPACE_BYTES].
 * O(page_tokens + n_name). None of the three calls blocks or allocates. */
void kv_events_stored(kv_events *ev, int32_t group, uint64_t hash, uint64_t parent, const int32_t *tokens,
                      const void *name, size_t n_name);
void kv_events_removed(kv_events *ev, int32_t group, uint64_t hash);
void kv_events_cleared(kv_events *ev);

/* ---- any thread ---- */
/* Number of the last event; 0: there was none yet. */
uint64_t kv_events_last(const kv_events *ev);

typedef enum kv_event_found {
    KV_EVENT_FOUND,
    KV_EVENT_LATER, /* the event has not happened yet */
    KV_EVENT_LOST   /* the event was overwritten: the reader was too slow */
} kv_event_found;

/* Copies event `number` >= 1 to *out, which is undefined unless KV_EVENT_FOUND.
 * Lock-free. */
kv_event_found kv_events_read(const kv_events *ev, uint64_t number, kv_event *out);

#endif
