#include "jinja/jinja_case.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/rng.h"
#include "test.h"
#include "json/json.h"
#include "json/json_scan.h"

/* ---- language ---- */

TEST(expressions_follow_python) {
    expect("{{ 1 + 2 * 3 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ -2 ** 2 }}", "{}", "7 -4 2 3.5 4");
    expect("{{ 'a' ~ 1 ~ none }} {{ 'ab' * 2 }} {{ [1] + [2] }}", "{}", "a1None abab [1, 2]");
    expect("{{ 1 < 2 < 3 }} {{ 'b' in 'abc' }} {{ 2 not in [1] }} {{ 0 or 'x' }} {{ not 1 and 2 }}", "{}",
           "True True True x False");
    expect("{{ x[0] }}{{ x[-1] }}{{ x[1:] }}{{ x[::-1] }}", "{\"x\":[1,2,3]}", "13[2, 3][3, 2, 1]");
    expect("{{ 'h\xc3\xa9llo'[1] }}{{ 'h\xc3\xa9llo'|length }}{{ 'h\xc3\xa9llo'[1:3] }}", "{}",
           "\xc3\xa9"
           "5\xc3\xa9l");
    expect("{{ 0.1 + 0.2 }} {{ 1e20 }} {{ 1.0 }} {{ 1e-5 }}", "{}", "0.30000000000000004 1e+20 1.0 1e-05");
    expect("{{ 'y' if a else 'n' }}{{ 'y' if b }}", "{\"a\":false,\"b\":0}", "n");
    expect("{{ d.k }}{{ d['k'] }}{{ d.items() | list }}{{ d.missing is defined }}", "{\"d\":{\"k\":1}}",
           "11[('k', 1)]False");
    expect("{{ {'a': [true, none, \"it's\"]} }}", "{}", "{'a': [True, None, \"it's\"]}");
}

TEST(statements_scope_as_jinja_does) {
    expect("{% for x in l %}{{ loop.index }}{{ x }}{{ ',' if not loop.last }}{% else %}none{% endfor %}",
           "{\"l\":[\"a\",\"b\"]}", "1a,2b");
    expect("{% for x in [] %}{% else %}none{% endfor %}", "{}", "none");
    expect("{% set y = 1 %}{% for x in [1] %}{% set y = 2 %}{% endfor %}{{ y }}", "{}", "1");
    expect("{% set n = namespace(y=1) %}{% for x in [1] %}{% set n.y = 2 %}{% endfor %}{{ n.y }}", "{}", "2");
    expect("{% if true %}{% set y = 1 %}{% endif %}{{ y }}", "{}", "1");
    expect("{% for k, v in d | items if v > 1 %}{{ k }}{{ v }}{% endfor %}", "{\"d\":{\"a\":1,\"b\":2}}",
           "b2");
    expect("{% for x in range(9) %}{% if x == 1 %}{% continue %}{% elif x == 3 %}{% break %}{% endif %}{{ x "
           "}}{% endfor %}",
           "{}", "02");
    expect("{% macro f(a, b='d') %}{{ a }}{{ b }}{% endmacro %}{{ f(1) }}{{ f(1, 2) }}{{ f(b=3, a=4) }}",
           "{}", "1d1243");
    expect("{% macro f() %}[{{ caller() }}]{% endmacro %}{% call f() %}x{% endcall %}", "{}", "[x]");
    expect("{% for x in t recursive %}{{ x.n }}{{ loop(x.c) }}{% endfor %}",
           "{\"t\":[{\"n\":1,\"c\":[{\"n\":2,\"c\":[]}]}]}", "12");
    expect("{% set x %}a{{ 1 }}{% endset %}{{ x }}{% filter upper %}b{% endfilter %}{% with y = 3 %}{{ y "
           "}}{% endwith %}",
           "{}", "a1B3");
    expect("{% generation %}{{ 1 }}{% endgeneration %}{% raw %}{{ x }}{% endraw %}{# note #}", "{}",
           "1{{ x }}");
}

TEST(whitespace_is_controlled_by_signs_and_options) {
    expect("  {% if true %}\n  x\n  {% endif %}\ny\n", "{}", "  x\ny");
    expect("a\n  {%- if true -%}\n  x\n  {%- endif %} y", "{}", "ax y");
    expect("a\n  {%+ if true %}b{% endif %}", "{}", "a\n  b");
    expect("{{ 1 }}\n{{- 2 -}}\n 3\n\n", "{}", "123\n");
    expect("a\r\n{# c #}\r\nb\r", "{}", "a\nb");
}

