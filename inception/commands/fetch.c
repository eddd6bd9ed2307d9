/* towers fetch [MODEL[:WEIGHTS] | ADDRESS]: lists published weights, or downloads them into the cache. An address other than those
 * of the table needs its digest: --sha256, or the beginning of it in the file's name, as torchvision names its files. */
#include "inception/commands/commands.h"

#include "inception/job/cached_weights.h"
#include "inception/job/download.h"
#include "inception/models/models.h"
#include "towers/files/json.h"
#include "towers/remote/address.h"

#include <ctype.h>

/* ---- the list */

static bool is_cached(const PublishedRow *row)
{
    char path[PATH_BYTES];
    return cached_path(row->file, path) == OK && sha256_fits(path, row->sha256);
}

static Status row_json(const Options *o, const PublishedRow *row, FILE *to)
{
    char address[PATH_BYTES], path[PATH_BYTES] = "";
    cached_address(o, row, address);
    bool cached = is_cached(row);
    if (cached_path(row->file, path) != OK) *path = 0;
    json_t *root = json_pack("{s:s*, s:s*, s:s*, s:o, s:s, s:s, s:I, s:o, s:b}", "model", row->model, "name", row->name,
                             "title", row->title, "address", json_text(address), "sha256", row->sha256, "license",
                             row->license, "bytes", (json_int_t)row->bytes, "path", json_text(path), "cached", cached);
    return json_emit(root, JSON_COMPACT, to);
}

static Status list_print(const Options *o, const Published *table, FILE *to)
{
    if (!o->json) fputs("weights                             MB  here   what, license\n", to);
    for (int i = 0; published_at(table, i); i++) {
        const PublishedRow *row = published_at(table, i);
        char name[160], size[32] = "?";
        if (o->json) {
            TRY(row_json(o, row, to));
            continue;
        }
        snprintf(name, sizeof name, "%s:%s", row->model, row->name);
        if (row->bytes) snprintf(size, sizeof size, "%.1f", (double)row->bytes / 1e6);
        text_printf(to, "%-28s %9s  %-6s %s (%s)\n", name, size, is_cached(row) ? "yes" : "no", row->title,
                    row->license);
    }
    if (!o->json)
        fprintf(to, "\ntowers fetch MODEL:WEIGHTS downloads one; --pretrained WEIGHTS and --weights WEIGHTS use it\n");
    return OK;
}

/* ---- what is asked for */

/* The longest run of at least 8 hexadecimal digits behind the last dash of a name: "resnet18-f37072fd.pth". */
static bool digest_of_name(const char *file, char digest[SHA256_DIGITS + 1])
{
    const char *dash = strrchr(file, '-');
    size_t count = dash ? strspn(dash + 1, "0123456789abcdef") : 0;
    if (count < SHA256_LEAST || count > SHA256_DIGITS || dash[1 + count] != '.') return false;
    snprintf(digest, SHA256_DIGITS + 1, "%.*s", (int)count, dash + 1);
    return true;
}

/* A row for an address that is in no table. */
static Status address_row(const Options *o, const char *address, char digest[SHA256_DIGITS + 1], PublishedRow *row)
{
    const char *file = strrchr(address, '/') + 1;
    size_t length = strcspn(file, "?#");
    if (address_may_hide(address))
        return FAIL(ERR_ARG, "an address with a user name, a password or a query is not taken, because messages repeat "
                             "it: leave that out");
    bool plain = length > 0 && file[0] != '.' && !file[length];
    for (size_t i = 0; i < length; i++) plain = plain && (isalnum((unsigned char)file[i]) || strchr("._-", file[i]));
    if (!plain) return FAIL(ERR_ARG, "'%s' does not end in the name of a file", address);
    if (o->sha256) {
        size_t digits = strspn(o->sha256, "0123456789abcdef");
        if (digits != SHA256_DIGITS || o->sha256[digits])
            return FAIL(ERR_ARG, "--sha256 '%s': expected 64 hexadecimal digits in lower case", o->sha256);
        snprintf(digest, SHA256_DIGITS + 1, "%s", o->sha256);
    } else if (!digest_of_name(file, digest)) {
        return FAIL(ERR_ARG,
                    "%s is in no table, and its name has no digest as in resnet18-f37072fd.pth, so it cannot be "
                    "verified; give its digest with --sha256",
                    address);
    }
    *row = (PublishedRow){.address = address, .file = file, .sha256 = digest, .license = "license not known"};
    return OK;
}

/* MODEL or MODEL:WEIGHTS. */
static Status name_row(const Published *table, const char *given, PublishedRow *row)
{
    char name[128];
    const Model *model;
    const char *colon = strchr(given, ':');
    snprintf(name, sizeof name, "%.*s", colon ? (int)(colon - given) : (int)strlen(given), given);
    TRY(model_find(name, &model));
    const PublishedRow *found = published_find(table, model->name, colon ? colon + 1 : NULL);
    if (!found) return published_refuse(table, model->name, colon ? colon + 1 : NULL);
    *row = *found;
    return OK;
}

void would_fetch_print(const JobFiles *files, FILE *to)
{
    if (*files->would_fetch) text_printf(to, "weights        to be downloaded: %s\n", files->would_fetch);
}

/* What does the same where there is a network; the file may then be copied. */
static void commands_print(const PublishedRow *row, const char *address, char *path, FILE *to)
{
    char *name = strrchr(path, '/');
    *name = 0;
    fputs("mkdir -p ", to), text_shell(to, path);
    *name = '/';
    fputs("\ncurl -fL -C - -o ", to), text_shell(to, path);
    fputc(' ', to), text_shell(to, address);
    fputs("\nsha256sum ", to), text_shell(to, path);
    text_printf(to, " | grep '^%s'\n", row->sha256);
}

static Status row_fetch(const Options *o, const PublishedRow *row, FILE *to)
{
    char address[PATH_BYTES], path[PATH_BYTES];
    cached_address(o, row, address);
    TRY(cached_path(row->file, path));
    if (o->dry_run) {
        commands_print(row, address, path, to);
        return OK;
    }
    TRY(cached_weights(o, row, path));
    if (o->json) return row_json(o, row, to);
    text_printf(to, "%s\n", path);
    return OK;
}

Status fetch_command(const Options *o, JobFiles *files, FILE *to)
{
    (void)files;
    Published *table;
    PublishedRow row = {0};
    char digest[SHA256_DIGITS + 1];
    const char *given = o->argument_count ? o->arguments[0] : NULL;
    if (o->dry_run && !given) return FAIL(ERR_ARG, "--dry-run needs weights: towers fetch MODEL:WEIGHTS --dry-run");
    bool web = given && (!strncmp(given, "http://", 7) || !strncmp(given, "https://", 8));
    if (o->sha256 && !web) return FAIL(ERR_ARG, "--sha256 is for an address; the table has the digests of its weights");
    TRY(published_open(o->weights_table, &table));
    Status st = !given ? list_print(o, table, to)
                : web  ? address_row(o, given, digest, &row)
                       : name_row(table, given, &row);
    if (st == OK && given) st = row_fetch(o, &row, to);
    published_close(table);
    return st;
}
