/* The arguments of a custom tool: one member, a text that a grammar describes, in the
 * syntax of a model's format. */
#include "grammar/avoid.h"
#include "grammar/compile.h"
#include "grammar/parts.h"
#include "grammar/value_shape.h"

static uint32_t argument_text_literal(schema *s, const char *text, uint32_t next) {
    return build_bytes(s->b, str_of(text), next);
}

static uint32_t argument_text_special(schema *s, str text, uint32_t next) {
    return parts_emit_text(s->parts, text, next);
}

/* The text's rule, spelt as the syntax has it. */
static uint32_t text_rule(schema *s) {
    const grammar_arguments *a = s->arguments;
    uint32_t rule = s->b->a.rules.n, first = s->b->a.nodes.n;
    compile_rule(s->b, a->kind, a->rule);
    if (s->b->failed != QUIRE_OK) {
        return rule;
    }
    switch (a->syntax) {
    case GRAMMAR_SYNTAX_JSON:
        respell_json(s->b, first);
        return rule;
    case GRAMMAR_SYNTAX_PYTHON:
        respell_python(s->b, first);
        return rule;
    default:
        return s->avoid == DFA_ANY ? rule : avoid_rule(s->dfas, rule, first, s->avoid);
    }
}

static uint32_t json(schema *s, uint32_t rule) {
    uint32_t end =
        argument_text_literal(s, "\"", schema_space(s, argument_text_literal(s, "}", NFA_RETURN_NODE)));
    uint32_t value = schema_space(s, argument_text_literal(s, "\"", build_call(s->b, rule, end)));
    uint32_t name =
        schema_json_name(s, s->arguments->member, schema_space(s, argument_text_literal(s, ":", value)));
    return argument_text_literal(s, "{", schema_space(s, name));
}

static uint32_t tagged(schema *s, uint32_t rule) {
    const grammar_arguments *a = s->arguments;
    uint32_t end = a->has_elements
                       ? argument_text_special(s, a->member, argument_text_literal(s, ">", NFA_RETURN_NODE))
                       : NFA_RETURN_NODE;
    uint32_t value = build_call(s->b, rule, argument_text_special(s, a->behind, end));
    uint32_t node = argument_text_special(s, a->string_middle.n > 0 ? a->string_middle : a->middle, value);
    return argument_text_special(s, a->before, argument_text_special(s, a->member, node));
}

static uint32_t gemma(schema *s, uint32_t rule) {
    const grammar_arguments *a = s->arguments;
    uint32_t end = argument_text_special(s, a->quote, argument_text_literal(s, "}", NFA_RETURN_NODE));
    uint32_t value = argument_text_special(s, a->quote, build_call(s->b, rule, end));
    return argument_text_literal(
        s, "{", argument_text_special(s, a->member, argument_text_literal(s, ":", schema_space(s, value))));
}

static uint32_t python(schema *s, uint32_t rule) {
    uint32_t value = build_call(s->b, rule, argument_text_literal(s, "\"", NFA_RETURN_NODE));
    return argument_text_special(s, s->arguments->member, argument_text_literal(s, "=\"", value));
}

uint32_t argument_text(schema *s) {
    uint32_t rule = text_rule(s);
    if (s->b->failed != QUIRE_OK) {
        return NFA_FAIL_NODE;
    }
    switch (s->arguments->syntax) {
    case GRAMMAR_SYNTAX_TAGS:
        return tagged(s, rule);
    case GRAMMAR_SYNTAX_GEMMA:
        return gemma(s, rule);
    case GRAMMAR_SYNTAX_PYTHON:
        return python(s, rule);
    default:
        return json(s, rule);
    }
}
