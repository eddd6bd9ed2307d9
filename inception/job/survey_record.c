/* The survey of a training's images: made before the first step, kept beside the index of the set, said in the header of the
 * run, and recorded as RUN/survey.json; see job.h. */
#include "inception/job/job.h"
#include "inception/job/progress_line.h"

#include <xxhash.h>

#include "towers/data/listing/index.h"
#include "towers/data/sources/findings.h"

/* More images than this are looked at in part. A kind of finding has this many names in the record. */
enum { LOOKED_MOST = 200000, DECODED = 256, EXAMPLES = 20, VERSION = 4, LINES = 3, KEY_TEXT = 512 };

static void progress_show(void *context, int64_t done, int64_t all)
{
    (void)context;
    progress_count_show("looking at ", "images", done, all);
}

/* ---- kept beside the index */

/* False if the files of a part are listed in no index, so that nothing says whether they have changed. */
static bool key_of(const FindingsConfig *config, uint64_t key[2])
{
    char text[KEY_TEXT];
    Text to = text_start(text, sizeof text);
    text_add(&to, "survey %d %" PRId64 " %" PRId64 " %d %s", VERSION, config->most, config->decoded, config->examples,
             config->turned);
    for (Split part = SPLIT_TRAIN; part < SPLITS; part++) {
        const SourceInfo *info = config->part[part] ? source_info(config->part[part]) : NULL;
        if (info && !info->state) return false;
        if (info)
            text_add(&to, " %" PRIx64 " %" PRId64 " %" PRIx64 "%" PRIx64, info->state, info->count,
                     info->fingerprint[0], info->fingerprint[1]);
    }
    XXH128_hash_t hash = XXH3_128bits(text, to.used);
    key[0] = hash.low64;
    key[1] = hash.high64;
    return true;
}

static Status survey_find(const FindingsConfig *config, json_t **made)
{
    char directory[PATH_BYTES], name[INDEX_NAME_BYTES];
    uint64_t key[2];
    bool kept = key_of(config, key) && index_cache_name(key, "survey", directory, sizeof directory, name);
    *made = kept ? json_of_run(directory, name) : NULL;
    if (json_is_array(json_object_get(*made, "findings"))) return OK;
    json_decref(*made);
    TRY(findings_make(config, made));
    if (json_whole(*made, "away")) return OK; /* next time more of them may be on this machine */
    if (kept && directory_create(directory) == OK)
        (void)!json_replace(directory, name, json_incref(*made), JSON_COMPACT);
    return OK;
}

/* ---- */

/* What was left out is said by lines of its own. */
static bool is_said(const json_t *row)
{
    return json_is_true(json_object_get(row, "left_out"));
}

/* A line each, or the gravest and in the last line the numbers of all others. */
static void lines_print(const json_t *findings, FILE *to)
{
    size_t i, said = 0, all = 0;
    json_t *row;
    json_array_foreach(findings, i, row) all += !is_said(row);
    json_array_foreach(findings, i, row)
    {
        if (is_said(row)) continue;
        bool whole = all <= LINES || said < LINES - 1;
        if (said > 0 && (whole || said == LINES - 1)) fputc('\n', to);
        if (whole)
            text_printf(to, "%-14s %s", said ? "" : "survey", json_word_or_empty(row, "text"));
        else
            text_printf(to, "%s%" PRId64 " %s", said == LINES - 1 ? "               also " : ", ",
                        json_whole(row, "count"), json_word_or_empty(row, "kind"));
        said++;
    }
    if (all > LINES) fputs(": towers data check DIR names all", to);
    if (all) fputc('\n', to);
}

Status job_survey(const Options *o, JobFiles *files)
{
    TrainJob *job = &files->job;
    json_t *root;
    Draft draft;
    if (o->dry_run || o->print_config || source_info(job->train)->h > 0) return OK;
    FindingsConfig config = {.part = {[SPLIT_TRAIN] = job->train, [SPLIT_VAL] = files->test},
                             .turned = o->exif ? "are turned upright (--exif)"
                                               : "are used as stored; --exif turns them upright",
                             .most = LOOKED_MOST,
                             .decoded = DECODED,
                             .examples = EXAMPLES,
                             .progress = progress_show};
    TRY(survey_find(&config, &root));
    files->survey = json_dumps(root, JSON_INDENT(2));
    job->surveyed = json_whole(root, "images") == json_whole(root, "looked");
    Status st = draft_begin(&draft, "the survey of the images");
    if (st == OK) {
        lines_print(json_object_get(root, "findings"), draft.to);
        st = draft_end(&draft, OK);
        files->survey_lines = st == OK ? draft.text : NULL;
    }
    json_decref(root);
    if (st == OK && !files->survey) st = FAIL(ERR_MEMORY, "no memory for the survey of the images");
    job->survey = files->survey;
    job->survey_lines = files->survey_lines;
    return st;
}
