#include "answer/answer_bind.h"

#include "answer/bind_calls.h"
#include "text/tokenizer.h"

/* ---- what a request asks for, and what its model can answer ---- */

/* Chooses the formats: by option, else by the template that counts for r. */
static output_formats answer_choose_formats(const quire_request *r) {
    output_formats f = r->context.formats;
    if (request_has_template(r)) {
        output_formats own = output_formats_of_template(r->template_given);
        f.tools = r->context.names_tools ? f.tools : own.tools;
        f.reasoning = r->context.names_reasoning ? f.reasoning : own.reasoning;
    }
    return f;
}

static quire_err answer_check_budget(const quire_request *r, quire_error *err) {
    return r->g.thinking_budget < 0 || r->formats.reasoning != NULL
               ? QUIRE_OK
               : err_set_param(err, QUIRE_BAD_REQUEST, "thinking_token_budget",
                               "thinking_token_budget is given, and the response has no reasoning that this "
                               "server could tell from "
                               "the rest; a chat with a reasoning model has, or where --reasoning-parser "
                               "names its format");
}

quire_err answer_bind(quire_request *r, quire_error *err) {
    if (dialect_of(&r->g)->is_chat) {
        r->formats = answer_choose_formats(r);
        if (r->n_offered == 0 || r->tool_choice == OUTPUT_CHOICE_NONE) {
            r->formats.tools = NULL;
        }
        TRY(bind_calls(r, err));
        r->g.info.has_parts = r->formats.tools != NULL || r->formats.reasoning != NULL;
    }
    return answer_check_budget(r, err);
}

quire_err answer_compile(const quire_request *r, const rule_context *c, grammar **out, quire_error *err) {
    return r->rule.form == RULE_CALLS ? bind_calls_compile(r, c, out, err)
                                      : answer_rule_compile(&r->rule, c, out, err);
}

/* ---- the response ---- */

static bool answer_is_added(const void *context, str text) {
    const tokenizer *t = context;
    int32_t id = tokenizer_find(t, text);
    return id >= 0 && tokenizer_is_added(t, id);
}

bool answer_has_mark(const quire_request *r, str token) {
    str marks[OUTPUT_FORMAT_MARKS];
    int n = output_formats_marks(&r->formats, marks);
    for (int i = 0; i < n; i++) {
        if (str_contains(marks[i], token)) {
            return true;
        }
    }
    return false;
}

/* Whether marks are hidden where special tokens are: none of them is a token that a user
 * defined, whose text is always shown. */
static bool answer_hides_marks(const quire_request *r) {
    str marks[OUTPUT_FORMAT_MARKS];
    const tokenizer *t = r->context.tokenizer;
    int n = t != NULL ? output_formats_marks(&r->formats, marks) : 0;
    for (int i = 0; i < n; i++) {
        int32_t id = tokenizer_find(t, marks[i]);
        if (id >= 0 && tokenizer_is_added(t, id) && !tokenizer_is_special(t, id)) {
            return false;
        }
    }
    return r->g.skip_special;
}

reasoning_frame answer_frame(const quire_request *r, output_start start) {
    reasoning_frame frame = {.start = start};
    frame.format = r->formats.reasoning != NULL ? reasoning_format_named(r->formats.reasoning) : NULL;
    frame.calls = r->formats.tools != NULL ? call_format_named(r->formats.tools) : NULL;
    return frame;
}

quire_err answer_open_parser(const quire_request *r, output_start start, output_parser **out) {
    quire_error err;
    const output_options o = {.tools_format = r->formats.tools,
                              .reasoning_format = r->formats.reasoning,
                              .tools = r->offered,
                              .n_tools = r->formats.tools != NULL ? r->n_offered : 0,
                              .choice = r->formats.tools != NULL ? r->tool_choice : OUTPUT_CHOICE_NONE,
                              .start = start,
                              .is_special = r->context.tokenizer != NULL ? answer_is_added : NULL,
                              .special_context = r->context.tokenizer,
                              .drops_specials = answer_hides_marks(r)};
    return output_parser_open(&o, out, &err);
}

output_start answer_output_start(const quire_request *r, str prompt, const text_marks *marks) {
    size_t from = marks->n > 0 ? marks->runs[marks->n - 1].end : 0;
    output_start otherwise = r->context.names_reasoning ? OUTPUT_START_UNKNOWN : OUTPUT_START_MARKED;
    return output_start_behind(r->formats.reasoning, (str){prompt.p + from, prompt.n - from}, otherwise);
}
