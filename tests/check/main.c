/* quire-check KIND DIR [--json] [--root PATH] [--table] [--only NAME] [--override-kv KEY=TYPE:VALUE,..] [--isa ISA] */
#include <inttypes.h>
#include <stdio.h>

#include "check.h"

/* A kind whose runner is not in this build has no symbol: its pointer is NULL. */
#pragma weak check_models
#pragma weak check_tokenizers
#pragma weak check_templates
#pragma weak check_quants
#pragma weak check_sampling
#pragma weak check_beam
#pragma weak check_lora
#pragma weak check_attention
#pragma weak check_grammar
#pragma weak check_toolparsers
#pragma weak check_schemas
#pragma weak check_texts

static const struct {
    const char *name;
    int (*run)(const char *dir, const char *root, check_report *r);
} kinds[] = {{"models", check_models},       {"tokenizers", check_tokenizers},
             {"templates", check_templates}, {"quants", check_quants},
             {"sampling", check_sampling},   {"beam", check_beam},
             {"lora", check_lora},           {"attention", check_attention},
             {"grammar", check_grammar},     {"toolparsers", check_toolparsers},
             {"schemas", check_schemas},     {"texts", check_texts}};

#define N_KINDS (sizeof kinds / sizeof *kinds)

static int usage(void) {
    fputs("usage: quire-check KIND DIR [--json] [--root PATH] [--table]\n"
          "of models: [--only NAME] [--override-kv KEY=TYPE:VALUE,..]\nof attention: [--isa plain|avx2|avx512|neon]\nkinds:",
          stderr);
    for (size_t i = 0; i < N_KINDS; i++) {
        fprintf(stderr, " %s", kinds[i].name);
    }
    fputs("\n", stderr);
    return 2;
}

static void summary(const check_report *r, const char *kind) {
    if (r->json) {
        printf("{\"passed\":%" PRId64 ",\"failed\":%" PRId64 ",\"unsupported\":%" PRId64 "}\n", r->passed, r->failed, r->unsupported);
    } else {
        printf("%s: %" PRId64 " passed, %" PRId64 " failed, %" PRId64 " unsupported\n", kind, r->passed, r->failed, r->unsupported);
    }
}

int main(int argc, char **argv) {
    const char *words[2] = {NULL, NULL}, *root = NULL;
    int n_words = 0;
    check_report r = {0};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0) {
            r.json = true;
        } else if (strcmp(argv[i], "--table") == 0) {
            r.table = true;
        } else if (strcmp(argv[i], "--root") == 0 && i + 1 < argc) {
            root = argv[++i];
        } else if (strcmp(argv[i], "--only") == 0 && i + 1 < argc) {
            r.only = argv[++i];
        } else if (strcmp(argv[i], "--isa") == 0 && i + 1 < argc) {
            r.isa = argv[++i];
        } else if (strcmp(argv[i], "--override-kv") == 0 && i + 1 < argc) {
            r.override_kv = argv[++i];
        } else if (argv[i][0] != '-' && n_words < 2) {
            words[n_words++] = argv[i];
        } else {
            return usage();
        }
    }
    for (size_t i = 0; n_words == 2 && i < N_KINDS; i++) {
        if (strcmp(words[0], kinds[i].name) != 0) {
            continue;
        }
        int status = 0;
        if (kinds[i].run == NULL) {
            check_unsupported(&r, words[0], "*", "this build cannot check this kind yet");
        } else {
            status = kinds[i].run(words[1], root, &r);
        }
        if (!r.table) {
            summary(&r, words[0]);
        }
        bool is_empty = status == 0 && r.passed + r.failed + r.unsupported == 0;
        if (is_empty) {
            fprintf(stderr, "quire-check: %s: no case was found\n", words[1]);
        }
        return status != 0 || r.failed > 0 || is_empty;
    }
    return usage();
}
