#include "text/tokenizer_config.h"

str config_special(json_value *config, const char *key) {
    str s = json_get_str(config, key);
    return s.n > 0 ? s : json_get_str(json_get(config, key), "content");
}

bool config_token_id(const char *name, int64_t *id) {
    *id = 0;
    for (const char *p = name; *p != '\0'; p++) {
        if (*p < '0' || *p > '9' || *id > INT32_MAX) {
            return false;
        }
        *id = *id * 10 + (*p - '0');
    }
    return *name != '\0';
}

int32_t config_says_bos(json_value *config) {
    return json_is(json_get(config, "add_bos_token"), JSON_KIND_BOOL)
               ? json_get_bool(config, "add_bos_token", false)
               : -1;
}

quire_err config_surround(tokenizer *t, json_value *config, int32_t bos, int32_t eos, bool add_bos,
                          bool add_eos) {
    t->bos = bos;
    t->eos = eos;
    str bos_text = piece_table_get(&t->vocab, bos), eos_text = piece_table_get(&t->vocab, eos);
    TRY(strbuf_add(&t->bos_text, bos_text.p, bos_text.n));
    TRY(strbuf_add(&t->eos_text, eos_text.p, eos_text.n));
    add_bos = json_get_bool(config, "add_bos_token", add_bos) && bos >= 0;
    add_eos = json_get_bool(config, "add_eos_token", add_eos) && eos >= 0;
    return add_bos || add_eos ? tokenizer_surround(t, add_bos ? bos : -1, add_eos ? eos : -1) : QUIRE_OK;
}
