#include "cli/batch_about.h"

#include "cli/commands.h"
#include "json/json_out.h"

quire_err batch_about(const cli_options *o, const session *s, const uint8_t digest[SHA256_BYTES], strbuf *to,
                      quire_error *err) {
    const quire_info *info = quire_engine_info(s->engine);
    static const char digits[] = "0123456789abcdef";
    char hex[2 * SHA256_BYTES + 1] = "";
    for (size_t i = 0; i < SHA256_BYTES; i++) {
        hex[2 * i] = digits[digest[i] >> 4];
        hex[2 * i + 1] = digits[digest[i] & 15];
    }
    body fields = {0};
    strbuf json = {0};
    json_out out = {.to = to};
    quire_err e = request_begin(o, &fields, err);
    e = e == QUIRE_OK ? body_write(&fields, &json) : e;
    json_begin(&out, '{');
    json_cstr(json_name(&out, "prompts"), o->prompts);
    json_cstr(json_name(&out, "sha256"), hex);
    json_cstr(json_name(&out, "model"), info->model_path);
    json_cstr(json_name(&out, "compute"), info->compute);
    json_cstr(json_name(&out, "kv-dtype"), info->kv_dtype);
    json_cstr(json_name(&out, "generation-config"), info->generation_defaults);
    json_cstr(json_name(&out, "chat-template"), o->engine.chat_template);
    json_cstr(json_name(&out, "tool-call-parser"), o->engine.tool_call_parser);
    json_cstr(json_name(&out, "reasoning-parser"), o->engine.reasoning_parser);
    json_cstr(json_name(&out, "tokenizer"), o->engine.tokenizer);
    json_cstr(json_name(&out, "special-tokens-in-messages"),
              o->engine.special_tokens_in_messages == QUIRE_MESSAGE_TOKENS_PARSE ? "parse" : "plain");
    json_cstr(json_name(&out, "hf-overrides"), o->engine.hf_overrides);
    json_cstr(json_name(&out, "override-kv"), o->engine.override_kv);
    json_cstr(json_name(&out, "mask-mod"), o->engine.mask_mod);
    json_cstr(json_name(&out, "score-mod"), o->engine.score_mod);
    json_cstr(json_name(&out, "attention-arrays"), o->engine.attention_arrays);
    json_cstr(json_name(&out, "speculative-config"), o->engine.speculative_config);
    json_int(json_name(&out, "max-model-len"), o->engine.max_model_len);
    json_raw(json_name(&out, "request"), e == QUIRE_OK ? json.p : "null");
    json_end(&out, '}');
    strbuf_deinit(&json);
    body_deinit(&fields);
    return e == QUIRE_OK && out.err == QUIRE_OK ? QUIRE_OK
                                                : err_set(err, QUIRE_NO_MEMORY, -1, "out of memory");
}

/* Appends an argument, quoted for a shell. */
static quire_err add_argument(strbuf *to, const char *argument) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-";
    TRY(strbuf_add_char(to, ' '));
    if (*argument && argument[strspn(argument, plain)] == 0) {
        return strbuf_add_str(to, argument);
    }
    TRY(strbuf_add_char(to, '\''));
    for (const char *p = argument; *p; p++) {
        TRY(*p == '\'' ? strbuf_add_str(to, "'\\''") : strbuf_add_char(to, *p));
    }
    return strbuf_add_char(to, '\'');
}

quire_err batch_about_resume(const cli_options *o, strbuf *to) {
    TRY(strbuf_add_str(to, "quire run"));
    for (int i = 0; i < o->n_arguments; i++) {
        TRY(add_argument(to, o->arguments[i]));
    }
    return o->resume ? QUIRE_OK : strbuf_add_str(to, " --resume");
}
