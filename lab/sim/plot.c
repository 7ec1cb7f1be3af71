#include "lab/sim/plot.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>

#include "base/str.h"
#include "file/show.h"
#include "options/engine_flags.h"

/* In pixels: the picture, and the frame of the diagram in it. */
enum { WIDTH = 760, HEIGHT = 440, LEFT = 70, RIGHT = 620, TOP = 60, BOTTOM = 370, LEGEND_STEP = 22 };

/* Told apart by those who do not tell red from green, too (Okabe and Ito 2008); unlike in
 * darkness, so they survive grey print. */
static const char *const colours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#000000", "#e69f00"};

typedef struct plot {
    strbuf out;
    const sim_row *rows;
    int32_t n;
    double least, most; /* capacities at the left and right end, log2 */
    double top;         /* hit rate at the upper end */
    double step;        /* between its lines */
} plot;

static double x_of(const plot *p, double pages) {
    return LEFT + (RIGHT - LEFT) * (log2(pages) - p->least) / (p->most - p->least);
}

static double y_of(const plot *p, double rate) {
    return BOTTOM - (BOTTOM - TOP) * rate / p->top;
}

static double pages_of(const sim_row *row) {
    return row->unlimited ? row->result.peak_pages : row->result.n_pages;
}

/* Axes that hold every row: capacity to whole powers of two, hit rate to the next line
 * above. */
static void scale(plot *p) {
    double least = INFINITY, most = 1, top = 0;
    for (int32_t i = 0; i < p->n; i++) {
        least = fmin(least, pages_of(&p->rows[i]));
        most = fmax(most, pages_of(&p->rows[i]));
        top = fmax(top, sim_hit_rate(&p->rows[i]));
    }
    p->least = floor(log2(fmax(1, least)));
    p->most = fmax(p->least + 1, ceil(log2(most)));
    p->step = top > 0.5 ? 0.1 : top > 0.2 ? 0.05 : top > 0.05 ? 0.01 : 0.005;
    p->top = fmin(1, p->step * (floor(top / p->step + 1e-9) + 1));
}

/* A name that came from outside, as XML. */
static quire_err add_name(strbuf *b, const char *name) {
    shown printable = show_name(str_of(name));
    for (const char *s = printable.text; *s; s++) {
        bool plain = *s != '<' && *s != '>' && *s != '&' && *s != '"';
        TRY(plain ? strbuf_add_char(b, *s) : strbuf_addf(b, "&#%d;", *s));
    }
    return QUIRE_OK;
}

/* 1024 is 1k, 1048576 1M; what is no multiple stays as it is. */
static quire_err add_pages(strbuf *b, double pages) {
    if (pages >= 1 << 20) {
        return strbuf_addf(b, "%gM", pages / (1 << 20));
    }
    return pages >= 1024 ? strbuf_addf(b, "%gk", pages / 1024) : strbuf_addf(b, "%g", pages);
}

static quire_err add_head(plot *p, const sim_options *o) {
    const char *slash = strrchr(o->trace, '/');
    TRY(strbuf_addf(
        &p->out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
        "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" "
        "fill=\"white\"/>\n",
        WIDTH, HEIGHT, WIDTH, HEIGHT));
    TRY(strbuf_addf(&p->out,
                    "<text x=\"%d\" y=\"26\" font-size=\"15\">Prompt tokens found in the cache: ", LEFT));
    TRY(add_name(&p->out, slash != NULL ? slash + 1 : o->trace));
    return strbuf_addf(&p->out,
                       "</text>\n<text x=\"%d\" y=\"44\" fill=\"#555\">%d requests, pages of %d tokens, "
                       "reuse by %s, %d open at once</text>\n",
                       LEFT, p->n > 0 ? (int)p->rows[0].result.n_requests : 0, (int)o->page_tokens,
                       flag_choice_name(choices_prefix_cache, (int)o->prefix_cache), (int)o->concurrency);
}

