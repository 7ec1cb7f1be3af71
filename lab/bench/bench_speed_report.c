#include "lab/bench/bench_speed_report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "lab/bench/figures.h"

typedef struct speed_target {
    const char *name, *type;
    int32_t batch; /* 0: any */
    double fraction;
} speed_target;

static const speed_target targets[] = {
    {"decode", "q4_0", 1, 0.95},  {"decode", "q4_k", 1, 0.95},  {"decode", "q8_0", 1, 0.95},
    {"decode", "bf16", 1, 0.95},  {"decode", "q4_0", 4, 0.70},  {"decode", "int8", 16, 0.75},
    {"decode", "int8", 32, 0.75}, {"decode", "q4_0", 16, 0.65}, {"decode", "q4_0", 32, 0.65},
    {"decode", "q8_0", 16, 0.65}, {"decode", "q8_0", 32, 0.65}, {"prefill", "int8", 0, 0.88},
    {"prefill", "q4_0", 0, 0.72}, {"prefill", "q8_0", 0, 0.72}, {"prefill", "q4_k", 0, 0.72},
    {"prefill", "bf16", 0, 0.90},
};

double speed_goal(const char *name, const char *type, int32_t batch) {
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
        const speed_target *t = &targets[i];
        if (strcmp(t->name, name) == 0 && strcmp(t->type, type) == 0 &&
            (t->batch == 0 || t->batch == batch)) {
            return t->fraction;
        }
    }
    return NAN;
}

double speed_fraction(const speed_line *l) {
    if (l->limit.by == NULL) {
        return NAN;
    }
    return l->less_is_better ? l->limit.value / l->value.mean : l->value.mean / l->limit.value;
}

bool speed_is_met(const speed_line *l) {
    if (l->limit.by != NULL) {
        return speed_fraction(l) >= l->goal;
    }
    return l->less_is_better ? l->value.mean <= l->goal : l->value.mean >= l->goal;
}

/* Prints a row, or lines of the value and its spread. l NULL: the column titles. */
static void bench_speed_report_print(const speed_line *l, bool json) {
    static const speed_line none = {.name = ""};
    const speed_line *of = l != NULL ? l : &none;
    const bool is_limited = of->limit.by != NULL, has_goal = !isnan(of->goal);
    const int32_t numbers[] = {of->prompt, of->batch, of->context};
    static const char *const words[] = {"prompt", "batch", "context"};
    char work[64], spread[64], goal[48] = "";
    const table_column columns[] = {KEY("prompt", NULL, 0, 0),
                                    KEY("batch", NULL, 0, 0),
                                    KEY("context", NULL, 0, 0),
                                    WORD("type", NULL, 0),
                                    WORD("limit_by", NULL, 0),
                                    KEY(is_limited           ? "goal"
                                        : of->less_is_better ? "at_most"
                                                             : "at_least",
                                        NULL, 0, 2),
                                    REMARK("", "work", 38),
                                    FIGURE(of->name, "measured", 12, 2, of->unit),
                                    FIGURE(spread, NULL, 0, 0, of->unit),
                                    FIGURE("", "+- %", 6, 1, ""),
                                    REMARK("", "", 9),
                                    FIGURE("", "limit", 10, 1, ""),
                                    REMARK("", "by", 14),
                                    FIGURE("", "of it %", 7, 1, ""),
                                    REMARK("", "goal", 0)};
    const bench_table t = {"speed", TABLE_COLUMNS(columns), json};
    if (l == NULL) {
        table_begin(&t, NULL);
        return;
    }
    (void)snprintf(spread, sizeof spread, "%s spread", l->name);
    int n = snprintf(work, sizeof work, "%s %s", l->name, l->type);
    table_cell cells[3];
    for (int i = 0; i < 3; i++) { /* in people's rows: batch, prompt, context */
        const int k = i == 2 ? 2 : 1 - i;
        cells[k] = NUM(numbers[k] > 0 ? numbers[k] : TABLE_ABSENT);
        n += numbers[k] > 0 ? snprintf(work + n, sizeof work - (size_t)n, " %s %d", words[k], (int)numbers[k])
                            : 0;
    }
    if (has_goal) {
        (void)snprintf(goal, sizeof goal, is_limited ? "%s %.0f%%: %s" : "%s %g: %s",
                       is_limited || !l->less_is_better ? ">=" : "<=", is_limited ? 100 * l->goal : l->goal,
                       speed_is_met(l) ? "met" : "missed");
    }
    TABLE_ROW(&t, cells[0], cells[1], cells[2], TXT(l->type), TXT(l->limit.by), NUM(l->goal), TXT(work),
              LIMITED(l->value.mean, is_limited ? l->limit.value : 0, speed_fraction(l)),
              NUM(l->value.spread > 0 ? l->value.spread : TABLE_ABSENT),
              NUM(l->value.mean > 0 ? 100 * l->value.spread / l->value.mean : 0), TXT(l->unit),
              NUM(is_limited ? l->limit.value : TABLE_ABSENT), TXT(is_limited ? l->limit.by : "-"),
              NUM(100 * speed_fraction(l)), TXT(goal));
}

void speed_report_begin(bool json) {
    bench_speed_report_print(NULL, json);
}

void speed_report(const speed_line *l, bool json) {
    bench_speed_report_print(l, json);
}

void speed_report_skipped(const char *name, const char *type, const char *why, bool json) {
    if (json) {
        log_line(LOG_WARN, "%s %s: skipped: %s", name, type, why);
    } else {
        printf("%s %s: skipped: %s\n", name, type, why);
        fflush(stdout);
    }
}
