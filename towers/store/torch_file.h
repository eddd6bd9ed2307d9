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
 * All tensors of the pickle are read, also those of an optimizer: the dicts and lists that a tensor lies in are part of its
 * name ("state_dict.module.fc.weight"). Which of them are a network's says weight_part.h. */
#pragma once

#include "towers/store/safetensors.h"

/* True if the bytes begin like a zip archive. */
bool zip_is(const void *bytes, size_t count);
/* The most bytes that are unpacked from an archive of `count` bytes. */
size_t torch_unpacked_most(size_t count);
/* True if the bytes begin like such an archive (or any other zip), or such a sequence. */
bool torch_file_is(const void *bytes, size_t count);

/* Copies the tensors of a file; `bytes` is borrowed until it returns, `name` is the file's in messages. The checksums of the
 * archive are compared, unless it was written without. Memory for its storages, and once more for tensors that are views, is at
 * most 16 times the file, or 64 MiB. Errors: ERR_CHECKPOINT, ERR_MEMORY. */
NODISCARD Status torch_file_parse(const void *bytes, size_t count, const char *name, SafeTensors **made);