TEST(filters_and_methods_work_on_characters) {
    expect("{{ ' a '|trim }}{{ 'aB'|upper }}{{ 'aB'|lower }}{{ 'they are'|title }}{{ 'stra\xc3\x9f"
           "e'|upper }}",
           "{}", "aABabThey AreSTRASSE");
    expect("{{ d|tojson }} {{ d|tojson(indent=1) }}", "{\"d\":{\"a\":[1,\"\\u00e9</b>\",null,1.5]}}",
           "{\"a\": [1, \"\xc3\xa9</b>\", null, 1.5]} {\n \"a\": [\n  1,\n  \"\xc3\xa9</b>\",\n  null,\n  "
           "1.5\n ]\n}");
    expect("{{ u|selectattr('r', 'equalto', 'x')|map(attribute='n')|join('-') }}",
           "{\"u\":[{\"r\":\"x\",\"n\":1},{\"r\":\"y\",\"n\":2},{\"r\":\"x\",\"n\":3}]}", "1-3");
    expect("{{ [3, 1, 2]|sort|join }}{{ ['b', 'A']|sort(reverse=true)|first }}{{ [1, 2]|sum }}{{ []|first is "
           "defined }}",
           "{}", "123b3False");
    expect("{{ 'a,b,,c'.split(',') }}{{ ' a  b '.split() }}{{ 'a b c'.rsplit(' ', 1) }}", "{}",
           "['a', 'b', '', 'c']['a', 'b']['a b', 'c']");
    expect("{{ '<think>x</think>y'.split('</think>')[-1].lstrip('\\n') }}{{ 'xay'.strip('xy') }}{{ "
           "'ab'.startswith(('b', 'a')) }}",
           "{}", "yaTrue");
    expect("{{ missing|default('d') }}{{ none|default('d') }}{{ ''|default('d', true) }}", "{}", "dNoned");
    expect("{{ 'a\\nb'|indent(2) }}{{ '2.7'|int }}{{ 2.5|round|int }}{{ 'x'|int(9) }}", "{}", "a\n  b229");
    expect("{{ 'x' is string }}{{ {} is mapping }}{{ [] is iterable }}{{ 3 is odd }}{{ 1 is not none }}{{ "
           "true is boolean }}",
           "{}", "TrueTrueTrueTrueTrueTrue");
    expect("{{ strftime_now('%d %b %Y') }}", "{}", "21 Nov 2026");
}

TEST(a_template_error_carries_its_own_words) {
    strbuf out = {0};
    quire_error err;
    assert_int_equal(render("x{{ raise_exception('roles must alternate: ' ~ 3) }}", "{}", &out, &err),
                     QUIRE_BAD_REQUEST);
    assert_string_equal(err.message, "roles must alternate: 3");
    assert_int_equal(out.n, 0);
    refuse("\n {{ a.b.c }}", "{\"a\":{}}", QUIRE_BAD_REQUEST,
           "line 2, column 5: 'dict object' has no attribute 'b'");
    refuse("{{ nothing() }}", "{}", QUIRE_BAD_REQUEST, "'nothing' is undefined");
    refuse("{{ 'a' + 1 }}", "{}", QUIRE_BAD_REQUEST, "can only concatenate str (not \"int\") to str");
    refuse("{{ l.append(1) }}", "{\"l\":[]}", QUIRE_BAD_REQUEST, "unsafe");
    refuse("{{ x.__class__ }}{{ x.__class__.y }}", "{\"x\":1}", QUIRE_BAD_REQUEST, "unsafe");
    strbuf_deinit(&out);
}

TEST(a_namespace_takes_no_names_with_an_underscore) {
    const char *words = "cannot store underscore-prefixed attributes on a namespace, but got '_x'";
    refuse("{% set ns = namespace(_x=1) %}", "{}", QUIRE_BAD_REQUEST, words);
    refuse("{% set ns = namespace() %}{% set ns._x = 1 %}", "{}", QUIRE_BAD_REQUEST, words);
    refuse("{% set ns = namespace() %}{% set ns._x %}text{% endset %}", "{}", QUIRE_BAD_REQUEST, words);
    refuse("{% set ns = namespace() %}{% for i in [1] %}{% set ns.__class__ = i %}{% endfor %}", "{}",
           QUIRE_BAD_REQUEST, "'__class__'");
    refuse("{% set ns = namespace(d) %}{{ ns._x }}", "{\"d\":{\"_x\":1}}", QUIRE_BAD_REQUEST, words);
    expect("{% set ns = namespace() %}{% set ns.x_ = 1 %}{% set _x = 2 %}{{ ns.x_ }}{{ _x }}", "{}", "12");
}

TEST(malformed_templates_are_refused_with_line_and_column) {
    refuse("a\n{% if x %}", "{}", QUIRE_INVALID, "line 2");
    refuse("{% endif %}", "{}", QUIRE_INVALID, "line 1, column 4: Encountered unknown tag 'endif'");
    refuse("\n\n  {{ a b }}", "{}", QUIRE_INVALID,
           "line 3, column 8: expected token 'end of print statement', got 'b'");
    refuse("{{ 'a }}", "{}", QUIRE_INVALID, "unexpected char '");
    refuse("{{ (1 }}", "{}", QUIRE_INVALID, "unexpected }");
    refuse("{# x", "{}", QUIRE_INVALID, "Missing end of comment");
    refuse("{{ x|nosuch }}", "{}", QUIRE_INVALID, "No filter named 'nosuch'");
    refuse("{{ x is nosuch }}", "{}", QUIRE_INVALID, "No test named 'nosuch'");
    refuse("{% break %}", "{}", QUIRE_INVALID, "'break' outside loop");
    refuse("{% set 1 = 2 %}", "{}", QUIRE_INVALID, "can't assign to 'const'");
}

