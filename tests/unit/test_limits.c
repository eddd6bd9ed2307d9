/* Limits of control groups, read from trees made here: the tightest of all levels applies, in version 1 and 2; page
 * cache that can be dropped does not count as used memory. */

#include "kernels/base/cores.h"
#include "kernels/base/limits.h"
#include "tests/support/scratch.h"
#include "tests/support/unit.h"

enum { MIB = 1 << 20 };

/* A file below the scratch folder, with its folders. */
static void put(const char *folder, const char *name, const char *text)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", scratch, folder);
    assert_int_equal(directory_create(path), OK);
    snprintf(path, sizeof path, "%s/%s/%s", scratch, folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static Limits limits(void)
{
    Limits found;
    limits_read(scratch, &found);
    return found;
}

TEST_WITH(no_groups_no_limits, scratch_make, scratch_drop)
{
    Limits found = limits();
    assert_true(found.memory_bytes == INT64_MAX && found.memory_left_bytes == INT64_MAX && found.cores == 0);
}

TEST_WITH(version_2_counts_every_level, scratch_make, scratch_drop)
{
    put("proc/self", "cgroup", "0::/user.slice/job/step\n");
    put("sys/fs/cgroup/user.slice/job/step", "memory.max", "max\n");
    put("sys/fs/cgroup/user.slice/job/step", "cpu.max", "max 100000\n");
    put("sys/fs/cgroup/user.slice/job", "memory.max", "536870912\n");
    put("sys/fs/cgroup/user.slice/job", "memory.current", "314572800\n");
    put("sys/fs/cgroup/user.slice/job", "cpu.max", "150000 100000\n");
    put("sys/fs/cgroup/user.slice", "memory.max", "1073741824\n");
    put("sys/fs/cgroup/user.slice", "memory.current", "1048576000\n"); /* a neighbor takes more: 24 MiB are left */
    put("sys/fs/cgroup/user.slice", "cpu.max", "400000 100000\n");
    Limits found = limits();
    assert_int_equal(found.memory_bytes, 512 * MIB);
    assert_int_equal(found.memory_left_bytes, 24 * MIB);
    assert_true(found.cores == 1.5);
    put("sys/fs/cgroup/user.slice", "memory.stat", "anon 5\nfile 900\ninactive_file 943718400\n");
    assert_int_equal(limits().memory_left_bytes, 212 * MIB); /* now the inner one is the tighter: 512 - 300 */
}

TEST_WITH(version_1_counts_every_level, scratch_make, scratch_drop)
{
    put("proc/self", "cgroup", "12:cpu,cpuacct:/docker/abc\n4:memory:/docker/abc\n1:name=systemd:/x\n");
    put("sys/fs/cgroup/memory", "memory.limit_in_bytes", "9223372036854771712\n"); /* none */
    put("sys/fs/cgroup/memory/docker", "memory.limit_in_bytes", "268435456\n");
    put("sys/fs/cgroup/memory/docker", "memory.usage_in_bytes", "67108864\n");
    put("sys/fs/cgroup/memory/docker/abc", "memory.limit_in_bytes", "9223372036854771712\n");
    put("sys/fs/cgroup/cpu/docker/abc", "cpu.cfs_quota_us", "-1\n");
    put("sys/fs/cgroup/cpu/docker/abc", "cpu.cfs_period_us", "100000\n");
    put("sys/fs/cgroup/cpu/docker", "cpu.cfs_quota_us", "50000\n");
    put("sys/fs/cgroup/cpu/docker", "cpu.cfs_period_us", "100000\n");
    Limits found = limits();
    assert_int_equal(found.memory_bytes, 256 * MIB);
    assert_int_equal(found.memory_left_bytes, 192 * MIB);
    assert_true(found.cores == 0.5);
}

/* Cores that are paid for in part count: a thread more is throttled a little, a thread fewer leaves time unused. */
TEST_WITH(a_quota_leaves_fewer_cores, scratch_make, scratch_drop)
{
    static const struct {
        int cores;
        double quota;
        int wanted;
    } cases[] = {{64, 0, 64},    {64, 2, 2}, {64, 1.5, 2}, {64, 0.2, 1},
                 {64, 63.5, 64}, {2, 64, 2}, {1, 0.5, 1},  {0, 0, 1}};
    Cores found;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(cores_within(cases[i].cores, cases[i].quota), cases[i].wanted);
    cores_read(scratch, &found);
    int bound = found.bound;
    assert_true(found.quota == 0 && bound >= 1);
    put("proc/self", "cgroup", "0::/pod/container\n");
    put("sys/fs/cgroup/pod/container", "cpu.max", "max 100000\n");
    put("sys/fs/cgroup/pod", "cpu.max", "50000 100000\n");
    cores_read(scratch, &found);
    assert_true(found.quota == 0.5 && found.bound == bound);
    put("proc/self", "cgroup", "3:cpu,cpuacct:/slurm/step\n");
    put("sys/fs/cgroup/cpu/slurm/step", "cpu.cfs_quota_us", "250000\n");
    put("sys/fs/cgroup/cpu/slurm/step", "cpu.cfs_period_us", "100000\n");
    cores_read(scratch, &found);
    assert_true(found.quota == 2.5 && found.bound == bound);
}

/* In a container the path is often the host's, and its limit is that of the root that the container sees. */
TEST_WITH(a_path_that_is_not_there_leads_to_the_root, scratch_make, scratch_drop)
{
    put("proc/self", "cgroup", "4:memory:/kubepods/pod7/abc\n");
    put("sys/fs/cgroup/memory", "memory.limit_in_bytes", "134217728\n");
    put("sys/fs/cgroup/memory", "memory.usage_in_bytes", "134217729\n");
    assert_int_equal(limits().memory_bytes, 128 * MIB);
    assert_int_equal(limits().memory_left_bytes, 0);
}
