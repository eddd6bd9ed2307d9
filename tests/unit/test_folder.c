/* Folders of images: classes, order and labels by torchvision's rules; --val-split; the index and its cache; and what
 * is rejected. Images are PGM of one pixel, whose value identifies them. */

#include <fcntl.h>
#include <sched.h>
#include <sys/wait.h>

#include "tests/support/scratch.h"
#include "tests/support/unit.h"
#include "towers/data/listing/endings.h"
#include "towers/data/listing/index.h"
#include "towers/data/listing/names.h"
#include "towers/data/sources/paths.h"
#include "towers/files/files.h"
#include "towers/files/utf8.h"

static char set[PATH_BYTES];

static void folder_make(const char *name)
{
    char path[PATH_BYTES];
    assert_int_equal(path_join(path, set, name), OK);
    assert_int_equal(directory_create(path), OK);
}

static void file_make(const char *name, int value)
{
    char path[PATH_BYTES], text[32];
    int n = snprintf(text, sizeof text, "P2 1 1 255 %d\n", value);
    assert_int_equal(path_join(path, set, name), OK);
    assert_int_equal(file_replace(path, text, (size_t)n), OK);
}

/* Until the next call. */
static const char *scratch_named(const char *name)
{
    static char path[PATH_BYTES];
    scratch_path(path, name);
    return path;
}

static int set_up(void **state)
{
    int code = scratch_and_cache_make(state);
    scratch_path(set, "set");
    return code || directory_create(set) != OK;
}

static Source *opened(Split split, double val_split)
{
    Source *s = NULL;
    if (source_open(&(SourceConfig){.path = set, .val_split = val_split}, split, &s) != OK)
        fail_msg("%s", status_message());
    return s;
}

static void refused(Split split, double val_split, Status code, const char *why)
{
    Source *s = NULL;
    assert_int_equal(source_open(&(SourceConfig){.path = set, .val_split = val_split}, split, &s), code);
    if (!strstr(status_message(), why)) fail_msg("no '%s' in: %s", why, status_message());
}

/* Where sample i lies, below the set's folder, and its label. */
static void expect_sample(const Source *s, int64_t i, const char *name, int label)
{
    char where[PATH_BYTES];
    Bytes bytes = {0};
    int32_t found = -1;
    source_where(s, i, where, sizeof where);
    assert_string_equal(where + strlen(set) + 1, name);
    assert_int_equal(source_read(s, i, &bytes, &found), OK);
    assert_int_equal(found, label);
    assert_memory_equal(bytes.data, "P2 1 1", 6);
    bytes_free(&bytes);
}

TEST_WITH(test_tree, set_up, scratch_drop)
{
    folder_make("train/b/deep/er");
    folder_make("train/a");
    folder_make("train/b/deep-er");
    folder_make("val/b");
    file_make("train/b/z.PGM", 1);
    file_make("train/b/B.pgm", 2);
    file_make("train/b/deep/x.pgm", 3);
    file_make("train/b/deep/er/a.ppm", 4);
    file_make("train/b/deep-er/a.pgm", 5);
    file_make("train/b/notes.txt", 6);
    file_make("train/a/1.pgm", 7);
    file_make("val/b/1.pgm", 8);
    Source *train = opened(SPLIT_TRAIN, 0), *val = opened(SPLIT_VAL, 0);
    const SourceInfo *info = source_info(train);
    assert_int_equal(info->count, 6);
    assert_int_equal(info->classes, 2);
    assert_int_equal(info->c, 3);
    assert_string_equal(info->name, "set");
    assert_string_equal(info->class_names[0], "a");
    assert_string_equal(info->class_names[1], "b");
    /* as torchvision sorts: folders by their whole path ('-' comes before '/'), then names, capitals first */
    expect_sample(train, 0, "train/a/1.pgm", 0);
    expect_sample(train, 1, "train/b/B.pgm", 1);
    expect_sample(train, 2, "train/b/z.PGM", 1);
    expect_sample(train, 3, "train/b/deep/x.pgm", 1);
    expect_sample(train, 4, "train/b/deep-er/a.pgm", 1);
    expect_sample(train, 5, "train/b/deep/er/a.ppm", 1);
    assert_int_equal(source_info(val)->count, 1);
    expect_sample(val, 0, "val/b/1.pgm", 1); /* the training's label, though its set has one class */
    source_close(train);
    source_close(val);
}

