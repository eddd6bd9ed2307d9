/* The line of an epoch; see epoch.h. */
#include "towers/record/epoch.h"

#include "kernels/text.h"

#include <inttypes.h>
#include <math.h>

void epoch_text(const EpochRecord *epoch, char text[EPOCH_TEXT])
{
    Text t = text_start(text, EPOCH_TEXT);
    text_add(&t, "Epoch %" PRId64 ", Loss: %.5f", epoch->epoch, epoch->train_loss);
    if (!isnan(epoch->train_top1)) text_add(&t, ", Accuracy: %.3f", 100 * epoch->train_top1);
    if (!isnan(epoch->test_top1))
        text_add(&t, ", Test Loss: %.5f, Test Accuracy: %.2f", epoch->test_loss, 100 * epoch->test_top1);
    if (!isnan(epoch->kid)) text_add(&t, ", KID: %.5f", epoch->kid);
    text_add(&t, "  (%.1f s, %.0f img/s)", epoch->seconds, epoch->images_per_sec);
}
