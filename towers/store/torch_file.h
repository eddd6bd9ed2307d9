/* Weights as PyTorch's torch.save writes them since version 1.6: a zip archive of a pickle (NAME/data.pkl) and the raw
 * storages of its tensors (NAME/data/0, NAME/data/1, ...). And as it wrote them before, since 0.1.10: a sequence of pickles,
 * of which the fourth is that one and the fifth lists the keys of the storages, which follow, each behind the number of its
 * elements in 8 bytes. torch/serialization.py, and Python's pickletools.py for the opcodes.
 *
 * A pickle is a program. This reader runs none of it: it knows the opcodes that containers, numbers and tensors need, and
 * the few functions by which tensors are rebuilt (torch/_utils.py). Classes that trainers put beside the weights, such as
 * argparse.Namespace, become values without contents. Everything else is refused by its name and its offset in the
 * pickle.
 *
 * The state dict may lie under "state_dict", "model" or "model_ema", as in checkpoints of timm, torchvision and Lightning.
 * "module.", "backbone.", "model." and "_orig_mod." are taken away if all names begin so. */
#pragma once

#include "towers/store/safetensors.h"

/* True if the bytes begin like such an archive (or any other zip), or such a sequence. */
bool torch_file_is(const void *bytes, size_t count);

/* Copies the tensors of a file; `bytes` is borrowed until it returns, `name` is the file's in messages. At most as much
 * memory is taken as the file has bytes, and once more for tensors that are views. Errors: ERR_CHECKPOINT, ERR_MEMORY. */
NODISCARD Status torch_file_parse(const void *bytes, size_t count, const char *name, SafeTensors **made);