TEST_WITH(test_divided, set_up, scratch_drop)
{
    char name[64];
    for (int c = 0; c < 2; c++) {
        snprintf(name, sizeof name, "%c", 'a' + c);
        folder_make(name);
        for (int i = 0; i < 40 - 20 * c; i++) {
            snprintf(name, sizeof name, "%c/%d.pgm", 'a' + c, i);
            file_make(name, i + 40 * c);
        }
    }
    refused(SPLIT_TRAIN, 0, ERR_ARG, "--val-split 0.1");
    Source *train = opened(SPLIT_TRAIN, 0.1), *val = opened(SPLIT_VAL, 0.1);
    assert_int_equal(source_info(train)->count, 54);
    assert_int_equal(source_info(val)->count, 6); /* 4 of 40 and 2 of 20 */
    bool seen[2][40] = {{false}};
    int of_class[2] = {0};
    for (int k = 0; k < 2; k++) {
        const Source *s = k ? val : train;
        for (int64_t i = 0; i < source_info(s)->count; i++) {
            char where[PATH_BYTES], c;
            int number;
            source_where(s, i, where, sizeof where);
            assert_int_equal(sscanf(where + strlen(set) + 1, "%c/%d.pgm", &c, &number), 2);
            assert_false(seen[c - 'a'][number]);
            seen[c - 'a'][number] = true;
            of_class[c - 'a'] += k;
        }
    }
    assert_true(of_class[0] == 4 && of_class[1] == 2);
    source_close(train);
    source_close(val);
}

/* The parts of the numbers of the files "CLASS/NUMBER.pgm": 1 for evaluation. */
static void parts_find(bool apart, bool part[2][40])
{
    for (int k = 0; k < 2; k++) {
        Source *s = NULL;
        SourceConfig config = {.path = set, .val_split = 0.25, .equal_apart = apart};
        assert_int_equal(source_open(&config, k ? SPLIT_VAL : SPLIT_TRAIN, &s), OK);
        for (int64_t i = 0; i < source_info(s)->count; i++) {
            char where[PATH_BYTES], c;
            int number;
            source_where(s, i, where, sizeof where);
            assert_int_equal(sscanf(where + strlen(set) + 1, "%c/%d.pgm", &c, &number), 2);
            part[c - 'a'][number] = k;
        }
        source_close(s);
    }
}

/* Equal files are in one part, within a class and across classes, unless the division is that of an earlier version; and a
 * class of copies keeps its training images. */
TEST_WITH(test_divided_together, set_up, scratch_drop)
{
    char name[64];
    folder_make("a");
    folder_make("b");
    folder_make("c");
    for (int i = 0; i < 40; i++) {
        snprintf(name, sizeof name, "a/%d.pgm", i);
        file_make(name, 100 + i / 2); /* in pairs */
        snprintf(name, sizeof name, "b/%d.pgm", i);
        file_make(name, i % 2 ? 100 + i / 2 : 200 + i / 2); /* and every second one again in another class */
        snprintf(name, sizeof name, "c/%d.pgm", i);
        if (i < 4) file_make(name, 7);
    }
    bool together[2][40], apart[2][40];
    int pairs = 0, evaluated = 0;
    Source *whole = NULL;
    SourceConfig config = {.path = set, .val_split = 0.25};
    assert_int_equal(source_open(&config, SPLIT_TRAIN, &whole), OK);
    int64_t images[3];
    source_classes_count(whole, images);
    assert_int_equal(images[2], 4);
    source_close(whole);
    char path[PATH_BYTES];
    assert_int_equal(path_join(path, set, "c"), OK);
    assert_int_equal(tree_remove(path), OK);
    parts_find(false, together);
    parts_find(true, apart);
    for (int i = 0; i < 40; i++) {
        assert_int_equal(together[0][i], together[0][i / 2 * 2]);
        if (i % 2) assert_int_equal(together[1][i], together[0][i]);
        if (i % 2 == 0) assert_int_equal(together[1][i], apart[1][i]); /* unlike all others */
        pairs += apart[0][i] != apart[0][i / 2 * 2];
        evaluated += together[0][i];
    }
    assert_in_range(evaluated, 2, 20);
    assert_in_range(pairs, 1, 20); /* by names alone some are torn apart */
}

