/* Reads quire_hub_options, which may come from another version's header. */
#ifndef HUB_OPTIONS_H
#define HUB_OPTIONS_H

#include "quire_hub.h"

#define HUB_MAX_AT_ONCE 64

/* Copies the options. INVALID: no cache, a wrong size, or a number out of range. */
quire_err hub_options_read(const quire_hub_options *given, quire_hub_options *out, quire_error *err);

#endif
