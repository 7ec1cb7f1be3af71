#include "text/json_get.h"

#include <limits.h>

struct json_object *json_get_document(str text) {
    struct json_tokener *t = text.n > INT_MAX ? NULL : json_tokener_new_ex(64);
    if (t == NULL) {
        return NULL;
    }
    json_tokener_set_flags(t, JSON_TOKENER_STRICT);
    struct json_object *o = json_tokener_parse_ex(t, text.p, (int)text.n);
    if (o == NULL && json_tokener_get_error(t) == json_tokener_continue) {
        o = json_tokener_parse_ex(t, "", -1); /* a bare number or word ends with the text */
    }
    json_tokener_free(t);
    return o;
}

struct json_object *json_get(struct json_object *o, const char *key) {
    struct json_object *v = NULL;
    return json_object_is_type(o, json_type_object) && json_object_object_get_ex(o, key, &v) ? v : NULL;
}

str json_get_str(struct json_object *o, const char *key) {
    struct json_object *v = json_get(o, key);
    if (!json_object_is_type(v, json_type_string)) {
        return (str){"", 0};
    }
    return (str){json_object_get_string(v), (size_t)json_object_get_string_len(v)};
}

bool json_get_bool(struct json_object *o, const char *key, bool otherwise) {
    struct json_object *v = json_get(o, key);
    return json_object_is_type(v, json_type_boolean) ? json_object_get_boolean(v) : otherwise;
}

int32_t json_get_int32(struct json_object *o, const char *key, int32_t otherwise) {
    struct json_object *v = json_get(o, key);
    if (!json_object_is_type(v, json_type_int)) {
        return otherwise;
    }
    int64_t n = json_object_get_int64(v);
    return n < INT32_MIN || n > INT32_MAX ? otherwise : (int32_t)n;
}