/* However small or large its part is, each split has an image of those in a labels file. */
TEST_WITH(test_divided_labels, set_up, scratch_drop)
{
    scratch_put("set/labels.csv", "file,labels\n0.pgm,x\n1.pgm,y\n2.pgm,x y\n");
    file_make("0.pgm", 0);
    file_make("1.pgm", 1);
    file_make("2.pgm", 2);
    usleep(50000); /* so that an index is trusted, also by who divides otherwise */
    const double part[] = {0.01, 0.5, 0.9};
    const int64_t tests[] = {1, 2, 2};
    for (int i = 0; i < 3; i++) {
        Source *train = opened(SPLIT_TRAIN, part[i]), *val = opened(SPLIT_VAL, part[i]);
        assert_int_equal(source_info(val)->count, tests[i]);
        assert_int_equal(source_info(train)->count, 3 - tests[i]);
        source_close(train);
        source_close(val);
    }
    scratch_put("set/labels.csv", "file,labels\n0.pgm,x\n");
    refused(SPLIT_TRAIN, 0.5, ERR_FORMAT, "cannot divide one image");
    for (int i = 0; i < 2; i++) {
        file_make(i ? "1.pgm" : "0.pgm", 3);
        file_make("2.pgm", 3 + i);
        scratch_put("set/labels.csv",
                    i ? "file,labels\n0.pgm,x\n1.pgm,y\n2.pgm,y\n" : "file,labels\n0.pgm,x\n2.pgm,y\n");
        if (i == 0) refused(SPLIT_VAL, 0.5, ERR_FORMAT, "as all are equal");
    }
    Source *train = opened(SPLIT_TRAIN, 0.5);
    char where[2][PATH_BYTES];
    assert_true(source_info(train)->count == 1 ||
                source_info(train)->count == 2); /* 2.pgm, or the two that are equal */
    source_where(train, 0, where[0], sizeof where[0]);
    assert_int_equal(!strcmp(where[0] + strlen(set), "/2.pgm"), source_info(train)->count == 1);
    source_close(train);
}

/* The index is used again while nothing has changed, and built again when a folder has. */
TEST_WITH(test_index_is_kept, set_up, scratch_drop)
{
    folder_make("train/a");
    folder_make("val/a");
    file_make("train/a/1.pgm", 1);
    file_make("val/a/1.pgm", 1);
    Source *s = opened(SPLIT_TRAIN, 0);
    uint64_t first = source_info(s)->fingerprint[0];
    source_close(s);
    s = opened(SPLIT_TRAIN, 0);
    assert_int_equal(source_info(s)->count, 1);
    assert_true(source_info(s)->fingerprint[0] == first);
    file_make("train/a/2.pgm", 2); /* perhaps at the same time, by the clock of the file system */
    Source *again = opened(SPLIT_TRAIN, 0);
    assert_int_equal(source_info(again)->count, 2);
    assert_true(source_info(again)->fingerprint[0] != first);
    assert_int_equal(source_info(s)->count, 1); /* who has opened the set before keeps what he has */
    source_close(s);
    source_close(again);
}

/* tar, rsync and cp -a give a folder the time that it had elsewhere, which may be the time of before. */
TEST_WITH(test_times_are_restored, set_up, scratch_drop)
{
    char folder[PATH_BYTES];
    struct stat before;
    folder_make("train/a");
    folder_make("val/a");
    file_make("train/a/1.pgm", 1);
    file_make("val/a/1.pgm", 1);
    assert_int_equal(path_join(folder, set, "train/a"), OK);
    assert_int_equal(stat(folder, &before), 0);
    usleep(50000); /* so that the index is trusted */
    for (int i = 1; i < 4; i++) {
        Source *s = opened(SPLIT_TRAIN, 0);
        assert_int_equal(source_info(s)->count, i);
        source_close(s);
        usleep(50000);
        char name[32];
        snprintf(name, sizeof name, "train/a/%d.pgm", i + 1);
        file_make(name, i + 1);
        assert_int_equal(utimensat(AT_FDCWD, folder, (struct timespec[]){before.st_atim, before.st_mtim}, 0), 0);
    }
}

/* Writes the file anew, in place: neither its folder nor its inode changes. */
static void file_grow(const char *name)
{
    char path[PATH_BYTES];
    assert_int_equal(path_join(path, set, name), OK);
    FILE *to = fopen(path, "w");
    assert_non_null(to);
    fputs("P2 1 1 255 00100\n", to);
    assert_int_equal(fclose(to), 0);
}

