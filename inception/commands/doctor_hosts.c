/* doctor --hosts: the programs that a launcher has started meet, compare what each of them is, and try to connect to each
 * other. Rank 0 prints one table and names what is odd: the hosts that differ from most others, and connections that fail.
 * Clocks and bandwidth are left to other tools (docs/decisions/0015-doctor-hosts.md). */
#include "inception/commands/commands.h"
#include "inception/commands/doctor.h"
#include "inception/job/hosts.h"
#include "kernels/base/cores.h"
#include "kernels/base/open.h"
#include "kernels/base/timeouts.h"
#include "towers/data/sources/source.h"
#include "towers/files/json.h"
#include "towers/remote/address.h"

#include <jansson.h>
#include <libgen.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>

enum {
    ANSWERS_LAYOUT = 2, /* of NodeAnswers; other builds may have another */
    NAMES_SHOWN = 6,    /* hosts in a list */
    SPACE_GIB = 1       /* of free space, below which it is reported */
};
static const double ALIKE = 0.02; /* memory of equal machines differs by what their firmware keeps */
static const double GIB_BYTES = 1 << 30;

typedef enum Topic {
    TOPIC_BUILD,
    TOPIC_KERNEL,
    TOPIC_PROCESSOR,
    TOPIC_CORES,
    TOPIC_MEMORY,
    TOPIC_SHM,
    TOPIC_FILES,
    TOPIC_LOCKED,
    TOPIC_MPI,
    TOPIC_DRIVER,
    TOPIC_GPUS,
    TOPIC_NCCL,
    TOPIC_DATA,
    TOPIC_SPACE,
    TOPICS
} Topic;

static const char *const topic_names[] = {
    "towers",        "kernel", "processor",     "cores", "memory", "/dev/shm", "open files",
    "locked memory", "mpi",    "nvidia driver", "gpus",  "nccl",   "data",     "free space",
};
_Static_assert(sizeof topic_names / sizeof *topic_names == TOPICS, "a name for each topic, in their order");

/* What a program is. All programs send as many bytes. */
typedef struct NodeAnswers {
    uint32_t layout;
    char host[64], boot[40];
    char text[TOPICS][192]; /* "" if there is none */
    double number[TOPICS];  /* in place of the text, if not 0: equal within ALIKE */
    char later[1024];       /* 0; for topics of later builds */
} NodeAnswers;

typedef struct HostsSurvey {
    int ranks, hosts;
    NodeAnswers *node; /* owned: [ranks] */
    /* Owned, [ranks] each, of the topic that groups_find saw last: the first rank that rank r is alike, -1 if it does not answer; and
     * how many are alike this one. */
    int *group, *members;
    FILE *sentences; /* the findings, one a line */
    char *found;
    size_t found_bytes;
    int findings;
} HostsSurvey;

/* ---- answers */

__attribute__((format(printf, 3, 4))) static void text_fill(NodeAnswers *node, Topic topic, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(node->text[topic], sizeof node->text[topic], format, args);
    va_end(args);
}

static void bytes_fill(NodeAnswers *node, Topic topic, int64_t bytes)
{
    node->number[topic] = bytes > 0 ? (double)bytes : 0;
    text_fill(node, topic, bytes < 0 ? "unlimited" : "%.1f GiB", (double)bytes / GIB_BYTES);
}

static void data_fill(const Options *o, NodeAnswers *node)
{
    Source *source = NULL;
    SourceConfig config = {.path = o->data_path, .whole = true, .unlabeled = true, .partial = true};
    if (!o->data_path) return;
    if (is_address(o->data_path)) {
        text_fill(node, TOPIC_DATA, "not looked at: %s", o->data_path);
        return;
    }
    if (source_open(&config, SPLIT_TRAIN, &source) != OK) {
        text_fill(node, TOPIC_DATA, "cannot be read: %s", status_message());
        return;
    }
    const SourceInfo *info = source_info(source);
    text_fill(node, TOPIC_DATA, "%" PRId64 " samples, fingerprint %016" PRIx64 "%016" PRIx64, info->count,
              info->fingerprint[0], info->fingerprint[1]);
    source_close(source);
}

