/* docs/models.md lists exactly the architectures of the registry. */
#include "make_model.h"

#include "base/mem.h"
#include "file/packed_files.h"
#include "model/arch.h"
#include "model/architectures.h"
#include "model/composite.h"

static void add_names(strbuf *b, const char *const *names) {
    for (int i = 0; i < ARCH_MAX_NAMES && names[i] != NULL; i++) {
        assert_int_equal(strbuf_addf(b, "%s`%s`", i > 0 ? ", " : "", names[i]), QUIRE_OK);
    }
}

TEST(the_list_has_the_names_of_the_registry) {
    size_t n, n_rows = 0, n_known = 0;
    uint8_t *bytes = read_whole("docs/models.md", &n);
    strbuf page = {0}, row = {0};
    assert_int_equal(strbuf_add(&page, bytes, n), QUIRE_OK);
    const char *list = strstr(page.p, "\n## What runs\n");
    assert_non_null(list);
    const char *end = strstr(list + 1, "\n## ");
    assert_non_null(end);
    for (const char *at = list; (at = strstr(at, "\n- `")) != NULL && at < end; at++) {
        n_rows++;
    }
    for (; arch_at(n_known) != NULL; n_known++) {
        const arch *a = arch_at(n_known);
        strbuf_clear(&row);
        assert_int_equal(strbuf_addf(&row, "\n- "), QUIRE_OK);
        add_names(&row, a->gguf);
        assert_int_equal(strbuf_addf(&row, ": "), QUIRE_OK);
        add_names(&row, a->hf);
        assert_int_equal(strbuf_addf(&row, "\n"), QUIRE_OK);
        const char *found = strstr(list, row.p);
        if (found == NULL || found >= end) {
            fail_msg("docs/models.md lacks this line: %s", row.p + 1);
        }
    }
    assert_int_equal(n_rows, n_known);
    strbuf_deinit(&page);
    strbuf_deinit(&row);
    mem_free(bytes);
}

TEST(the_page_names_every_composite_class) {
    size_t n;
    const char *class;
    uint8_t *bytes = read_whole("docs/models.md", &n);
    strbuf page = {0}, name = {0};
    assert_int_equal(strbuf_add(&page, bytes, n), QUIRE_OK);
    for (size_t i = 0; (class = composite_class_at(i)) != NULL; i++) {
        strbuf_clear(&name);
        assert_int_equal(strbuf_addf(&name, "`%s`", class), QUIRE_OK);
        if (strstr(page.p, name.p) == NULL) {
            fail_msg("docs/models.md does not name %s", name.p);
        }
    }
    strbuf_deinit(&page);
    strbuf_deinit(&name);
    mem_free(bytes);
}

TEST(the_page_has_the_refused_names_and_why) {
    size_t n, n_rows = 0, n_known = 0;
    const refused_arch *r;
    uint8_t *bytes = read_whole("docs/models.md", &n);
    strbuf page = {0}, row = {0};
    assert_int_equal(strbuf_add(&page, bytes, n), QUIRE_OK);
    for (; (r = refused_at(n_known)) != NULL; n_known++) {
        const char *mark = r->gguf != NULL ? "`" : "";
        strbuf_clear(&row);
        assert_int_equal(strbuf_addf(&row, "\n| `%s` | %s%s%s | %s |\n", r->hf, mark,
                                     r->gguf != NULL ? r->gguf : "", mark, r->reason),
                         QUIRE_OK);
        if (strstr(page.p, row.p) == NULL) {
            fail_msg("docs/models.md lacks this row: %s", row.p + 1);
        }
    }
    const char *table = strstr(page.p, "## What is refused by its name");
    assert_non_null(table);
    for (const char *at = table; (at = strstr(at, "\n| `")) != NULL; at++) {
        n_rows++;
    }
    assert_int_equal(n_rows, n_known);
    strbuf_deinit(&page);
    strbuf_deinit(&row);
    mem_free(bytes);
}

/* A name that runs is no longer refused. */
TEST(no_refused_name_is_in_the_registry) {
    const refused_arch *r;
    for (size_t i = 0; (r = refused_at(i)) != NULL; i++) {
        nearest similar = {0};
        assert_null(arch_find(MODEL_HF, str_of(r->hf), &similar));
        assert_true(r->gguf == NULL || arch_find(MODEL_GGUF, str_of(r->gguf), &similar) == NULL);
        assert_ptr_equal(refused_reason(MODEL_HF, str_of(r->hf)), r->reason);
        assert_true(i < MOST_REFUSED);
    }
}

TEST(the_page_says_nothing_of_where_it_was_made) {
    size_t n;
    uint8_t *bytes = read_whole("docs/models.md", &n);
    for (size_t i = 0; i + 8 < n; i++) {
        assert_false(memcmp(bytes + i, "/golden/", 8) == 0);
    }
    mem_free(bytes);
}

TEST_MAIN(NULL, NULL)
