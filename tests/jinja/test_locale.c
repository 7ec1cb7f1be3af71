/* Templates print and read numbers and dates like Python, also if the host's locale has
 * decimal commas. */
#include "base/comma_locale.h"

#include "render.h"

COMMA_TEST(numbers_have_points) {
    static const struct {
        const char *source, *wanted;
    } cases[] = {
        {"{{ 1.5 + x }}", "1.75"},
        {"{{ 1e22 * 3 }}", "3e+22"},
        {"{{ x|tojson }}", "0.25"},
        {"{{ '%.3f' % x }}", "0.250"},
        {"{{ '2.5'|float + 1 }}", "3.5"},
        {"{{ 2.675|round(2) }}", "2.67"},
        {"{{ 123456|filesizeformat }}", "123.5 kB"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        strbuf out = {0};
        quire_error err = {0};
        if (render(cases[i].source, "{\"x\": 0.25}", &out, &err) != QUIRE_OK) {
            fail_msg("%s: %s", cases[i].source, err.message);
        }
        assert_string_equal(out.p, cases[i].wanted);
        strbuf_deinit(&out);
    }
    char text[8];
    snprintf(text, sizeof text, "%.1f", 0.5);
    assert_string_equal(text, "0,5"); /* the host's locale is as it was */
}

TEST_MAIN(NULL, NULL)
