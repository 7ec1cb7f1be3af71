/* quire-check KIND|all DIR [--json] [--root PATH] [--table] [--only NAME] [--override-kv
 * KEY=TYPE:VALUE,..] [--isa ISA] */
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/mem.h"
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
          "       quire-check all DIR ..: each kind that has a directory DIR/KIND\n"
          "of models: [--only NAME] [--override-kv KEY=TYPE:VALUE,..]\nof attention: [--isa "
          "plain|avx2|avx512|neon]\nkinds:",
          stderr);
    for (size_t i = 0; i < N_KINDS; i++) {
        fprintf(stderr, " %s", kinds[i].name);
    }
    fputs("\n", stderr);
    return 2;
}

static void summary(const check_report *r, const char *kind) {
    if (r->json) {
        printf("{\"passed\":%" PRId64 ",\"failed\":%" PRId64 ",\"unsupported\":%" PRId64 "}\n", r->passed,
               r->failed, r->unsupported);
    } else {
        printf("%s: %" PRId64 " passed, %" PRId64 " failed, %" PRId64 " unsupported\n", kind, r->passed,
               r->failed, r->unsupported);
    }
}

/* One kind; its summary, and the exit status. */
static int run_kind(const char *kind, const char *dir, const char *root, check_report *r) {
    for (size_t i = 0; i < N_KINDS; i++) {
        if (strcmp(kind, kinds[i].name) != 0) {
            continue;
        }
        int status = 0;
        int64_t before = r->passed + r->failed + r->unsupported, failed = r->failed;
        if (kinds[i].run == NULL) {
            check_unsupported(r, kind, "*", "this build cannot check this kind yet");
        } else {
            status = kinds[i].run(dir, root, r);
        }
        if (!r->table) {
            summary(r, kind);
        }
        bool is_empty = status == 0 && r->passed + r->failed + r->unsupported == before;
        if (is_empty) {
            fprintf(stderr, "quire-check: %s: no case was found\n", dir);
        }
        return status != 0 || r->failed > failed || is_empty;
    }
    return usage();
}

/* Every kind that has a directory in dir. Each summary counts those before it too, so the
 * last one is that of all. */
static int run_all(const char *dir, const char *root, check_report *r) {
    int status = 0, n_kinds = 0;
    for (size_t i = 0; i < N_KINDS; i++) {
        char *of_kind = check_path(dir, kinds[i].name);
        struct stat st;
        if (of_kind != NULL && stat(of_kind, &st) == 0) {
            status |= run_kind(kinds[i].name, of_kind, root, r);
            n_kinds++;
        }
        mem_free(of_kind);
    }
    if (n_kinds == 0) {
        fprintf(stderr, "quire-check: %s: there is no directory of a kind\n", dir);
    }
    return n_kinds == 0 ? 1 : status;
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
    if (n_words < 2) {
        return usage();
    }
    return strcmp(words[0], "all") == 0 ? run_all(words[1], root, &r)
                                        : run_kind(words[0], words[1], root, &r);
}
