/* Sending files to S3; see send.h. */
#include "towers/remote/send.h"

#include <openssl/evp.h>

#include "kernels/base/text.h"
#include "kernels/base/timeouts.h"
#include "towers/remote/elements.h"

enum { PART_LEAST = 16 << 20, PART_UNIT = 1 << 20, PARTS_MOST = 9000 /* S3 takes 10,000 */, PARTS_AT_ONCE = 4 };
enum { MD5_BYTES = 16, MD5_HEX_BYTES = 2 * MD5_BYTES + 1, TRIES = 3 };
enum { QUERY_BYTES = 2048, UPLOAD_ID_BYTES = 1024, ETAG_BYTES = 64 };

typedef struct SendPart {
    Transfer transfer;
    Sending sending;
    char query[QUERY_BYTES];
    unsigned char *bytes; /* owned */
    int64_t reported;     /* bytes */
    int number;           /* from 0; -1: the slot is free */
    const struct SendJob *job;
} SendPart;

typedef struct SendJob {
    Transport *transport;
    const SendWatch *watch;
    int fd;
    const char *path, *address;
    int64_t bytes, part_bytes;
    int parts;
    unsigned char (*md5)[MD5_BYTES]; /* owned: of each part */
    char (*etag)[VERSION_BYTES];     /* owned: what the store says of it */
    bool lost;                       /* a request failed in a way that may pass: the store is out of reach */
    bool digests;                    /* this machine has MD5: FIPS leaves it out */
    bool opaque;                     /* the ETag says nothing of the content */
    bool only_new;                   /* the object must not be there */
    long answer;                     /* to the last part that has ended */
    char id[UPLOAD_ID_BYTES];        /* of an upload in parts; "": none is open */
    SendPart slot[PARTS_AT_ONCE];
} SendJob;

/* ---- digests */

static void hex_print(const unsigned char *bytes, size_t count, char *hex, size_t room)
{
    Text text = text_start(hex, room);
    text_hex(&text, bytes, count);
}

static Status body_digest(SendJob *job, const void *bytes, size_t count, Sending *sending, unsigned char md5[MD5_BYTES])
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned length;
    sending->bytes = bytes;
    sending->count = count;
    *sending->md5 = 0;
    if (EVP_Digest(bytes, count, digest, &length, EVP_sha256(), NULL) != 1)
        return FAIL(ERR_INTERNAL, "libcrypto makes no digest");
    hex_print(digest, length, sending->sha256, sizeof sending->sha256);
    job->digests &= EVP_Digest(bytes, count, md5, &length, EVP_md5(), NULL) == 1;
    if (job->digests) EVP_EncodeBlock((unsigned char *)sending->md5, md5, MD5_BYTES);
    return OK;
}

/* The ETag that a store gives to what has these digests: of one part its MD5, else the MD5 of all of these, and their number. */
static void etag_print(const SendJob *job, char etag[ETAG_BYTES])
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned length;
    char hex[MD5_HEX_BYTES];
    *etag = 0;
    if (!job->digests) return;
    if (job->parts == 1) {
        hex_print(job->md5[0], MD5_BYTES, hex, sizeof hex);
        snprintf(etag, ETAG_BYTES, "\"%s\"", hex);
    } else if (EVP_Digest(job->md5, (size_t)job->parts * MD5_BYTES, digest, &length, EVP_md5(), NULL) == 1) {
        hex_print(digest, MD5_BYTES, hex, sizeof hex);
        snprintf(etag, ETAG_BYTES, "\"%s-%d\"", hex, job->parts);
    }
}

/* "0123456789abcdef0123456789abcdef", in quotes: stores that have other ETags compare the digests of a request alone. */
static bool is_md5(const char *etag)
{
    return strlen(etag) >= MD5_HEX_BYTES + 1 && strspn(etag + 1, "0123456789abcdef") == MD5_HEX_BYTES - 1 &&
           strchr("\"-", etag[MD5_HEX_BYTES]);
}

