#include "server/pool_json.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/sha256.h"

#define MAX_PAGES_BYTES (2u << 20) /* of pages in one state; further ones are not shown */
#define MAX_NODES       1024       /* of the tree: more cannot be displayed */

static void member(json_out *o, const char *name_and_comma, int64_t value) {
    json_raw(o, name_and_comma);
    json_int(o, value);
}

/* The keyed hash. 0, the hash of part-filled pages, stays 0. */
static uint64_t keyed(const uint8_t key[POOL_KEY_BYTES], uint64_t hash) {
    uint8_t message[POOL_KEY_BYTES + sizeof hash], digest[SHA256_BYTES];
    uint64_t out = 0;
    memcpy(message, key, POOL_KEY_BYTES);
    memcpy(message + POOL_KEY_BYTES, &hash, sizeof hash);
    sha256(message, sizeof message, digest);
    memcpy(&out, digest, sizeof out);
    return hash == 0 ? 0 : out;
}

static void write_hash(const pool_viewer *who, uint64_t hash, json_out *o) {
    char text[24];
    snprintf(text, sizeof text, "\"%016" PRIx64 "\"", keyed(who->key, hash));
    json_raw(o, text);
}

static void write_counts(const quire_kv_view *v, json_out *o) {
    member(o, "\"counts\":{\"pages\":", v->n_pages);
    member(o, ",\"free\":", v->n_free);
    member(o, ",\"held\":", v->n_held);
    member(o, ",\"cached\":", v->n_cached);
    member(o, ",\"shared\":", v->n_shared);
    member(o, ",\"unshared\":", v->n_unshared);
    member(o, ",\"seqs\":", v->n_seqs);
    member(o, ",\"entries\":", v->n_entries);
    member(o, ",\"nodes\":", v->n_nodes);
    member(o, ",\"spaces\":", v->n_namespaces);
    json_raw(o, "}");
}

/* Returns how many sequences were written. */
static int32_t write_seqs(const quire_kv_view *v, const char *owner, json_out *o) {
    static const char *const states[] = {"open", "prefill", "decode"};
    int32_t n = 0;
    json_raw(o, ",\"seqs\":[");
    for (int32_t i = 0; i < v->n_seqs && i < v->cap_seqs; i++) {
        const quire_kv_view_seq *s = &v->seqs[i];
        if (owner != NULL && strcmp(s->owner, owner) != 0) {
            continue;
        }
        member(o, n++ > 0 ? ",{\"id\":" : "{\"id\":", s->id);
        member(o, ",\"tokens\":", s->n_tokens);
        member(o, ",\"pages\":", s->n_pages);
        json_raw(o, ",\"state\":\"");
        json_raw(o, states[s->state]);
        json_raw(o, "\"}");
    }
    json_raw(o, "]");
    return n;
}

/* Returns how many pages, from the first, were read. */
static int32_t write_pages(const quire_kv_view *v, json_out *o) {
    int32_t n = v->n_pages < v->cap_pages ? v->n_pages : v->cap_pages, i;
    size_t start = o->to->n;
    const char *comma = "";
    json_raw(o, ",\"pages\":[");
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
        json_raw(o, comma);
        json_row(o, row, n_row);
        comma = ",";
    }
    json_raw(o, "]");
    return i;
}

/* Writes the node whose entries are first..; returns the index behind them. */
static int32_t write_node(const quire_kv_view *v, int32_t first, const pool_viewer *who, json_out *o) {
    const quire_kv_view_entry *e = &v->entries[first];
    int32_t i = first, n_pins = 0;
    int64_t n_tokens = 0;
    member(o, "{\"node\":", e->node);
    json_raw(o, ",\"above\":");
    if (e->above < 0) {
        json_raw(o, "null");
    } else {
        json_int(o, e->above);
    }
    member(o, ",\"space\":", e->ns);
    json_raw(o, ",\"entries\":[");
    for (; i < v->n_entries_shown && v->entries[i].node == e->node; i++) {
        json_raw(o, i > first ? "," : "");
        json_row(o, (int64_t[]){v->entries[i].entry, v->entries[i].page}, 2);
        n_tokens += v->entries[i].n_tokens;
        n_pins += v->entries[i].n_pins;
    }
    member(o, "],\"tokens\":", n_tokens);
    member(o, ",\"pins\":", n_pins);
    json_raw(o, ",\"hash\":");
    write_hash(who, v->entries[i - 1].hash, o);
    if (who->text != NULL) {
        json_raw(o, ",\"text\":");
        who->text->write(who->text->context, e->label, e->n_tokens < QUIRE_KV_VIEW_LABEL ? e->n_tokens : QUIRE_KV_VIEW_LABEL, o);
    }
    json_raw(o, "}");
    return i;
}