/* The file system that will hold the folder, which need not exist yet. */
static void space_fill(const char *folder, NodeAnswers *node)
{
    char path[PATH_BYTES];
    struct statvfs there;
    snprintf(path, sizeof path, "%s", folder);
    while (statvfs(path, &there) != 0) {
        char *above = dirname(path);
        if (!strcmp(above, path)) return;
        memmove(path, above, strlen(above) + 1);
    }
    bytes_fill(node, TOPIC_SPACE, (int64_t)(there.f_bavail * there.f_frsize));
}

static void node_fill(const Options *o, const JobFiles *files, NodeAnswers *node)
{
    DoctorMachine *machine = malloc(sizeof *machine);
    struct utsname system;
    *node = (NodeAnswers){.layout = ANSWERS_LAYOUT};
    snprintf(node->host, sizeof node->host, "%s", control_host(files->control, files->launch.rank));
    (void)system_text("/proc/sys/kernel/random/boot_id", node->boot, sizeof node->boot);
    text_fill(node, TOPIC_BUILD, "%s, digest %016" PRIx64, TOWERS_VERSION, control_build());
    if (uname(&system) == 0) text_fill(node, TOPIC_KERNEL, "%s %s", system.release, system.machine);
    if (machine) {
        doctor_measure(machine);
        Text gpus = text_start(node->text[TOPIC_GPUS], sizeof node->text[0]);
        text_fill(node, TOPIC_PROCESSOR, "%s", machine->cpu_model);
        text_fill(node, TOPIC_CORES, "%d, usable %d", machine->cores_online,
                  cores_within(machine->cores_bound, machine->cgroup_cores));
        bytes_fill(node, TOPIC_MEMORY, machine->memory_bytes);
        bytes_fill(node, TOPIC_SHM, machine->shm_bytes < 0 ? 0 : machine->shm_bytes);
        text_fill(node, TOPIC_FILES, machine->open_files < 0 ? "unlimited" : "%" PRId64, machine->open_files);
        bytes_fill(node, TOPIC_LOCKED, machine->locked_bytes);
        text_fill(node, TOPIC_MPI, "%s", machine->mpi);
        text_fill(node, TOPIC_DRIVER, "%s", machine->driver);
        if (!machine->gpu_count) text_add(&gpus, "%s", machine->cuda_backend);
        for (int g = 0; g < machine->gpu_count; g++)
            if (g == 0 || strcmp(machine->gpus[g], machine->gpus[0]) != 0)
                text_add(&gpus, "%s%d: %s", g ? "; " : "", g, machine->gpus[g]);
        if (machine->gpu_count > 1) text_add(&gpus, " (%d GPUs)", machine->gpu_count);
    }
    comm_nccl_text(node->text[TOPIC_NCCL], sizeof node->text[0]);
    data_fill(o, node);
    space_fill(o->output_dir, node);
    free(machine);
}

/* The answers of another build: their texts may have other places, but for the first ones. */
static void node_clean(NodeAnswers *node)
{
    node->host[sizeof node->host - 1] = node->boot[sizeof node->boot - 1] = 0;
    for (Topic t = 0; t < TOPICS; t++) node->text[t][sizeof node->text[t] - 1] = 0;
    if (node->layout != ANSWERS_LAYOUT) text_fill(node, TOPIC_BUILD, "another build, with other answers");
}

/* A host by its name, and a program by its rank where a host has several. */
static const char *name_of(const HostsSurvey *s, int rank, char name[96])
{
    bool several = false;
    for (int r = 0; r < s->ranks; r++) several |= r != rank && !strcmp(s->node[r].host, s->node[rank].host);
    Text text = text_start(name, 96);
    text_add(&text, "%s", s->node[rank].host);
    if (several) text_add(&text, " (rank %d)", rank);
    return name;
}

/* ---- findings */

