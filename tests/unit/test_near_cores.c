/* The cores near a device, read from trees made here: what Linux writes, cores that this process may not use, an unknown memory
 * node, damaged lists; a process moves only where the tree is certain and the cores suffice. */
#include "kernels/base/near_cores.h"
#include "tests/support/scratch.h"
#include "tests/support/unit.h"

static cpu_set_t before;
static int core; /* one that this process may use */

static NearCores near_read(const char *node, const char *list)
{
    const char *const text[] = {node, list}, *const name[] = {"numa_node", "local_cpulist"};
    char path[PATH_BYTES];
    NearCores near;
    snprintf(path, sizeof path, "%s/sys/bus/pci/devices/0000:3b:00.0", scratch);
    assert_int_equal(directory_create(path), OK);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/sys/bus/pci/devices/0000:3b:00.0/%s", scratch, name[i]);
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        fputs(text[i], file);
        assert_int_equal(fclose(file), 0);
    }
    near_cores_read(scratch, "0000:3b:00.0", &near);
    return near;
}

TEST(reads_the_kernels_lists)
{
    NearCores near;
    near_cores_read(scratch, "0000:99:00.0", &near);
    assert_true(near.node == -1 && !*near.text && CPU_COUNT(&near.usable) == 0);
    near = near_read("1\n", "0-1022,1023\n");
    assert_int_equal(near.node, 1);
    assert_string_equal(near.text, "0-1022,1023");
    assert_true(CPU_EQUAL(&near.usable, &before));
    near = near_read("0\n", "1023\n"); /* a cpuset leaves it out */
    assert_true(near.node == 0 && CPU_COUNT(&near.usable) == 0);
}

TEST(refuses_what_it_cannot_know)
{
    static const char *const damaged[] = {"",    "\n",     "0-",    "-1",      "1-0",
                                          "0,",  "0,,1",   "0-1-2", "0 1",     "all",
                                          "0x3", "0-1024", "1024",  "0-99999", "99999999999999999999"};
    NearCores near = near_read("-1\n", "0-1023\n");
    assert_true(near.node == -1 && CPU_COUNT(&near.usable) == 0);
    for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++) {
        near = near_read("0\n", damaged[i]);
        if (near.node != -1 || CPU_COUNT(&near.usable)) fail_msg("'%s' was taken for a list of cores", damaged[i]);
    }
}

static void assert_runs_on(const cpu_set_t *cores)
{
    cpu_set_t now;
    assert_int_equal(sched_getaffinity(0, sizeof now, &now), 0);
    assert_true(CPU_EQUAL(&now, cores));
}

TEST(moves_where_the_cores_suffice)
{
    char one[16];
    cpu_set_t only;
    snprintf(one, sizeof one, "%d\n", core);
    CPU_ZERO(&only);
    CPU_SET(core, &only);
    NearCores near = near_read("0\n", one), none = near_read("0\n", "1023\n");
    near_cores_take(&none, 1);
    near_cores_take(&near, 2);
    assert_runs_on(&before);
    near_cores_take(&near, 1);
    assert_runs_on(&only);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
}

static int set_up(void **state)
{
    if (sched_getaffinity(0, sizeof before, &before) != 0) return -1;
    while (!CPU_ISSET(core, &before)) core++;
    return scratch_make(state);
}

TESTS_WITH(set_up, scratch_drop)
