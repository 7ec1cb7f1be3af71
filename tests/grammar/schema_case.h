/* Checks JSON schemas with texts that each must accept or reject. */
#ifndef TESTS_GRAMMAR_SCHEMA_CASE_H
#define TESTS_GRAMMAR_SCHEMA_CASE_H

#include "grammar_case.h"
#include "test.h"

typedef struct schema_case {
    const char *schema, *accepted[6], *rejected[6];
} schema_case;

static inline void check_all(const schema_case *cases, size_t n, const grammar_options *o) {
    for (size_t i = 0; i < n; i++) {
        grammar_case c = case_open(GRAMMAR_SCHEMA, cases[i].schema, o);
        for (size_t k = 0; k < 6 && cases[i].accepted[k] != NULL; k++) {
            case_accepts(&c, cases[i].accepted[k]);
        }
        for (size_t k = 0; k < 6 && cases[i].rejected[k] != NULL; k++) {
            bool final;
            (void)case_take(&c, cases[i].rejected[k], &final);
            if (final) {
                fail_msg("%s must reject %s", cases[i].schema, cases[i].rejected[k]);
            }
        }
        case_close(&c);
    }
}
#define CHECK_ALL(cases, o) check_all(cases, sizeof(cases) / sizeof *(cases), o)

#endif
