/* Which tensors of a file are a network's: those under the prefix under which all of its names are found.
 *
 * A checkpoint holds more than a network: averaged weights beside those of the last step, the state of an optimizer,
 * weights of a loss. And wrappers put their word before each name: "module." (DistributedDataParallel), "_orig_mod."
 * (torch.compile), the attribute of a LightningModule. Names are one list, whatever the format: the dicts of a pickle are part
 * of them ("state_dict.module.fc.weight", StTensor.dict). A prefix is "" or ends in a dot; tensors in a dict within
 * that of the prefix are outside of it.
 *
 * If several prefixes fit, their first parts that differ decide, in this order: state_dict_ema, model_ema, state_dict,
 * model, none (as timm's load_state_dict). Where other parts differ nothing is chosen: the caller has to give a key. */
#pragma once

#include "towers/store/safetensors.h"

typedef struct WeightPart {
    char prefix[ST_MAX_NAME + 1]; /* "state_dict_ema.module."; "": the names as they are */
    char rivals[256];             /* other prefixes that fit, or "" */
    char left[256];               /* the first names outside, or "" */
    int rival_count, left_count;  /* of all of them */
} WeightPart;

/* Takes away what is not under the prefix, and the prefix from the names. `names` are those that the network must
 * have; if no prefix has all of them, that which has most is taken, so that the caller can say what is missing. `key`
 * (NULL: any): parts that the prefix must have, such as "state_dict" or "state_dict.model". Errors: ERR_CHECKPOINT if no
 * prefix with the key fits, or several do and nothing says which. */
NODISCARD Status weight_part_take(SafeTensors *file, const char *path, const char *const *names, int count,
                                  const char *key, WeightPart *part);
/* A sentence about what was taken and left: "" if that is the whole file as it is. */
const char *weight_part_text(const WeightPart *part, const char *path, char *text, size_t bytes);
