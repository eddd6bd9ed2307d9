/* Two handles, each used by two threads at once, and damaged and impossible images between: every answer is that of one thread alone; the
 * caller's rounding and locale stay, and a fork opens the network anew. A network that is closed while 24 threads use it serves or refuses
 * their calls. Compiled by check_library.sh: library_threads RUN IMAGE... */
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <towers.h>
#include <unistd.h>

enum { IMAGES = 16, ROUNDS = 6, USERS = 24, USES = 100, TOO_LONG_S = 300 };
static towers_image images[IMAGES];
static int count, classes;
static float *expected;
static atomic_int uses;

static void fail(const char *what)
{
    printf("%s\n", what);
    exit(1);
}

static void *work(void *network)
{
    float *found = malloc((size_t)(count * classes) * sizeof *found);
    towers_error error;
    for (int round = 0; round < ROUNDS; round++) {
        towers_image bad = {.bytes = "not an image", .size = 12}, wide = {.bytes = "P5 60000 60000 255\n", .size = 19},
                     huge[] = {{.bytes = "x", .size = 1, .height = 70000, .width = 1, .channels = 1},
                               {.bytes = "x", .size = 70000, .height = 1, .width = 70000, .channels = 1}};
        if (towers_classify(network, images, count, found, NULL, &error)) fail(error.text);
        for (int i = 0; i < count * classes; i++)
            if (fabsf(found[i] - expected[i]) > 1e-6f) fail("another answer with several threads");
        if (towers_classify(network, &bad, 1, found, NULL, &error) != TOWERS_FORMAT || !isnan(found[0]))
            fail("a damaged image");
        if (!strstr(error.text, "image 0")) fail(error.text);
        if (towers_classify(network, &wide, 1, found, NULL, &error) != TOWERS_FORMAT) fail("3,600 million pixels");
        if (!strstr(error.text, "at most 178956970 pixels") || strstr(error.text, "--")) fail(error.text);
        for (int k = 0; k < 2; k++)
            if (towers_classify(network, &huge[k], 1, found, NULL, &error) != TOWERS_ARGUMENT ||
                !strstr(error.text, "expected sides from 1 to"))
                fail("an impossible image");
        if (towers_classify(network, images, 1, found, found, &error) != TOWERS_ARGUMENT)
            fail("embeddings that were not asked for");
        if (towers_classify(network, images, -1, found, NULL, NULL) != TOWERS_ARGUMENT) fail("a negative count");
        if (towers_classify(network, NULL, 0, NULL, NULL, &error) != TOWERS_OK || *error.text) fail("no images");
    }
    free(found);
    return NULL;
}

/* The team of threads that computed before the fork is not there after it: what the child opened answers, what it inherited says why not. */
static void child_run(const char *run, const towers_options *options, towers_network *inherited)
{
    float *found = malloc((size_t)(count * classes) * sizeof *found);
    towers_network *own;
    towers_error error;
    alarm(100);
    if (towers_classify(inherited, images, count, found, NULL, &error) != TOWERS_ARGUMENT)
        fail("a network of another process");
    if (!strstr(error.text, "before its fork; open it again")) fail(error.text);
    towers_close(inherited);
    if (towers_open(run, options, &own, &error) || towers_classify(own, images, count, found, NULL, &error))
        fail(error.text);
    for (int i = 0; i < count * classes; i++)
        if (fabsf(found[i] - expected[i]) > 1e-6f) fail("another answer after a fork");
    towers_close(own);
    _exit(0);
}

/* Until it is refused: what is answered before is right. */
static void *use(void *network)
{
    float *found = malloc((size_t)classes * sizeof *found);
    towers_error error;
    while (!towers_classify(network, images, 1, found, NULL, &error)) {
        for (int k = 0; k < classes; k++)
            if (fabsf(found[k] - expected[k]) > 1e-6f) fail("another answer while the network is closed");
        uses++;
    }
    if (error.status != TOWERS_ARGUMENT || !strstr(error.text, "the network is closed")) fail(error.text);
    free(found);
    return NULL;
}

static void close_while_used(const char *run, const towers_options *options)
{
    pthread_t user[USERS];
    towers_network *network;
    towers_error error;
    alarm(TOO_LONG_S);
    if (towers_open(run, options, &network, &error)) fail(error.text);
    for (int k = 0; k < USERS; k++) pthread_create(&user[k], NULL, use, network);
    while (uses < USES) usleep(1000);
    towers_close(network);
    for (int k = 0; k < USERS; k++) pthread_join(user[k], NULL);
    towers_close(network); /* once more: nothing is left to close */
    alarm(0);
}

int main(int argc, char **argv)
{
    volatile float tiny = 1e-40f;
    towers_network *network[2], *none = NULL;
    towers_error error;
    towers_options options = {.struct_size = sizeof options, .threads = 2, .batch = 5},
                   wrong = {.struct_size = sizeof wrong, .batch = 4000};
    pthread_t thread[4];
    if (!setlocale(LC_ALL, "") || *localeconv()->decimal_point != (getenv("LOCPATH") ? ',' : '.'))
        fail("another locale");
    for (int i = 2; i < argc && count < IMAGES; i++, count++) {
        FILE *file = fopen(argv[i], "rb");
        char *bytes = malloc(1 << 20);
        images[count] = (towers_image){.bytes = bytes, .size = fread(bytes, 1, 1 << 20, file)};
        fclose(file);
    }
    if (towers_open("/nothing/here", NULL, &none, &error) != TOWERS_ARGUMENT || none) fail("a run that is not there");
    if (towers_open(argv[1], &wrong, &none, &error) != TOWERS_ARGUMENT) fail("a batch of 4000");
    if (towers_open(argv[2], NULL, &none, &error) == TOWERS_OK || !*error.text) fail("an image as a network");
    if (towers_open(NULL, NULL, &none, NULL) != TOWERS_ARGUMENT) fail("no path");
    for (int k = 0; k < 2; k++)
        if (towers_open(argv[1], &options, &network[k], &error)) fail(error.text);
    classes = towers_class_count(network[0]);
    expected = malloc((size_t)(count * classes) * sizeof *expected);
    for (int i = 0; i < count; i++)
        if (towers_classify(network[0], &images[i], 1, expected + i * classes, NULL, &error)) fail(error.text);
    if (getenv("LOCPATH") && strtod("0,5", NULL) != 0.5) fail("the caller's locale is another");
    if (!(tiny * 1 > 0)) fail("the caller's small numbers are rounded to 0");
    fflush(stdout);
    pid_t child = fork();
    int status;
    if (!child) child_run(argv[1], &options, network[0]);
    if (waitpid(child, &status, 0) != child || status != 0) fail("the child ends badly");
    for (int k = 0; k < 4; k++) pthread_create(&thread[k], NULL, work, network[k % 2]);
    for (int k = 0; k < 4; k++) pthread_join(thread[k], NULL);
    for (int k = 0; k < 2; k++) towers_close(network[k]);
    towers_close(NULL);
    close_while_used(argv[1], &options);
    puts("ok");
    return 0;
}
