/* The text of --override-kv, llama.cpp's form: KEY=TYPE:VALUE, several with commas
 * between them.
 *
 * int: 64 bits. float: finite. bool: true or false. str: up to the next comma, or in
 * double quotes with JSON's escapes. arr: a JSON list, for GGUF's arrays. Stateless: any
 * thread. */
#ifndef FILE_OVERRIDE_KV_H
#define FILE_OVERRIDE_KV_H

#include "json/json.h"

/* Takes the first item off *rest, which is not empty: its key, borrowed, and its value,
 * the caller's (json_drop). QUIRE_INVALID: err explains what is wrong with it. */
quire_err override_kv_next(str *rest, str *key, json_value **value, quire_error *err);

#endif
