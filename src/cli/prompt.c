/* The prompt of `quire run` and `quire tokenize`, and request bodies made from flags. */
#include <assert.h>
#include <stddef.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/commands.h"
#include "cli/files.h"

quire_err prompt_check(const cli_options *o, quire_error *err) {
    assert(o != NULL);
    const char *given = o->prompt ? "-p" : o->prompt_file ? "-f" : NULL;
    const char *ids = o->embed ? "--ids" : "--decode";
    const char *too = o->prompt && o->prompt_file ? "-f"
                      : given && o->prompts       ? "--prompts"
                      : given && o->program       ? "--program"
                      : given && o->ids           ? ids
                                                  : NULL;
    if (too) {
        return err_set(err, QUIRE_INVALID, -1, "%s and %s both give the text; leave one of them out", too,
                       given);
    }
    return o->prompt ? files_check_text("-p", str_of(o->prompt), QUIRE_INVALID, err) : QUIRE_OK;
}

quire_err prompt_read(const cli_options *o, strbuf *out, quire_error *err) {
    if (!o->prompt) {
        return files_read_text(o->prompt_file ? o->prompt_file : "-", out, err);
    }
    return err_set(err, strbuf_add_str(out, o->prompt), -1, "out of memory for the prompt");
}

/* ---- bodies ---- */

/* The sampling defaults if neither flags nor the model set any: those of terminal
 * programs. */
static const struct {
    const char *field, *json;
} custom[] = {{"temperature", "0.8"}, {"top_k", "40"}, {"top_p", "0.95"}, {"min_p", "0.05"}};

enum { N_CUSTOM = (int)(sizeof custom / sizeof custom[0]) };

/* Whether the body has a field that selects how tokens are sampled. */
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
    return err_set(err, e, -1, "out of memory");
}

quire_err request_complete(const session *s, quire_endpoint endpoint, body *b, quire_error *err) {
    assert(s != NULL);
    const quire_info *info = quire_engine_info(s->engine);
    quire_err e = QUIRE_OK;
    if (endpoint == QUIRE_COMPLETIONS && !body_has(b, "max_tokens")) {
        /* the engine lowers it to what the prompt leaves */
        e = body_set_int(b, "max_tokens", info->max_model_len);
    }
    bool by_custom = !info->generation_config && !prompt_says_how(b);
    for (int i = 0; i < N_CUSTOM && by_custom && e == QUIRE_OK; i++) {
        e = body_set(b, custom[i].field, str_of(custom[i].json));
    }
    return err_set(err, e, -1, "out of memory");
}

quire_err request_of_prompt(const cli_options *o, const session *s, str prompt, body *out, quire_error *err) {
    TRY(request_begin(o, out, err));
    if (body_set_text(out, "prompt", prompt) != QUIRE_OK) {
        TRY(err_set(err, QUIRE_NO_MEMORY, -1, "out of memory"));
    }
    return request_complete(s, QUIRE_COMPLETIONS, out, err);
}

/* ---- flags of how tokens are chosen ---- */

/* Flags of `quire run` that are request fields: how tokens are chosen, and when an answer
 * ends. They have the names of llama.cpp or of the API. tests/e2e/test_run_fields.py
 * compares them with the table of fields. */

#define AT(member) .offset = offsetof(cli_options, member)

const flag flags_sampling[] = {
    {"--max-tokens -n --predict --n-predict", "N", "most tokens to generate; -1: until the end", FLAG_COUNT,
     AT(n_predict), .minimum = -1, .maximum = INT32_MAX},
    {"--temp --temperature", "T", "temperature; 0: the most likely token; 1: the model's own probabilities",
     FLAG_FIELD_NUMBER, .field = "temperature"},
    {"--top-k", "N", "sample from the N most likely tokens", FLAG_FIELD_INTEGER, .field = "top_k"},
    {"--top-p", "P", "sample from the most likely tokens that together have probability P", FLAG_FIELD_NUMBER,
     .field = "top_p"},
    {"--min-p", "P", "exclude tokens less likely than P times the most likely one", FLAG_FIELD_NUMBER,
     .field = "min_p"},
    {0},
};

static const flag_choice special[] = {{"on", "false", 0}, {0}};
static const flag_choice stoppings[] = {
    {"true", "true", 0}, {"false", "false", 0}, {"never", "\"never\"", 0}, {0}};

