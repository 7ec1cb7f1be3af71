#include "server/pool_json.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/sha256.h"

#define MAX_PAGES_BYTES (2u << 20) /* most bytes of pages in one state; further pages are not shown */
#define MAX_NODES       1024       /* most nodes of the tree in one state, as many as can be displayed */

/* The keyed digest of a page's hash. 0, the hash of part-filled pages, stays 0. */
static uint64_t pool_keyed_hash(const uint8_t key[POOL_KEY_BYTES], uint64_t hash) {
    uint8_t message[POOL_KEY_BYTES + sizeof hash], digest[SHA256_BYTES];
    uint64_t out = 0;
    memcpy(message, key, POOL_KEY_BYTES);
    memcpy(message + POOL_KEY_BYTES, &hash, sizeof hash);
    sha256(message, sizeof message, digest);
    memcpy(&out, digest, sizeof out);
    return hash == 0 ? 0 : out;
}

static void pool_write_hash(const pool_viewer *who, uint64_t hash, json_out *o) {
    char text[24];
    snprintf(text, sizeof text, "%016" PRIx64, pool_keyed_hash(who->key, hash));
    json_cstr(o, text);
}

static void pool_write_counts(const quire_kv_view *v, json_out *o) {
    const json_named_int counts[] = {
        {"pages", v->n_pages},   {"free", v->n_free},         {"held", v->n_held}, {"cached", v->n_cached},
        {"shared", v->n_shared}, {"unshared", v->n_unshared}, {"seqs", v->n_seqs}, {"entries", v->n_entries},
        {"nodes", v->n_nodes},   {"spaces", v->n_namespaces}, {NULL, 0},
    };
    json_named_ints(json_name(o, "counts"), counts);
}

/* Writes the sequences and returns their number. */
static int32_t pool_write_seqs(const quire_kv_view *v, const char *owner, json_out *o) {
    static const char *const states[] = {"open", "prefill", "decode", "parked"};
    int32_t n = 0;
    json_begin(json_name(o, "seqs"), '[');
    for (int32_t i = 0; i < v->n_seqs && i < v->cap_seqs; i++) {
        const quire_kv_view_seq *s = &v->seqs[i];
        if (owner != NULL && strcmp(s->owner, owner) != 0) {
            continue;
        }
        n++;
        json_begin(json_item(o), '{');
        json_int(json_name(o, "id"), s->id);
        json_int(json_name(o, "tokens"), s->n_tokens);
        json_int(json_name(o, "pages"), s->n_pages);
        json_cstr(json_name(o, "state"), states[s->state]);
        json_end(o, '}');
    }
    json_end(o, ']');
    return n;
}

/* Writes the pages that are not free; returns how many pages were visited. */
static int32_t pool_write_pages(const quire_kv_view *v, json_out *o) {
    int32_t n = v->n_pages < v->cap_pages ? v->n_pages : v->cap_pages, i;
    size_t start = o->to->n;
    json_begin(json_name(o, "pages"), '[');
    for (i = 0; i < n && o->to->n - start < MAX_PAGES_BYTES && o->err == QUIRE_OK; i++) {
        const quire_kv_view_page *p = &v->pages[i];
        if (p->count == 0 && p->entry < 0) {
            continue;
        }
        int64_t row[3 + QUIRE_KV_VIEW_HOLDERS] = {i, p->count, p->entry};
        int32_t n_row = 3;
        for (int32_t k = 0; k < QUIRE_KV_VIEW_HOLDERS && p->holders[k] >= 0; k++) {
            row[n_row++] = v->seqs[p->holders[k]].id;
        }
        json_row(json_item(o), row, n_row);
    }
    json_end(o, ']');
    return i;
}

/* Writes the node whose entries begin at index first; returns the index after them. */
static int32_t pool_write_node(const quire_kv_view *v, int32_t first, const pool_viewer *who, json_out *o) {
    const quire_kv_view_entry *e = &v->entries[first];
    int32_t i = first, n_pins = 0;
    int64_t n_tokens = 0;
    json_begin(json_item(o), '{');
    json_int(json_name(o, "node"), e->node);
    json_name(o, "above");
    if (e->above < 0) {
        json_raw(o, "null");
    } else {
        json_int(o, e->above);
    }
    json_int(json_name(o, "space"), e->ns);
    json_begin(json_name(o, "entries"), '[');
    for (; i < v->n_entries_shown && v->entries[i].node == e->node; i++) {
        json_row(json_item(o), (int64_t[]){v->entries[i].entry, v->entries[i].page}, 2);
        n_tokens += v->entries[i].n_tokens;
        n_pins += v->entries[i].n_pins;
    }
    json_end(o, ']');
    json_int(json_name(o, "tokens"), n_tokens);
    json_int(json_name(o, "pins"), n_pins);
    pool_write_hash(who, v->entries[i - 1].hash, json_name(o, "hash"));
    if (who->text != NULL) {
        json_name(o, "text");
        who->text->write(who->text->context, e->label,
                         e->n_tokens < QUIRE_KV_VIEW_LABEL ? e->n_tokens : QUIRE_KV_VIEW_LABEL, o);
    }
    json_end(o, '}');
    return i;
}

