/* Latency by rate as an SVG picture: a diagram for each case, a line for each way, both
 * scales logarithmic, the bound dashed. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"
#include "lab/bench/headline_report.h"

/* In pixels: the picture, and the frame of a diagram in its part. */
enum { WIDTH = 760, PART = 330, LEFT = 70, RIGHT = 560, TOP = 36, BOTTOM = 280, LEGEND_STEP = 20 };

/* Okabe and Ito 2008, in the order of headline_way. */
static const char *const colours[] = {"#000000", "#d55e00", "#e69f00", "#cc79a7", "#56b4e9",
                                      "#0072b2", "#009e73", "#f0e442", "#999999"};

typedef struct diagram {
    strbuf *out;
    const headline_case *c;
    double x0, x1, y0, y1; /* logarithms at the frame's edges */
    int32_t top;           /* of its part */
} diagram;

static double x_of(const diagram *d, double rate) {
    return LEFT + (RIGHT - LEFT) * (log10(rate) - d->x0) / (d->x1 - d->x0);
}

static double y_of(const diagram *d, double latency) {
    return d->top + BOTTOM - (BOTTOM - TOP) * (log10(latency) - d->y0) / (d->y1 - d->y0);
}

static void scale(diagram *d) {
    d->x0 = d->y0 = INFINITY;
    d->x1 = d->y1 = -INFINITY;
    for (headline_way w = 0; w < HEADLINE_N_WAYS; w++) {
        for (int32_t i = 0; i < d->c->real[w].n_loads; i++) {
            const headline_load *l = &d->c->real[w].loads[i];
            d->x0 = fmin(d->x0, log10(l->rate));
            d->x1 = fmax(d->x1, log10(l->rate));
            d->y0 = fmin(d->y0, log10(l->latency));
            d->y1 = fmax(d->y1, log10(l->latency));
        }
    }
    d->x0 -= 0.02;
    d->x1 += 0.02;
    d->y0 -= 0.05;
    d->y1 += 0.05;
}

/* A line across at every 1, 2 and 5 of a power of ten. */
static quire_err add_axes(const diagram *d) {
    static const double steps[] = {1, 2, 5};
    for (int power = -9; power < 9; power++) {
        for (int i = 0; i < 3; i++) {
            double v = steps[i] * pow(10, power), at = log10(v);
            if (at > d->y0 && at < d->y1) {
                TRY(strbuf_addf(d->out,
                                "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" stroke=\"#ddd\"/>\n", LEFT,
                                y_of(d, v), RIGHT, y_of(d, v)));
                TRY(strbuf_addf(d->out, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%g ms</text>\n",
                                LEFT - 6, y_of(d, v) + 4, v * 1e3));
            }
            if (at > d->x0 && at < d->x1) {
                TRY(strbuf_addf(d->out,
                                "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\" stroke=\"#ddd\"/>\n",
                                x_of(d, v), d->top + TOP, x_of(d, v), d->top + BOTTOM));
                TRY(strbuf_addf(d->out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%g</text>\n",
                                x_of(d, v), d->top + BOTTOM + 16, v));
            }
        }
    }
    TRY(strbuf_addf(d->out,
                    "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"none\" stroke=\"#444\"/>\n",
                    LEFT, d->top + TOP, RIGHT - LEFT, BOTTOM - TOP));
    return strbuf_addf(d->out, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">requests a second</text>\n",
                       (LEFT + RIGHT) / 2, d->top + BOTTOM + 34);
}

static quire_err add_way(const diagram *d, headline_way w) {
    const headline_sweep *s = &d->c->real[w];
    int32_t y = d->top + TOP + 10 + (int32_t)w * LEGEND_STEP;
    if (s->n_loads == 0) {
        return QUIRE_OK;
    }
    TRY(strbuf_add_str(d->out, "<polyline points=\""));
    for (int32_t i = 0; i < s->n_loads; i++) {
        TRY(strbuf_addf(d->out, "%s%.1f,%.1f", i > 0 ? " " : "", x_of(d, s->loads[i].rate),
                        y_of(d, s->loads[i].latency)));
    }
    TRY(strbuf_addf(d->out, "\" fill=\"none\" stroke=\"%s\" stroke-width=\"2\"/>\n", colours[w]));
    for (int32_t i = 0; i < s->n_loads; i++) {
        TRY(strbuf_addf(d->out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\" fill=\"%s\"/>\n",
                        x_of(d, s->loads[i].rate), y_of(d, s->loads[i].latency), colours[w]));
    }
    TRY(strbuf_addf(d->out,
                    "<line x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\" stroke=\"%s\" stroke-width=\"2\"/>\n",
                    RIGHT + 12, y, RIGHT + 38, y, colours[w]));
    return strbuf_addf(d->out, "<text x=\"%d\" y=\"%d\">%s</text>\n", RIGHT + 44, y + 4,
                       headline_way_name(w));
}

static quire_err add_diagram(strbuf *out, const headline_case *c, int32_t i) {
    diagram d = {.out = out, .c = c, .top = i * PART};
    scale(&d);
    TRY(strbuf_addf(
        out,
        "<text x=\"%d\" y=\"%d\" font-size=\"14\">Mean latency a token by rate: %s, memory %g%%</text>\n",
        LEFT, d.top + 24,
        strcmp(c->lengths, "sharegpt") == 0 || strcmp(c->lengths, "alpaca") == 0 ? c->lengths : "a trace",
        c->share));
    TRY(add_axes(&d));
    if (log10(c->bound) > d.y0 && log10(c->bound) < d.y1) {
        TRY(strbuf_addf(
            out,
            "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" stroke=\"#555\" stroke-dasharray=\"6 4\"/>\n",
            LEFT, y_of(&d, c->bound), RIGHT, y_of(&d, c->bound)));
    }
    for (headline_way w = 0; w < HEADLINE_N_WAYS; w++) {
        TRY(add_way(&d, w));
    }
    return QUIRE_OK;
}

static quire_err draw(strbuf *out, const headline_case *cases, int32_t n) {
    TRY(strbuf_addf(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
        "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" "
        "fill=\"white\"/>\n",
        WIDTH, n * PART, WIDTH, n * PART));
    for (int32_t i = 0; i < n; i++) {
        TRY(add_diagram(out, &cases[i], i));
    }
    return strbuf_add_str(out, "</svg>\n");
}

quire_err headline_draw(const char *path, const headline_case *cases, int32_t n, quire_error *err) {
    strbuf out = {0};
    quire_err e = draw(&out, cases, n);
    if (e != QUIRE_OK) {
        err_set(err, e, -1, "%s: the picture: %s", path, quire_err_text(e));
    } else {
        FILE *f = fopen(path, "w");
        bool good = f != NULL && fwrite(out.p, 1, out.n, f) == out.n;
        good = (f == NULL || fclose(f) == 0) && good;
        e = good ? QUIRE_OK : err_set(err, QUIRE_IO, -1, "%s: %s", path, strerror(errno));
    }
    strbuf_deinit(&out);
    return e;
}
