/* The YAML subset: values and their positions, and a message with name:line:column for everything that is rejected. */
#include "inception/options/config.h"
#include "tests/support/unit.h"

#include <sys/stat.h>
#include <unistd.h>

typedef struct Seen {
    int count;
    char text[2048]; /* "key=value@line:column;" with Q for quoted */
} Seen;

static Status note_entry(void *context, const ConfigEntry *entry)
{
    Seen *seen = context;
    size_t used = strlen(seen->text);
    seen->count++;
    snprintf(seen->text + used, sizeof seen->text - used, "%s=%s@%d:%d%s;", entry->key, entry->value, entry->line,
             entry->column, entry->quoted ? "Q" : "");
    return OK;
}

static void check_read(const char *text, const char *expected)
{
    Seen seen = {0};
    Status st = config_parse("a.yaml", text, strlen(text), note_entry, &seen);
    if (st != OK) fail_msg("refused: %s", status_message());
    assert_string_equal(seen.text, expected);
}

TEST(reads_flat_scalars)
{
    check_read("", "");
    check_read("# only a comment\n", "");
    check_read("---\n", "");
    check_read("lr: 0.1\n", "lr=0.1@1:5;");
    check_read("---\nlr: 0.1 # why\n\nopt:   adam\n...\n", "lr=0.1@2:5;opt=adam@4:8;");
    check_read("a: \"x\\ty # z\"\nb: 'it''s'\n", "a=x\ty # z@1:4Q;b=it's@2:4Q;");
    check_read("gpus: 0,1\nlr-schedule: 0.1;30;0.01\n", "gpus=0,1@1:7;lr-schedule=0.1;30;0.01@2:14;");
    check_read("\xef\xbb\xbflr: 1\r\nb: 2\r\n", "lr=1@1:5;b=2@2:4;");
    check_read("null: off\n", "null=off@1:7;");
    check_read("a: 'null'\nb: \"~\"\nc: '010'\n", "a=null@1:4Q;b=~@2:4Q;c=010@3:4Q;");
    check_read("a: 07\nb: 0\nc: 00\nd: 08\ne: 010.5\nf: nulls\n",
               "a=07@1:4;b=0@2:4;c=00@3:4;d=08@4:4;e=010.5@5:4;f=nulls@6:4;");
}

static const struct {
    const char *text, *place, *about;
} refusals[] = {
    {"lr: !!float 1\n", "a.yaml:1:5:", "tag"},
    {"!x lr: 1\n", "a.yaml:1:1:", "tag"},
    {"--- !x\nlr: 1\n", "a.yaml:1:5:", "tag"},
    {"a: &x 1\n", "a.yaml:1:4:", "anchor"},
    {"&x a: 1\n", "a.yaml:1:1:", "anchor"},
    {"--- &x\na: 1\n", "a.yaml:1:5:", "anchor"},
    {"a: *x\n", "a.yaml:1:4:", "alias"},
    {"*x : 1\n", "a.yaml:1:1:", ""},
    {"a: [0, 1]\n", "a.yaml:1:4:", "list"},
    {"a:\n  - 1\n", "a.yaml:2:3:", "list"},
    {"- a\n", "a.yaml:1:1:", "flag: value"},
    {"a:\n  b: 1\n", "a.yaml:2:3:", "nested"},
    {"a: {b: 1}\n", "a.yaml:1:4:", "nested"},
    {"{a: 1}\n", "a.yaml:1:1:", "{}"},
    {"? [x]\n: 1\n", "a.yaml:1:3:", "list"},
    {"a: |\n  text\n", "a.yaml:1:4:", "block"},
    {"a: >\n  text\n", "a.yaml:1:4:", "block"},
    {"a: one\n  two\n", "a.yaml:1:4:", "several lines"},
    {"a: 1\nb:\n", "a.yaml:2:1:", "no value"},
    {"a: 1\nb: ~\n", "a.yaml:2:4:", "null is no value"},
    {"a: null\n", "a.yaml:1:4:", "null is no value"},
    {"a: Null\n", "a.yaml:1:4:", "null is no value"},
    {"a: NULL # none\n", "a.yaml:1:4:", "null is no value"},
    {"a: 010\n", "a.yaml:1:4:", "octal"},
    {"a: -010\n", "a.yaml:1:4:", "octal"},
    {"a: 0017\n", "a.yaml:1:4:", "octal"},
    {"a: ''\n", "a.yaml:1:1:", "no value"},
    {"a: \"x\\0y\"\n", "a.yaml:1:4:", "NUL"},
    {"a: 1\n---\nb: 2\n", "a.yaml:2:1:", "second document"},
    {"%YAML 1.1\n---\na: 1\n", "a.yaml:1:1:", "directive"},
    {"%TAG ! !x\n---\na: 1\n", "a.yaml:1:1:", "directive"},
    {"a: 1\nb:\t2\n", "a.yaml:2:3:", "tab"},
    {"a: 1 # \tnote\n", "a.yaml:1:8:", "tab"},
    {"just words\n", "a.yaml:1:1:", "flag: value"},
    {"a: 1\n b: 2\n", "a.yaml:1:4:", "several lines"},
    {"a: 1\n  - b\n: 2\n", "a.yaml:", ""},
    {"a: 1\nb: \"open\n", "a.yaml:3:1:", "invalid YAML"},
    {"a: 1\nb: @x\n", "a.yaml:2:4:", "invalid YAML"},
    {"a: \xff\n", "a.yaml:", "UTF-8"},
    {"a: 1\n\x01: 2\n", "a.yaml:", "control"},
};