/* Writes the nodes of the tree and returns their number. */
static int32_t pool_write_tree(const quire_kv_view *v, const pool_viewer *who, json_out *o) {
    int32_t n = 0;
    json_begin(json_name(o, "tree"), '[');
    for (int32_t i = 0; i < v->n_entries_shown && n < MAX_NODES; n++) {
        i = pool_write_node(v, i, who, o);
    }
    json_end(o, ']');
    return n;
}

void pool_json_state(const quire_kv_view *v, const pool_viewer *who, json_out *o) {
    json_int(json_name(o, "page_tokens"), v->page_tokens);
    json_int(json_name(o, "groups"), v->n_groups);
    pool_write_counts(v, o);
    int32_t n_seqs = pool_write_seqs(v, who->owner, o), n_pages = 0, n_nodes = 0;
    if (who->owner != NULL) {
        json_raw(o, ",\"pages\":[],\"tree\":[]");
    } else {
        n_pages = pool_write_pages(v, o);
        n_nodes = pool_write_tree(v, who, o);
    }
    json_begin(json_name(o, "shown"), '{');
    json_int(json_name(o, "pages"), n_pages);
    json_int(json_name(o, "seqs"), n_seqs);
    json_int(json_name(o, "nodes"), n_nodes);
    json_bool(json_name(o, "all"), who->owner == NULL);
    json_bool(json_name(o, "texts"), who->text != NULL);
    json_end(o, '}');
}

void pool_json_events(const quire_kv_view *v, const pool_viewer *who, uint64_t after, json_out *o) {
    static const char *const kinds[] = {"", "stored", "removed", "cleared"};
    uint64_t first = v->n_events > 0 ? v->events[0].number : v->last_event + 1;
    bool may_see = who->owner == NULL;
    json_begin(json_name(o, "events"), '{');
    json_int(json_name(o, "last"), may_see ? (int64_t)v->last_event : 0);
    json_int(json_name(o, "lost"), may_see && first > after + 1 ? (int64_t)(first - after - 1) : 0);
    json_begin(json_name(o, "list"), '[');
    for (int32_t i = 0; may_see && i < v->n_events; i++) {
        const quire_kv_view_event *e = &v->events[i];
        if (e->number <= after) {
            continue;
        }
        json_begin(json_item(o), '{');
        json_int(json_name(o, "n"), (int64_t)e->number);
        json_cstr(json_name(o, "kind"), kinds[e->kind]);
        if (e->kind != QUIRE_KV_CLEARED) {
            json_int(json_name(o, "group"), e->group);
            pool_write_hash(who, e->hash, json_name(o, "hash"));
        }
        if (e->kind == QUIRE_KV_STORED) {
            json_int(json_name(o, "tokens"), e->n_tokens);
            pool_write_hash(who, e->parent, json_name(o, "parent"));
        }
        json_end(o, '}');
    }
    json_raw(o, "]}");
}

void pool_json_page(const quire_kv_view *v, const pool_text *text, json_out *o) {
    assert(v->page >= 0 && v->page < v->n_pages);
    const quire_kv_view_page *p = &v->pages[v->page];
    json_begin(o, '{');
    json_int(json_name(o, "page"), v->page);
    json_int(json_name(o, "count"), p->count);
    json_int(json_name(o, "entry"), p->entry);
    json_begin(json_name(o, "holders"), '[');
    for (int32_t k = 0; k < QUIRE_KV_VIEW_HOLDERS && p->holders[k] >= 0; k++) {
        json_int(json_item(o), v->seqs[p->holders[k]].id);
    }
    json_end(o, ']');
    json_ints(json_name(o, "tokens"), v->page_token, (size_t)v->n_page_tokens);
    json_name(o, "text");
    text->write(text->context, v->page_token, v->n_page_tokens, o);
    json_end(o, '}');
}