static void expect_text(const char *source, const char *want) {
    strbuf out = {0};
    quire_error err = {0};
    if (render(source, "{}", &out, &err) != QUIRE_OK || !str_is((str){out.p, out.n}, want)) {
        fail_msg("%s gives %s %s, must %s", source, out.n > 0 ? out.p : "", err.message, want);
    }
    strbuf_deinit(&out);
}

TEST(integers_have_any_size) {
    expect_text("{{ 10 ** 30 // 7 }} {{ -(10 ** 30) % 7 }} {{ -(10 ** 30) // 7 }}",
                "142857142857142857142857142857 6 -142857142857142857142857142858");
    expect_text(
        "{{ (2 ** 64 - 1) * (2 ** 64 + 1) == 2 ** 128 - 1 }} {{ 2 ** 70 / 2 ** 69 }} {{ 2 ** 64 > 1.5 }}",
        "True 2.0 True");
    expect_text("{{ (2 ** 70) ** -1 == 2.0 ** -70 }} {{ (10 ** 30) ** -2 }}", "True 1e-60");
    refuse("{{ (10 ** 400) ** -1 }}", "{}", QUIRE_BAD_REQUEST, "int too large to convert to float");
    strbuf out = {0};
    quire_error err = {0};
    assert_int_equal(render("{{ 10 ** 100000 }}", "{}", &out, &err), QUIRE_TOO_LARGE);
    strbuf_deinit(&out);
}

TEST(values_are_formatted_as_in_python) {
    expect_text("{{ '%05d|%-4s|%.2f|%x' % (42, 'ab', 2.5, 255) }}", "00042|ab  |2.50|ff");
    expect_text("{{ '{:>5}|{:,}|{!r}|{{}}'.format('a', 1234567, 'b') }}", "    a|1,234,567|'b'|{}");
    expect_text("{{ '\xce\x9f\xce\x94\xce\x9f\xce\xa3'.lower() }}{{ '\xc4\xb0'.lower()|length }}",
                "\xce\xbf\xce\xb4\xce\xbf\xcf\x82"
                "2");
}

/* A set of two templates, of which the first is rendered. */
static quire_err render_of_set(const char *source, const char *other, strbuf *out, quire_error *err) {
    jinja_set set = {0};
    jinja_options options = {.set = &set};
    jinja_program *main = NULL, *base = NULL;
    quire_err e = jinja_open(str_of(other), options, &base, err);
    e = e == QUIRE_OK ? jinja_open(str_of(source), options, &main, err) : e;
    if (e == QUIRE_OK) {
        set.n = 2;
        set.named[0].name = str_of("default");
        set.named[0].program = main;
        set.named[1].name = str_of("base");
        set.named[1].program = base;
        e = jinja_render(main, str_of("{\"who\":\"me\"}"), &clock_at, out, NULL, err);
    }
    jinja_close(main);
    jinja_close(base);
    return e;
}

static void expect_of_set(const char *source, const char *other, const char *want) {
    strbuf out = {0};
    quire_error err = {0};
    if (render_of_set(source, other, &out, &err) != QUIRE_OK ||
        !str_is((str){out.n > 0 ? out.p : "", out.n}, want)) {
        fail_msg("%s with %s gives %s %s, must %s", source, other, out.n > 0 ? out.p : "", err.message, want);
    }
    strbuf_deinit(&out);
}

/* As jinja2 3.1.6 with a DictLoader of the two. */
TEST(templates_include_import_and_extend_one_another) {
    expect_of_set("{% include 'base' %}!", "hi {{ who }}", "hi me!");
    expect_of_set("{% set x = 1 %}{% for i in [5] %}{% include 'base' %}{% endfor %}", "{{ x }}{{ i }}",
                  "15");
    expect_of_set("{% set x = 1 %}{% include 'base' without context %}{% include ['none', 'base'] %}",
                  "[{{ x }}{{ who }}]", "[][1me]");
    expect_of_set("a{% include 'none' ignore missing %}b", "", "ab");
    expect_of_set("{% import 'base' as m %}{{ m.f(2) }}{{ m.x }}{{ m._y is defined }}{{ m }}",
                  "T{% macro f(a) %}<{{ a }}{{ who }}>{% endmacro %}{% set x = 3 %}{% set _y = 4 %}",
                  "<2>3FalseT");
    expect_of_set("{% import 'base' as m with context %}{{ m.f(2) }}",
                  "{% macro f(a) %}<{{ a }}{{ who }}>{% endmacro %}", "<2me>");
    expect_of_set("{% from 'base' import f as g, x, %}{{ g() }}{{ x }}",
                  "{% macro f() %}f{% endmacro %}{% set x = 3 %}", "f3");
    expect_of_set("{% from 'base' import none_such %}{{ none_such is defined }}", "", "False");
    expect_of_set("lost{% extends 'base' %}lost{% block b %}child{{ super() }}{% endblock %}lost",
                  "<{% block b %}base{% endblock %}|{{ self.b() }}>", "lost<childbase|childbase>");
    expect_of_set("{% extends 'base' %}{% set x = 7 %}{% block b %}{{ x }}{% endblock %}",
                  "{% block a %}a{% endblock %}{% block b %}{% endblock %}", "a7");
    expect_of_set("{% block a %}in{% endblock a %}|{{ self.a() }}{{ self }}", "",
                  "in|in<TemplateReference None>");
    expect_of_set("{% for i in [1, 2] %}{% block a scoped %}{{ i }}{% endblock %}{% endfor %}", "", "12");
    expect_of_set("{% set i = 0 %}{% for i in [1, 2] %}{% block a %}{{ i }}{% endblock %}{% endfor %}", "",
                  "00");
}

