#include "hub/hub_options.h"

#include <stddef.h>
#include <string.h>

#include "base/err.h"

#define LEAST_SIZE (offsetof(quire_hub_options, cache) + sizeof(const char *))
#define MAX_SIZE   4096

static const quire_hub_options defaults = {.size = sizeof(quire_hub_options), .stall_s = 30, .n_at_once = 4};

void quire_hub_options_init_sized(quire_hub_options *o, size_t size) {
    if (size < sizeof o->size) {
        return;
    }
    memset(o, 0, size);
    memcpy(o, &defaults, size < sizeof defaults ? size : sizeof defaults);
    o->size = size;
}

quire_err hub_options_read(const quire_hub_options *given, quire_hub_options *out, quire_error *err) {
    size_t size = given->size;
    if (size < LEAST_SIZE || size > MAX_SIZE) {
        return err_set(err, QUIRE_INVALID, -1,
                       "quire_hub_options: the size is wrong; call quire_hub_options_init first");
    }
    *out = defaults;
    memcpy(out, given, size < sizeof *out ? size : sizeof *out);
    out->size = sizeof *out;
    if (out->cache == NULL || out->cache[0] == 0) {
        return err_set(err, QUIRE_INVALID, -1,
                       "there is no directory for models: set HF_HUB_CACHE, HF_HOME or HOME");
    }
    if (out->stall_s < 1 || out->stall_s > 86400 || out->n_at_once < 1 || out->n_at_once > HUB_MAX_AT_ONCE) {
        return err_set(err, QUIRE_INVALID, -1,
                       "quire_hub_options: stall_s must be from 1 to 86400, n_at_once from 1 to %d",
                       HUB_MAX_AT_ONCE);
    }
    return QUIRE_OK;
}