enum { SETTLES_US = 100000 }; /* before, an index is not trusted, whatever it says */

/* Such a file is damaged for who has the old index, and the next start scans its folder again. */
TEST_WITH(test_changed_in_place, set_up, scratch_drop)
{
    Bytes bytes = {0};
    int32_t label;
    for (int several = 0; several < 2; several++) {
        folder_make("train/a");
        folder_make("val/a");
        if (several) scratch_put("set/train/labels.csv", "file,labels\na/1.pgm,x\n");
        if (several) scratch_put("set/val/labels.csv", "file,labels\na/1.pgm,x\n");
        file_make("train/a/1.pgm", 1);
        file_make("val/a/1.pgm", 1);
        usleep(SETTLES_US);
        Source *s = opened(SPLIT_TRAIN, 0);
        assert_int_equal(source_info(s)->multi_label, several);
        file_grow("train/a/1.pgm");
        assert_fails(source_read(s, 0, &bytes, &label), ERR_FORMAT, "train/a/1.pgm' has changed");
        source_close(s);
        s = opened(SPLIT_TRAIN, 0);
        assert_int_equal(source_read(s, 0, &bytes, &label), OK);
        source_close(s);
    }
    bytes_free(&bytes);
}

static void file_late(void *context, int64_t done, int64_t all)
{
    if (done < all) return;
    file_make(context, 9);
    usleep(SETTLES_US);
}

/* A file that comes when its folder has been scanned, but before the index is complete. */
TEST_WITH(test_changed_during_the_scan, set_up, scratch_drop)
{
    char late[] = "train/a/2.pgm";
    Source *s = NULL;
    folder_make("train/a");
    folder_make("val/a");
    file_make("train/a/1.pgm", 1);
    file_make("val/a/1.pgm", 1);
    usleep(SETTLES_US);
    assert_int_equal(source_open(&(SourceConfig){.path = set, .progress = file_late, .context = late}, SPLIT_TRAIN, &s),
                     OK);
    assert_int_equal(source_info(s)->count, 1);
    source_close(s);
    s = opened(SPLIT_TRAIN, 0);
    assert_int_equal(source_info(s)->count, 2);
    source_close(s);
}

/* A name is cut at the end of a character. */
TEST_WITH(test_long_name, set_up, scratch_drop)
{
    char name[101] = "";
    for (int i = 0; i < 50; i++) strcat(name, "\xc3\xa9");
    strcat(set, "/");
    strcat(set, name);
    folder_make("train/a");
    folder_make("val/a");
    file_make("train/a/1.pgm", 1);
    file_make("val/a/1.pgm", 1);
    Source *s = opened(SPLIT_TRAIN, 0);
    assert_int_equal(strlen(source_info(s)->name), 62);
    assert_true(utf8_valid(source_info(s)->name));
    source_close(s);
}

/* fault: F21 */
TEST_WITH(test_changed_under_a_run, set_up, scratch_drop)
{
    char path[PATH_BYTES];
    Bytes bytes = {0};
    int32_t label;
    folder_make("train/a");
    folder_make("val/a");
    file_make("train/a/1.pgm", 1);
    file_make("train/a/2.pgm", 2);
    file_make("val/a/1.pgm", 1);
    Source *s = opened(SPLIT_TRAIN, 0);
    file_make("train/a/1.pgm", 100); /* two bytes longer */
    assert_fails(source_read(s, 0, &bytes, &label), ERR_FORMAT, "has changed");
    assert_int_equal(path_join(path, set, "train/a/2.pgm"), OK);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(source_read(s, 1, &bytes, &label), ERR_FORMAT); /* as a file that holds no image */
    assert_non_null(strstr(status_message(), "train/a/2.pgm"));
    bytes_free(&bytes);
    source_close(s);
}

