#include "text/tokenizer_impl.h"

bool tokenizer_decodes(const tokenizer *t, int32_t id, bool skip_special, str *text, piece_class *class) {
    const added_token *a = added_set_get(&t->added, id);
    *text = a != NULL ? a->pattern : piece_table_get(&t->vocab, id);
    *class = t->classes == NULL || text->n == 0 ? PIECE_NORMAL : (piece_class)t->classes[id];
    /* As in the tokenizers library, which identifies special tokens by their decoded text: one that normalizing changes is not skipped. */
    return text->n > 0 && !(skip_special && a != NULL && a->special && str_eq(a->pattern, a->content));
}

quire_err tokenizer_surround(tokenizer *t, int32_t bos, int32_t eos) {
    for (int two = 0; two < 2; two++) {
        post_template *p = two ? &t->post.pair : &t->post.single;
        if (bos >= 0) {
            TRY(post_template_add(p, POST_TOKENS, 0, &bos, 1));
        }
        TRY(post_template_add(p, POST_A, 0, NULL, 0));
        if (two) {
            TRY(post_template_add(p, POST_B, 1, NULL, 0));
        }
        if (eos >= 0) {
            TRY(post_template_add(p, POST_TOKENS, 0, &eos, 1));
        }
    }
    return QUIRE_OK;
}
