/* Fault points; see fault.h. Empty without TOWERS_FAULTS. */
#include "towers/replica/fault.h"

#ifdef TOWERS_FAULTS

#include "kernels/progress.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static Fault faults[FAULTS_MAX];
static int faults_used;
static char faults_given[1024];

static const char *const kind_names[] = {
    [FAULT_NONE] = "none",   [FAULT_NAN] = "nan",         [FAULT_INF] = "inf",
    [FAULT_HANG] = "hang",   [FAULT_EXIT] = "exit",       [FAULT_KILL] = "kill",
    [FAULT_DELAY] = "delay", [FAULT_BITFLIP] = "bitflip", [FAULT_CRAWL] = "crawl",
};

static Status kind_parse(const char *text, FaultKind *kind)
{
    for (int k = FAULT_NAN; k <= FAULT_CRAWL; k++) {
        if (strcmp(text, kind_names[k])) continue;
        *kind = (FaultKind)k;
        return OK;
    }
    return FAIL(ERR_ARG, "TOWERS_FAULT: unknown kind '%s'; use one of nan inf hang exit kill delay bitflip crawl",
                text);
}

static Status activity_parse(const char *text, int *activity)
{
    for (int p = 0; p < ACTIVITY_COUNT; p++) {
        if (strcmp(text, activity_name((Activity)p))) continue;
        *activity = p;
        return OK;
    }
    return FAIL(ERR_ARG, "TOWERS_FAULT: unknown activity '%s'", text);
}

static Status where_parse(const char *text, Fault *fault)
{
    bool both = !strcmp(text, "both");
    fault->loss = both || !strcmp(text, "loss");
    fault->grad = both || !strcmp(text, "grad");
    fault->weights = !strcmp(text, "weights");
    fault->statistics = !strcmp(text, "statistics");
    fault->slot = !strcmp(text, "slot");
    if (fault->loss || fault->grad || fault->weights || fault->statistics || fault->slot) return OK;
    return FAIL(ERR_ARG, "TOWERS_FAULT: unknown place '%s'; use one of loss grad both weights statistics slot", text);
}

static Status field_parse(char *field, Fault *fault)
{
    char *value = strchr(field, '=');
    if (!value) return FAIL(ERR_ARG, "TOWERS_FAULT: '%s' is not key=value", field);
    *value++ = 0;
    if (!strcmp(field, "activity") || !strcmp(field, "phase")) /* as capsules of 0.1.0-dev call it */
        return activity_parse(value, &fault->activity);
    if (!strcmp(field, "layer")) {
        snprintf(fault->layer, sizeof fault->layer, "%s", value);
        return OK;
    }
    if (!strcmp(field, "where")) return where_parse(value, fault);
    char *end;
    long long number = strtoll(value, &end, 10);
    if (end == value || *end) return FAIL(ERR_ARG, "TOWERS_FAULT: '%s=%s' needs a number", field, value);
    if (!strcmp(field, "tower"))
        fault->tower = (int)number;
    else if (!strcmp(field, "step"))
        fault->step = number;
    else if (!strcmp(field, "ms"))
        fault->ms = (int)number;
    else if (!strcmp(field, "index"))
        fault->index = number;
    else
        return FAIL(ERR_ARG, "TOWERS_FAULT: unknown key '%s'; use one of tower step activity layer index where ms",
                    field);
    return OK;
}

static Status fault_parse(char *text, Fault *fault)
{
    *fault = (Fault){.activity = ACTIVITY_FORWARD, .ms = 20, .step = 1, .index = -1, .loss = true, .grad = true};
    char *fields = strchr(text, ':'), *rest = NULL;
    if (fields) *fields++ = 0;
    TRY(kind_parse(text, &fault->kind));
    for (char *field = fields ? strtok_r(fields, ",", &rest) : NULL; field; field = strtok_r(NULL, ",", &rest))
        TRY(field_parse(field, fault));
    return OK;
}

Status faults_load_text(const char *text)
{
    char copy[sizeof faults_given], *rest = NULL;
    faults_used = 0;
    faults_given[0] = 0;
    if (snprintf(copy, sizeof copy, "%s", text) >= (int)sizeof copy) return FAIL(ERR_ARG, "TOWERS_FAULT is too long");
    for (char *one = strtok_r(copy, ";", &rest); one; one = strtok_r(NULL, ";", &rest)) {
        if (faults_used == FAULTS_MAX) return FAIL(ERR_ARG, "TOWERS_FAULT: more than %d faults", FAULTS_MAX);
        TRY(fault_parse(one, &faults[faults_used]));
        faults_used++;
    }
    snprintf(faults_given, sizeof faults_given, "%s", text);
    return OK;
}

Status faults_load(void)
{
    const char *text = getenv("TOWERS_FAULT");
    return faults_load_text(text ? text : "");
}

const char *faults_text(void)
{
    return faults_given;
}

int fault_count(void)
{
    return faults_used;
}

const Fault *fault_at(int index)
{
    return &faults[index];
}

static void crawl(int ms)
{
    const struct timespec piece = {0, 50 * 1000000L};
    for (int done = 0; done < ms; done += 50) {
        progress_made("crawling");
        nanosleep(&piece, NULL);
    }
}

static void strike(const Fault *fault)
{
    struct timespec pause_for = {fault->ms / 1000, (fault->ms % 1000) * 1000000L};
    switch (fault->kind) {
    case FAULT_HANG:
        for (;;) pause();
    case FAULT_EXIT: _exit(42);
    case FAULT_KILL: kill(getpid(), SIGKILL); break;
    case FAULT_DELAY: nanosleep(&pause_for, NULL); break;
    case FAULT_CRAWL: crawl(fault->ms); break;
    default: break;
    }
}

void fault_strike(int tower, int64_t step, Activity activity)
{
    for (int i = 0; i < faults_used; i++) {
        const Fault *fault = &faults[i];
        bool now = fault->kind == FAULT_DELAY ? step >= fault->step : step == fault->step;
        if (now && fault->tower == tower && fault->activity == (int)activity) strike(fault);
    }
}

const Fault *fault_of(FaultKind kind, int tower, int64_t step)
{
    for (int i = 0; i < faults_used; i++)
        if (faults[i].kind == kind && faults[i].tower == tower && faults[i].step == step) return &faults[i];
    return NULL;
}

const Fault *fault_poison(int tower, int64_t step)
{
    const Fault *fault = fault_of(FAULT_NAN, tower, step);
    return fault ? fault : fault_of(FAULT_INF, tower, step);
}

const Fault *fault_once(FaultKind kind, int tower, int64_t step)
{
    for (int i = 0; i < faults_used; i++) {
        Fault *fault = &faults[i];
        if (fault->kind != kind || fault->tower != tower || fault->step != step || fault->spent) continue;
        fault->spent = true;
        return fault;
    }
    return NULL;
}

#endif
