/* `quire run`: one prompt, streamed to standard output. */
#include <stddef.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "cli/commands.h"
#include "cli/read_flags.h"

/* Prints all choices but the first, which was printed while it was generated, each after
 * an empty line. */
static quire_err print_other_choices(const response *a, quire_error *err) {
    for (size_t i = 1; i < a->n_choices; i++) {
        const strbuf *text = &a->choices[i].text;
        TRY(text_out_print((str){"", 0}, err));
        TRY(text_out_print((str){text->n ? text->p : "", text->n}, err));
    }
    return QUIRE_OK;
}

static quire_err run_run_prompt(const cli_options *o, session *s, str prompt, quire_error *err) {
    body b = {0};
    response a = {0};
    const response_printing how = {.before = o->echo ? prompt : (str){"", 0}};
    int64_t start = clock_us();
    quire_err e = request_of_prompt(o, s, prompt, &b, err);
    TRY_DONE(e, response_run(&a, s, QUIRE_COMPLETIONS, &b, &how, err));
    if (isatty(STDERR_FILENO)) {
        double seconds = (double)(clock_us() - start) / 1e6;
        log_line(LOG_INFO, "%d tokens in %.2f s: %.1f tokens/s, the prompt's %d included",
                 (int)a.completion_tokens, seconds, a.completion_tokens / seconds, (int)a.prompt_tokens);
    }
    TRY_DONE(e, print_other_choices(&a, err));
    if (o->out) {
        e = batch_file_write_one(o->out, &a, err);
    }
done:
    response_deinit(&a);
    body_deinit(&b);
    return e;
}

static quire_err run_run_on(const cli_options *o, session *s, bool has_prompt, const strbuf *prompt,
                            quire_error *err) {
    if (o->prompts) {
        return batch_file_run(o, s, err);
    }
    if (o->program) {
        return program_run_file(s, prompt, err);
    }
    return has_prompt ? run_run_prompt(o, s, (str){prompt->n ? prompt->p : "", prompt->n}, err)
                      : chat_loop(o, s, err);
}

/* Opens the session. Before the weights are loaded, checks the request fields of the
 * flags. */
static quire_err run_open_checked(const cli_options *o, session *s, quire_error *err) {
    cli_options own = *o;
    body b = {0};
    strbuf text = {0};
    quire_err e = request_begin(o, &b, err);
    TRY_DONE(e, err_set(err, body_set(&b, "prompt", str_of("[0]")), -1, "out of memory"));
    TRY_DONE(e, err_set(err, body_write(&b, &text), -1, "out of memory"));
    own.engine.request_check = text.p;
    TRY_DONE(e, session_open(&own, s, err));
done:
    strbuf_deinit(&text);
    body_deinit(&b);
    return e;
}

static quire_err run_run(const cli_options *o, quire_error *err) {
    /* false: `quire run` begins a chat, or completes line by line */
    bool has_prompt = !o->prompts && !o->program && (o->prompt || o->prompt_file || !isatty(STDIN_FILENO));
    strbuf prompt = {0};
    session s;
    TRY(embed_check(o, err));
    TRY(prompt_check(o, err));
    TRY(unused_flags_check_run(o, has_prompt, err));
    if (o->embed) {
        return embed_run(o, err);
    }
    TRY(batch_file_check(o, err));
    TRY(files_check_readable("--prompts", o->prompts, err));
    TRY(files_check_writable("--out", o->out, err));
    quire_err e = has_prompt   ? prompt_read(o, &prompt, err)
                  : o->program ? program_run_check(o->program, &prompt, err)
                               : QUIRE_OK;
    if (e == QUIRE_OK && o->api) {
        e = program_run_api(o, &prompt, err);
        strbuf_deinit(&prompt);
        return e;
    }
    TRY_DONE(e, run_open_checked(o, &s, err));
    if (!o->program) {
        request_announce_defaults(o, &s);
    }
    e = run_run_on(o, &s, has_prompt, &prompt, err);
    session_close(&s);
done:
    strbuf_deinit(&prompt);
    return e;
}

#define AT(member) .offset = offsetof(cli_options, member)

static const flag task_flags[] = {
    {"--system -sys", "TEXT", "system message of the chat", FLAG_TEXT, AT(system)},
    {"--complete -no-cnv", NULL, "complete the prompt as text even if the model has a chat template",
     FLAG_SWITCH, AT(complete)},
    {"--no-history", NULL, "do not read or write the history of chat lines", FLAG_SWITCH, AT(no_history),
     .rare = true},
    {"--echo", NULL, "print the prompt before its continuation", FLAG_SWITCH, AT(echo), .rare = true},
    {"--prompts", "FILE", "answer every line of a JSON Lines file, many at once; needs --out", FLAG_TEXT,
     AT(prompts)},
    {"--resume", NULL, "continue an interrupted run of --prompts, keeping its answers", FLAG_SWITCH,
     AT(resume), .rare = true},
    {"--program", "FILE", "run the program in a JSON file and print its results (docs/programs.md)",
     FLAG_TEXT, AT(program)},
    {"--api", "URL", "run --program on an OpenAI-compatible API at URL, with the key in OPENAI_API_KEY",
     FLAG_TEXT, AT(api), .rare = true},
    {"--api-speculation", "TOKENS",
     "most tokens that a call to --api requests past the end of a gen, for later gens; 0: none", FLAG_COUNT,
     AT(api_speculation), .minimum = 0, .maximum = 1 << 20, .rare = true},
    {0},
};

static const flag *const groups[] = {FLAGS_MODEL,
                                     flags_prompt,
                                     task_flags,
                                     flags_embed,
                                     flags_out,
                                     flags_sampling,
                                     flags_generation_config,
                                     flags_rules,
                                     flags_ending,
                                     flags_more_sampling,
                                     flags_tokenizer,
                                     flags_chat_template,
                                     flags_message_tokens,
                                     flags_answers,
                                     flags_attention,
                                     FLAGS_NUMERIC,
                                     flags_snapshots,
                                     flags_lora,
                                     flags_audit,
                                     FLAGS_MACHINE,
                                     FLAGS_BATCH,
                                     flags_mlock,
                                     flags_pack_cache,
                                     flags_pack_cache_limits,
                                     FLAGS_MEMORY,
                                     flags_carried,
                                     NULL};

static void run_defaults(cli_options *o) {
    o->engine.generation_config = "auto";
    o->engine.pack_cache = "auto";
    o->api_speculation = 256;
}

const command command_run = {
    .name = "run",
    .summary = "continue a prompt, chat, answer a file of prompts, run a program, or embed",
    .usage = "quire run [MODEL] [-p TEXT | -f FILE | --prompts FILE --out FILE | --program FILE] [--embed]",
    .examples = "  quire run -p \"The prince looked at her and\" -n 80 --seed 7\n"
                "  quire run model.gguf                                   chat on this terminal\n",
    .argument = ARGUMENT_MODEL_OR_BUILTIN,
    .flags = groups,
    .options_size = sizeof(cli_options),
    .defaults = run_defaults,
    .run = run_run,
};
