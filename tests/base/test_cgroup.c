/* Cgroup limits, read from trees of fake kernel files. */
#include "base/fake_root.h"

#include "base/process.h"

#define MIB ((int64_t)1 << 20)

/* The files of a group: limit NULL is no file. */
static void put_v2(const char *directory, const char *max, const char *high, const char *current) {
    const char *const names[] = {"memory.max", "memory.high", "memory.current"}, *const texts[] = {max, high,
                                                                                                   current};
    for (int i = 0; i < 3; i++) {
        char path[1024];
        snprintf(path, sizeof path, "%s/%s", directory, names[i]);
        if (texts[i] != NULL) {
            put(path, texts[i]);
        }
    }
}

static const char V2_MOUNTS[] =
    "22 1 0:21 / /proc rw - proc proc rw\n"
    "31 22 0:28 / /sys/fs/cgroup rw,nosuid shared:4 master:9 - cgroup2 cgroup2 rw,nsdelegate\n";

static void assert_memory(int64_t limit, int64_t used, const char *file) {
    cgroup_memory m;
    cgroup_memory_read(root, &m);
    assert_int_equal(m.limit, limit);
    if (limit >= 0) {
        assert_int_equal(m.used, used);
        assert_string_equal(m.file, file);
    }
}

/* ---- version 2 ---- */

ROOT_TEST(a_unit_s_own_limit_counts) {
    put("proc/self/cgroup", "0::/system.slice/quire.service\n");
    put("proc/self/mountinfo", V2_MOUNTS);
    put_v2("sys/fs/cgroup/system.slice/quire.service", "1073741824\n", "max\n", "104857600\n");
    put_v2("sys/fs/cgroup/system.slice", "max\n", "max\n", "204857600\n");
    put("sys/fs/cgroup/system.slice/quire.service/memory.stat",
        "anon 50000000\nfile 40000000\ninactive_file 10485760\nactive_file 20971520\ninactive_anon "
        "99999999\n");
    assert_memory(1024 * MIB, 70 * MIB, "/sys/fs/cgroup/system.slice/quire.service/memory.max");
}

ROOT_TEST(the_lowest_of_nested_limits_applies) {
    put("proc/self/cgroup", "0::/a/b/c\n");
    put("proc/self/mountinfo", V2_MOUNTS);
    put_v2("sys/fs/cgroup/a/b/c", "4294967296\n", NULL, "1048576\n");
    put_v2("sys/fs/cgroup/a/b", "max\n", NULL, "1048576\n");
    put_v2("sys/fs/cgroup/a", "5368709120\n", NULL, "3221225472\n"); /* a sibling uses 3 GiB of 5 */
    assert_memory(5120 * MIB, 3072 * MIB, "/sys/fs/cgroup/a/memory.max");
    put_v2("sys/fs/cgroup/a/b", "max\n", "536870912\n", "1048576\n");
    assert_memory(512 * MIB, 1 * MIB, "/sys/fs/cgroup/a/b/memory.high");
    put_v2("sys/fs/cgroup/a/b/c", "0\n", NULL, "1048576\n");
    assert_memory(0, 1 * MIB, "/sys/fs/cgroup/a/b/c/memory.max");
}

ROOT_TEST(a_group_without_a_limit_has_none) {
    assert_memory(-1, 0, NULL); /* no files at all */
    put("proc/self/cgroup", "0::/a\n");
    assert_memory(-1, 0, NULL);
    put("proc/self/mountinfo", V2_MOUNTS);
    assert_memory(-1, 0, NULL);
    put_v2("sys/fs/cgroup/a", "max\n", "max\n", "1048576\n");
    assert_memory(-1, 0, NULL);
    static const char *const wrong[] = {"",
                                        "\n",
                                        "-1\n",
                                        "12x\n",
                                        " 12\n",
                                        "0x10\n",
                                        "9223372036854771712\n",
                                        "99999999999999999999999999\n",
                                        "1152921504606846976\n",
                                        "12 34\n"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        put_v2("sys/fs/cgroup/a", wrong[i], wrong[i], wrong[i]);
        assert_memory(-1, 0, NULL);
    }
    put_v2("sys/fs/cgroup/a", "1048576", NULL, "garbage"); /* without a newline; the use is unknown */
    assert_memory(1 * MIB, 0, "/sys/fs/cgroup/a/memory.max");
}

ROOT_TEST(a_group_that_is_gone_has_its_parents_limits) {
    put("proc/self/cgroup", "0::/a/b (deleted)\n");
    put("proc/self/mountinfo", V2_MOUNTS);
    put_v2("sys/fs/cgroup/a", "2097152\n", NULL, "0\n");
    assert_memory(2 * MIB, 0, "/sys/fs/cgroup/a/memory.max");
}

