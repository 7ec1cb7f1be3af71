/* GET /openapi.json: the server's OpenAPI 3.1 document. Paths and methods come from the
 * routes, bodies of requests from the tables of fields (quire_request_schema); summaries,
 * examples and the schemas of responses from pages/openapi.json, which may lack a path.
 * Any thread. */
#ifndef SERVER_OPENAPI_H
#define SERVER_OPENAPI_H

#include "quire.h"
#include "server/loop.h"
#include "json/json_out.h"

/* A route as the document needs it. */
typedef struct openapi_route {
    const char *path;
    const char *allow; /* the methods, as the Allow header lists them */
    bool is_prefix;    /* the path continues with a parameter */
    bool takes_json;
    bool needs_key;
    bool has_fields;         /* its body is a request of an endpoint */
    quire_endpoint endpoint; /* if it has fields */
} openapi_route;

/* Fills *out with route i; false past the last one. */
typedef bool (*openapi_route_at)(size_t i, openapi_route *out);

/* Writes the document. QUIRE_NO_MEMORY is left in o->err. */
void openapi_write(const server *s, openapi_route_at at, json_out *o);

#endif
