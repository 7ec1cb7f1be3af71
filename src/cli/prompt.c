/* The one prompt of `quire run` and `quire tokenize`, and bodies of requests made of
 * flags. */
#include <stddef.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/commands.h"
#include "cli/files.h"

quire_err prompt_check(const cli_options *o, quire_error *err) {
    const char *given = o->prompt ? "-p" : o->prompt_file ? "-f" : NULL;
    const char *ids = o->embed ? "--ids" : "--decode";
    const char *too = o->prompt && o->prompt_file ? "-f"
                      : given && o->prompts       ? "--prompts"
                      : given && o->program       ? "--program"
                      : given && o->ids           ? ids
                                                  : NULL;
    if (too) {
        return err_set(err, QUIRE_INVALID, -1, "%s beside %s: both give the text; leave one of them out", too,
                       given);
    }
    return o->prompt ? files_check_text("-p", str_of(o->prompt), QUIRE_INVALID, err) : QUIRE_OK;
}

quire_err prompt_read(const cli_options *o, strbuf *out, quire_error *err) {
    if (!o->prompt) {
        return files_read_text(o->prompt_file ? o->prompt_file : "-", out, err);
    }
    return strbuf_add_str(out, o->prompt) == QUIRE_OK
               ? QUIRE_OK
               : err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for the prompt");
}

/* ---- bodies ---- */

/* The sampling defaults of terminal programs, where neither flags nor the model set
 * any. */
static const struct {
    const char *field, *json;
} custom[] = {{"temperature", "0.8"}, {"top_k", "40"}, {"top_p", "0.95"}, {"min_p", "0.05"}};

enum { N_CUSTOM = (int)(sizeof custom / sizeof custom[0]) };

/* True when the body itself sets how tokens are sampled. */
static bool prompt_says_how(const body *b) {
    static const char *const others[] = {"typical_p",      "top_n_sigma",     "mirostat",   "xtc_probability",
                                         "dynatemp_range", "use_beam_search", "beam_width", "num_beams"};
    bool found = false;
    for (int i = 0; i < N_CUSTOM; i++) {
        found = found || body_has(b, custom[i].field);
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        found = found || body_has(b, others[i]);
    }
    return found;
}

void request_announce_defaults(const cli_options *o, const session *s) {
    if (!prompt_says_how(&o->fields) && !quire_engine_info(s->engine)->generation_config &&
        isatty(STDERR_FILENO)) {
        log_line(LOG_INFO,
                 "sampling defaults: temperature %s, top_k %s, top_p %s, min_p %s (the model names none); "
                 "--temp 1 turns them off",
                 custom[0].json, custom[1].json, custom[2].json, custom[3].json);
    }
}

quire_err request_begin(const cli_options *o, body *out, quire_error *err) {
    quire_err e = body_set_all(out, &o->fields);
    if (e == QUIRE_OK && o->n_predict >= 0) {
        e = body_set_int(out, "max_tokens", o->n_predict);
    }
    return e == QUIRE_OK ? e : err_set(err, e, -1, "out of memory");
}

quire_err request_complete(const session *s, quire_endpoint endpoint, body *b, quire_error *err) {
    const quire_info *info = quire_engine_info(s->engine);
    quire_err e = QUIRE_OK;
    if (endpoint == QUIRE_COMPLETIONS && !body_has(b, "max_tokens")) {
        e = body_set_int(b, "max_tokens", info->max_model_len); /* cut to what the prompt leaves */
    }
    bool by_custom = !info->generation_config && !prompt_says_how(b);
    for (int i = 0; i < N_CUSTOM && by_custom && e == QUIRE_OK; i++) {
        e = body_set(b, custom[i].field, str_of(custom[i].json));
    }
    return e == QUIRE_OK ? e : err_set(err, e, -1, "out of memory");
}

quire_err request_of_prompt(const cli_options *o, const session *s, str prompt, body *out, quire_error *err) {
    TRY(request_begin(o, out, err));
    TRY(body_set_text(out, "prompt", prompt) == QUIRE_OK
            ? QUIRE_OK
            : err_set(err, QUIRE_NO_MEMORY, -1, "out of memory"));
    return request_complete(s, QUIRE_COMPLETIONS, out, err);
}
