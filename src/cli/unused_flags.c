#include "cli/unused_flags.h"

#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "cli/commands.h"
#include "cli/read_flags.h"

enum { LONGEST_NAME = 48 };

/* The ways in which `quire run` runs. */
enum { RUN_PROMPT = 1, RUN_BATCH = 2, RUN_CHAT = 4, RUN_LINES = 8, RUN_ROWS = 16, RUN_PROGRAM = 32 };
enum { RUN_TEXT = RUN_PROMPT | RUN_BATCH | RUN_CHAT | RUN_LINES };

/* Why a flag is unused there, and what to do. */
static const struct {
    int way;
    const char *reason;
} reasons[] = {
    {RUN_PROMPT, "without effect on one prompt, which is completed as it stands; leave it out, or chat: on a "
                 "terminal without a prompt, or "
                 "by lines of --prompts with messages"},
    {RUN_BATCH, "without effect on --prompts; leave it out: each line is a request with its own messages and "
                "fields (docs/batch.md)"},
    {RUN_CHAT, "without effect in a chat; leave it out, or give a prompt with -p or -f"},
    {RUN_LINES, "without effect where --complete has each line completed by itself; leave one of them out"},
    {RUN_PROGRAM, "without effect on --program; leave it out: its steps have their own fields "
                  "(docs/programs.md)"},
    {RUN_ROWS, "without effect on --embed, which gives rows in place of text; leave it out"},
};

/* In which ways flags have an effect that do not have one in all. --complete asks for
 * what happens to a prompt anyway. */
static const struct {
    const char *name;
    int ways;
} effects[] = {
    {"--system", RUN_CHAT},
    {"--complete", RUN_PROMPT | RUN_LINES},
    {"--no-history", RUN_CHAT | RUN_LINES},
    {"--echo", RUN_PROMPT},
    {"--out", RUN_PROMPT | RUN_BATCH | RUN_ROWS},
    {"--resume", RUN_TEXT}, /* needs --prompts, which is checked elsewhere */
    {"--prompts", RUN_TEXT | RUN_ROWS},
    {"--program", RUN_PROGRAM},
    {"--chat-template", RUN_BATCH | RUN_CHAT | RUN_PROGRAM},
    {"--special-tokens-in-messages", RUN_BATCH | RUN_CHAT | RUN_PROGRAM},
    {"--generation-config", RUN_TEXT | RUN_PROGRAM},
};

/* Groups whose flags are about text that is produced. */
static const flag *const of_text[] = {flags_sampling, flags_more_sampling, flags_rules, flags_ending};

static str own_name(const flag *f) {
    return (str){f->names, strcspn(f->names, " ")};
}

static int ways_of(const flag *f) {
    for (size_t i = 0; i < sizeof effects / sizeof *effects; i++) {
        if (str_is(own_name(f), effects[i].name)) {
            return effects[i].ways;
        }
    }
    for (size_t i = 0; i < sizeof of_text / sizeof *of_text; i++) {
        for (const flag *other = of_text[i]; other->names; other++) {
            if (other == f) {
                return RUN_TEXT;
            }
        }
    }
    return RUN_TEXT | RUN_ROWS | RUN_PROGRAM;
}

static quire_err cli_unused_flags_refuse(const flag *f, int way, quire_error *err) {
    str name = own_name(f);
    const char *reason = "";
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++) {
        reason = reasons[i].way == way ? reasons[i].reason : reason;
    }
    return err_set(err, QUIRE_INVALID, -1, "%.*s: %s", (int)name.n, name.p, reason);
}

quire_err unused_flags_refuse(const cli_options *o, const char *names, const char *why, quire_error *err) {
    for (const char *at = names; *at != '\0'; at += strspn(at, " ")) {
        char name[LONGEST_NAME];
        size_t n = strcspn(at, " ");
        (void)snprintf(name, sizeof name, "%.*s", (int)n, at);
        if (read_flags_gave(o, name)) {
            return err_set(err, QUIRE_INVALID, -1, "%s does nothing %s", name, why);
        }
        at += n;
    }
    return QUIRE_OK;
}

quire_err unused_flags_check_run(const cli_options *o, bool has_prompt, quire_error *err) {
    int way = o->embed      ? RUN_ROWS
              : o->program  ? RUN_PROGRAM
              : o->prompts  ? RUN_BATCH
              : has_prompt  ? RUN_PROMPT
              : o->complete ? RUN_LINES
                            : RUN_CHAT;
    for (const flag *const *f = o->given; f && *f; f++) {
        TRY((ways_of(*f) & way) != 0 ? QUIRE_OK : cli_unused_flags_refuse(*f, way, err));
    }
    return QUIRE_OK;
}

quire_err unused_flags_check_tokenize(const cli_options *o, quire_error *err) {
    TRY(unused_flags_refuse(o, "--override-kv --hf-overrides",
                            "here, where the tokenizer is taken as its file has it; leave it out", err));
    return o->ids ? unused_flags_refuse(o, "--ids",
                                        "beside --decode, which prints a text; leave one of them out", err)
                  : QUIRE_OK;
}