static void refuse_of_set(const char *source, const char *other, const char *words) {
    strbuf out = {0};
    quire_error err = {0};
    if (render_of_set(source, other, &out, &err) == QUIRE_OK || strstr(err.message, words) == NULL) {
        fail_msg("%s with %s gives %s, must %s", source, other, err.message, words);
    }
    strbuf_deinit(&out);
}

TEST(another_template_that_is_missing_or_endless_is_an_error) {
    refuse_of_set("{% include 'none' %}", "",
                  "line 1, column 4: there is no template named none; there are: default, base");
    refuse_of_set("{% include ['none', 'nor'] %}", "", "there is no template named ['none', 'nor']");
    refuse_of_set("{% include 'default' %}", "", "recurses");
    refuse_of_set("{% extends 'default' %}", "", "extend one another");
    refuse_of_set("{% extends 'base' %}{% extends 'base' %}", "", "extended multiple times");
    refuse_of_set("{% extends 'base' %}", "{% block b required %}{% endblock %}",
                  "Required block 'b' not found");
    refuse_of_set("{% block b %}{{ super() }}{% endblock %}", "", "there is no parent block called 'b'");
    refuse_of_set("{% block b %}{% endblock %}{% block b %}{% endblock %}", "", "block 'b' defined twice");
    refuse("{% include 'x' %}", "{}", QUIRE_BAD_REQUEST, "no loader for this environment specified");
}

/* Each as jinja2 3.1.6 renders it. */
TEST(jinjas_rarer_functions_give_what_it_gives) {
    static const char *const table[][2] = {
        {"{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{% set j = "
         "joiner('|') %}{{ j() }}x{{ j() "
         "}}y",
         "ababx|y"},
        {"{{ [{'g': 1, 'v': 'a'}, {'g': 2, 'v': 'b'}, {'g': 1, 'v': 'c'}] | groupby('g') | map('last') | "
         "list }}",
         "[[{'g': 1, 'v': 'a'}, {'g': 1, 'v': 'c'}], [{'g': 2, 'v': 'b'}]]"},
        {"{{ 'a very long sentence that goes on' | truncate(20) }}{{ 'abcdefghij' | truncate(5, true, '>', "
         "0) }}",
         "a very long...abcd>"},
        {"{{ 'a-b--c- -d--e well-known to:x ab-cd-ef' | wordwrap(5) }}|{{ 'longword-with-hyphens x' | "
         "wordwrap(6) }}|{{ 'ab- cd' | "
         "wordwrap(3, false) }}",
         "a-b--\nc- -d\n--e\nwell-\nknown\nto:x\nab-\ncd-ef|longwo\nrd-\nwith-h\nyphens\nx|ab-\ncd"},
        {"{{ 'one two three four' | wordwrap(9) }}", "one two\nthree\nfour"},
        {"{{ 'a b/&' | urlencode }}{{ {'a': 1, 'class': 'x<y', 'n': none} | xmlattr }}",
         "a%20b/%26 a=\"1\" class=\"x&lt;y\""},
        {"{{ 1234567 | filesizeformat }} {{ 1234567 | filesizeformat(true) }} {{ '<b>x</b> &amp; y' | "
         "striptags }}",
         "1.2 MB 1.2 MiB x & y"},
        {"{% macro m(a, b=1) %}{{ varargs }}{% endmacro %}{{ m.name }}{{ m.arguments }}{{ m.catch_varargs "
         "}}{{ m(1, 2, 3) }}",
         "m('a', 'b')True(3,)"},
        {"{% macro m(a, b=1) %}{{ a }}{{ b }}{{ caller() }}{% endmacro %}{% call m(*[7], **{'b': 8}) %}c{% "
         "endcall %}",
         "78c"},
        {"{% autoescape true %}{{ '<' }}{{ '<' | safe }}{% endautoescape %}{{ '%s-%05.1f' % ('a', 2.25) }}{{ "
         "'{0:>4}{x!r}'.format(1, "
         "x='q') }}",
         "&lt;<a-002.2   1'q'"},
        {"{{ 2 ** 100 }} {{ -7 // 2 }} {{ (10 ** 25) % 97 }} {{ 10 ** 20 | int }}",
         "1267650600228229401496703205376 -4 71 100000000000000000000"},
        {"{{ '\\u0130'.lower() | length }}{{ '\\u039f\\u0394\\u039f\\u03a3'.lower() }}{{ range(3) }}{{ "
         "{}.items() }}",
         "2\xce\xbf\xce\xb4\xce\xbf\xcf\x82range(0, 3)dict_items([])"},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        expect_text(table[i][0], table[i][1]);
    }
}