__attribute__((format(printf, 2, 3))) static void report(HostsSurvey *s, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vfprintf(s->sentences, format, args);
    va_end(args);
    fputc('\n', s->sentences);
    s->findings++;
}

static bool alike(const HostsSurvey *s, Topic topic, int a, int b)
{
    double x = s->node[a].number[topic], y = s->node[b].number[topic];
    if (x > 0 && y > 0) return fabs(x - y) <= ALIKE * fmax(x, y);
    return !strcmp(s->node[a].text[topic], s->node[b].text[topic]);
}

/* Returns the first rank of the largest group, -1 if two are. */
static int groups_find(HostsSurvey *s, Topic topic)
{
    int most = 0, usual = -1, *group = s->group;
    memset(s->members, 0, (size_t)s->ranks * sizeof *s->members);
    for (int r = 0; r < s->ranks; r++) {
        group[r] = topic == TOPIC_BUILD || s->node[r].layout == ANSWERS_LAYOUT ? r : -1;
        for (int k = 0; k < r && group[r] == r; k++)
            if (group[k] == k && alike(s, topic, k, r)) group[r] = k;
        if (group[r] >= 0) s->members[group[r]]++;
    }
    for (int r = 0; r < s->ranks; r++) {
        if (s->members[r] == most) usual = -1;
        if (s->members[r] > most) most = s->members[usual = r];
    }
    return usual;
}

/* "host1, host2 and 30 more" */
static void names_list(const HostsSurvey *s, int of, char *text, size_t bytes)
{
    char name[96];
    int named = 0, more = 0;
    Text list = text_start(text, bytes);
    for (int r = 0; r < s->ranks; r++) {
        if (s->group[r] != of) continue;
        if (named < NAMES_SHOWN)
            text_add(&list, "%s%s", named++ ? ", " : "", name_of(s, r, name));
        else
            more++;
    }
    if (more) text_add(&list, " and %d more", more);
}

static void topic_compare(HostsSurvey *s, Topic topic)
{
    int usual = groups_find(s, topic);
    char names[512], others[512], split[1600];
    Text sides = text_start(split, sizeof split); /* if there is no usual one */
    if (usual >= 0) names_list(s, usual, others, sizeof others);
    for (int r = 0; r < s->ranks; r++) {
        const char *text = s->node[r].text[topic];
        if (s->group[r] != r || r == usual) continue;
        names_list(s, r, names, sizeof names);
        if (usual >= 0)
            report(s, "%s: %s is '%s', but '%s' on %s", names, topic_names[topic], text, s->node[usual].text[topic],
                   others);
        else
            text_add(&sides, "%s'%s' on %s", sides.used ? "; " : "", text, names);
    }
    if (sides.used) report(s, "%s differs: %s", topic_names[topic], split);
}

static void all_compare(HostsSurvey *s)
{
    char name[96];
    for (Topic t = 0; t < TOPIC_SPACE; t++) topic_compare(s, t);
    for (int r = 0; r < s->ranks; r++)
        if (s->node[r].text[TOPIC_SPACE][0] && s->node[r].number[TOPIC_SPACE] < SPACE_GIB * GIB_BYTES)
            report(s, "%s: only %s are free in --output-dir", name_of(s, r, name), s->node[r].text[TOPIC_SPACE]);
}

/* ---- output */

static void survey_print(HostsSurvey *s, const Launch *launch, FILE *to)
{
    text_printf(to, "%d programs on %d hosts, ranks from %s\n\n", s->ranks, s->hosts, launch->origin);
    for (Topic t = 0; t < TOPICS; t++) {
        int used = 0, lines = 0;
        char names[512];
        groups_find(s, t);
        for (int r = 0; r < s->ranks; r++) used += s->node[r].text[t][0] != 0;
        for (int r = 0; r < s->ranks && used; r++) {
            if (s->group[r] != r) continue;
            names_list(s, r, names, sizeof names);
            text_printf(to, "%-14s %-52s %s\n", lines++ ? "" : topic_names[t], s->node[r].text[t],
                        s->members[r] == s->ranks ? "all" : names);
        }
    }
    fputc('\n', to);
    text_print(to, s->found);
    if (!s->findings) fputs("all hosts agree\n", to);
}

