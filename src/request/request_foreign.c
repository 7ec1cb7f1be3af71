#include "request/request_foreign.h"

#include "request/request_field.h"

enum { LONGEST = 64 }; /* longest name compared, in bytes; every field is shorter */

typedef struct foreign {
    const char *name; /* lower case, without separators between words */
    /* field to use instead, if the endpoint has it; NULL: none. A name can have several
     * rows, for different endpoints */
    const char *instead;
} foreign;

/* Field names of vLLM, SGLang, llama.cpp, TGI, TensorRT-LLM, Ollama and their
 * predecessors. */
static const foreign others[] = {
    {"adapterid", NULL},
    {"beamsize", "beam_width"},
    {"cfgscale", NULL},
    {"bannedstrings", "bad_words"},
    {"customparams", NULL},
    {"decoderinputdetails", NULL},
    {"dosample", "temperature"},
    {"enablethinking", "chat_template_kwargs"},
    {"eostokenid", "stop_token_ids"},
    {"epsiloncutoff", NULL},
    {"etacutoff", NULL},
    {"extrabody", NULL},
    {"forcedwords", NULL},
    {"format", NULL},
    {"generationconfig", NULL},
    {"inputembeds", NULL},
    {"jsonmode", NULL},
    {"jsonobject", NULL},
    {"maxcompletiontokens", "max_output_tokens"},
    {"maxlength", "max_tokens"},
    {"maxnewtokens", "max_tokens"},
    {"maxnewtokens", "max_output_tokens"},
    {"maxoutputtokens", "max_tokens"},
    {"maxtokens", "max_output_tokens"},
    {"minkeep", NULL},
    {"minlength", "min_tokens"},
    {"minnewtokens", "min_tokens"},
    {"mirostatmode", "mirostat"},
    {"negativeprompt", NULL},
    {"nindent", NULL},
    {"nkeep", NULL},
    {"npredict", "max_tokens"},
    {"nsigma", "top_n_sigma"},
    {"numpredict", "max_tokens"},
    {"nvext", NULL},
    {"options", NULL},
    {"outputformat", NULL},
    {"parameters", NULL},
    {"randomseed", "seed"},
    {"reasoningbudget", NULL},
    {"reasoningeffort", "reasoning"},
    {"repeatlastn", NULL},
    {"repeatpenalty", "repetition_penalty"},
    {"responseformat", "text"},
    {"samplingseed", "seed"},
    {"smoothingcurve", NULL},
    {"smoothingfactor", NULL},
    {"stopregex", NULL},
    {"stopsequence", "stop"},
    {"stopsequences", "stop"},
    {"stopstrings", "stop"},
    {"stoptokens", "stop_token_ids"},
    {"stopwords", "stop"},
    {"structuraltag", NULL},
    {"system", NULL},
    {"systemprompt", NULL},
    {"template", NULL},
    {"temp", "temperature"},
    {"tfs", NULL},
    {"tfsz", NULL},
    {"thinking", NULL},
    {"thinkingbudget", NULL},
    {"topa", NULL},
    {"typical", "typical_p"},
};

/* A name with any of these words is refused. */
static const char *const words[] = {
    "adapter",  "adapters", "banned",      "beam",       "beams",    "constraint", "constraints", "dry",
    "dynatemp", "ebnf",     "gbnf",        "grammar",    "guidance", "guided",     "logit",       "logits",
    "lora",     "loras",    "mirostat",    "penalties",  "penalty",  "regex",      "sampler",     "samplers",
    "sampling", "schema",   "speculative", "structured", "xtc",
};

/* Reduces a name to lower-case letters and digits in out, 0-terminated. Bit i of *starts
 * is set if a word begins at index i. */
static size_t reduce(str name, char out[LONGEST + 1], uint64_t *starts) {
    size_t n = 0;
    bool begins = true;
    *starts = 0;
    for (size_t i = 0; i < name.n; i++) {
        char c = name.p[i];
        bool upper = c >= 'A' && c <= 'Z', other = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
        if (!upper && !other) {
            begins = true;
            continue;
        }
        bool hump = upper && i > 0 && name.p[i - 1] >= 'a' && name.p[i - 1] <= 'z';
        *starts |= (uint64_t)(begins || hump) << n;
        begins = false;
        out[n++] = upper ? (char)(c - 'A' + 'a') : c;
    }
    out[n] = '\0';
    return n;
}

static bool request_foreign_has_word(const char *reduced, size_t n, uint64_t starts) {
    for (size_t at = 0; at < n; at++) {
        size_t end = at + 1;
        while (end < n && (starts >> end & 1) == 0) {
            end++;
        }
        for (size_t i = 0; (starts >> at & 1) != 0 && i < sizeof words / sizeof *words; i++) {
            if (str_is((str){reduced + at, end - at}, words[i])) {
                return true;
            }
        }
    }
    return false;
}

/* The field of which the name is another spelling; NULL: none. Members of SGLang's
 * sampling_params are matched without their prefix. */
static const field_desc *respelt(const char *reduced, uint32_t endpoint) {
    int32_t n_fields = 0;
    const field_desc *fields = request_fields(&n_fields);
    for (int32_t i = 0; i < n_fields; i++) {
        const field_desc *f = &fields[i];
        const char *dot = strchr(f->name, '.'), *name = dot != NULL ? dot + 1 : f->name;
        char own[LONGEST + 1];
        uint64_t starts;
        if (name[0] != reduced[0] || (f->flags & endpoint) == 0 || (f->flags & FIELD_IGNORED) != 0 ||
            (dot != NULL && (f->flags & FIELD_SGLANG) == 0)) {
            continue;
        }
        reduce(str_of(name), own, &starts);
        if (strcmp(own, reduced) == 0) {
            return f;
        }
    }
    return NULL;
}

/* Whether the name is a chat field that the Messages dialect lacks and must refuse. */
static bool request_foreign_is_chats(const char *reduced, uint32_t endpoint, const char **instead) {
    static const foreign same[] = {{"maxcompletiontokens", "max_tokens"},
                                   {"reasoningeffort", "output_config"},
                                   {"responseformat", "output_config"},
                                   {"stop", "stop_sequences"},
                                   {"paralleltoolcalls", "tool_choice"}};
    bool is_chats = (endpoint & FIELD_MESSAGES_API) != 0 && respelt(reduced, FIELD_CHAT) != NULL;
    for (size_t i = 0; is_chats && i < sizeof same / sizeof *same; i++) {
        if (strcmp(same[i].name, reduced) == 0) {
            *instead = same[i].instead;
        }
    }
    return is_chats;
}

bool foreign_changes_generation(str name, uint32_t endpoint, const char **instead) {
    char reduced[LONGEST + 1];
    uint64_t starts;
    *instead = NULL;
    if (name.n >= LONGEST) {
        return false;
    }
    size_t n = reduce(name, reduced, &starts);
    const field_desc *f = n > 0 ? respelt(reduced, endpoint) : NULL;
    if (f != NULL) {
        *instead = f->name;
        return true;
    }
    if (n > 0 && request_foreign_is_chats(reduced, endpoint, instead)) {
        return true;
    }
    bool is_known = false;
    for (size_t i = 0; i < sizeof others / sizeof *others && *instead == NULL; i++) {
        if (strcmp(others[i].name, reduced) == 0) {
            const char *other = others[i].instead;
            is_known = true;
            *instead = other != NULL && request_field(other, endpoint) != NULL ? other : NULL;
        }
    }
    return is_known || request_foreign_has_word(reduced, n, starts);
}
