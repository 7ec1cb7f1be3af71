/* Makes manual pages from the rows of commands and flags. */
#include "cli/dispatch.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "cli/set_flag.h"
#include "quire.h"

enum { LINE_BYTES = 60 };

/* A page being written. After the first failure, which `e` keeps, nothing is appended. */
typedef struct page {
    strbuf *to;
    quire_err e;
    const program *of;
} page;

static void man_page_add(page *p, const char *text) {
    if (p->e == QUIRE_OK) {
        p->e = strbuf_add(p->to, text, strlen(text));
    }
}

/* Appends text escaped for roff: backslashes, requests at the beginning of a line, and
 * hyphens that would become dashes. */
static void man_page_add_text(page *p, str s) {
    bool begins = p->to->n == 0 || p->to->p[p->to->n - 1] == '\n';
    for (size_t i = 0; i < s.n && p->e == QUIRE_OK; i++) {
        char c = s.p[i];
        if (begins && (c == '.' || c == '\'')) {
            man_page_add(p, "\\&");
        }
        if (c == '\\' || c == '-') {
            man_page_add(p, c == '-' ? "\\-" : "\\e");
        } else {
            p->e = strbuf_add(p->to, &c, 1);
        }
        begins = c == '\n';
    }
}

/* Appends a paragraph's text in lines of about 70 bytes. */
static void man_page_add_line(page *p, const char *text) {
    for (size_t column = 0; *text;) {
        size_t n = strcspn(text, " ");
        if (column > 0) {
            man_page_add(p, column + n > LINE_BYTES ? "\n" : " ");
            column = column + n > LINE_BYTES ? 0 : column + 1;
        }
        man_page_add_text(p, (str){text, n});
        column += n;
        text += n + (text[n] == ' ');
    }
    man_page_add(p, "\n");
}

static void add_upper(page *p, const char *text) {
    for (; *text && p->e == QUIRE_OK; text++) {
        char c = (char)toupper((unsigned char)*text);
        man_page_add_text(p, (str){c == ' ' ? "-" : &c, 1});
    }
}

/* Appends the title and the NAME section. */
static void man_page_begin(page *p, const char *name, const char *summary) {
    man_page_add(p, ".TH ");
    add_upper(p, name);
    man_page_add(p, " 1 " QUIRE_MAN_DATE " \"quire ");
    man_page_add(p, quire_version());
    man_page_add(p, "\" \"User Commands\"\n.nh\n.ad l\n.SH NAME\n");
    for (; *name; name++) {
        man_page_add_text(p, (str){*name == ' ' ? "-" : name, 1});
    }
    man_page_add(p, " \\- ");
    man_page_add_line(p, summary);
}

/* ---- flags ---- */

static void add_value(page *p, const flag *f) {
    if (f->value) {
        man_page_add(p, " \\fI");
        man_page_add_text(p, str_of(f->value));
        man_page_add(p, "\\fR");
    }
    const char *between = " ";
    for (const flag_choice *c = f->choices; c && c->spelling; c++) {
        if (flag_choice_is_shown(f, c)) {
            man_page_add(p, between);
            man_page_add_text(p, str_of(c->spelling));
            between = "|";
        }
    }
}

static void man_page_add_flag(page *p, const flag *f, cli_options *defaults) {
    char meaning[COMMAND_MEANING_BYTES];
    strbuf variable = {0};
    man_page_add(p, ".TP\n");
    for (const char *names = f->names; *names;) {
        str name = flag_next_name(&names);
        man_page_add(p, "\\fB");
        man_page_add_text(p, name);
        man_page_add(p, *names ? "\\fR, " : "\\fR");
        if (p->of->variables && variable.n == 0 && f != flags_help && f != flags_help_all) {
            (void)env_flags_name(name, &variable, &p->e);
        }
    }
    add_value(p, f);
    man_page_add(p, "\n");
    command_meaning(defaults, f, meaning, sizeof meaning);
    man_page_add_line(p, meaning);
    if (variable.n > 0) {
        man_page_add(p, "(\\fB");
        man_page_add_text(p, (str){variable.p, variable.n});
        man_page_add(p, "\\fR)\n");
    }
    strbuf_deinit(&variable);
}

static void add_flags(page *p, const command *c) {
    cli_options *defaults = command_options_new(c);
    for (const flag *const *group = c->flags; group && *group; group++) {
        for (const flag *f = *group; f->names; f++) {
            if (flag_is_own(f)) {
                man_page_add_flag(p, f, defaults);
            }
        }
    }
    command_options_free(defaults);
}