/* Returns how many nodes were written. */
static int32_t write_tree(const quire_kv_view *v, const pool_viewer *who, json_out *o) {
    int32_t n = 0;
    json_raw(o, ",\"tree\":[");
    for (int32_t i = 0; i < v->n_entries_shown && n < MAX_NODES; n++) {
        json_raw(o, i > 0 ? "," : "");
        i = write_node(v, i, who, o);
    }
    json_raw(o, "]");
    return n;
}

void pool_json_state(const quire_kv_view *v, const pool_viewer *who, json_out *o) {
    member(o, "\"page_tokens\":", v->page_tokens);
    member(o, ",\"groups\":", v->n_groups);
    json_raw(o, ",");
    write_counts(v, o);
    int32_t n_seqs = write_seqs(v, who->owner, o), n_pages = 0, n_nodes = 0;
    if (who->owner != NULL) {
        json_raw(o, ",\"pages\":[],\"tree\":[]");
    } else {
        n_pages = write_pages(v, o);
        n_nodes = write_tree(v, who, o);
    }
    member(o, ",\"shown\":{\"pages\":", n_pages);
    member(o, ",\"seqs\":", n_seqs);
    member(o, ",\"nodes\":", n_nodes);
    json_raw(o, who->owner != NULL ? ",\"all\":false" : ",\"all\":true");
    json_raw(o, who->text != NULL ? ",\"texts\":true}" : ",\"texts\":false}");
}

void pool_json_events(const quire_kv_view *v, const pool_viewer *who, uint64_t after, json_out *o) {
    if (who->owner != NULL) {
        json_raw(o, "\"events\":{\"last\":0,\"lost\":0,\"list\":[]}");
        return;
    }
    static const char *const kinds[] = {"", "stored", "removed", "cleared"};
    uint64_t first = v->n_events > 0 ? v->events[0].number : v->last_event + 1;
    const char *comma = "";
    member(o, "\"events\":{\"last\":", (int64_t)v->last_event);
    member(o, ",\"lost\":", first > after + 1 ? (int64_t)(first - after - 1) : 0);
    json_raw(o, ",\"list\":[");
    for (int32_t i = 0; i < v->n_events; i++) {
        const quire_kv_view_event *e = &v->events[i];
        if (e->number <= after) {
            continue;
        }
        json_raw(o, comma);
        comma = ",";
        member(o, "{\"n\":", (int64_t)e->number);
        json_raw(o, ",\"kind\":\"");
        json_raw(o, kinds[e->kind]);
        json_raw(o, "\"");
        if (e->kind != QUIRE_KV_CLEARED) {
            member(o, ",\"group\":", e->group);
            json_raw(o, ",\"hash\":");
            write_hash(who, e->hash, o);
        }
        if (e->kind == QUIRE_KV_STORED) {
            member(o, ",\"tokens\":", e->n_tokens);
            json_raw(o, ",\"parent\":");
            write_hash(who, e->parent, o);
        }
        json_raw(o, "}");
    }
    json_raw(o, "]}");
}

void pool_json_page(const quire_kv_view *v, const pool_text *text, json_out *o) {
    const quire_kv_view_page *p = &v->pages[v->page];
    member(o, "{\"page\":", v->page);
    member(o, ",\"count\":", p->count);
    member(o, ",\"entry\":", p->entry);
    json_raw(o, ",\"holders\":[");
    for (int32_t k = 0; k < QUIRE_KV_VIEW_HOLDERS && p->holders[k] >= 0; k++) {
        member(o, k > 0 ? "," : "", v->seqs[p->holders[k]].id);
    }
    json_raw(o, "],\"tokens\":");
    json_ints(o, v->page_token, (size_t)v->n_page_tokens);
    json_raw(o, ",\"text\":");
    text->write(text->context, v->page_token, v->n_page_tokens, o);
    json_raw(o, "}");
}