static Status survey_json(const HostsSurvey *s, FILE *to)
{
    int failed = 0;
    json_t *programs = json_array(), *findings = json_array();
    for (int r = 0; r < s->ranks; r++) {
        json_t *one = json_pack("{s:i, s:o}", "rank", r, "host", json_text(s->node[r].host));
        for (Topic t = 0; t < TOPICS; t++)
            failed |= json_object_set_new(one, topic_names[t], json_text(s->node[r].text[t]));
        failed |= json_array_append_new(programs, one);
    }
    for (char *line = s->found, *end; *line && (end = strchr(line, '\n')); line = end + 1) {
        *end = 0;
        failed |= json_array_append_new(findings, json_text(line));
    }
    json_t *all = json_pack("{s:o, s:o}", "programs", programs, "findings", findings);
    if (failed) json_decref(all);
    return json_emit(failed ? NULL : all, JSON_COMPACT, to);
}

/* ---- the command */

static Status survey_make(const Options *o, JobFiles *files, HostsSurvey *s)
{
    Status st = OK;
    char closed[512];
    NodeAnswers *mine = malloc(sizeof *mine);
    s->ranks = files->launch.ranks;
    s->node = calloc((size_t)s->ranks, sizeof *s->node);
    s->group = calloc((size_t)s->ranks, sizeof *s->group);
    s->members = calloc((size_t)s->ranks, sizeof *s->members);
    s->sentences = open_memstream(&s->found, &s->found_bytes);
    if (!mine || !s->node || !s->group || !s->members || !s->sentences)
        TRY_OUT(FAIL(ERR_MEMORY, "no memory for the answers of %d programs", s->ranks));
    node_fill(o, files, mine);
    TRY_OUT(control_gather(files->control, mine, sizeof *mine, "what it is", s->node));
    for (int r = 0; r < s->ranks; r++) {
        node_clean(&s->node[r]);
        int first = 0;
        while (first < r &&
               (strcmp(s->node[first].host, s->node[r].host) || strcmp(s->node[first].boot, s->node[r].boot)))
            first++;
        s->hosts += first == r;
    }
    all_compare(s);
    TRY_OUT(host_links_check(files->control, &files->launch, closed, sizeof closed));
    if (*closed) report(s, "%s", closed);
    if (fflush(s->sentences) != 0) TRY_OUT(FAIL(ERR_MEMORY, "no memory for the findings"));
out:
    free(mine);
    return st;
}

Status doctor_hosts_run(const Options *o, JobFiles *files, FILE *to)
{
    Status st = OK;
    HostsSurvey s = {0};
    bool given = option_origin(o, "comm-timeout") != ORIGIN_DEFAULT;
    TRY(hosts_meet(o, given ? o->comm_timeout : DOCTOR_MEET_S, true, files));
    if (!files->control)
        return FAIL(ERR_ARG, "--hosts compares the programs that a launcher starts; start it as a run, for example: "
                             "mpirun --host a,b -np 2 -x MASTER_ADDR=a towers doctor --hosts (docs/scaling.md)");
    TRY_OUT(survey_make(o, files, &s));
    if (hosts_lead(files) && o->json) TRY_OUT(survey_json(&s, to));
    if (hosts_lead(files) && !o->json) survey_print(&s, &files->launch, to);
    if (s.findings && hosts_lead(files))
        st = FAIL(ERR_ARG, "the hosts are not alike: %d finding%s above", s.findings, s.findings == 1 ? "" : "s");
    else if (s.findings)
        st = FAIL(ERR_ARG, "the hosts are not alike; rank 0 says in what");
out:
    if (s.sentences) fclose(s.sentences);
    free(s.found);
    free(s.node);
    free(s.group);
    free(s.members);
    return st;
}