static quire_err add_axes(plot *p, const sim_options *o) {
    strbuf *b = &p->out;
    for (int32_t i = 0; i * p->step <= p->top + 1e-9; i++) {
        double y = y_of(p, i * p->step);
        TRY(strbuf_addf(b, "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" stroke=\"#ddd\"/>\n", LEFT, y,
                        RIGHT, y));
        TRY(strbuf_addf(b, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%g%%</text>\n", LEFT - 8, y + 4,
                        round(1000 * i * p->step) / 10));
    }
    double every = ceil((p->most - p->least) / 12);
    for (double power = p->least; power <= p->most; power += every) {
        double x = x_of(p, exp2(power));
        TRY(strbuf_addf(b, "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\" stroke=\"#ddd\"/>\n", x, TOP, x,
                        BOTTOM));
        TRY(strbuf_addf(b, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">", x, BOTTOM + 18));
        TRY(add_pages(b, exp2(power)));
        TRY(strbuf_add_str(b, "</text>\n"));
    }
    TRY(strbuf_addf(b, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"none\" stroke=\"#444\"/>\n",
                    LEFT, TOP, RIGHT - LEFT, BOTTOM - TOP));
    TRY(strbuf_addf(
        b,
        "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">capacity in pages of %d tokens (1k = 1,024)</text>\n",
        (LEFT + RIGHT) / 2, BOTTOM + 42, (int)o->page_tokens));
    return strbuf_addf(
        b, "<text x=\"18\" y=\"%d\" text-anchor=\"middle\" transform=\"rotate(-90 18 %d)\">hit rate</text>\n",
        (TOP + BOTTOM) / 2, (TOP + BOTTOM) / 2);
}

static quire_err add_legend(plot *p, int32_t place, const char *style, const char *name) {
    int32_t y = TOP + 12 + place * LEGEND_STEP;
    TRY(strbuf_addf(&p->out, "<line x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\" %s/>\n", RIGHT + 14, y,
                    RIGHT + 42, y, style));
    return strbuf_addf(&p->out, "<text x=\"%d\" y=\"%d\">%s</text>\n", RIGHT + 50, y + 4, name);
}

/* The line of one policy with a dot at each capacity; *place counts the legend's
 * entries. */
static quire_err add_policy(plot *p, kv_policy policy, int32_t *place) {
    char style[96];
    snprintf(style, sizeof style, "fill=\"none\" stroke=\"%s\" stroke-width=\"2\"",
             colours[(size_t)policy % (sizeof colours / sizeof *colours)]);
    bool any = false;
    for (int32_t i = 0; i < p->n; i++) {
        const sim_row *row = &p->rows[i];
        if (!row->unlimited && row->policy == policy) {
            TRY(strbuf_addf(&p->out, "%s%.1f,%.1f", any ? " " : "<polyline points=\"", x_of(p, pages_of(row)),
                            y_of(p, sim_hit_rate(row))));
            any = true;
        }
    }
    if (!any) {
        return QUIRE_OK;
    }
    TRY(strbuf_addf(&p->out, "\" %s/>\n", style));
    for (int32_t i = 0; i < p->n; i++) {
        const sim_row *row = &p->rows[i];
        if (!row->unlimited && row->policy == policy) {
            TRY(strbuf_addf(&p->out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\" %s/>\n",
                            x_of(p, pages_of(row)), y_of(p, sim_hit_rate(row)), style));
        }
    }
    return add_legend(p, (*place)++, style, replay_policy_name(policy));
}

static quire_err draw(plot *p, const sim_options *o) {
    static const char unlimited[] =
        "fill=\"none\" stroke=\"#555\" stroke-width=\"1.5\" stroke-dasharray=\"6 4\"";
    scale(p);
    TRY(add_head(p, o));
    TRY(add_axes(p, o));
    int32_t place = 0;
    for (int32_t i = 0; i < p->n; i++) {
        if (p->rows[i].unlimited) {
            double y = y_of(p, sim_hit_rate(&p->rows[i]));
            TRY(strbuf_addf(&p->out, "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" %s/>\n", LEFT, y,
                            RIGHT, y, unlimited));
            TRY(add_legend(p, place++, unlimited, "unlimited"));
        }
    }
    for (int32_t policy = REPLAY_N_POLICIES - 1; policy >= 0; policy--) {
        TRY(add_policy(p, (kv_policy)policy, &place));
    }
    return strbuf_add_str(&p->out, "</svg>\n");
}

quire_err plot_write(const char *path, const sim_options *o, const sim_row *rows, int32_t n,
                     quire_error *err) {
    plot p = {.rows = rows, .n = n};
    quire_err e = draw(&p, o);
    if (e != QUIRE_OK) {
        err_set(err, e, -1, "%s: the picture: %s", path, quire_err_text(e));
    } else {
        FILE *f = fopen(path, "w");
        bool good = f != NULL && fwrite(p.out.p, 1, p.out.n, f) == p.out.n;
        good = (f == NULL || fclose(f) == 0) && good;
        e = good ? QUIRE_OK : err_set(err, QUIRE_IO, -1, "%s: %s", path, strerror(errno));
    }
    strbuf_deinit(&p.out);
    return e;
}
