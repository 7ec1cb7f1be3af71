/* Recognises unknown request members that would change the output on other servers. They
 * are refused, since the client relies on them; other unknown members are ignored and
 * listed in the response. Any thread. */
#ifndef REQUEST_REQUEST_FOREIGN_H
#define REQUEST_REQUEST_FOREIGN_H

#include <stdbool.h>

#include "base/str.h"

/* Whether an unknown member would change the output: another spelling of a field of the
 * endpoint (FIELD_COMPLETIONS, FIELD_CHAT), a field of another server, or a name with a
 * telling word ("guided", "lora", "penalty"). *instead is the field to use, or NULL. */
bool foreign_changes_generation(str name, uint32_t endpoint, const char **instead);

#endif
