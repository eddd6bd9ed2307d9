/* HEIC and AVIF by libheif: the primary image, upright, as libheif and the phones that write HEIC mean it: the rotation is a part of
 * the image, and an EXIF orientation beside it is not to be applied again. Decoded as a whole. */
#include "towers/data/images/image_formats.h"

#include <libheif/heif.h>

typedef struct Heif {
    struct heif_context *context;
    struct heif_image_handle *handle;
} Heif;

/* A lack of memory has no cause beside it; sizes that are not permitted are called one, too. */
static Status heif_failure(struct heif_error error)
{
    bool limit = error.subcode == heif_suberror_Security_limit_exceeded;
    int text = (int)strcspn(error.message, "\n");
    if (error.code == heif_error_Memory_allocation_error && error.subcode == heif_suberror_Unspecified)
        return FAIL(ERR_MEMORY, "no memory to decode a HEIC or AVIF: %.*s", text, error.message);
    bool codec = error.code == heif_error_Unsupported_feature || error.code == heif_error_Unsupported_filetype ||
                 error.code == heif_error_Plugin_loading_error;
    return FAIL(ERR_FORMAT, "HEIC or AVIF: %.*s%s", text, error.message,
                limit   ? image_pixels_remedy()
                : codec ? ": libheif has no decoder for it here, which packages such as libheif-plugin-libde265 (HEIC) "
                          "and libheif-plugin-dav1d (AVIF) bring"
                        : ": the file is cut off or damaged");
}

static void heif_close(Heif *h)
{
    if (h->handle) heif_image_handle_release(h->handle);
    if (h->context) heif_context_free(h->context);
}

static Status heif_find(Heif *h, const uint8_t *data, size_t size)
{
    *h = (Heif){.context = heif_context_alloc()};
    if (!h->context) return FAIL(ERR_MEMORY, "no memory to decode a HEIC or AVIF");
    heif_context_set_max_decoding_threads(h->context, 0); /* tiles in this thread: images are decoded in parallel */
    heif_context_set_maximum_image_size_limit(h->context, (int)ceil(sqrt((double)image_pixels_max())));
    struct heif_error error = heif_context_read_from_memory_without_copy(h->context, data, size, NULL);
    if (error.code == heif_error_Ok) error = heif_context_get_primary_image_handle(h->context, &h->handle);
    return error.code == heif_error_Ok ? OK : heif_failure(error);
}

Status heif_probe(const uint8_t *data, size_t size, ImageInfo *info)
{
    Heif h;
    info->format = IMAGE_HEIF;
    Status st = heif_find(&h, data, size);
    if (st == OK) {
        info->h = heif_image_handle_get_height(h.handle);
        info->w = heif_image_handle_get_width(h.handle);
    }
    heif_close(&h);
    return st;
}

/* The decoded image may differ in size from what the header has announced. */
static Status plane_copy(const struct heif_image *image, const ImageInfo *info, Rect part, Pixels *pixels)
{
    int stride = 0, h = heif_image_get_height(image, heif_channel_interleaved),
        w = heif_image_get_width(image, heif_channel_interleaved);
    const uint8_t *plane = heif_image_get_plane_readonly(image, heif_channel_interleaved, &stride);
    if (!plane || h != info->h || w != info->w || stride < 3 * w)
        return FAIL(ERR_FORMAT, "HEIC or AVIF: expected %d x %d pixels, found %d x %d: the file is damaged", info->w,
                    info->h, w, h);
    TRY(pixels_shape(pixels, part.h, part.w, 3));
    for (int32_t y = 0; y < part.h; y++)
        memcpy(pixels->at + (size_t)y * pixels->pitch,
               plane + (size_t)(part.y + y) * (size_t)stride + 3 * (size_t)part.x, pixels->pitch);
    return OK;
}

Status heif_decode(ImageDecoder *decoder, const Bytes *bytes, const ImageInfo *info, Rect part, Pixels *pixels)
{
    Heif h;
    Status st = OK;
    struct heif_image *image = NULL;
    image_hold(decoder,
               (3 + 6) * (int64_t)info->h * info->w + 3 * (int64_t)part.h * part.w); /* 6: the library's planes */
    TRY_OUT(heif_find(&h, bytes->data, bytes->size));
    struct heif_error error =
        heif_decode_image(h.handle, &image, heif_colorspace_RGB, heif_chroma_interleaved_RGB, NULL);
    if (error.code != heif_error_Ok) TRY_OUT(heif_failure(error));
    TRY_OUT(plane_copy(image, info, part, pixels));
out:
    if (image) heif_image_release(image);
    heif_close(&h);
    return st;
}