/* towers predict: the images below a folder, through links to folders and to files, which may lead nowhere. */
TEST_WITH(test_paths, set_up, scratch_drop)
{
    char path[PATH_BYTES], where[PATH_BYTES], *paths[] = {path};
    Source *s = NULL;
    Bytes bytes = {0};
    int32_t label;
    folder_make("real/below");
    folder_make("linked");
    file_make("real/below/1.pgm", 1);
    scratch_path(path, "set/linked/folder");
    assert_int_equal(symlink("../real", path), 0);
    scratch_path(path, "set/linked/2.pgm");
    assert_int_equal(symlink("nowhere", path), 0);
    scratch_path(path, "set/linked/pipe.jpg");
    assert_int_equal(mkfifo(path, 0600), 0);
    scratch_path(path, "link");
    assert_int_equal(symlink("set/linked", path), 0);
    if (paths_source_open(paths, 1, &s) != OK) fail_msg("%s", status_message());
    assert_int_equal(source_info(s)->count, 3); /* the link to nowhere and the pipe are damaged images, not left out */
    assert_fails(source_read(s, 2, &bytes, &label), ERR_FORMAT, "not a regular file");
    source_where(s, 1, where, sizeof where);
    assert_non_null(strstr(where, "link/folder/below/1.pgm"));
    source_close(s);
    scratch_path(where, "set/real/below/up");
    assert_int_equal(symlink("..", where), 0);
    assert_fails(paths_source_open(paths, 1, &s), ERR_FORMAT,
                 "below/up' is a symbolic link to a folder that contains it");
}

/* What is an image by its name, and a count of all other files, but for those of hidden folders. */
TEST_WITH(test_ignored, set_up, scratch_drop)
{
    static const char *const images[] = {"a.jpg", "b.JPEG", "c.jpe", "d.JFIF", "e.png", "f.webp", "g.ppm", "h.BMP"};
    static const char *const others[] = {"1.svg", "2.SVG", "3.cr3", "README", ".hidden", "x.y z", "4.a_very_long_one"};
    char name[64];
    folder_make("train/a/.ipynb_checkpoints");
    folder_make("train/.ipynb_checkpoints");
    folder_make("val/a");
    file_make("val/a/1.pgm", 1);
    file_make("train/beside.png", 1);
    file_make("train/.ipynb_checkpoints/1.pgm", 1);
    file_make("train/a/.ipynb_checkpoints/1.pgm", 1);
    for (size_t i = 0; i < sizeof images / sizeof *images; i++) {
        snprintf(name, sizeof name, "train/a/%s", images[i]);
        file_make(name, 1);
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        snprintf(name, sizeof name, "train/a/%s", others[i]);
        file_make(name, 1);
    }
    for (int again = 0; again < 2; again++) { /* of the folders, then of the index */
        Source *s = opened(SPLIT_TRAIN, 0), *val = opened(SPLIT_VAL, 0);
        const SourceInfo *info = source_info(s);
        assert_int_equal(info->count, 8);
        assert_int_equal(info->classes, 1);
        const Skipped *other = &info->inventory.skipped[SKIP_KIND], *beside = &info->inventory.skipped[SKIP_LOOSE];
        assert_int_equal(info->inventory.used, 8);
        assert_int_equal(other->count, 6);
        assert_non_null(strstr(other->kinds, "2 .svg"));
        assert_non_null(strstr(other->kinds, "1 .cr3"));
        assert_non_null(strstr(other->kinds, "3 other"));
        assert_int_equal(beside->count, 1);
        assert_string_equal(beside->kinds, "1 .png");
        assert_non_null(strstr(beside->first, "train/beside.png"));
        assert_int_equal(inventory_skipped(&source_info(val)->inventory), 0);
        source_close(s);
        source_close(val);
    }
    char *paths[] = {set};
    Source *all;
    assert_int_equal(paths_source_open(paths, 1, &all), OK);
    assert_int_equal(source_info(all)->count, 10); /* with the one beside, and that of val */
    const Skipped *other = &source_info(all)->inventory.skipped[SKIP_KIND];
    assert_int_equal(other->count, 6);
    assert_non_null(strstr(other->kinds, "2 .svg"));
    assert_non_null(strstr(other->first, "train/a/1.svg"));
    source_close(all);
}

/* There is room for a few endings; what is left is counted together. */
TEST_WITH(test_many_endings, set_up, scratch_drop)
{
    char name[64];
    folder_make("train/a");
    folder_make("val/a");
    file_make("val/a/1.pgm", 1);
    file_make("train/a/1.pgm", 1);
    for (int i = 0; i < 40; i++) {
        snprintf(name, sizeof name, "train/a/1.x%d", i);
        file_make(name, 1);
    }
    Source *s = opened(SPLIT_TRAIN, 0);
    assert_int_equal(source_info(s)->inventory.skipped[SKIP_KIND].count, 40);
    assert_non_null(strstr(source_info(s)->inventory.skipped[SKIP_KIND].kinds, ", 29 other"));
    source_close(s);
}

