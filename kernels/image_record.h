/* What the words of an image's record say (IMAGE_RECORD, op.h): where its crop begins, which pixels are erased or another
 * image's, and how much of that is mixed in. Also compiled as CUDA device code. `record` NULL: the crop of the center. */
#pragma once

#include "kernels/op.h"

#ifdef __CUDACC__
#define IMAGE_CALL __host__ __device__ static inline
#else
#define IMAGE_CALL static inline
#endif

typedef struct ImageCrop {
    int32_t y, x; /* its corner */
    bool flip;
} ImageCrop;

/* A rectangle of pixels of y, some of which may lie outside of it. */
typedef struct ImageRectangle {
    int32_t y, x, h, w;
} ImageRectangle;

IMAGE_CALL int32_t image_offset(int32_t at, int32_t room)
{
    return at < 0 ? 0 : at > room ? room : at;
}

/* `room_h`, `room_w`: by which the canvas is larger than the crop. */
IMAGE_CALL ImageCrop image_crop(const int32_t *record, int32_t room_h, int32_t room_w)
{
    ImageCrop crop = {room_h / 2, room_w / 2, false};
    if (record) {
        crop.y = image_offset(record[IMAGE_OY], room_h);
        crop.x = image_offset(record[IMAGE_OX], room_w);
        crop.flip = record[IMAGE_FLIP] != 0;
    }
    return crop;
}

IMAGE_CALL ImageRectangle image_erased(const int32_t *record)
{
    ImageRectangle none = {0, 0, 0, 0};
    if (!record) return none;
    ImageRectangle erased = {record[IMAGE_ERASE_Y], record[IMAGE_ERASE_X], record[IMAGE_ERASE_H],
                             record[IMAGE_ERASE_W]};
    return erased;
}

/* What is the partner's alone. */
IMAGE_CALL ImageRectangle image_cut(const int32_t *record)
{
    ImageRectangle cut = {record[IMAGE_CUT_Y], record[IMAGE_CUT_X], record[IMAGE_CUT_H], record[IMAGE_CUT_W]};
    return cut;
}

/* Whether `at` lies in `count` places from `first` on. */
IMAGE_CALL bool image_within(int32_t at, int32_t first, int32_t count)
{
    return at >= first && count > 0 && (uint32_t)at - (uint32_t)first < (uint32_t)count;
}

IMAGE_CALL bool rectangle_has(const ImageRectangle *r, int32_t y, int32_t x)
{
    return image_within(y, r->y, r->h) && image_within(x, r->x, r->w);
}

/* The number of the image that is mixed in, of `images`; -1: none. */
IMAGE_CALL int32_t image_partner(const int32_t *record, int32_t images)
{
    return record && record[IMAGE_PARTNER] > 0 && record[IMAGE_PARTNER] <= images ? record[IMAGE_PARTNER] - 1 : -1;
}

/* Of the partner, outside of the cut. */
IMAGE_CALL float image_share(const int32_t *record)
{
    return (float)record[IMAGE_SHARE] / IMAGE_SHARE_ONE;
}

IMAGE_CALL float image_mixed(float own, float other, float share)
{
    return (1 - share) * own + share * other;
}
