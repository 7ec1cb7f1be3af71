#include "lab/commands/plot.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"

/* In pixels: the picture, and the frame of a diagram in its part of it. */
enum {
    WIDTH = 760,
    PART = 400,
    LEFT = 70,
    RIGHT = 580,
    TOP = 56,
    BOTTOM = 340,
    LEGEND_STEP = 20,
    N_COLOURS = 9
};

/* Told apart without telling red from green (Okabe and Ito 2008). */
static const char *const colours[N_COLOURS] = {"#000000", "#d55e00", "#e69f00", "#cc79a7", "#56b4e9",
                                               "#0072b2", "#009e73", "#f0e442", "#999999"};

typedef struct plot {
    strbuf *out;
    const plot_diagram *d;
    double x0, x1, y0, y1; /* at the frame's edges: logarithms, but of a linear y */
    int32_t top;           /* of its part */
    int32_t n_named;       /* entries of the legend */
} plot;

static double plot_y_scaled(const plot *p, double y) {
    return p->d->y_is_linear ? y : log10(y);
}

static double plot_x(const plot *p, double x) {
    return LEFT + (RIGHT - LEFT) * (log10(x) - p->x0) / (p->x1 - p->x0);
}

static double plot_y(const plot *p, double y) {
    return p->top + BOTTOM - (BOTTOM - TOP) * (plot_y_scaled(p, y) - p->y0) / (p->y1 - p->y0);
}

static void plot_scale(plot *p) {
    p->x0 = p->y0 = INFINITY;
    p->x1 = p->y1 = -INFINITY;
    for (int32_t i = 0; i < p->d->n_lines; i++) {
        for (int32_t k = 0; k < p->d->lines[i].n; k++) {
            plot_point at = p->d->lines[i].points[k];
            p->x0 = fmin(p->x0, log10(at.x) - 0.02);
            p->x1 = fmax(p->x1, log10(at.x) + 0.02);
            p->y0 = fmin(p->y0, plot_y_scaled(p, at.y) - 0.05);
            p->y1 = fmax(p->y1, plot_y_scaled(p, at.y) + 0.05);
        }
    }
    if (p->d->y_is_linear) {
        p->y0 = 0;
        p->y1 = isnan(p->d->level) ? p->y1 : fmax(p->y1, 1.05 * p->d->level);
    }
}

/* A text from outside, as XML. */
static quire_err plot_add_text(strbuf *b, const char *text) {
    for (const char *s = text; *s; s++) {
        bool plain = *s != '<' && *s != '>' && *s != '&' && *s != '"';
        TRY(plain ? strbuf_add_char(b, *s) : strbuf_addf(b, "&#%d;", *s));
    }
    return QUIRE_OK;
}