/* fault: F17 F18 */
/* A flat folder just below the root of the file system, which here is the scratch folder. */
TEST_WITH(test_below_the_root, set_up, scratch_drop)
{
    enum { NO_RIGHTS = 77 };
    int ending;
    file_make("1.pgm", 1);
    pid_t child = fork();
    if (child == 0) {
        char where[PATH_BYTES];
        Source *s;
        if (chroot(scratch) != 0 && (unshare(CLONE_NEWUSER) != 0 || chroot(scratch) != 0)) _exit(NO_RIGHTS);
        setenv("XDG_CACHE_HOME", "/cache", 1);
        if (source_open(&(SourceConfig){.path = "/set", .whole = true}, SPLIT_VAL, &s) != OK) {
            fprintf(stderr, "%s\n", status_message());
            _exit(1);
        }
        source_where(s, 0, where, sizeof where);
        _exit(strcmp(source_info(s)->class_names[0], "set") || !strstr(where, "/set/1.pgm"));
    }
    assert_int_equal(waitpid(child, &ending, 0), child);
    if (WIFEXITED(ending) && WEXITSTATUS(ending) == NO_RIGHTS) {
        skip("another root wants rights");
    }
    assert_int_equal(ending, 0);
}

/* All folders without images are named at once to who asks for problems, and the others are read. */
TEST_WITH(test_problems, set_up, scratch_drop)
{
    Names problems = {0};
    Source *s = NULL;
    folder_make("a");
    folder_make("b");
    folder_make("c");
    folder_make("d");
    file_make("a/0.pgm", 0);
    file_make("c/notes.txt", 0);
    file_make("d/1.pgm", 0);
    SourceConfig config = {.path = set, .whole = true, .problems = &problems};
    assert_int_equal(symlink("nowhere", scratch_named("set/d/2.pgm")), 0);
    assert_int_equal(source_open(&config, SPLIT_TRAIN, &s), OK);
    assert_int_equal(source_info(s)->count, 1);
    assert_int_equal(source_info(s)->classes, 4);
    assert_int_equal(problems.count, 3);
    assert_non_null(strstr(problems.name[0], "/b' has no image"));
    assert_non_null(strstr(problems.name[1], "/c' has no image (" IMAGE_ENDINGS "), only other files: 1 .txt"));
    assert_non_null(strstr(problems.name[2], "d/2.pgm': a broken symbolic link"));
    source_close(s);
    names_free(&problems);
    assert_int_equal(unlink(scratch_named("set/d/2.pgm")), 0);
    config.problems = NULL;
    assert_int_equal(source_open(&config, SPLIT_TRAIN, &s), ERR_FORMAT);
    assert_non_null(strstr(status_message(), "/b' has no image"));
    assert_non_null(strstr(status_message(), "(so it is with 1 other; towers data check DIR names all)"));
}

TEST_WITH(test_refused, set_up, scratch_drop)
{
    char path[PATH_BYTES], to[PATH_BYTES];
    folder_make("train/a");
    folder_make("train/b");
    folder_make("val/a");
    file_make("train/a/1.pgm", 1);
    file_make("val/a/1.pgm", 1);
    refused(SPLIT_TRAIN, 0, ERR_FORMAT, "class folder");
    file_make("train/b/1.svg", 1);
    refused(SPLIT_TRAIN, 0, ERR_FORMAT, "only other files: 1 .svg: convert them, as by");
    file_make("train/b/1.pgm", 1);
    refused(SPLIT_VAL, 0.5, ERR_ARG, "already has images for evaluation");
    folder_make("val/c");
    file_make("val/c/1.pgm", 1);
    refused(SPLIT_VAL, 0, ERR_FORMAT, "has a class 'c'");
    assert_int_equal(path_join(path, set, "train/b/circle"), OK);
    assert_int_equal(path_join(to, set, "train"), OK);
    assert_int_equal(symlink(to, path), 0);
    refused(SPLIT_TRAIN, 0, ERR_FORMAT, "a symbolic link to a folder that contains it");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(path_join(path, set, "train/b/2.jpg"), OK);
    assert_int_equal(symlink("nowhere", path), 0);
    refused(SPLIT_TRAIN, 0, ERR_FORMAT, "2.jpg': a broken symbolic link");
    assert_int_equal(unlink(path), 0);
    static const char *const nowhere[] = {"train/b/more", "train/c", "val/c.d"}; /* folders of a disk that is away */
    for (int i = 0; i < 3; i++) {
        assert_int_equal(path_join(to, set, nowhere[i]), OK);
        assert_int_equal(symlink("/nowhere", to), 0);
        refused(i < 2 ? SPLIT_TRAIN : SPLIT_VAL, 0, ERR_FORMAT, "': a broken symbolic link");
        assert_non_null(strstr(status_message(), nowhere[i]));
        assert_int_equal(unlink(to), 0);
    }
    assert_int_equal(path_join(to, set, "train/c"), OK);
    assert_int_equal(symlink("/nowhere", to), 0);
    refused(SPLIT_VAL, 0, ERR_FORMAT, "train/c': a broken symbolic link"); /* whose classes are those of the training */
    assert_int_equal(unlink(to), 0);
    assert_int_equal(symlink("2.jpg", path), 0);
    refused(SPLIT_TRAIN, 0, ERR_FORMAT, "2.jpg' is a circular symbolic link");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    refused(SPLIT_TRAIN, 0, ERR_FORMAT, "2.jpg' has an image extension but is not a regular file");
}