static void add_examples(page *p, const char *examples) {
    man_page_add(p, ".nf\n");
    man_page_add_text(p, str_of(examples));
    man_page_add(p, ".fi\n");
}

/* ---- what all pages end with ---- */

static void add_environment(page *p) {
    if (!p->of->variables) {
        return;
    }
    man_page_add(p, ".SH ENVIRONMENT\n");
    man_page_add_line(
        p, "Each flag can be given as a variable too: QUIRE_ and its long name in capitals, with _ for -.");
    man_page_add_line(
        p, "A flag on the command line goes before its variable, and an empty variable counts as none.");
    man_page_add_line(
        p, "A flag without a value is on with 1, true, yes or on, and off with 0, false, no or off.");
    man_page_add_line(p,
                      "The variables of keys are erased from the process's environment once they are read.");
    man_page_add(p, ".PP\n.B NOTIFY_SOCKET\n");
    man_page_add_line(p, "is the socket at which systemd is notified that a server is ready.");
}

static void add_exit_status(page *p) {
    man_page_add(p, ".SH EXIT STATUS\n");
    man_page_add_line(p, "0: done. 1: failed. 2: the command line, or a variable, was not understood. The "
                         "reason is on standard error.");
}

/* Appends SEE ALSO: the pages of quire's commands except `but`, and of the other
 * program. */
static void add_see_also(page *p, const char *but) {
    const command *const *commands = p->of->variables ? p->of->commands : p->of->others;
    man_page_add(p, ".SH SEE ALSO\n");
    for (; *commands; commands++) {
        if (!but || strcmp((*commands)->name, but) != 0) {
            man_page_add(p, "\\fBquire\\-");
            man_page_add_text(p, str_of((*commands)->name));
            man_page_add(p, "\\fR(1),\n");
        }
    }
    man_page_add(p, p->of->variables ? "\\fBquire\\-lab\\fR(1)\n" : "\\fBquire\\fR(1)\n");
}

/* ---- pages ---- */

static void man_page_add_command(page *p, const command *c, bool all) {
    man_page_add(p, all ? ".SS " : ".TP\n\\fB");
    man_page_add_text(p, str_of(c->name));
    man_page_add(p, all ? "\n" : "\\fR\n");
    man_page_add_line(p, c->summary);
    if (all && c->flags) {
        man_page_add(p, ".PP\n\\fB");
        man_page_add_text(p, str_of(c->usage));
        man_page_add(p, "\\fR\n");
        add_flags(p, c);
        man_page_add(p, ".PP\n");
        add_examples(p, c->examples);
    }
}

quire_err man_page_program(const program *of, bool all, strbuf *to) {
    page p = {.to = to, .of = of};
    man_page_begin(&p, of->name, of->summary);
    man_page_add(&p, ".SH SYNOPSIS\n.B ");
    man_page_add_text(&p, str_of(of->name));
    man_page_add(&p, "\n.I COMMAND\n[\\fIMODEL\\fR] [flags]\n.SH DESCRIPTION\n");
    man_page_add_line(
        &p, "MODEL is a .gguf file, a Hugging Face directory, a packed model (quire pack), builtin, a "
            "tiny model inside the program, or "
            "ORG/NAME[:QUANT] of the Hugging Face hub, which is fetched if it is not there yet.");
    man_page_add_line(&p,
                      "`quire help COMMAND` lists a command's flags, `quire help all` all commands; `quire "
                      "--version` prints the version.");
    man_page_add(&p, ".SH COMMANDS\n");
    for (const command *const *c = of->commands; *c; c++) {
        man_page_add_command(&p, *c, all);
    }
    for (const command *const *c = all ? NULL : of->others; c && *c; c++) {
        man_page_add_command(&p, *c, false);
    }
    add_environment(&p);
    add_exit_status(&p);
    add_see_also(&p, NULL);
    return p.e;
}

quire_err man_page_command(const program *of, const command *c, strbuf *to) {
    page p = {.to = to, .of = of};
    char name[64];
    (void)snprintf(name, sizeof name, "quire %s", c->name);
    man_page_begin(&p, name, c->summary);
    man_page_add(&p, ".SH SYNOPSIS\n.B ");
    man_page_add_line(&p, c->usage);
    man_page_add(&p, ".SH OPTIONS\n");
    add_flags(&p, c);
    add_environment(&p);
    add_exit_status(&p);
    man_page_add(&p, ".SH EXAMPLES\n");
    add_examples(&p, c->examples);
    add_see_also(&p, c->name);
    return p.e;
}