const flag flags_more_sampling[] = {
    {"--repeat-penalty --repetition-penalty", "X",
     "divide the logits of tokens that have occurred by X (1: off)", FLAG_FIELD_NUMBER,
     .field = "repetition_penalty", .rare = true},
    {"--presence-penalty", "X", "subtract X from the logits of tokens that have been generated",
     FLAG_FIELD_NUMBER, .field = "presence_penalty", .rare = true},
    {"--frequency-penalty", "X", "subtract X from a token's logit each time it has been generated",
     FLAG_FIELD_NUMBER, .field = "frequency_penalty", .rare = true},
    {"--repeat-last-n", "N",
     "tokens that the repeat, presence and frequency penalties count (-1: all, 0: none)", FLAG_FIELD_INTEGER,
     .field = "repeat_last_n", .rare = true},
    {"--no-repeat-ngram-size", "N", "let no sequence of N tokens occur twice (0: off)", FLAG_FIELD_INTEGER,
     .field = "no_repeat_ngram_size", .rare = true},
    {"--dry-multiplier", "X", "DRY: strength of the penalty on repeated sequences (0: off)",
     FLAG_FIELD_NUMBER, .field = "dry_multiplier", .rare = true},
    {"--dry-base", "X", "DRY: each further token of a repeat costs X times more (1.75)", FLAG_FIELD_NUMBER,
     .field = "dry_base", .rare = true},
    {"--dry-allowed-length", "N", "DRY: repeats shorter than N cost nothing (2)", FLAG_FIELD_INTEGER,
     .field = "dry_allowed_length", .rare = true},
    {"--dry-penalty-last-n", "N", "DRY: how many tokens are searched for repeats (-1: all)",
     FLAG_FIELD_INTEGER, .field = "dry_penalty_last_n", .rare = true},
    {"--dry-sequence-breaker", "TEXT", "DRY: a text that no repeat spans (repeatable)", FLAG_FIELD_TEXTS,
     .field = "dry_sequence_breakers", .rare = true},
    {"--xtc-probability", "P", "XTC: probability of leaving out the likeliest tokens (0)", FLAG_FIELD_NUMBER,
     .field = "xtc_probability", .rare = true},
    {"--xtc-threshold", "P", "XTC: leave out tokens at least this likely, except the last (0.1)",
     FLAG_FIELD_NUMBER, .field = "xtc_threshold", .rare = true},
    {"--typical --typical-p", "P", "sample from the tokens nearest to the expected surprise (1: off)",
     FLAG_FIELD_NUMBER, .field = "typical_p", .rare = true},
    {"--top-nsigma --top-n-sigma", "N",
     "exclude tokens with logits over N standard deviations below the best (0: off)", FLAG_FIELD_NUMBER,
     .field = "top_n_sigma", .rare = true},
    {"--dynatemp-range", "T", "vary the temperature by up to this with the entropy (0: off)",
     FLAG_FIELD_NUMBER, .field = "dynatemp_range", .rare = true},
    {"--dynatemp-exp --dynatemp-exponent", "X", "exponent of the entropy in --dynatemp-range (1)",
     FLAG_FIELD_NUMBER, .field = "dynatemp_exponent", .rare = true},
    {"--mirostat", "N", "mirostat version 1 or 2, which keeps the surprise of tokens steady (0: off)",
     FLAG_FIELD_INTEGER, .field = "mirostat", .rare = true},
    {"--mirostat-ent --mirostat-tau", "X", "mirostat: target surprise in bits (5)", FLAG_FIELD_NUMBER,
     .field = "mirostat_tau", .rare = true},
    {"--mirostat-lr --mirostat-eta", "X", "mirostat: learning rate (0.1)", FLAG_FIELD_NUMBER,
     .field = "mirostat_eta", .rare = true},
    {"--logit-bias -l", "ID+X", "add X to a token's logit (ID+X), or subtract it (ID-X) (repeatable)",
     FLAG_FIELD_BIAS, .field = "logit_bias", .rare = true},
    {"--allowed-token-ids", "IDS", "the only token ids that may be sampled, such as 1,2,3", FLAG_FIELD_IDS,
     .field = "allowed_token_ids", .rare = true},
    {"--bad-words", "TEXT", "a text that must not be generated (repeatable)", FLAG_FIELD_TEXTS,
     .field = "bad_words", .rare = true},
    {"--samples --n", "N", "number of answers to the prompt (1)", FLAG_FIELD_INTEGER, .field = "n",
     .rare = true},
    {"--best-of", "N", "generate N answers and print the most likely ones", FLAG_FIELD_INTEGER,
     .field = "best_of", .rare = true},
    {"--beam-width --num-beams", "N", "beam search with N beams", FLAG_FIELD_INTEGER, .field = "beam_width",
     .rare = true},
    {"--use-beam-search", NULL, "use beam search; --best-of or --samples sets the number of beams",
     FLAG_FIELD_SWITCH, .field = "use_beam_search", .rare = true},
    {"--length-penalty", "X",
     "beam search: compare beams by log-probability divided by length to this power (1)", FLAG_FIELD_NUMBER,
     .field = "length_penalty", .rare = true},
    {"--early-stopping", NULL, "when a beam search stops (false)", FLAG_FIELD_CHOICE, .choices = stoppings,
     .field = "early_stopping", .rare = true},
    {"--num-beam-groups", "N", "groups of diverse beam search (1)", FLAG_FIELD_INTEGER,
     .field = "num_beam_groups", .rare = true},
    {"--diversity-penalty", "X",
     "beam search: penalty of a token for each beam of earlier groups that chose it (0)", FLAG_FIELD_NUMBER,
     .field = "diversity_penalty", .rare = true},
    {"--request-fields", "JSON", "other fields of the request, such as {\"priority\":5}", FLAG_FIELDS,
     .offset = 0, .rare = true},
    {0},
};