TEST(what_python_refuses_is_refused) {
    const char *v =
        "{\"f\":2.5,\"d\":{\"a\":1},\"l\":[1],\"s\":\"ab\",\"y\":true,\"big\":12345678901234567890123}";
    refuse("{{ f[1:2] }}", v, QUIRE_BAD_REQUEST, "not subscriptable");
    refuse("{{ d[:-1] }}", v, QUIRE_BAD_REQUEST, "unhashable");
    expect("[{{ (2.5)[1:2] }}]{{ range(10)[2:7][::-2] }}{{ range(5)[1:] | list }}", v,
           "[]range(6, 1, -2)[1, 2, 3, 4]");
    expect("{{ range(0, 9223372036854775807, 4611686018427387904)[:1] }}", v,
           "range(0, 4611686018427387904, 4611686018427387904)");
    refuse("{{ 'x' | filesizeformat }}{{ l | filesizeformat }}", v, QUIRE_BAD_REQUEST, "a size");
    refuse("{% filter length %}ab{% endfilter %}", v, QUIRE_BAD_REQUEST, "must be a text");
    refuse("{{ s | groupby('age') }}", v, QUIRE_BAD_REQUEST, "has no attribute 'age'");
    refuse("{{ d is filter }}", v, QUIRE_BAD_REQUEST, "unhashable");
    refuse("{{ '{:5}'.format(l) }}", v, QUIRE_BAD_REQUEST, "unsupported format string");
    refuse("{{ '{:.3}'.format(y) }}", v, QUIRE_BAD_REQUEST, "Precision not allowed");
    refuse("{{ '{:,}'.format(s) }}", v, QUIRE_BAD_REQUEST, "Cannot specify ','");
    refuse("{{ '%d' % nothing }}", v, QUIRE_BAD_REQUEST, "'nothing' is undefined");
    refuse("{{ '%(a)s' % nothing }}", v, QUIRE_BAD_REQUEST, "'nothing' is undefined");
    refuse("{{ dict(s) }}", v, QUIRE_BAD_REQUEST, "2 is required");
    refuse("{{ nothing | xmlattr }}", v, QUIRE_BAD_REQUEST, "'nothing' is undefined");
    expect(
        "{{ dict([['k', 1], 'ab']) }}{{ '{:^7}'.format(y) }}{{ '{:+}'.format(y) }}[{{ '{0[0]}'.format(f) }}]",
        v, "{'k': 1, 'a': 'b'}   1   +1[]");
    expect("{{ l | truncate(5) }}{{ nothing | truncate(5) }}{{ 'abcdef' | slice(3, 'z') | list }}", v,
           "[1][['a', 'b', 'z'], ['c', 'd', 'z'], ['e', 'f', 'z']]");
    expect("{{ 2.5 | round(-1) }} {{ 25.0 | round(-1) }} {{ -35.0 | round(-1) }} {{ 999.5 | round(-3) }} {{ "
           "2.5 | round }} {{ big | round(1) "
           "}}",
           v, "0.0 20.0 -40.0 1000.0 2.0 12345678901234567890123");
    expect("{{ '{!a}|%a'.format('\u00e9') % '\u6f22' }}{{ '\\x00'.format() | length }}", v,
           "'\\xe9'|'\\u6f22'1");
}

TEST(a_format_that_is_not_a_text_uses_its_text) {
    expect("{{ l | format }}{{ 5 | format }}{{ l | map('upper') | format }}", "{\"l\":[\"a\"]}",
           "['a']5<generator object>");
}

TEST(methods_of_escaped_strings_are_refused_unless_they_escape) {
    static const char *const calls[] = {"replace('&', '<b>')", "join(['<', '&'])", "split('&')", "upper()"};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        char source[64];
        (void)snprintf(source, sizeof source, "{{ ('a<b' | e).%s }}", calls[i]);
        refuse(source, "{}", QUIRE_UNSUPPORTED, "escaped string");
    }
    expect("{{ ('{}' | e).format('<') }}{{ ('{a}' | e).format_map({'a': '>'}) }}", "{}", "&lt;&gt;");
}

TEST(what_no_published_template_uses_is_refused_by_name) {
    static const char *const calls[][2] = {{"'a' | urlize", "urlize"},
                                           {"l | pprint", "pprint"},
                                           {"lipsum()", "lipsum"},
                                           {"'a'.encode('utf-16')", "encode"},
                                           {"'a'.translate({})", "translate"},
                                           {"''.maketrans({})", "maketrans"}};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        char source[64], message[64];
        (void)snprintf(source, sizeof source, "{{ %s }}", calls[i][0]);
        (void)snprintf(message, sizeof message, "%s is not supported", calls[i][1]);
        refuse(source, "{\"l\":[1]}", QUIRE_UNSUPPORTED, message);
    }
    refuse("{{ '\\N{BULLET}' }}", "{}", QUIRE_UNSUPPORTED,
           "characters by name are not supported: \\N{BULLET}");
    /* as a template that asks first sees them */
    expect_text("{{ lipsum is defined }}{{ 'urlize' is filter }}", "TrueTrue");
}