static quire_err plot_add_label(const plot *p, double x, double y, const char *anchor, const char *text) {
    TRY(strbuf_addf(p->out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", x, y, anchor));
    TRY(plot_add_text(p->out, text));
    return strbuf_add_str(p->out, "</text>\n");
}

static quire_err plot_add_rule(const plot *p, double x0, double y0, double x1, double y1, const char *style) {
    return strbuf_addf(p->out, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" %s/>\n", x0, y0, x1, y1,
                       style);
}

/* The line across or down at v, with its number. */
static quire_err plot_add_tick(const plot *p, bool is_x, double v) {
    static const char style[] = "stroke=\"#ddd\"";
    char text[32];
    snprintf(text, sizeof text, "%g%s", v, is_x ? "" : p->d->y_unit);
    if (is_x) {
        double x = plot_x(p, v);
        TRY(plot_add_rule(p, x, p->top + TOP, x, p->top + BOTTOM, style));
        return plot_add_label(p, x, p->top + BOTTOM + 16, "middle", text);
    }
    double y = plot_y(p, v);
    TRY(plot_add_rule(p, LEFT, y, RIGHT, y, style));
    return plot_add_label(p, LEFT - 6, y + 4, "end", text);
}

/* Ticks of a scale: at 1, 2 and 5 of every power of ten, or, linear, at some ten even
 * steps. */
static quire_err plot_add_ticks(const plot *p, bool is_x, double low, double high) {
    static const double steps[] = {1, 2, 5};
    if (!is_x && p->d->y_is_linear) {
        double power = pow(10, floor(log10(high))), step = high / power > 5 ? power : power / 5;
        for (double v = 0; v <= high; v += step) {
            TRY(plot_add_tick(p, is_x, v));
        }
        return QUIRE_OK;
    }
    for (int i = 3 * (int)floor(low); i < 3 * (int)ceil(high); i++) {
        int power = (i - ((i % 3) + 3) % 3) / 3;
        double v = steps[((i % 3) + 3) % 3] * pow(10, power);
        if (log10(v) > low && log10(v) < high) {
            TRY(plot_add_tick(p, is_x, v));
        }
    }
    return QUIRE_OK;
}

static quire_err plot_add_legend(plot *p, const char *style, const char *name) {
    int32_t y = p->top + TOP + 10 + p->n_named++ * LEGEND_STEP;
    TRY(plot_add_rule(p, RIGHT + 12, y, RIGHT + 38, y, style));
    return plot_add_label(p, RIGHT + 44, y + 4, "start", name);
}

static quire_err plot_add_line(plot *p, const plot_line *l, const char *colour) {
    char style[64];
    snprintf(style, sizeof style, "stroke=\"%s\" stroke-width=\"2\"", colour);
    TRY(strbuf_add_str(p->out, "<polyline points=\""));
    for (int32_t i = 0; i < l->n; i++) {
        TRY(strbuf_addf(p->out, "%s%.1f,%.1f", i > 0 ? " " : "", plot_x(p, l->points[i].x),
                        plot_y(p, l->points[i].y)));
    }
    TRY(strbuf_addf(p->out, "\" fill=\"none\" %s/>\n", style));
    for (int32_t i = 0; i < l->n; i++) {
        TRY(strbuf_addf(p->out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\" fill=\"%s\"/>\n",
                        plot_x(p, l->points[i].x), plot_y(p, l->points[i].y), colour));
    }
    return plot_add_legend(p, style, l->name);
}

/* Where it lies in the frame. */
static quire_err plot_add_level(plot *p) {
    static const char style[] = "stroke=\"#555\" stroke-width=\"1.5\" stroke-dasharray=\"6 4\"";
    double at = plot_y_scaled(p, p->d->level);
    if (isnan(at) || at < p->y0 || at > p->y1) {
        return QUIRE_OK;
    }
    TRY(plot_add_rule(p, LEFT, plot_y(p, p->d->level), RIGHT, plot_y(p, p->d->level), style));
    return p->d->level_name != NULL ? plot_add_legend(p, style, p->d->level_name) : QUIRE_OK;
}

static quire_err plot_add_diagram(strbuf *out, const plot_diagram *d, int32_t i) {
    plot p = {.out = out, .d = d, .top = i * PART};
    plot_scale(&p);
    TRY(strbuf_add_str(out, "<g font-size=\"14\">"));
    TRY(plot_add_label(&p, LEFT, p.top + 22, "start", d->title));
    TRY(strbuf_add_str(out, "</g>"));
    if (d->note != NULL) {
        TRY(plot_add_label(&p, LEFT, p.top + 42, "start", d->note));
    }
    TRY(plot_add_ticks(&p, true, p.x0, p.x1));
    TRY(plot_add_ticks(&p, false, p.y0, p.y1));
    TRY(strbuf_addf(out,
                    "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"none\" stroke=\"#444\"/>\n",
                    LEFT, p.top + TOP, RIGHT - LEFT, BOTTOM - TOP));
    TRY(plot_add_label(&p, (LEFT + RIGHT) / 2.0, p.top + BOTTOM + 36, "middle", d->x_title));
    TRY(plot_add_level(&p));
    for (int32_t k = 0; k < d->n_lines; k++) {
        if (d->lines[k].n > 0) {
            TRY(plot_add_line(&p, &d->lines[k], colours[k % N_COLOURS]));
        }
    }
    return QUIRE_OK;
}

static quire_err plot_draw(strbuf *out, const plot_diagram *diagrams, int32_t n) {
    TRY(strbuf_addf(out,
                    "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d "
                    "%d\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%%\" "
                    "height=\"100%%\" fill=\"white\"/>\n",
                    WIDTH, n * PART, WIDTH, n * PART));
    for (int32_t i = 0; i < n; i++) {
        TRY(plot_add_diagram(out, &diagrams[i], i));
    }
    return strbuf_add_str(out, "</svg>\n");
}

quire_err plot_write(const char *path, const plot_diagram *diagrams, int32_t n, quire_error *err) {
    strbuf out = {0};
    quire_err e = plot_draw(&out, diagrams, n);
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
