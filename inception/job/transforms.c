/* Transforms of images; see transforms.h. */
#include "inception/job/transforms.h"

int32_t job_usual_resize(int64_t side)
{
    return (int32_t)lrint((double)side * 342.0 / 299.0);
}

void job_transforms(const Options *o, TrainJob *job, bool photos)
{
    Transform *train = &job->data.train, *eval = &job->data.eval;
    int32_t side = job->program.options.side;
    *eval = (Transform){0};
    /* The evaluation's center crop, which training without --augment also uses. */
    eval->filter = o->interpolation == RESIZE_TF_MIXED ? RESIZE_TF_BILINEAR : o->interpolation;
    eval->exif = o->exif;
    if (o->eval_crop > 0) {
        eval->crop = CROP_FRACTION;
        eval->fraction = o->eval_crop;
    } else if (o->eval_resize > 0 || o->crop_pct > 0 || photos) {
        eval->crop = CROP_CENTER;
        eval->resize = o->eval_resize > 0 ? (int32_t)o->eval_resize
                       : o->crop_pct > 0  ? (int32_t)floor(side / o->crop_pct) /* timm, transforms_imagenet_eval */
                                          : job_usual_resize(side);
    }
    *train = *eval;
    train->filter = o->interpolation;
    if (o->augment) {
        bool random = o->crop == CROP_CHOICE_RANDOM || (o->crop == CROP_CHOICE_AUTO && photos);
        train->crop = o->crop == CROP_CHOICE_BOX ? CROP_BOX : random ? CROP_RANDOM : CROP_WHOLE;
        train->area[0] = o->crop_area;
        train->area[1] = 1;
        train->ratio[0] = 3.0 / 4;
        train->ratio[1] = train->crop == CROP_BOX ? 1.33 : 4.0 / 3;
        train->covered = o->crop_covered;
        train->shift = train->crop == CROP_WHOLE && o->crop != CROP_CHOICE_WHOLE;
        train->flip = o->flip;
    }
    train->distort = o->color_distort;
    train->brightness = train->contrast = train->saturation = o->color_jitter;
    train->hue = o->hue_jitter;
    train->policy = o->auto_augment;
    train->policy_ops = (int)o->ra_ops;
    train->policy_magnitude = (int)o->ra_magnitude;
    train->erase = o->random_erase;
    job->program.canvas = side + 2 * (train->shift ? (int32_t)o->crop_pad : 0);
}
