/* Converts GGUF values to metadata. */
#include "file/gguf.h"

const gguf_value *gguf_find(const gguf *g, const char *key) {
    int32_t i = names_find(g->by_name, g->n_keys, str_of(key));
    return i < 0 ? NULL : &g->keys[i].value;
}

static meta_value of_int(int64_t i) {
    return (meta_value){.kind = META_INT, .i = i, .f = (double)i};
}

static meta_value gguf_meta_of_float(double f) {
    return (meta_value){.kind = META_FLOAT, .f = f};
}

/* A number or bool at p, which may be unaligned. */
static meta_value scalar_at(gguf_type type, const uint8_t *p) {
    switch (type) {
    case GGUF_BOOL:
        return (meta_value){.kind = META_BOOL, .i = p[0], .f = p[0]};
#define NUMBER(name, number, of)                                                                             \
    case GGUF_##name: {                                                                                      \
        number v;                                                                                            \
        memcpy(&v, p, sizeof v);                                                                             \
        return of;                                                                                           \
    }
        NUMBER(U8, uint8_t, of_int(v))
        NUMBER(I8, int8_t, of_int(v))
        NUMBER(U16, uint16_t, of_int(v))
        NUMBER(I16, int16_t, of_int(v))
        NUMBER(U32, uint32_t, of_int(v))
        NUMBER(I32, int32_t, of_int(v))
        NUMBER(U64, uint64_t, v <= INT64_MAX ? of_int((int64_t)v) : gguf_meta_of_float((double)v))
        NUMBER(I64, int64_t, of_int(v))
        NUMBER(F32, float, gguf_meta_of_float((double)v))
        NUMBER(F64, double, gguf_meta_of_float(v))
#undef NUMBER
    default:
        return (meta_value){.kind = META_OTHER};
    }
}

meta_value gguf_meta(const gguf_value *v) {
    if (v == NULL) {
        return (meta_value){.kind = META_ABSENT};
    }
    if (v->type == GGUF_STRING) {
        return (meta_value){.kind = META_STR, .s = {(const char *)v->data, v->n}};
    }
    if (v->type == GGUF_ARRAY) {
        return (meta_value){.kind = META_ARRAY, .n = v->n, .node = v};
    }
    return scalar_at(v->type, v->data);
}

meta_value gguf_item(const gguf_value *array, size_t i) {
    if (array->item_type == GGUF_STRING) {
        return (meta_value){.kind = META_STR, .s = array->strings[i]};
    }
    if (array->item_type == GGUF_ARRAY) {
        return (meta_value){.kind = META_OTHER};
    }
    return scalar_at(array->item_type, array->data + i * gguf_type_bytes(array->item_type));
}
