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

void speed_report_begin(bool json) {
    if (!json) {
        printf("%-38s %12s %8s %-9s %10s  %-14s %7s  %s\n", "work", "measured", "spread", "", "limit", "by",
               "of it", "goal");
    }
}

static void bench_speed_report_print_row(const speed_line *l) {
    char work[64];
    int n = snprintf(work, sizeof work, "%s%s%s", l->name, l->type != NULL ? " " : "",
                     l->type != NULL ? l->type : "");
    if (l->batch > 0) {
        n += snprintf(work + n, sizeof work - (size_t)n, " batch %d", (int)l->batch);
    }
    if (l->prompt > 0) {
        n += snprintf(work + n, sizeof work - (size_t)n, " prompt %d", (int)l->prompt);
    }
    if (l->context > 0) {
        snprintf(work + n, sizeof work - (size_t)n, " context %d", (int)l->context);
    }
    printf("%-38s %12.2f  +-%4.1f%% %-9s", work, l->value.mean,
           l->value.mean > 0 ? 100 * l->value.spread / l->value.mean : 0, l->unit);
    if (l->limit.by != NULL) {
        printf(" %10.1f  %-14s %6.1f%%", l->limit.value, l->limit.by, 100 * speed_fraction(l));
    } else {
        printf(" %10s  %-14s %7s", "-", "-", "-");
    }
    if (isnan(l->goal)) {
        printf("\n");
    } else if (l->limit.by != NULL) {
        printf("  >= %.0f%%: %s\n", 100 * l->goal, speed_is_met(l) ? "met" : "missed");
    } else {
        printf("  %s %g: %s\n", l->less_is_better ? "<=" : ">=", l->goal, speed_is_met(l) ? "met" : "missed");
    }
}

/* Adds the parameters of l that are set. */
static void add_params(json_out *params, const speed_line *l) {
    const struct {
        const char *name;
        int32_t value;
    } numbers[] = {{"prompt", l->prompt}, {"batch", l->batch}, {"context", l->context}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (numbers[i].value > 0) {
            json_int(json_name(params, numbers[i].name), numbers[i].value);
        }
    }
    if (l->type != NULL) {
        json_cstr(json_name(params, "type"), l->type);
    }
    if (l->limit.by != NULL) {
        json_cstr(json_name(params, "limit_by"), l->limit.by);
    }
    if (!isnan(l->goal)) {
        json_exact(json_name(params, l->limit.by != NULL ? "goal"
                                     : l->less_is_better ? "at_most"
                                                         : "at_least"),
                   l->goal);
    }
}

static void bench_speed_report_print_lines(const speed_line *l) {
    char spread[64];
    json_line line;
    add_params(bench_line_begin(&line, "speed", l->name), l);
    bench_line_end(&line, l->value.mean, l->unit, l->limit.by != NULL ? l->limit.value : (double)NAN,
                   speed_fraction(l));
    if (l->value.spread > 0) { /* print the spread of several runs */
        (void)snprintf(spread, sizeof spread, "%s spread", l->name);
        add_params(bench_line_begin(&line, "speed", spread), l);
        bench_line_end(&line, l->value.spread, l->unit, TABLE_ABSENT, TABLE_ABSENT);
    }
}

void speed_report(const speed_line *l, bool json) {
    if (json) {
        bench_speed_report_print_lines(l);
    } else {
        bench_speed_report_print_row(l);
        fflush(stdout);
    }
}

void speed_report_skipped(const char *name, const char *type, const char *why, bool json) {
    if (json) {
        log_line(LOG_WARN, "%s %s: skipped: %s", name, type, why);
    } else {
        printf("%s %s: skipped: %s\n", name, type, why);
        fflush(stdout);
    }
}
