/* Recognises unknown members of a request that would change what is generated on another
 * server.
 *
 * Such a member is refused, since a client that sends it relies on it. Any other unknown
 * member is ignored and named in the response. Any thread. */
#ifndef REQUEST_REQUEST_FOREIGN_H
#define REQUEST_REQUEST_FOREIGN_H

#include <stdbool.h>

#include "base/str.h"

/* Whether a member of this name would change what is generated: another spelling of a
 * field of the endpoint (FIELD_COMPLETIONS, FIELD_CHAT), a field of another server, or a
 * name with a word of such fields ("guided", "lora", "penalty"). *instead is the field to
 * use, or NULL where there is none. */
bool foreign_changes_generation(str name, uint32_t endpoint, const char **instead);

#endif
