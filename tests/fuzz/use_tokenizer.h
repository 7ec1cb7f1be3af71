/* For the fuzz targets of tokenizer files: a file is refused with a message, or gives a
 * tokenizer that can encode, decode and stream any text. */
#ifndef TESTS_FUZZ_USE_TOKENIZER_H
#define TESTS_FUZZ_USE_TOKENIZER_H

#include "base/log.h"
#include "base/utf8.h"
#include "fuzz.h"
#include "text/detok.h"

static inline void use_text(const tokenizer *t, str text, encode_special special, fuzz_sum *sum) {
    quire_error err = {0};
    token_list ids = {0};
    strbuf out = {0};
    detok *d;
    quire_err e =
        tokenizer_encode(t, text, (encode_options){.special = special, .add_special = true}, &ids, &err);
    fuzz_check(e == QUIRE_OK || (err.message[0] != 0 && ids.n == 0));
    for (size_t i = 0; i < ids.n; i++) {
        fuzz_check(ids.ids[i] >= 0 && ids.ids[i] < tokenizer_n_tokens(t));
    }
    fuzz_check(e != QUIRE_OK || ids.n >= tokenizer_least_tokens(t, text.n));
    fuzz_check(tokenizer_decode(t, ids.ids, ids.n, false, &out) == QUIRE_OK &&
               utf8_is_valid((str){out.p, out.n}));
    *sum += out.n;
    strbuf_clear(&out);
    if (detok_open(t, true, &d) == QUIRE_OK) {
        for (size_t i = 0; i < ids.n; i++) {
            fuzz_check(detok_add(d, ids.ids[i], &out) == QUIRE_OK && utf8_is_valid((str){out.p, out.n}));
        }
        fuzz_check(detok_flush(d, &out) == QUIRE_OK);
        detok_close(d);
    }
    token_list_deinit(&ids);
    strbuf_deinit(&out);
}

static inline void use_tokenizer(const vocab *v) {
    static const char text[] = "The  quick <s>[INST] caf\xC3\xA9 e\xCC\x81\xE2\x96\x81 "
                               "12345\r\n\t\xE4\xB8\xAD\xE6\x96\x87\xF0\x9F\x98\x80 \xFF don't!";
    char run[200];
    tokenizer *t;
    quire_error err = {0};
    fuzz_sum sum = 0;
    log_set_level(LOG_ERROR);
    if (tokenizer_open(v, &t, &err) != QUIRE_OK) {
        fuzz_check(err.message[0] != 0);
        return;
    }
    memset(run, 'a', sizeof run);
    use_text(t, (str){text, sizeof text - 1}, ENCODE_PARSE, &sum);
    use_text(t, (str){text, sizeof text - 1}, ENCODE_PLAIN, &sum);
    use_text(t, (str){run, sizeof run}, ENCODE_PARSE, &sum);
    use_text(t, (str){"", 0}, ENCODE_PARSE, &sum);
    fuzz_keep(sum + tokenizer_piece(t, 0).n);
    tokenizer_close(t);
}

#endif
