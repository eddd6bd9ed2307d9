/* Classify images with libtowers:
 *     cc classify.c $(pkg-config --cflags --libs towers) -o classify && ./classify runs/NAME cat.jpg dog.jpg */
#if defined __has_include && !__has_include(<towers.h>)
#error "towers.h was not found: install libtowers (cmake --install build), and compile with the line above; if pkg-config does not find towers, PKG_CONFIG_PATH must name the folder of towers.pc"
#endif

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <towers.h>

/* The bytes of a file, owned by the caller; NULL, with errno, if it cannot be read. */
static void *file_read(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    char *bytes = NULL;
    if (!file) return NULL;
    for (*size = 0; !feof(file) && !ferror(file);) {
        char *grown = realloc(bytes, *size + 65536);
        if (!grown) break;
        bytes = grown;
        *size += fread(bytes + *size, 1, 65536, file);
    }
    if (!feof(file)) { /* errno is that of what failed */
        free(bytes);
        bytes = NULL;
    }
    int why = errno;
    fclose(file);
    errno = why;
    return bytes;
}

int main(int argc, char **argv)
{
    towers_error error;
    towers_network *network;
    if (argc < 3) return fprintf(stderr, "usage: classify RUN|FILE IMAGE...\n"), 2;
    if (towers_open(argv[1], NULL, &network, &error)) return fprintf(stderr, "%s\n", error.text), 1;
    int classes = towers_class_count(network), failed = 0;
    float *probability = malloc((size_t)classes * sizeof *probability);
    for (int i = 2; i < argc && probability; i++) {
        towers_image image = {0};
        void *bytes = file_read(argv[i], &image.size);
        image.bytes = bytes;
        if (!bytes) {
            fprintf(stderr, "%s: %s\n", argv[i], strerror(errno));
            failed = 1;
        } else if (towers_classify(network, &image, 1, probability, NULL, &error)) {
            fprintf(stderr, "%s: %s\n", argv[i], error.text);
            failed = 1;
        } else {
            int best = 0;
            for (int k = 1; k < classes; k++)
                if (probability[k] > probability[best]) best = k;
            printf("%s %.9g %s\n", argv[i], (double)probability[best], towers_class_name(network, best));
        }
        free(bytes);
    }
    free(probability);
    towers_close(network);
    return failed;
}