ROOT_TEST(names_with_spaces_and_escapes_are_found) {
    put("proc/self/cgroup", "0::/my group/x: y\\z\n");
    put("proc/self/mountinfo", "31 22 0:28 / /mnt/the\\040groups\\011\\134 rw - cgroup2 none rw\n");
    put_v2("mnt/the groups\t\\/my group/x: y\\z", "3145728\n", NULL, "0\n");
    assert_memory(3 * MIB, 0, "/mnt/the groups\t\\/my group/x: y\\z/memory.max");
}

/* ---- namespaces ---- */

ROOT_TEST(in_a_namespace_the_top_of_the_mount_is_the_container) {
    put("proc/self/cgroup", "0::/\n");
    put("proc/self/mountinfo", V2_MOUNTS);
    put_v2("sys/fs/cgroup", "4194304\n", NULL, "1048576\n");
    assert_memory(4 * MIB, 1 * MIB, "/sys/fs/cgroup/memory.max");
    put("proc/self/cgroup", "0::/init.scope\n");
    put_v2("sys/fs/cgroup/init.scope", "3145728\n", NULL, "1048576\n");
    assert_memory(3 * MIB, 1 * MIB, "/sys/fs/cgroup/init.scope/memory.max");
}

ROOT_TEST(a_path_above_the_namespace_leads_nowhere_else) {
    static const char *const outside[] = {"0::/..\n", "0::/../..\n", "0::/../other\n", "0::/a/../../b\n"};
    put("proc/self/mountinfo", V2_MOUNTS);
    put_v2("sys/fs/cgroup", "4194304\n", NULL, "0\n");
    put_v2("sys/fs", "1048576\n", NULL, "0\n"); /* what "/.." would open */
    put_v2("sys", "1048576\n", NULL, "0\n");
    put_v2("sys/fs/other", "1048576\n", NULL, "0\n");
    put_v2("sys/fs/b", "1048576\n", NULL, "0\n");
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++) {
        put("proc/self/cgroup", outside[i]);
        assert_memory(4 * MIB, 0, "/sys/fs/cgroup/memory.max");
    }
    /* a mount of the outer namespace shows such a group */
    put("proc/self/cgroup", "0::/../other\n");
    put("proc/self/mountinfo", "31 22 0:28 /.. /host/cgroup rw - cgroup2 cgroup2 rw\n");
    put_v2("host/cgroup/other", "2097152\n", NULL, "0\n");
    assert_memory(2 * MIB, 0, "/host/cgroup/other/memory.max");
}

ROOT_TEST(a_mount_of_one_group_is_seen_through) {
    put("proc/self/cgroup", "0::/docker/abc/inner\n");
    put("proc/self/mountinfo", "31 22 0:28 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n"
                               "32 22 0:28 /docker/ab /other ro - cgroup2 cgroup2 rw\n");
    put_v2("sys/fs/cgroup/inner", "3145728\n", NULL, "0\n");
    put_v2("sys/fs/cgroup", "2097152\n", NULL, "0\n");
    put_v2("otherc", "1048576\n", NULL, "0\n"); /* what is below another group, whose name ours begins with */
    assert_memory(2 * MIB, 0, "/sys/fs/cgroup/memory.max");
}

/* ---- version 1, and both ---- */

static const char V1_MOUNTS[] =
    "25 30 0:23 / /sys/fs/cgroup ro - tmpfs tmpfs ro,mode=755\n"
    "33 25 0:30 / /sys/fs/cgroup/cpu,cpuacct rw shared:12 - cgroup cgroup rw,cpu,cpuacct\n"
    "34 25 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
    "35 25 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    "36 25 0:33 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
static const char V1_GROUPS[] = "12:memory:/user.slice/quire\n11:cpuset:/other\n4:cpu,cpuacct:/"
                                "user.slice\n1:name=systemd:/memory\n0::/user.slice\n";

ROOT_TEST(version_1_has_its_own_files) {
    put("proc/self/cgroup", V1_GROUPS);
    put("proc/self/mountinfo", V1_MOUNTS);
    put("sys/fs/cgroup/memory/user.slice/quire/memory.limit_in_bytes", "9223372036854771712\n");
    put("sys/fs/cgroup/memory/user.slice/memory.limit_in_bytes", "8388608\n");
    put("sys/fs/cgroup/memory/user.slice/memory.usage_in_bytes", "4194304\n");
    put("sys/fs/cgroup/memory/user.slice/memory.stat",
        "inactive_file 1\nactive_file 1\ntotal_inactive_file 1048576\ntotal_active_file 1048576\n");
    put("sys/fs/cgroup/cpuset/other/memory.limit_in_bytes", "1048576\n"); /* not of this hierarchy */
    assert_memory(8 * MIB, 2 * MIB, "/sys/fs/cgroup/memory/user.slice/memory.limit_in_bytes");
}

