#include "setup/adapter_entries.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"

/* adapter_ref.idle */
static void adapters_ring(void *store) {
    adapter_store *s = store;
    if (atomic_load(&s->is_short)) {
        wake_ring(&s->bell);
    }
}

adapter_entry *adapters_new_entry(adapter_store *s, const char *name, const char *path) {
    adapter_entry *e = mem_new(1, sizeof *e);
    if (e == NULL ||
        mem_grow(&s->entries, &s->cap_entries, s->n_entries + 1, sizeof *s->entries) != QUIRE_OK) {
        mem_free(e);
        return NULL;
    }
    e->name = mem_dup(name, strlen(name));
    e->path = path != NULL ? mem_dup(path, strlen(path)) : NULL;
    if (e->name == NULL || (path != NULL && e->path == NULL)) {
        mem_free(e->name);
        mem_free(e->path);
        mem_free(e);
        return NULL;
    }
    e->ref.name = e->name;
    e->ref.idle = adapters_ring;
    e->ref.owner = s;
    e->is_listed = true;
    s->entries[s->n_entries++] = e;
    return e;
}

adapter_entry *adapters_find(const adapter_store *s, const char *name) {
    adapter_entry *found = NULL;
    for (size_t i = 0; i < s->n_entries && found == NULL; i++) {
        adapter_entry *e = s->entries[i];
        bool is_known = e->is_listed && !e->is_hidden && !e->is_gone && e->n_parts == 0;
        found = is_known && strcmp(e->name, name) == 0 ? e : NULL;
    }
    return found;
}

void adapters_unload(adapter_store *s, adapter_entry *e) {
    assert(e->is_resident && atomic_load(&e->ref.holders) == 1);
    e->is_resident = e->is_draining = false;
    atomic_store(&e->ref.holders, 0);
    s->loader.free(s->loader.context, &e->loaded);
    e->loaded = (loaded_adapter){0};
    e->ref.weights = NULL;
    e->ref.invocation = NULL;
    e->ref.n_invocation = 0;
    for (int32_t i = 0; i < e->n_parts; i++) {
        adapter_ref_drop(&e->parts[i]->ref);
        e->parts[i]->n_wants--;
    }
    s->n_resident -= e->n_parts == 0 ? 1 : 0;
}

static void free_entry(adapter_entry *e) {
    mem_free(e->name);
    mem_free(e->path);
    mem_free(e);
}

void adapters_sweep(adapter_store *s) {
    /* blends first, which hold others */
    for (int pass = 0; pass < 2; pass++) {
        size_t kept = 0;
        for (size_t i = 0; i < s->n_entries; i++) {
            adapter_entry *e = s->entries[i];
            bool goes = pass == 0 ? e->n_parts > 0 : e->is_gone;
            goes = goes && e->n_wants == 0 && !e->is_loading && atomic_load(&e->ref.holders) <= 1;
            if (goes && e->is_resident) {
                adapters_unload(s, e);
            }
            if (goes) {
                free_entry(e);
            } else {
                s->entries[kept++] = e;
            }
        }
        s->n_entries = kept;
    }
}