/* ---- the index as a file */

static void index_make(IndexParts *parts, char **strings)
{
    static uint64_t classes[2] = {0, 2};
    static Sample samples[3] = {{0, 4, 10, 0, 0, 0}, {0, 6, 20, 0, 1, 0}, {0, 8, 30, 0, 1, 0}};
    static char text[] = "a\0b\0x\0y\0z";
    *strings = text;
    *parts = (IndexParts){.classes = classes,
                          .classes_count = 2,
                          .samples = samples,
                          .samples_count = 3,
                          .strings = text,
                          .strings_bytes = sizeof text};
}

/* What was found within a tick of its last change may have changed again, in the same tick. */
TEST_WITH(test_tick_of_a_change, set_up, scratch_drop)
{
    const uint64_t key[2] = {3, 4};
    const int64_t since[] = {0, 10000000, 30000000}; /* nanoseconds from the change until it was found */
    struct stat info;
    IndexParts parts;
    char *strings;
    assert_int_equal(stat("/", &info), 0);
    for (int i = 0; i < 3; i++) {
        Index index = {0};
        bool found;
        static char text[] = "a\0b\0x\0y\0z\0/";
        Watched root = watched_of(&info);
        root.path = 10;
        root.seen_ns = root.change_ns + (root.change_ns % 1000000000 ? 1 : 100) * since[i];
        index_make(&parts, &strings);
        parts.strings = text;
        parts.strings_bytes = sizeof text;
        parts.watched = &root;
        parts.watched_count = 1;
        assert_int_equal(index_write(key, &parts, &index), OK);
        index_unmap(&index);
        assert_int_equal(index_find(key, &index, &found), OK);
        assert_int_equal(found, i == 2);
        index_unmap(&index);
    }
}

/* A relative one would be another folder in each working directory. */
TEST_WITH(test_cache_is_a_whole_path, set_up, scratch_drop)
{
    static const struct {
        const char *cache, *home, *found;
    } cases[] = {{"/c", "/h", "/c/towers/index"},
                 {"c", "/h", "/h/.cache/towers/index"},
                 {"", "/h", "/h/.cache/towers/index"},
                 {NULL, "/h", "/h/.cache/towers/index"},
                 {NULL, "h", NULL},
                 {"c", ".", NULL},
                 {NULL, "", NULL},
                 {NULL, NULL, NULL}};
    char kept[PATH_BYTES], folder[PATH_BYTES], name[INDEX_NAME_BYTES];
    snprintf(kept, sizeof kept, "%s", getenv("HOME") ? getenv("HOME") : "/");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cases[i].cache ? setenv("XDG_CACHE_HOME", cases[i].cache, 1) : unsetenv("XDG_CACHE_HOME");
        cases[i].home ? setenv("HOME", cases[i].home, 1) : unsetenv("HOME");
        bool found = index_cache_name((const uint64_t[2]){1, 2}, "index", folder, sizeof folder, name);
        assert_int_equal(found, cases[i].found != NULL);
        if (found) assert_string_equal(folder, cases[i].found);
    }
    setenv("HOME", kept, 1);
}

