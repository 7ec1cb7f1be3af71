#include "lab/bench/bench_line.h"

#include <math.h>

json_out *bench_line_begin(json_line *l, const char *bench, const char *name) {
    json_out *line = json_line_begin(l);
    json_cstr(json_name(line, "bench"), bench);
    json_cstr(json_name(line, "name"), name);
    json_begin(json_name(line, "params"), '{');
    return line;
}

void bench_line_end(json_line *l, double value, const char *unit) {
    bench_line_end_limited(l, value, unit, (double)NAN, (double)NAN);
}

void bench_line_end_limited(json_line *l, double value, const char *unit, double limit, double fraction) {
    json_out *line = &l->out;
    if (!isfinite(value)) {
        strbuf_deinit(&l->text);
        return;
    }
    json_end(line, '}');
    json_exact(json_name(line, "value"), value);
    json_cstr(json_name(line, "unit"), unit);
    json_exact(json_name(line, "limit"), limit);
    json_exact(json_name(line, "fraction"), fraction);
    json_line_print(l);
}
