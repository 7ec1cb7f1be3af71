#include "setup/chat_start.h"

#include <string.h>

#include "base/visible.h"

/* Whether the template's text begins with this one, perhaps behind white space. */
static bool writes(const chat_template *template, str text) {
    static const char variables[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"add_generation_prompt\":true}";
    strbuf out = {0};
    size_t at = 0;
    bool ok = text.n > 0 && chat_template_render(template, str_of(variables), &out, NULL, NULL) == QUIRE_OK;
    while (ok && at < out.n && strchr(" \t\r\n", out.p[at]) != NULL && out.p[at] != '\0') {
        at++;
    }
    ok = ok && out.n - at >= text.n && memcmp(out.p + at, text.p, text.n) == 0;
    strbuf_deinit(&out);
    return ok;
}

quire_err chat_start_print(const chat_form *form, const tokenizer *t, strbuf *out) {
    int32_t start = tokenizer_start(t);
    str bos = start >= 0 ? tokenizer_piece(t, start) : tokenizer_bos_text(t);
    bool is_written = writes(form->template, bos);
    visible line = {0};
    if (!is_written && start < 0) {
        return strbuf_add_str(out, "without BOS: neither the template nor the tokenizer puts one there");
    }
    TRY(strbuf_add_str(out, "with BOS, "));
    TRY(visible_add(&line, bos.p, bos.n < 64 ? bos.n : 64, out));
    TRY(visible_end(&line, out));
    return strbuf_add_str(out, is_written ? ": the template writes it" : ": the tokenizer adds it, since the template writes none");
}