static Status part_read(const SendJob *job, int number, unsigned char *to, size_t *count)
{
    int64_t at = number * job->part_bytes, left = job->bytes - at;
    *count = (size_t)(left < job->part_bytes ? left : job->part_bytes);
    return *count ? file_pread(job->fd, job->path, (uint64_t)at, to, *count) : OK;
}

/* ---- what the store has */

/* *etag: that of the object, "" if it is not there. Who may not list a bucket gets 403 for what is not there. */
static Status object_ask(const SendJob *job, int64_t *bytes, char etag[VERSION_BYTES])
{
    Transfer t = {.address = job->address,
                  .fd = -1,
                  .head = true,
                  .bytes = -1,
                  .watch = {.again = job->watch->again, .context = job->watch->context}};
    Status st = transport_run(job->transport, &t);
    *bytes = -1;
    *etag = 0;
    if (t.done && t.status != OK && (t.answer == 404 || t.answer == 403)) return OK;
    TRY(st);
    *bytes = t.bytes;
    snprintf(etag, VERSION_BYTES, "%s", t.version);
    return OK;
}

/* Does the store have the very bytes of the file? It is read if length and form of the ETag allow it. */
static Status is_there(SendJob *job, bool *there)
{
    char etag[VERSION_BYTES], own[ETAG_BYTES];
    int64_t bytes;
    size_t count;
    Sending sending;
    *there = false;
    TRY(object_ask(job, &bytes, etag));
    if (bytes != job->bytes || !is_md5(etag)) return OK;
    for (int i = 0; i < job->parts; i++) {
        TRY(part_read(job, i, job->slot[0].bytes, &count));
        TRY(body_digest(job, job->slot[0].bytes, count, &sending, job->md5[i]));
    }
    etag_print(job, own);
    *there = job->digests && !strcmp(etag, own);
    return OK;
}

static Status object_verify(const SendJob *job)
{
    char etag[VERSION_BYTES], own[ETAG_BYTES];
    int64_t bytes;
    TRY(object_ask(job, &bytes, etag));
    etag_print(job, own);
    bool other = !job->opaque && *own && is_md5(etag) && strcmp(etag, own) != 0;
    if (bytes == job->bytes && !other) return OK;
    return FAIL(ERR_FORMAT,
                "%s is not what was sent: the store says that it has %" PRId64
                " bytes and the ETag %s, expected %" PRId64 " and %s",
                job->address, bytes, *etag ? etag : "(none)", job->bytes, *own ? own : "any");
}

/* ---- requests */

/* A try that begins anew has not come as far at first. */
static void part_progress(void *context, int64_t done, int64_t all)
{
    SendPart *part = context;
    (void)all;
    if (done <= part->reported || !part->job->watch->progress) return;
    part->job->watch->progress(part->job->watch->context, done - part->reported);
    part->reported = done;
}

static void part_again(void *context, const char *line)
{
    const SendPart *part = context;
    if (part->job->watch->again) part->job->watch->again(part->job->watch->context, line);
}

/* Its sending, and `query`, are filled in. */
static void part_start(SendJob *job, SendPart *part)
{
    part->job = job;
    part->reported = 0;
    part->sending.query = part->query;
    part->transfer = (Transfer){.address = job->address,
                                .path = job->path,
                                .fd = -1,
                                .sends = &part->sending,
                                .bytes = (int64_t)part->sending.count,
                                .watch = {part_progress, part_again, part}};
    transport_start(job->transport, &part->transfer);
}

/* A request of its own, in the first slot. */
static Status request_run(SendJob *job, const char *method, const char *body)
{
    SendPart *part = &job->slot[0];
    unsigned char md5[MD5_BYTES];
    part->sending.method = method;
    TRY(body_digest(job, body, strlen(body), &part->sending, md5));
    part_start(job, part);
    while (!part->transfer.done) TRY(transport_wait(job->transport, NET_WAIT_MS));
    job->lost |= part->transfer.status != OK && part->transfer.passes;
    return part->transfer.status == OK ? OK : status_restore(part->transfer.status, &part->transfer.why);
}

