/* Checks saved weights for test scripts.
 *
 *   weights_driver finite FILE...        every number of every file is finite
 *   weights_driver nan FILE              some number is NaN
 *   weights_driver close START A B PART [STILL]  no weight differs between A and B by more than PART of the largest change of
 *                                        its tensor from START to A, and every tensor has changed except the one called
 *                                        STILL; START may be "-": then PART is of the largest value
 *   weights_driver near A B PART NAME... no element of these tensors differs by PART (of the largest, if that is above 1)
 *   weights_driver take FILE NAMES OUT [KEY]  OUT: the tensors of FILE that a network with these names (a line each) takes, as
 *                                        safetensors; prints what is said about it */

#include "towers/files/files.h"
#include "towers/store/weights.h"

static float value_at(const StTensor *t, size_t i)
{
    float f;
    memcpy(&f, (const char *)t->data + i * sizeof f, sizeof f);
    return f;
}

static size_t value_count(const StTensor *t)
{
    return t->dtype == ST_F32 ? t->bytes / sizeof(float) : 0;
}

static SafeTensors *opened(const char *path)
{
    SafeTensors *file;
    if (safetensors_open(path, &file) == OK) return file;
    fprintf(stderr, "%s\n", status_message());
    exit(4);
}

/* Name of the first tensor that holds a NaN (or, with `any`, anything not finite); NULL if none does. */
static const char *first_bad(const SafeTensors *file, int any)
{
    for (int k = 0; k < safetensors_count(file); k++) {
        const StTensor *t = safetensors_at(file, k);
        for (size_t i = 0; i < value_count(t); i++)
            if (any ? !isfinite(value_at(t, i)) : isnan(value_at(t, i))) return t->name;
    }
    return NULL;
}

static int is_finite(const char *path)
{
    SafeTensors *file = opened(path);
    const char *bad = first_bad(file, 1);
    if (bad) fprintf(stderr, "%s: %s is not finite\n", path, bad);
    safetensors_close(file);
    return bad ? 1 : 0;
}

static int has_nan(const char *path)
{
    SafeTensors *file = opened(path);
    const char *bad = first_bad(file, 0);
    if (!bad) fprintf(stderr, "%s: no NaN\n", path);
    safetensors_close(file);
    return bad ? 0 : 1;
}

/* The same tensor of another file, or the end. */
static const StTensor *partner(const SafeTensors *file, const StTensor *of)
{
    const StTensor *t = safetensors_find(file, of->name);
    if (t && t->bytes == of->bytes && t->dtype == of->dtype) return t;
    fprintf(stderr, "no tensor %s, or of another size\n", of->name);
    exit(1);
}

/* Largest |a - b|; b may be NULL for zeros. */
static double distance(const StTensor *a, const StTensor *b)
{
    double most = 0;
    for (size_t i = 0; i < value_count(a); i++) {
        double d = fabs((double)value_at(a, i) - (b ? (double)value_at(b, i) : 0));
        if (!(d <= most)) most = d; /* a NaN wins */
    }
    return most;
}

static int close_enough(const char *start_path, const char *a_path, const char *b_path, double part, const char *still)
{
    SafeTensors *start = strcmp(start_path, "-") ? opened(start_path) : NULL, *a = opened(a_path), *b = opened(b_path);
    int far = safetensors_count(a) != safetensors_count(b) || safetensors_count(a) == 0;
    double most = 0;
    for (int k = 0; k < safetensors_count(a); k++) {
        const StTensor *t = safetensors_at(a, k);
        double way = distance(t, start ? partner(start, t) : NULL), off = distance(t, partner(b, t));
        if (!(off <= part * way) || (start && value_count(t) && way == 0 && strcmp(t->name, still))) {
            fprintf(stderr, "%s: off by %g, of a way of %g\n", t->name, off, way);
            far = 1;
        }
        if (way > 0 && off / way > most) most = off / way;
    }
    printf("%.3g\n", most);
    safetensors_close(start);
    safetensors_close(a);
    safetensors_close(b);
    return far;
}

static int names_near(const char *a_path, const char *b_path, double part, char **names, int count)
{
    SafeTensors *a = opened(a_path), *b = opened(b_path);
    int far = 0;
    for (int k = 0; k < count; k++) {
        const StTensor *t = safetensors_find(a, names[k]);
        double size = t ? distance(t, NULL) : 0, off = t ? distance(t, partner(b, t)) : 0;
        printf("%s: off by %.3g of %.3g\n", names[k], off, size);
        far |= !t || !(off <= part * fmax(size, 1)) || size == 0;
    }
    safetensors_close(a);
    safetensors_close(b);
    return far;
}

static Status take(const char *path, const char *names_path, const char *to, const char *key)
{
    enum { NAMES = 4096 };
    Status st = OK;
    char *text = NULL, *rest = NULL, said[2048];
    const char *names[NAMES];
    size_t bytes;
    int count = 0;
    SafeTensors *file = NULL;
    WeightPart part;
    TRY(file_read(names_path, 1 << 20, &text, &bytes));
    for (char *name = strtok_r(text, "\n", &rest); name && count < NAMES; name = strtok_r(NULL, "\n", &rest))
        names[count++] = name;
    TRY_OUT(weights_open(path, &file));
    TRY_OUT(weight_part_take(file, path, names, count, key, &part));
    TRY_OUT(safetensors_write(to, safetensors_at(file, 0), safetensors_count(file), NULL, 0, NULL));
    puts(weight_part_text(&part, path, said, sizeof said));
out:
    safetensors_close(file);
    free(text);
    return st;
}

int main(int argc, char **argv)
{
    const char *verb = argc > 1 ? argv[1] : "";
    int wrong = 0;
    if (!strcmp(verb, "finite") && argc > 2) {
        for (int i = 2; i < argc; i++) wrong |= is_finite(argv[i]);
        return wrong;
    }
    if (!strcmp(verb, "nan") && argc == 3) return has_nan(argv[2]);
    if (!strcmp(verb, "close") && (argc == 6 || argc == 7))
        return close_enough(argv[2], argv[3], argv[4], strtod(argv[5], NULL), argc == 7 ? argv[6] : "");
    if (!strcmp(verb, "near") && argc > 5)
        return names_near(argv[2], argv[3], strtod(argv[4], NULL), argv + 5, argc - 5);
    if (!strcmp(verb, "take") && (argc == 5 || argc == 6)) {
        Status st = take(argv[2], argv[3], argv[4], argc == 6 ? argv[5] : NULL);
        if (st != OK) fprintf(stderr, "%s\n", status_message());
        return st;
    }
    fprintf(stderr,
            "usage: weights_driver finite FILE... | nan FILE | close START A B PART [STILL] | near A B PART NAME... "
            "| take FILE NAMES OUT [KEY]\n");
    return 2;
}
