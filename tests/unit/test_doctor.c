/* Doctor's verdicts: a healthy machine gets no complaint; each single problem is found, with the command that fixes
 * it. */
#include "inception/commands/doctor.h"
#include "tests/support/unit.h"

#include <jansson.h>

static DoctorMachine healthy(void)
{
    return (DoctorMachine){
        .cpu_model = "Test 1",
        .cpu_features = "avx avx2 fma",
        .cores_online = 8,
        .cores_bound = 8,
        .memory_bytes = 16LL << 30,
        .memory_free_bytes = 12LL << 30,
        .shm_bytes = 8LL << 30,
        .shm_free_bytes = 8LL << 30,
        .open_files = 4096,
        .locked_bytes = -1,
        .stack_bytes = 8 << 20,
        .cpu_works = true,
        .cpu_backend = "AVX2",
        .cuda_backend = "not built in",
    };
}

static void check(const DoctorMachine *machine, const char *topic, DoctorVerdict verdict, const char *fix)
{
    static DoctorReport report;
    doctor_check(machine, &report);
    assert_int_equal(report.problems, verdict == DOCTOR_PROBLEM);
    assert_int_equal(report.hints, verdict == DOCTOR_HINT);
    for (int k = 0; k < report.count; k++) {
        const DoctorFinding *finding = &report.findings[k];
        bool concerned = !strcmp(finding->topic, topic);
        assert_int_equal(finding->verdict, concerned ? verdict : DOCTOR_FINE);
        if (concerned && !strstr(finding->fix, fix)) fail_msg("%s: wanted '%s' in '%s'", topic, fix, finding->fix);
    }
}

#define CHECK_FAULT(field, value, topic, verdict, fix)                                                                 \
    do {                                                                                                               \
        DoctorMachine machine_ = healthy();                                                                            \
        machine_.field = value;                                                                                        \
        check(&machine_, topic, verdict, fix);                                                                         \
    } while (0)

/* fault: F49 */
TEST(finds_each_fault)
{
    DoctorMachine machine = healthy();
    check(&machine, "", DOCTOR_FINE, "");
    CHECK_FAULT(cpu_features[0], 'x', "processor", DOCTOR_FINE, ""); /* "xvx avx2 fma" */
    CHECK_FAULT(cpu_features[7], 'x', "processor", DOCTOR_HINT, "AVX2");
    CHECK_FAULT(cpu_works, false, "cpu backend", DOCTOR_PROBLEM, "libdnnl-dev");
    CHECK_FAULT(cgroup_cores, 2.5, "cores", DOCTOR_HINT, "3 threads here");
    CHECK_FAULT(cgroup_cores, 0.5, "cores", DOCTOR_HINT, "1 thread here");
    CHECK_FAULT(cgroup_cores, 8, "cores", DOCTOR_FINE, "");
    CHECK_FAULT(omp_threads, 9, "cores", DOCTOR_HINT, "OMP_NUM_THREADS");
    CHECK_FAULT(memory_free_bytes, 1LL << 30, "memory", DOCTOR_HINT, "--batch-size");
    CHECK_FAULT(cgroup_memory_bytes, 1LL << 30, "memory", DOCTOR_HINT, "--memory");
    CHECK_FAULT(shm_bytes, 64 << 20, "shared memory", DOCTOR_PROBLEM, "--shm-size");
    CHECK_FAULT(shm_free_bytes, 64 << 20, "shared memory", DOCTOR_PROBLEM, "delete files");
    CHECK_FAULT(shm_bytes, -1, "shared memory", DOCTOR_PROBLEM, "mount");
    CHECK_FAULT(open_files, 256, "open files", DOCTOR_PROBLEM, "ulimit -n");
    CHECK_FAULT(open_files, -1, "open files", DOCTOR_FINE, "");
    CHECK_FAULT(stack_bytes, -1, "stack", DOCTOR_HINT, "ulimit -s");
    CHECK_FAULT(stack_bytes, 65536, "stack", DOCTOR_PROBLEM, "ulimit -s");
    CHECK_FAULT(locked_bytes, 65536, "locked memory", DOCTOR_FINE, "");
    CHECK_FAULT(driver[0], 'N', "cuda backend", DOCTOR_PROBLEM, "--gpus all");
    CHECK_FAULT(gpu_expected, true, "training", DOCTOR_HINT, "install NVIDIA's driver");
    machine.cuda_works = true;
    machine.locked_bytes = 65536;
    machine.gpu_count = DOCTOR_GPU_MAX;
    for (int k = 0; k < DOCTOR_GPU_MAX; k++) machine.near[k].node = k % 2 ? 0 : -1;
    for (int k = 0; k < DOCTOR_GPU_MAX; k++) CPU_SET(k, &machine.near[k].usable);
    check(&machine, "locked memory", DOCTOR_HINT, "memlock");
    machine.locked_bytes = -1;
    machine.gpu_count = 2;
    CPU_ZERO(&machine.near[0].usable); /* unknown, and so no reason to complain */
    check(&machine, "gpu cores", DOCTOR_FINE, "");
    CPU_ZERO(&machine.near[1].usable);
    static DoctorReport report;
    doctor_check(&machine, &report);
    assert_int_equal(report.hints, 1);
}

/* Whether training uses a GPU stands in one line, on every machine. */
TEST(says_what_trains)
{
    static const struct {
        int gpus;
        bool works, expected;
        const char *driver, *wanted;
    } rows[] = {
        {0, false, false, "", "on the CPU: there is no GPU"},
        {0, false, true, "", "on the CPU: there is no GPU"},
        {1, false, true, "580", "on the CPU: there is no GPU"},
        {1, true, true, "580", "on 1 GPU, if"},
        {2, true, true, "580", "on 2 GPUs, if"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        DoctorMachine machine = healthy();
        static DoctorReport report;
        machine.gpu_count = rows[i].gpus;
        machine.cuda_works = rows[i].works;
        machine.gpu_expected = rows[i].expected;
        snprintf(machine.driver, sizeof machine.driver, "%s", rows[i].driver);
        doctor_check(&machine, &report);
        int found = 0;
        for (int k = 0; k < report.count; k++)
            if (!strcmp(report.findings[k].topic, "training"))
                found += strstr(report.findings[k].found, rows[i].wanted) != NULL;
        assert_int_equal(found, 1);
    }
}

TEST(measures_this_machine)
{
    static DoctorMachine machine;
    static DoctorReport report;
    char *text = NULL;
    size_t bytes = 0;
    doctor_measure(&machine);
    assert_true(machine.cores_online >= machine.cores_bound && machine.cores_bound >= 1);
    assert_true(machine.memory_bytes > 0 && machine.memory_free_bytes <= machine.memory_bytes);
    assert_true(strlen(machine.cpu_backend) && strlen(machine.cuda_backend));
    memset(machine.cpu_model, 0xc3, sizeof machine.cpu_model - 1); /* no UTF-8 */
    doctor_check(&machine, &report);
    FILE *to = open_memstream(&text, &bytes);
    assert_int_equal(doctor_print_json(&report, to), OK);
    fclose(to);
    json_t *all = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    assert_int_equal(json_array_size(json_object_get(all, "findings")), report.count);
    assert_int_equal(json_integer_value(json_object_get(all, "problems")), report.problems);
    json_decref(all);
    free(text);
}