TEST(what_jinja_leaves_to_chance_is_the_same_in_each_render) {
    expect_text("{{ ['a', 'b'] | random in 'ab' }}{{ ([] | random) is defined }}{{ 'x' | random }}",
                "TrueFalsex");
    strbuf out[2] = {{0}, {0}};
    quire_error err = {0};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(render("{{ range(1000) | random }}{{ range(1000) | random }}", "{}", &out[i], &err),
                         QUIRE_OK);
    }
    assert_true(str_eq((str){out[0].p, out[0].n}, (str){out[1].p, out[1].n}));
    strbuf_deinit(&out[0]);
    strbuf_deinit(&out[1]);
}

/* Each as jinja2 3.1.6 renders it. */
TEST(containers_find_an_object_that_does_not_equal_itself) {
    const char *v = "{\"t\":\"nan\"}";
    expect("{% set n = t|float %}{{ n in [n] }}{{ [n] == [n] }}{{ {'a': n} == {'a': n} }}{{ (n,) < (n,) }}{{ "
           "[n, 1] < [n, 2] }}",
           v, "TrueTrueTrueFalseTrue");
    expect("{% set n = t|float %}{{ n == n }}{{ n != n }}{{ n is eq n }}", v, "FalseTrueFalse");
    expect(
        "{% set n = t|float %}{{ [n].count(n) }}{{ [n].index(n) }}{{ {n: 1}[n] }}{{ {n: 1, n: 2}|length }}",
        v, "1011");
    expect("{% set n = t|float %}{{ [n, n]|unique|list|length }}{% for i in [n, n] %}{{ loop.changed(i) }}{% "
           "endfor %}",
           v, "1TrueFalse");
    expect("{% set n = t|float %}{{ [{'g': n}, {'g': n}]|groupby('g')|length }}", v, "1");
    expect(
        "{{ [range(3)] == [range(3)] }}{{ [1, 2.0, true] == [true, 2, 1] }}{{ {(1, (2,)): 3}[(1.0, (2,))] }}",
        v, "TrueTrue3");
}

TEST(numbers_compare_exactly_and_divide_as_in_python) {
    expect(
        "{{ 9223372036854775807 < 9223372036854775808.0 }}{{ 9223372036854775807 >= 9223372036854775808.0 }}"
        "{{ 9223372036854775808.0 > 9223372036854775807 }}{{ -9223372036854775808.0 <= -9223372036854775807 "
        "}}",
        "{}", "TrueFalseTrueTrue");
    expect(
        "{{ 1 < 1.5 }}{{ -1 > -1.5 }}{{ 2 > 1.5 }}{{ 0 > -0.5 }}{{ 9007199254740993 > 9007199254740992.0 }}",
        "{}", "TrueTrueTrueTrueTrue");
    expect("{{ 1 < (t|float) }}{{ 1 >= (t|float) }}{{ ('inf'|float) > 1 }}{{ 1 > -('inf'|float) }}",
           "{\"t\":\"nan\"}", "FalseFalseTrueTrue");
    expect("{{ 5.0 // -('inf'|float) }} {{ -5.0 // ('inf'|float) }} {{ 5.0 // ('inf'|float) }} {{ "
           "('inf'|float) // 2.0 }}",
           "{}", "-1.0 -1.0 0.0 nan");
    expect(
        "{{ 7.5 // 2 }} {{ -7.5 // 2 }} {{ 0.0 // -2.0 }} {{ 1.0 // 0.1 }} {{ -1.0 // 3 }} {{ 6.0 // -3.0 }}",
        "{}", "3.0 -4.0 -0.0 9.0 -1.0 -2.0");
}

TEST(filters_and_members_take_what_jinjas_take) {
    expect("{{ (['a','b']|map('upper')|reverse)|length }}{{ ['a','b']|map('upper')|reverse }}{{ "
           "[1,2]|reverse|reverse }}",
           "{}", "2['B', 'A'][1, 2]");
    refuse("{{ ([1, 2]|reverse)|length }}", "{}", QUIRE_BAD_REQUEST, "has no len()");
    expect("{{ x|tojson }}{{ x|tojson(ensure_ascii=true) }}", "{\"x\":\"a\\u007f\\u00e9\"}",
           "\"a\x7f\xc3\xa9\"\"a\\u007f\\u00e9\"");
    expect("{{ 'nan'|float|int }}{{ 'nan'|float|int(7) }}{{ 'inf'|int(8) }}", "{}", "078");
    refuse("{{ 'inf'|float|int }}", "{}", QUIRE_BAD_REQUEST, "cannot convert inf");
    expect("{{ ('1'*200)|float }} {{ ('1'*400)|float }} {{ ('0'*500 ~ '1.5')|float }} {{ ('1_' * 100 ~ "
           "'1')|float }}",
           "{}", "1.1111111111111111e+199 inf 1.5 1.111111111111111e+100");
    expect("{{ ('1'*200 ~ 'x')|float(3) }}{{ ('1' * 200 ~ '.5')|int > 10 ** 199 }}", "{}", "3True");
    expect("{{ '1\\x00'|float(4) }}{{ ('1' * 200 ~ '\\x00')|float(5) }}", "{}", "45");
    expect("{{ {'__x': 1}.__x }}{{ {'__x__': 2}.__x__ }}[{{ {'__class__': 3}.__class__ }}]{{ {'__class__': "
           "4}['__class__'] }}",
           "{}", "12[]4");
    expect("{{ {}.__x is defined }}{{ {'__len__': 5}.__len__ is defined }}{{ [].__x is defined }}", "{}",
           "FalseFalseFalse");
}