/* fault: F51 */
TEST(refuses_everything_else)
{
    for (size_t k = 0; k < sizeof refusals / sizeof refusals[0]; k++) {
        Seen seen = {0};
        Status st = config_parse("a.yaml", refusals[k].text, strlen(refusals[k].text), note_entry, &seen);
        if (st != ERR_ARG) fail_msg("'%s' was not refused with ERR_ARG", refusals[k].text);
        if (strncmp(status_message(), refusals[k].place, strlen(refusals[k].place)) ||
            !strstr(status_message(), refusals[k].about))
            fail_msg("'%s': wanted %s ...%s..., got: %s", refusals[k].text, refusals[k].place, refusals[k].about,
                     status_message());
    }
}

/* fault: F51 */
TEST(refuses_bombs)
{
    const size_t bytes = CONFIG_MAX_BYTES + 1;
    char *text = malloc(bytes);
    Seen seen = {0};
    memset(text, '#', bytes);
    assert_int_equal(config_parse("big", text, bytes, note_entry, &seen), ERR_ARG);
    assert_int_equal(config_parse("big", text, bytes - 1, note_entry, &seen), OK);
    memset(text, '[', bytes);
    assert_int_equal(config_parse("deep", text, bytes - 1, note_entry, &seen), ERR_ARG);
    memset(text, '{', bytes);
    assert_int_equal(config_parse("deep", text, bytes - 1, note_entry, &seen), ERR_ARG);
    const char *aliases = "a: &a [x,x]\nb: &b [*a,*a]\nc: &c [*b,*b]\n";
    assert_int_equal(config_parse("laughs", aliases, strlen(aliases), note_entry, &seen), ERR_ARG);
    assert_int_equal(seen.count, 0);
    free(text);
}

static Status list_read(const char *text)
{
    Seen seen = {0};
    return config_parse_lists("a.yaml", text, strlen(text), note_entry, &seen);
}

TEST(refuses_doubtful_items)
{
    assert_int_equal(list_read("seed: [1, 07, '010']\n"), OK);
    assert_int_equal(list_read("seed: [1, 010]\n"), ERR_ARG);
    assert_non_null(strstr(status_message(), "a.yaml:1:11: a number that begins with 0"));
    assert_int_equal(list_read("pretrained:\n  - imagenet\n  - null\n"), ERR_ARG);
    assert_non_null(strstr(status_message(), "a.yaml:3:5: null is no value"));
}

static Status stop_at_once(void *context, const ConfigEntry *entry)
{
    (*(int *)context)++;
    return FAIL(ERR_ARG, "enough: %s", entry->key);
}

TEST(relays_the_visitor)
{
    int calls = 0;
    assert_int_equal(config_parse("a", "x: 1\ny: 2\n", 10, stop_at_once, &calls), ERR_ARG);
    assert_int_equal(calls, 1);
    assert_string_equal(status_message(), "enough: x");
}

TEST(loads_regular_files_only)
{
    char folder[] = "/tmp/towers-config-XXXXXX", path[64], *bytes = NULL;
    size_t count = 0;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/f", folder);
    assert_int_equal(config_load(path, &bytes, &count), ERR_ARG); /* not there */
    assert_int_equal(config_load(folder, &bytes, &count), ERR_ARG);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(config_load(path, &bytes, &count), ERR_ARG); /* and does not wait for a writer */
    unlink(path);
    FILE *file = fopen(path, "w");
    fputs("lr: 1\n", file);
    fclose(file);
    assert_int_equal(config_load(path, &bytes, &count), OK);
    assert_int_equal(count, 6);
    assert_memory_equal(bytes, "lr: 1\n", 6);
    free(bytes);
    assert_int_equal(truncate(path, CONFIG_MAX_BYTES + 1), 0);
    assert_int_equal(config_load(path, &bytes, &count), ERR_ARG);
    unlink(path);
    rmdir(folder);
}
