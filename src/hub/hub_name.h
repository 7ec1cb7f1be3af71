/* Parses a model's name at the hub, ORG/NAME[:PICK][@REVISION], and checks texts from a
 * hub that become parts of paths. Plain data. */
#ifndef HUB_NAME_H
#define HUB_NAME_H

#include <stdint.h>

#include "base/str.h"
#include "quire_hub.h"

#define HUB_DIGEST_BYTES 65 /* hexadecimal digits of a SHA-256 or SHA-1, and a 0 byte */

typedef struct hub_name {
    char repo[194];     /* "ORG/NAME" */
    char pick[512];     /* a quantisation or a .gguf file; empty: neither is given */
    char revision[256]; /* "main" if none is given */
} hub_name;

/* Splits a name into its parts. INVALID: not a name; err shows the form. */
quire_err hub_name_parse(const char *text, hub_name *out, quire_error *err);

/* True for a path of plain names with slashes between them, which stays below the
 * directory that it is joined to: no "..", no empty name, no name that begins with a dot,
 * no backslash, no control character, at most 8 names of at most 255 bytes each, 1,000 in
 * all. */
bool hub_path_is_safe(str path);
/* True for an unsafe path that looks malicious: absolute, or with "..", a backslash or a
 * control character. */
bool hub_path_is_hostile(str path);
/* True if text is n lower-case hexadecimal digits. */
bool hub_is_hex(str text, size_t n);
/* True for the name of a blob: 40 or 64 digits. */
bool hub_is_digest(str text);

/* What a GGUF file's name says: its quantisation, and which part of a model it is. stem:
 * the path without ".gguf" and "-00002-of-00003", so equal for all parts of a model.
 * part: from 1. n_parts: 1 if the model is not split. */
typedef struct hub_gguf {
    str stem;  /* borrowed from the path, directories included */
    str quant; /* part of stem: "Q4_K_M", "UD-IQ2_XXS"; empty: the name has none */
    int32_t part, n_parts;
} hub_gguf;

/* Reads a path's name. False: it is not a GGUF model, or only accompanies one (mmproj,
 * imatrix). */
bool hub_gguf_read(str path, hub_gguf *out);
/* Compares names of quantisations, ignoring case. */
bool hub_quant_same(str a, str b);

/* ---- options ---- */

#define HUB_MAX_AT_ONCE 64

/* Copies the options, whose size may be that of another version of quire.h. INVALID: no
 * cache, a wrong size, or a number out of range. */
quire_err hub_options_read(const quire_hub_options *given, quire_hub_options *out, quire_error *err);

#endif