static Status part_begin(SendJob *job, SendPart *part, int number)
{
    size_t count;
    Text query = text_start(part->query, sizeof part->query);
    if (*job->id) text_add(&query, "partNumber=%d&uploadId=%s", number + 1, job->id);
    part->sending = (Sending){.method = "PUT", .only_new = job->only_new};
    TRY(part_read(job, number, part->bytes, &count));
    TRY(body_digest(job, part->bytes, count, &part->sending, job->md5[number]));
    part->number = number;
    part_start(job, part);
    return OK;
}

static Status part_ended(SendJob *job, SendPart *part)
{
    char hex[MD5_HEX_BYTES];
    const Transfer *t = &part->transfer;
    int number = part->number;
    part->number = -1;
    job->lost |= t->status != OK && t->passes;
    job->answer = t->answer;
    if (t->status != OK) return status_restore(t->status, &t->why);
    snprintf(job->etag[number], VERSION_BYTES, "%s", t->version);
    job->opaque |= part->sending.opaque;
    hex_print(job->md5[number], MD5_BYTES, hex, sizeof hex);
    if (job->opaque || !job->digests || !is_md5(t->version) || !strncmp(t->version + 1, hex, MD5_HEX_BYTES - 1))
        return OK;
    return FAIL(ERR_FORMAT, "%s: of part %d the store says that it has the ETag %s, expected \"%s\"", job->address,
                number + 1, t->version, hex);
}

static Status parts_send(SendJob *job)
{
    int next = 0, active = 0;
    for (int i = 0; i < PARTS_AT_ONCE; i++) job->slot[i].number = -1;
    do {
        for (int i = 0; i < PARTS_AT_ONCE; i++) {
            SendPart *part = &job->slot[i];
            if (part->number >= 0 && part->transfer.done) {
                active--;
                TRY(part_ended(job, part));
            }
            if (part->number >= 0 || next == job->parts) continue;
            TRY(part_begin(job, part, next++));
            active++;
        }
        if (active) TRY(transport_wait(job->transport, NET_WAIT_MS));
    } while (active);
    return OK;
}

/* ---- uploads in parts */

/* What stands in a query, as it is signed. */
static bool id_encode(const char *id, char *encoded, size_t bytes)
{
    Text text = text_start(encoded, bytes);
    for (; *id; id++) {
        bool as_is = (*id >= '0' && *id <= '9') || (*id >= 'A' && *id <= 'Z') || (*id >= 'a' && *id <= 'z') ||
                     strchr("-._~", *id);
        text_add(&text, as_is ? "%c" : "%%%02X", (unsigned char)*id);
    }
    return !text.truncated;
}

static Status parts_open(SendJob *job)
{
    char id[UPLOAD_ID_BYTES];
    SendPart *part = &job->slot[0];
    const char *answer = part->sending.answer;
    size_t bytes;
    snprintf(part->query, sizeof part->query, "uploads=");
    TRY(request_run(job, "POST", ""));
    const char *found = element_find(answer, answer + part->sending.answered, "UploadId", &bytes);
    if (found && bytes && element_text(found, bytes, id, sizeof id) && id_encode(id, job->id, sizeof job->id))
        return OK;
    *job->id = 0;
    return FAIL(ERR_FORMAT, "%s: the answer to an upload in parts has no <UploadId>: '%.60s'", job->address, answer);
}

/* Stores begin this answer before they know how it ends, so that 200 alone says nothing. */
static Status parts_join(SendJob *job)
{
    SendPart *part = &job->slot[0];
    enum { EACH = VERSION_BYTES + 64 };
    size_t room = ((size_t)job->parts + 1) * EACH;
    char *body = malloc(room);
    if (!body) return FAIL(ERR_MEMORY, "no memory for the list of %d parts", job->parts);
    Text text = text_start(body, room);
    text_add(&text, "<CompleteMultipartUpload>");
    for (int i = 0; i < job->parts; i++)
        text_add(&text, "<Part><PartNumber>%d</PartNumber><ETag>%s</ETag></Part>", i + 1, job->etag[i]);
    text_add(&text, "</CompleteMultipartUpload>");
    snprintf(part->query, sizeof part->query, "uploadId=%s", job->id);
    Status st = request_run(job, "POST", body);
    free(body);
    TRY(st);
    if (strstr(part->sending.answer, "<CompleteMultipartUploadResult")) return OK;
    return FAIL(ERR_FORMAT, "%s: the store has not joined the parts: '%.200s'", job->address, part->sending.answer);
}

