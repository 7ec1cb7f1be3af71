/* Names of members that are no field of a request: which of them would change what is generated where another server knows them.
 *
 * Such a member is refused, since a client that sends it relies on it; any other is left alone and named in the answer. Any thread. */
#ifndef CORE_FOREIGN_H
#define CORE_FOREIGN_H

#include <stdbool.h>

#include "base/str.h"

/* Whether a member of this name would change what is generated: it is another spelling of a field of the endpoint (FIELD_COMPLETIONS,
 * FIELD_CHAT), is one that another server has, or has a word of such names ("guided", "lora", "penalty"). *instead is the field to use, or
 * NULL where there is none. */
bool foreign_changes_generation(str name, uint32_t endpoint, const char **instead);

#endif
