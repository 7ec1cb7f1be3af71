/* Parses a Host header: a loopback address, another address, or a name.
 *
 * A web page can make its own DNS name resolve to this machine (DNS rebinding) and then
 * read responses as same-origin. The Host header still carries that name. An address, or
 * a name without a dot, cannot be a page's DNS name. Any thread; allocates nothing. */
#ifndef SERVER_HOST_H
#define SERVER_HOST_H

#include "base/str.h"

typedef enum host_kind {
    HOST_MALFORMED,
    HOST_LOOPBACK, /* 127.0.0.0/8, ::1 or localhost */
    HOST_ADDRESS,  /* another IP address */
    HOST_LABEL,    /* a name without a dot: public DNS has none */
    HOST_NAME      /* a name with dots */
} host_kind;

/* The kind of a header's value "name", "name:port", "[address]" or "[address]:port"; the
 * whole value counts. *name, which may be NULL, is the part before the port, without
 * brackets. */
host_kind host_parse(str header, str *name);

#endif