static const flag_choice spaces[] = {
    {"compact", "\"compact\"", 0}, {"lines", "\"lines\"", 0}, {"any", "\"any\"", 0}, {0}};
static const flag_choice additional[] = {{"closed", "\"closed\"", 0}, {"schema", "\"schema\"", 0}, {0}};

const flag flags_rules[] = {
    {"--json-schema -j --json-schema-file -jf", "FILE|TEXT", "answers are JSON that matches this schema",
     FLAG_FIELD_TEXT, .field = "json_schema", .rare = true},
    {"--grammar --grammar-file", "FILE|TEXT", "answers match this GBNF grammar", FLAG_FIELD_TEXT,
     .field = "grammar", .rare = true},
    {"--regex", "FILE|TEXT", "answers match this regular expression", FLAG_FIELD_TEXT, .field = "regex",
     .rare = true},
    {"--json-additional-properties", NULL,
     "unlisted properties in JSON answers: none, or as the schema allows", FLAG_FIELD_CHOICE,
     .choices = additional, .field = "json_additional_properties", .rare = true},
    {"--json-whitespace", NULL,
     "white space in JSON answers; lines: a space, or a line break and indentation", FLAG_FIELD_CHOICE,
     .choices = spaces, .field = "json_whitespace", .rare = true},
    {0},
};

const flag flags_ending[] = {
    {"--seed -s", "N", "random seed, which makes sampling repeatable", FLAG_FIELD_INTEGER, .field = "seed"},
    {"--stop -r --reverse-prompt", "TEXT", "stop at this text (repeatable)", FLAG_FIELD_TEXTS,
     .field = "stop"},
    {"--include-stop-str-in-output", NULL, "keep the stop text at the end of the answer", FLAG_FIELD_SWITCH,
     .field = "include_stop_str_in_output", .rare = true},
    {"--stop-token-ids", "IDS", "stop at these token ids, such as 1,2,3", FLAG_FIELD_IDS,
     .field = "stop_token_ids", .rare = true},
    {"--ignore-eos", NULL, "continue after the end-of-sequence token", FLAG_FIELD_SWITCH,
     .field = "ignore_eos", .rare = true},
    {"--min-tokens", "N", "tokens to generate before a stop token is allowed (0)", FLAG_FIELD_INTEGER,
     .field = "min_tokens", .rare = true},
    {"--special -sp", NULL, "print special tokens too", FLAG_FIELD_PRESET, .choices = special,
     .field = "skip_special_tokens", .rare = true},
    {0},
};