TEST(a_jump_out_of_a_captured_body_drops_it) {
    expect("{% for i in [1, 2] %}{% filter upper %}a{% break %}b{% endfilter %}c{% endfor %}|", "{}", "|");
    expect("{% for i in [1, 2] %}{% filter upper %}a{% if i == 1 %}{% continue %}{% endif %}b{% endfilter "
           "%}c{% endfor %}|",
           "{}", "ABc|");
    expect("{% set n = namespace(x=0) %}{% for i in [1, 2] %}{% set n.x %}a{% if i == 2 %}{% break %}{% "
           "endif %}{{ i }}{% endset %}"
           "{% endfor %}{{ n.x }}",
           "{}", "a1");
    expect("{% set n = namespace(x=0) %}{% for i in [1, 2] %}{% set n.x | upper %}a{% continue %}{% endset "
           "%}{% endfor %}{{ n.x }}",
           "{}", "0");
}

/* The origin of each byte of a rendering: t for the template's, i for those of the
 * variables. */
static void expect_origins(const char *source, const char *variables, const char *text, const char *origins) {
    jinja_program *p;
    strbuf out = {0}, got = {0};
    jinja_spans input = {0};
    quire_error err = {0};
    assert_int_equal(jinja_open(str_of(source), chat, &p, &err), QUIRE_OK);
    if (jinja_render(p, str_of(variables), &clock_at, &out, &input, &err) != QUIRE_OK) {
        fail_msg("%s: %s", source, err.message);
    }
    for (size_t i = 0, k = 0; i < out.n; i++) {
        k += k < input.n && input.spans[k].end <= i;
        strbuf_add_char(&got, k < input.n && input.spans[k].start <= i ? 'i' : 't');
    }
    if (!str_is((str){out.p, out.n}, text) || !str_is((str){got.p, got.n}, origins)) {
        fail_msg("%s gives %s, %s", source, out.p, got.p);
    }
    jinja_spans_deinit(&input);
    strbuf_deinit(&out);
    strbuf_deinit(&got);
    jinja_close(p);
}

TEST(each_byte_keeps_its_origin) {
    const char *v = "{\"x\":\"ab\",\"n\":12,\"l\":[\"p\",\"q\"],\"u\":\"http://a.com\"}";
    expect_origins("<{{ x }}>", v, "<ab>", "tiit");
    expect_origins("{{ 'c' ~ x ~ 'd' }}{{ x + x }}{{ x * 2 }}{{ ('c' + x) * 2 }}", v,
                   "cabdabababab"
                   "cabcab",
                   "tiitiiiiiiii"
                   "tiitii");
    expect_origins("{{ ('c' ~ x ~ 'd')[1:3] }}{{ ('c' ~ x)[::-1] }}{{ ('c' ~ x) | upper }}", v, "abbacCAB",
                   "iiiittii");
    expect_origins("{{ x.replace('a', 'z') }}{{ 'zaz'.replace('a', x) }}{{ x.center(4) }}{{ l | join('-') }}",
                   v, "zbzabz ab p-q",
                   "titiittiit"
                   "iti");
    expect_origins("{{ n }}{{ n + 1 }}{{ l | tojson }}{{ '%s|%d' % (x, n) }}{{ '{}'.format(x) }}", v,
                   "1213[\"p\", \"q\"]ab|12ab",
                   "iiiiiiii"
                   "tt"
                   "iiii"
                   "iitii"
                   "ii");
    expect_origins(
        "{% macro m(a) %}[{{ a }}]{% endmacro %}{{ m(x) }}{% set s %}<{{ x }}>{% endset %}{{ s[1:] }}", v,
        "[ab]ab>", "tiitiit");
    expect_origins("{{ [x, 'c'] }}{{ x | length }}", v, "['ab', 'c']2", "tiiiitttttti");
}

TEST(a_failed_render_leaves_the_output_as_it_was) {
    strbuf out = {0};
    strbuf_add_str(&out, "before");
    assert_int_equal(render("text{{ 1 / 0 }}", "{}", &out, NULL), QUIRE_BAD_REQUEST);
    assert_int_equal(render("text", "[1]", &out, NULL), QUIRE_INVALID);
    assert_int_equal(render("text", "{\"a\":", &out, NULL), QUIRE_INVALID);
    assert_true(str_is((str){out.p, out.n}, "before"));
    assert_int_equal(render("text", "{}", &out, NULL), QUIRE_OK);
    assert_true(str_is((str){out.p, out.n}, "beforetext"));
    strbuf_deinit(&out);
}

/* ---- recorded vectors ---- */

static char *read_file(const char *path, size_t *n) {
    FILE *f = fopen(path, "rb");
    if (f == NULL) {
        return NULL;
    }
    char *bytes = malloc(1 << 22);
    *n = fread(bytes, 1, (1 << 22) - 1, f);
    bytes[*n] = '\0';
    fclose(f);
    return bytes;
}