TEST_WITH(test_index_damage, set_up, scratch_drop)
{
    const uint64_t key[2] = {1, 2}, other[2] = {1, 3};
    IndexParts parts;
    char *strings;
    Index index = {0}, parsed;
    bool found;
    index_make(&parts, &strings);
    assert_int_equal(index_write(key, &parts, &index), OK);
    assert_int_equal(index.header->samples, 3);
    assert_string_equal(index_string(&index, index.samples[2].name), "z");
    assert_string_equal(index_string(&index, 1000), "");
    size_t size = index.map_bytes;
    unsigned char *copy = malloc(size);
    memcpy(copy, index.map, size);
    index_unmap(&index);
    assert_int_equal(index_find(key, &index, &found), OK);
    assert_true(found);
    index_unmap(&index);
    assert_int_equal(index_find(other, &index, &found), OK);
    assert_false(found);
    assert_int_equal(index_parse(copy, size, key, &parsed), OK);
    assert_int_equal(index_parse(copy, size, other, &parsed), ERR_FORMAT);
    for (size_t cut = 0; cut < size; cut += cut < 200 ? 1 : 7)
        assert_int_equal(index_parse(copy, cut, key, &parsed), ERR_FORMAT);
    for (size_t i = 0; i < size; i++) {
        size_t sum = offsetof(IndexHeader, fingerprint), end = offsetof(IndexHeader, sum);
        size_t ignored = offsetof(IndexHeader, skipped), strings_at = offsetof(IndexHeader, strings);
        copy[i] ^= 0x41;
        bool harmless = (i >= sum && i < end) || (i >= ignored && i < strings_at); /* numbers that lead nowhere */
        if (!harmless) assert_int_equal(index_parse(copy, size, key, &parsed), ERR_FORMAT);
        copy[i] ^= 0x41;
    }
    free(copy);
}

/* The names that other tools give the parts, in any case; a part for tests serves for nothing else. */
TEST_WITH(test_parts, set_up, scratch_drop)
{
    const char *const names[][3] = {
        {"train", "valid", "test"}, {"Training", "VAL", "Test"}, {"TRAIN", "validation", "test"}};
    char root[512], name[64];
    assert_true(snprintf(root, sizeof root, "%s", set) < (int)sizeof root);
    for (int i = 0; i < 3; i++) {
        snprintf(set, sizeof set, "%s/%d", root, i);
        for (int part = 0; part < 3; part++)
            for (int k = 0; k <= part; k++) {
                snprintf(name, sizeof name, "%s/a", names[i][part]);
                folder_make(name);
                snprintf(name, sizeof name, "%s/a/%d.pgm", names[i][part], k);
                file_make(name, k);
            }
        for (Split split = SPLIT_TRAIN; split < SPLITS; split++) {
            Source *source = opened(split, 0);
            assert_int_equal(source_info(source)->count, 1 + (int)split);
            source_close(source);
        }
        assert_int_equal(source_splits(set), SPLIT_BIT(SPLIT_TRAIN) | SPLIT_BIT(SPLIT_VAL) | SPLIT_BIT(SPLIT_TEST));
    }
    folder_make("val/a");
    file_make("val/a/0.pgm", 0);
    refused(SPLIT_VAL, 0, ERR_FORMAT, "are both names of the folder for val");
    snprintf(set, sizeof set, "%s/tests", root);
    folder_make("train/a");
    folder_make("test/a");
    file_make("train/a/0.pgm", 0);
    file_make("test/a/0.pgm", 0);
    refused(SPLIT_VAL, 0, ERR_ARG, "has images for tests, but none for the evaluation during training");
    snprintf(set, sizeof set, "%s/vehicles", root); /* classes, one of which has the name of a part */
    for (int i = 0; i < 3; i++) {
        const char *const vehicles[] = {"bus", "train", "tram"};
        folder_make(vehicles[i]);
        snprintf(name, sizeof name, "%s/0.pgm", vehicles[i]);
        file_make(name, i);
        snprintf(name, sizeof name, "%s/1.pgm", vehicles[i]);
        file_make(name, 3 + i);
    }
    Source *source = opened(SPLIT_TRAIN, 0.5);
    assert_int_equal(source_info(source)->classes, 3);
    assert_int_equal(source_info(source)->count, 3);
    source_close(source);
    assert_int_equal(source_splits(set), 0);
    snprintf(set, sizeof set, "%s", root);
}