/* End all requests. Parts that have come would be paid for; but who has just waited for the store does not wait again. */
static void parts_drop(SendJob *job)
{
    SendPart *part = &job->slot[0];
    transport_abandon(job->transport);
    if (!*job->id || job->lost) return;
    snprintf(part->query, sizeof part->query, "uploadId=%s", job->id);
    (void)!request_run(job, "DELETE", "");
    *job->id = 0;
}

static Status object_send(SendJob *job)
{
    if (job->parts == 1) {
        TRY(parts_send(job));
        return object_verify(job);
    }
    TRY(parts_open(job));
    Status st = parts_send(job);
    if (st == OK) st = parts_join(job);
    if (st == OK) *job->id = 0;
    return st == OK ? object_verify(job) : st;
}

/* ---- */

static Status job_make(SendJob *job)
{
    job->part_bytes = PART_LEAST;
    while (job->bytes / job->part_bytes >= PARTS_MOST) job->part_bytes += PART_UNIT;
    job->parts = job->bytes ? (int)((job->bytes + job->part_bytes - 1) / job->part_bytes) : 1;
    job->md5 = calloc((size_t)job->parts, sizeof *job->md5);
    job->etag = calloc((size_t)job->parts, sizeof *job->etag);
    bool made = job->md5 && job->etag;
    size_t room = (size_t)(job->bytes < job->part_bytes ? job->bytes + 1 : job->part_bytes);
    for (int i = 0; i < PARTS_AT_ONCE && i < job->parts; i++) made &= (job->slot[i].bytes = malloc(room)) != NULL;
    return made ? OK : FAIL(ERR_MEMORY, "no memory to send '%s'", job->path);
}

static void job_free(SendJob *job)
{
    for (int i = 0; i < PARTS_AT_ONCE; i++) free(job->slot[i].bytes);
    free(job->etag);
    free(job->md5);
    free(job);
}

Status send_new(Transport *transport, const SendWatch *watch, int fd, const char *path, int64_t bytes,
                const char *address, bool *made)
{
    enum { IS_THERE = 412, UNKNOWN_REQUEST = 501 };
    SendJob *job = calloc(1, sizeof *job);
    if (!job) return FAIL(ERR_MEMORY, "no memory to send '%s'", path);
    *job = (SendJob){transport, watch, fd, path, address, bytes, .digests = true, .only_new = true};
    Status st = job_make(job);
    if (st == OK) st = parts_send(job);
    job->only_new = false;
    if (st != OK && job->answer == UNKNOWN_REQUEST) st = parts_send(job);
    *made = st == OK;
    if (job->answer == IS_THERE) st = OK;
    if (st != OK) transport_abandon(transport);
    job_free(job);
    return st;
}

Status send_file(Transport *transport, const SendWatch *watch, int fd, const char *path, int64_t bytes,
                 const char *address, bool *sent)
{
    bool there = false;
    StatusText words;
    SendJob *job = calloc(1, sizeof *job);
    if (!job) return FAIL(ERR_MEMORY, "no memory to send '%s'", path);
    *job = (SendJob){transport, watch, fd, path, address, bytes, .digests = true};
    Status st = job_make(job);
    if (st == OK) st = is_there(job, &there);
    for (int i = 0; st == OK && !there && i < TRIES; i++) {
        st = object_send(job);
        if (st == OK) break;
        status_keep(&words);
        parts_drop(job);
        st = status_restore(st, &words);
        if (st != ERR_FORMAT || i + 1 == TRIES) break;
        if (watch->again) watch->again(watch->context, status_message());
        st = OK;
    }
    if (st != OK) transport_abandon(transport);
    *sent = st == OK && !there;
    job_free(job);
    return st;
}