ROOT_TEST(with_both_versions_the_least_limit_holds) {
    put("proc/self/cgroup", V1_GROUPS);
    put("proc/self/mountinfo", V1_MOUNTS);
    put("sys/fs/cgroup/memory/user.slice/quire/memory.limit_in_bytes", "8388608\n");
    put_v2("sys/fs/cgroup/unified/user.slice", "4194304\n", NULL, "0\n");
    assert_memory(4 * MIB, 0, "/sys/fs/cgroup/unified/user.slice/memory.max");
}

/* ---- lines that are long or wrong ---- */

ROOT_TEST(long_and_broken_lines_do_no_harm) {
    enum { LONG = 200000 };
    char *text = malloc(2 * LONG);
    assert_non_null(text);
    memset(text, 'x', LONG);
    snprintf(text + LONG, LONG, "\n1 2 3\n31 22 0:28 / /sys/fs/cgroup\n- - - - -\n\n%s31", V2_MOUNTS);
    put("proc/self/mountinfo", text);
    put("proc/self/cgroup", "garbage\n:\n::\n0:\n0::relative\n0::/a\n0::/b\n");
    put_v2("sys/fs/cgroup/a", "1048576\n", NULL, "0\n");
    assert_memory(1 * MIB, 0, "/sys/fs/cgroup/a/memory.max"); /* the first valid line */
    int n = snprintf(text, LONG, "0::/b");
    for (int i = 0; i < 5000; i++) { /* longer than any path that can be opened */
        n += snprintf(text + n, LONG, "/deep");
    }
    put("proc/self/cgroup", text);
    put_v2("sys/fs/cgroup/b", "2097152\n", NULL, "0\n");
    assert_memory(2 * MIB, 0, "/sys/fs/cgroup/b/memory.max");
    char name[600] = "sys/fs/cgroup/", group[600] = "0::";
    for (int i = 0; i < 3; i++) {
        memset(group + strlen(group), '/', 1);
        memset(group + strlen(group), 'g', 150);
    }
    strcat(name, group + 4);
    put("proc/self/cgroup", group);
    put_v2(name, "3145728\n", NULL, "0\n");
    cgroup_memory m;
    cgroup_memory_read(root, &m);
    assert_int_equal(m.limit, 3 * MIB);
    assert_int_equal(strlen(m.file), CGROUP_FILE_BYTES - 1);
    assert_int_equal(strncmp(m.file, "...g", 4), 0);
    assert_string_equal(m.file + strlen(m.file) - strlen("/memory.max"), "/memory.max");
    free(text);
}

/* ---- processors ---- */

static void assert_cpus(double expected) {
    double cpus = cgroup_cpus(root, 8);
    assert_true(cpus > expected - 1e-9 && cpus < expected + 1e-9);
}

ROOT_TEST(processors_are_those_of_the_tightest_quota) {
    assert_cpus(8);
    put("proc/self/cgroup", "0::/a/b\n");
    put("proc/self/mountinfo", V2_MOUNTS);
    put("sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
    assert_cpus(8);
    put("sys/fs/cgroup/a/cpu.max", "250000 100000\n");
    assert_cpus(2.5);
    put("sys/fs/cgroup/a/b/cpu.max", "50000 100000\n");
    assert_cpus(0.5);
    static const char *const wrong[] = {"",           "max",         "100000\n", "0 100000\n",
                                        "100000 0\n", "-1 100000\n", "x y\n",    "1e5 1e5\n"};
    put("sys/fs/cgroup/a/cpu.max", "max 100000\n");
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        put("sys/fs/cgroup/a/b/cpu.max", wrong[i]);
        assert_cpus(8);
    }
}

ROOT_TEST(version_1_has_quota_and_period_in_two_files) {
    put("proc/self/cgroup", V1_GROUPS);
    put("proc/self/mountinfo", V1_MOUNTS);
    put("sys/fs/cgroup/cpu,cpuacct/user.slice/cpu.cfs_quota_us", "-1\n");
    put("sys/fs/cgroup/cpu,cpuacct/user.slice/cpu.cfs_period_us", "100000\n");
    assert_cpus(8);
    put("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "300000\n");
    assert_cpus(8); /* no period */
    put("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
    assert_cpus(3);
    put("sys/fs/cgroup/cpu,cpuacct/user.slice/cpu.cfs_quota_us", "150000\n");
    assert_cpus(1.5);
}

TEST_MAIN(NULL, NULL)