static const char *shared(void) {
    const char *path = getenv("QUIRE_SHARED");
    return path != NULL ? path : "../shared";
}

/* Every truncation and many mutations of real templates: refused or rendered, never
 * worse. */
TEST(mutated_templates_never_crash) {
    char pattern[4096];
    glob_t found;
    snprintf(pattern, sizeof pattern, "%s/data/templates/chat/*.jinja", shared());
    if (glob(pattern, 0, NULL, &found) != 0) {
        print_message("SKIP: no %s\n", pattern);
        skip();
    }
    static const char *const pieces[] = {"{{",
                                         "}}",
                                         "{%",
                                         "%}",
                                         "{#",
                                         "-",
                                         "(",
                                         ")",
                                         "[",
                                         "]",
                                         "{",
                                         "}",
                                         "'",
                                         "|",
                                         ".",
                                         " if ",
                                         " for ",
                                         " in ",
                                         "%}{% endfor %}",
                                         "loop",
                                         "messages",
                                         "**",
                                         "99999999999",
                                         "\xff",
                                         "\\",
                                         "namespace(",
                                         " is ",
                                         "~",
                                         ":",
                                         ","};
    const char *variables = "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"},{\"role\":\"assistant\","
                            "\"content\":\"a\",\"tool_calls\":[{\"function\":"
                            "{\"name\":\"f\",\"arguments\":{\"x\":1}}}]}],\"tools\":[{\"type\":\"function\","
                            "\"function\":{\"name\":\"f\"}}]}";
    uint64_t seed = rng_os_seed(), rng = seed;
    print_message("seed %llu\n", (unsigned long long)seed);
    int opened = 0;
    for (int round = 0; round < 1500; round++) {
        size_t n = 0;
        char *bytes = read_file(found.gl_pathv[rng_next(&rng) % found.gl_pathc], &n);
        assert_true(bytes != NULL && n > 0);
        strbuf source = {0};
        size_t cut = rng_next(&rng) % 4 == 0 ? rng_next(&rng) % n : n, at = 0;
        for (uint64_t k = rng_next(&rng) % 3; k > 0 && at < cut; k--) {
            size_t next = at + rng_next(&rng) % (cut - at);
            strbuf_add(&source, bytes + at, next - at);
            strbuf_add_str(&source, pieces[rng_next(&rng) % (sizeof pieces / sizeof pieces[0])]);
            at = next + rng_next(&rng) % 3;
        }
        strbuf_add(&source, bytes + at, at < cut ? cut - at : 0);
        strbuf out = {0};
        jinja_program *p;
        quire_error err = {0};
        if (jinja_open((str){source.p, source.n}, chat, &p, &err) == QUIRE_OK) {
            quire_err e = jinja_render(p, str_of(variables), &clock_at, &out, NULL, &err);
            assert_true(e == QUIRE_OK || (err.code == e && err.message[0] != '\0'));
            opened++;
        } else {
            assert_null(p);
            assert_true(err.message[0] != '\0');
        }
        jinja_close(p);
        strbuf_deinit(&out);
        strbuf_deinit(&source);
        free(bytes);
    }
    print_message("%d of 1500 opened\n", opened);
    globfree(&found);
}

/* The language vectors, whole and with every case refused as unsupported counted
 * apart. */
TEST(the_language_vectors_render_as_recorded) {
    char path[4096];
    snprintf(path, sizeof path, "%s/golden/templates/jinja.jsonl", shared());
    FILE *f = fopen(path, "r");
    if (f == NULL) {
        print_message("SKIP: no %s\n", path);
        skip();
    }
    int passed = 0, unsupported = 0;
    size_t cap = 0;
    char *line = NULL;
    while (getline(&line, &cap, f) > 0) {
        json_value *record = json_document(str_of(line));
        str variables;
        assert_int_equal(json_scan_member(str_of(line), "context", &variables), QUIRE_OK);
        json_value *source = json_get(record, "template"), *want = json_get(record, "expected");
        jinja_options options = {.trim_blocks = json_truth(json_get(record, "trim_blocks")),
                                 .lstrip_blocks = json_truth(json_get(record, "lstrip_blocks"))};
        jinja_program *p;
        strbuf out = {0};
        quire_error err = {0};
        quire_err e = jinja_open(json_str(source), options, &p, &err);
        e = e == QUIRE_OK ? jinja_render(p, variables, &clock_at, &out, NULL, &err) : e;
        str expected = {json_str(want).p, json_str(want).n};
        if (e == QUIRE_UNSUPPORTED) {
            unsupported++;
        } else if (want != NULL ? e == QUIRE_OK && str_eq((str){out.p, out.n}, expected) : e != QUIRE_OK) {
            passed++;
        } else {
            fail_msg("%s: \"%.*s\" %s", json_str(source).p, (int)out.n, out.n > 0 ? out.p : "", err.message);
        }
        jinja_close(p);
        strbuf_deinit(&out);
        json_drop(record);
    }
    free(line);
    fclose(f);
    print_message("%d as recorded, %d not supported\n", passed, unsupported);
    assert_true(passed >= 1900);
}

TEST_MAIN(NULL, NULL)
